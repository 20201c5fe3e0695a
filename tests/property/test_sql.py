"""Conditions in SQL select the rows that the engine answers, in SQLite, DuckDB and PostgreSQL,
for random programs without recursion.
"""

from __future__ import annotations

import sqlite3

import duckdb
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples
from support.postgres import psycopg, schema

import kbcore
from kbcore.errors import InvalidInput
from kbplanner.ir.operators import COMPARISONS
from kbplanner.syntax.printer import print_constant

TEXTS = ["a", "b", "ab", "1", "2", "10", "1.0", "-2", "1e1", "01", "1e", "-", "", "é", "A", "o'x\\"]
BASE = {"d": 3, "m": 2, "n": 1}
TABLES = {
    "d": "docs=d(id, owner, size)",
    "m": "members=m(person, grp)",
    "n": "names=n(name)",
}
GOALS = {"r(a, ?v)": 1, "r(?v, _)": 0, "p(?v, ?v)": 0, "q(?v)": 0, "~q(?v)": 0, "r(_, ?v)": 1}
"""Goals with the argument that the variable is."""

VARIABLES = ["?x", "?y", "?z", "?w"]
SOME_TERMS = [*VARIABLES * 4, "_", "_", "a", "1"]

texts = st.sampled_from([*TEXTS, *["a", "b", "1"] * 8])
constants = texts.map(print_constant)


@st.composite
def bodies(draw, below):
    items, bound = [], []
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        name, arity = draw(st.sampled_from(below))
        args = [draw(st.sampled_from(SOME_TERMS)) for _ in range(arity)]
        items.append(f"{name}({', '.join(args)})")
        bound += [each for each in args if each in VARIABLES]
    assume(bound)
    terms = st.one_of(st.sampled_from(bound), constants)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        op = draw(st.sampled_from([*COMPARISONS, "contains", "starts_with", "ends_with"]))
        left, right = draw(st.sampled_from(bound)), draw(terms)
        sign = draw(st.sampled_from(["", "not "]))
        is_sign = op in COMPARISONS
        items.append(f"{left} {op} {right}" if is_sign else f"{sign}{op}({left}, {right})")
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        name, arity = draw(st.sampled_from(below))
        args = [draw(st.one_of(terms, st.just("_"))) for _ in range(arity)]
        items.append(f"not {name}({', '.join(args)})")
    return items, bound


@st.composite
def programs(draw):
    known = list(BASE.items())
    rules = []
    for name, arity in [("p", 2), ("q", 1), ("~q", 1), ("r", 2)]:
        for _ in range(2):
            below = [each for each in known if each[0] != name.strip("~")]
            items, bound = draw(bodies(below))
            head = [draw(st.sampled_from([*bound * 3, "a"])) for _ in range(arity)]
            rules.append(f"{name}({', '.join(head)}) :- {', '.join(items)}.")
        known.append((name, arity))
    return rules


rows = {
    name: st.lists(st.tuples(*[texts] * arity), min_size=5, max_size=10, unique=True)
    for name, arity in BASE.items()
}


def selected(connection, condition):
    query = f"SELECT DISTINCT id FROM docs WHERE {condition}"
    return {row[0] for row in connection.execute(query).fetchall()}


def filled(connection, contents, mark="?"):
    for name, table in TABLES.items():
        table_name, columns = table.split("=")[0], table.partition("(")[2].rstrip(")")
        fields = ", ".join(f"{each} TEXT" for each in columns.split(", "))
        connection.execute(f"DROP TABLE IF EXISTS {table_name}")
        connection.execute(f"CREATE TABLE {table_name} ({fields})")
        marks = ", ".join([mark] * BASE[name])
        for row in contents[name]:
            connection.execute(f"INSERT INTO {table_name} VALUES ({marks})", list(row))
    return connection


cases = st.tuples(
    programs(),
    st.fixed_dictionaries(rows),
    st.sets(st.sampled_from(["m", "n"])),
    st.sampled_from(list(GOALS)),
)


def expected_and_conditions(case, dialects):
    """Return the answers that are rows of the table, and the condition in each dialect."""
    program, contents, inlined, goal = case
    with kbcore.open_kb("memory:") as kb:
        for name, some in contents.items():
            for row in some:
                kb.tell(name, row)
        try:
            kb.tell("\n".join(program))
        except InvalidInput:  # a comparison that never holds
            assume(False)
        values = {row[GOALS[goal]] for row in kb.ask(goal)}
        text = "\n".join(program)  # a table whose facts nothing reads is refused
        read = ["d", *(name for name in ("m", "n") if f"{name}(" in text)]
        tables = [TABLES[name] for name in read if name not in inlined]
        conditions = [kb.sql(goal, tables, dialect=each) for each in dialects]
    return {row[0] for row in contents["d"]} & values, conditions


@examples(40)
@given(cases)
def test_a_condition_selects_the_answers(case):
    expected, (in_sqlite, in_duckdb) = expected_and_conditions(case, ["sqlite", "duckdb"])
    with sqlite3.connect(":memory:") as lite, duckdb.connect() as duck:
        assert selected(filled(lite, case[1]), in_sqlite) == expected
        assert selected(filled(duck, case[1]), in_duckdb) == expected


def test_a_condition_selects_the_answers_in_postgresql(postgres_server):
    with schema(postgres_server) as url, psycopg().connect(url, autocommit=True) as connection:

        @examples(20)
        @given(cases)
        def check(case):
            expected, (condition,) = expected_and_conditions(case, ["postgres"])
            assert selected(filled(connection, case[1], "%s"), condition) == expected

        check()
