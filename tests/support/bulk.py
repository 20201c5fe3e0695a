"""Bulk runs for tests: programs as values, answers as sets of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import duckdb

from kbcore.bulk.job import BulkRules, plan_job
from kbcore.bulk.run import run_job
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplugins.bulk_duckdb import DuckDBDatabase


def read(path: Path | str) -> list[tuple]:
    """Return the rows of a Parquet file."""
    with duckdb.connect() as db:
        return db.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()


def write(path: Path | str, query: str) -> None:
    """Write the rows of a query to a Parquet file."""
    with duckdb.connect() as db:
        db.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def answers(rules: RuleSet, facts: Iterable[Atom], goal: Atom, **options) -> set[tuple[str, ...]]:
    """Return the answers of a bulk run over these facts: all arguments of the goal."""
    rows: dict[RelationSchema, dict[tuple[str, ...], None]] = {}
    for fact in facts:
        schema = RelationSchema(fact.predicate, fact.arity, fact.positive)
        rows.setdefault(schema, {})[fact.args] = None
    read_rules = BulkRules("test", rules, {name: tuple(each) for name, each in rows.items()}, {})
    job = plan_job(read_rules, goal)
    with tempfile.TemporaryDirectory() as folder:
        result = run_job(job, DuckDBDatabase(), Path(folder) / "out", **options)
        read_rows = read(result.path)
    assert len(read_rows) == result.answers
    if not goal.args:
        return {() for _ in read_rows}
    assert len(set(read_rows)) == len(read_rows)
    return set(read_rows)
