"""Bulk runs on DuckDB against the naive evaluator, on random programs, and its numbers against ours."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlglot import exp
from support import bulk, naive, programs
from support.examples import examples

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.values.numbers import number, number_text
from kbplanner.ir.values.numbers import test as compare
from kbplugins.bulk_sql.values import DUCKDB, number_columns, number_order, value_key


@examples(200)
@given(bulk.random_rules, st.lists(programs.facts(), max_size=14), programs.goals())
def test_a_bulk_run_has_the_answers_of_the_model(rules, facts, goal):
    compiled = bulk.rule_set(rules)
    try:
        model = naive.model(rules, facts, most=2000)
        answers = bulk.answers(compiled, facts, goal, max_rows=20_000)
    except (naive.TooLarge, BudgetExceeded):
        assume(False)
    assert answers == naive.answers(model, goal)


numeric_texts = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.integers(-5, 5).map(lambda shift: str((1 << 53) + shift)),
    st.floats(allow_nan=False, allow_infinity=False).map(number_text),
    st.sampled_from(
        [
            *("-0", "-0.0", "0", "0.0", "1_0", "+1", "1f", "01", "1e5", "1E+5", "1e999", "-1e999"),
            *(
                "1e-999",
                ".5",
                "5.",
                "inf",
                "nan",
                "0x1",
                "1.0",
                "1",
                "\u0661",
                " 1",
                "1 ",
                "1\n",
                "",
            ),
            *("9223372036854775807", "9223372036854775808"),
        ]
    ),
    st.text(alphabet="0123456789.eE+-_", max_size=8),
)


@pytest.fixture(scope="module")
def numbers():
    with duckdb.connect() as db:
        columns = [
            each.sql("duckdb") for each in number_columns(exp.column("text", table="v"), DUCKDB)
        ]
        values = f"(SELECT text, {', '.join(columns)} FROM (SELECT $1 AS text) AS v) AS a,"
        values += values.replace("$1", "$2").replace("AS a,", "AS b")
        orders = ", ".join(number_order(op, "a", "b").sql("duckdb") for op in COMPARISONS[4:])
        same = exp.EQ(this=value_key("a"), expression=value_key("b")).sql("duckdb")
        query = f"SELECT a.whole, a.real, {same}, {orders} FROM {values}"
        yield lambda left, right: db.execute(query, [left, right]).fetchone()


@examples(2000)
@given(left=numeric_texts, right=numeric_texts)
def test_numbers_in_sql_are_the_numbers_of_the_language(numbers, left, right):
    whole, real, same, *orders = numbers(left, right)
    value = number(left)
    assert whole == (value if isinstance(value, int) else None)
    assert real == (None if value is None else float(value))
    assert same == compare(0, left, right)
    assert orders == [compare(op, left, right) for op in range(4, 8)]
