"""DuckDB in memory, one thread: the same queries as SQLite."""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from measure import Effort, Sample, Skipped, collector_off, median_of

from peers.sqlite import fill_access, run_script, stopped_after

try:
    import duckdb

    VERSION = duckdb.__version__
except ImportError:
    VERSION = ""


def open_database() -> Any:
    """A connection that works in one thread, or Skipped."""
    if not VERSION:
        raise Skipped("not installed")
    return duckdb.connect(":memory:", config={"threads": 1})


def insert_rows(db: Any, table: str, columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Through a CSV file: single inserts are not what it is made for."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        csv.writer(file).writerows(rows)
        file.flush()
        db.execute(f"INSERT INTO {table} SELECT * FROM read_csv('{file.name}', header = false, columns = {columns})")


def closures(edges: Sequence[tuple[str, str]], rules: str, goals: Sequence[Any], effort: Effort) -> list[Sample]:
    """Each goal's query, the nodes as integers."""
    db = open_database()
    db.execute("CREATE TABLE edge (x INTEGER, y INTEGER)")
    insert_rows(db, "edge", {"x": "INTEGER", "y": "INTEGER"}, [(x[1:], y[1:]) for x, y in edges])
    known: dict[tuple[str, int | None], Sample] = {}
    for goal in goals:
        if (goal.sql, goal.constant) not in known:

            def count(goal: Any = goal) -> int:
                return db.execute(goal.sql, [] if goal.constant is None else [goal.constant]).fetchone()[0]

            try:
                sample = median_of(lambda: stopped_after(effort.limit, db.interrupt, count), effort)
            except duckdb.InterruptException:
                sample = Sample(None, None, f"> {effort.limit:g} s")
            except duckdb.OutOfMemoryException:
                sample = Sample(None, None, "out of memory")
            known[goal.sql, goal.constant] = sample
    db.close()
    return [known[goal.sql, goal.constant] for goal in goals]


def access(base: Any, rules: str, script: Sequence[Any], effort: Effort) -> Any:
    """Lists and checks with names handed out, as many as there is time for."""
    db = open_database()

    def insert(sql: str, rows: Sequence[Any]) -> None:
        insert_rows(db, sql.split()[2], {"a": "VARCHAR", "b": "VARCHAR"}, rows)

    fill_access(db.execute, insert, base, "")
    try:
        return run_script(lambda sql, args: db.execute(sql, list(args)).fetchall(), db.execute, script, effort.seconds)
    finally:
        db.close()


def load(rows: Sequence[tuple[str, str]]) -> Sample:
    """Pairs of names from a CSV file into a table with a key."""
    db = open_database()
    db.execute("CREATE TABLE edge (x VARCHAR, y VARCHAR, PRIMARY KEY (x, y))")
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file, collector_off():
        csv.writer(file).writerows(rows)
        file.flush()
        start = time.process_time_ns()
        columns = "{x: 'VARCHAR', y: 'VARCHAR'}"
        db.execute(f"INSERT INTO edge SELECT * FROM read_csv('{file.name}', header = false, columns = {columns})")
        seconds = (time.process_time_ns() - start) / 1e9
    count = db.execute("SELECT count(*) FROM edge").fetchone()[0]
    db.close()
    return Sample(seconds, count)
