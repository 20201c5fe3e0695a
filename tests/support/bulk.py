"""Bulk runs for tests: programs as values, answers as sets of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import duckdb
from hypothesis import assume
from hypothesis import strategies as st

from kbcore.bulk.job import BulkRules, plan_job
from kbcore.bulk.run import RunOptions, run_job
from kbcore.plug.ports import BulkDatabase
from kbplanner.compile.rules import RuleSet
from kbplanner.errors import RecursiveAggregate
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_rule
from kbplugins.bulk_duckdb import DuckDBDatabase
from support import naive, programs


def read(path: Path | str) -> list[tuple]:
    """Return the rows of a Parquet file, or of a folder of them."""
    files = f"{path}/*.parquet" if Path(path).is_dir() else str(path)
    with duckdb.connect() as db:
        return db.execute("SELECT * FROM read_parquet(?)", [files]).fetchall()


def write(path: Path | str, query: str) -> None:
    """Write the rows of a query to a Parquet file."""
    with duckdb.connect() as db:
        db.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def answers(
    rules: RuleSet,
    facts: Iterable[Atom],
    goal: Atom,
    database: BulkDatabase | None = None,
    **options,
) -> set[tuple[str, ...]]:
    """Return the answers of a bulk run over these facts: all arguments of the goal."""
    rows: dict[RelationSchema, dict[tuple[str, ...], None]] = {}
    for fact in facts:
        schema = RelationSchema(fact.predicate, fact.arity, fact.positive)
        rows.setdefault(schema, {})[fact.args] = None
    read_rules = BulkRules("test", rules, {name: tuple(each) for name, each in rows.items()}, {})
    job = plan_job(read_rules, goal)
    with tempfile.TemporaryDirectory() as folder:
        result = run_job(
            job, database or DuckDBDatabase(), Path(folder) / "out", RunOptions(**options)
        )
        read_rows = read(result.path)
    assert len(read_rows) == result.answers
    if not goal.args:
        return {() for _ in read_rows}
    assert len(set(read_rows)) == len(read_rows)
    return set(read_rows)


RECURSIONS = [
    parse_rule(text)
    for text in (
        "p(?x, ?z) :- p(?x, ?y), p(?y, ?z).",
        "q(?x, ?z) :- q(?y, ?z), p(?x, ?y).",
        "p(?x, ?z) :- e(?x, ?y), q(?y, ?z).",
        "s(?x, ?u, ?z) :- s(?y, ?u, ?z), e(?x, ?y).",
    )
]

random_rules = st.builds(
    lambda recursions, plain, computing: [*recursions, *plain, *computing],
    st.lists(st.sampled_from(RECURSIONS), max_size=2, unique=True),
    st.lists(programs.rules(), min_size=1, max_size=3),
    st.lists(programs.computing_rules(), max_size=2),
)


def rule_set(rules) -> RuleSet:
    """Return rules that a bulk run can evaluate; other ones are no example of a property test."""
    assume(naive.stratified(rules))
    try:
        return RuleSet(rules)
    except RecursiveAggregate:
        assume(False)
