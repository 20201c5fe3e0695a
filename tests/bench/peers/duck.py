"""DuckDB in memory, one thread: the same queries as SQLite."""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from measure import Effort, Sample, Skipped, collector_off, median_of, too_late

from peers.sqlite import (
    Streamed,
    fill_access,
    run_deletions,
    run_retractions,
    run_script,
    stopped_after,
)

if TYPE_CHECKING:
    from access import Step
    from aggregates import Answers
    from graphs import Access
    from programs import Goal, Program
    from retracts import Deletions
    from writes import Outcomes, Retractions

try:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    VERSION = duckdb.__version__
except ImportError:
    VERSION = ""


def open_database() -> Any:
    """A connection that works in one thread, or Skipped."""
    if not VERSION:
        raise Skipped("not installed")
    return duckdb.connect(":memory:", config={"threads": 1})


def insert_rows(
    db: Any, table: str, columns: dict[str, str], rows: Sequence[Sequence[Any]]
) -> None:
    """Through a CSV file: single inserts are not what it is made for."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        csv.writer(file).writerows(rows)
        file.flush()
        db.execute(
            f"INSERT INTO {table} SELECT * FROM read_csv('{file.name}', header = false, columns = {columns})"
        )


def programs(program: Program, effort: Effort) -> list[Sample]:
    """Each goal's query, the nodes as integers; no keys: they do not help its joins and slow its
    load.
    """
    db = open_database()
    for name, rows in program.relations.items():
        columns = dict.fromkeys(("x", "y", "z")[: len(rows[0])], "INTEGER")
        db.execute(f"CREATE TABLE {name} ({', '.join(f'{column} INTEGER' for column in columns)})")
        insert_rows(db, name, columns, [[arg[1:] for arg in row] for row in rows])
    known: dict[tuple[str, int | None], Sample] = {}
    for goal in program.goals:
        if (goal.sql, goal.constant) not in known:

            def count(goal: Goal = goal) -> int:
                return int(
                    db.execute(
                        goal.sql, [] if goal.constant is None else [goal.constant]
                    ).fetchone()[0]
                )

            try:
                sample = median_of(
                    count, effort, partial(stopped_after, effort.limit, db.interrupt)
                )
            except duckdb.InterruptException:
                sample = too_late(effort.limit)
            except duckdb.OutOfMemoryException:
                sample = Sample(None, None, "out of memory", beyond=float("inf"))
            known[goal.sql, goal.constant] = sample
    db.close()
    return [known[goal.sql, goal.constant] for goal in program.goals]


def retractions(script: Retractions, effort: Effort) -> Outcomes:
    """Names as values; a key would make its deletes slower."""
    db = open_database()
    db.execute("CREATE TABLE edge (x VARCHAR, y VARCHAR)")
    insert_rows(db, "edge", {"x": "VARCHAR", "y": "VARCHAR"}, script.edges)
    try:
        return run_retractions(lambda sql, args: db.execute(sql, list(args)), script, effort)
    finally:
        db.close()


def retracts(script: Deletions, effort: Effort) -> Outcomes:
    """Names as values; nothing is materialised."""
    db = open_database()
    db.execute("CREATE TABLE edge (x VARCHAR, y VARCHAR)")
    insert_rows(db, "edge", {"x": "VARCHAR", "y": "VARCHAR"}, script.edges)
    try:
        return run_deletions(lambda sql, args: db.execute(sql, list(args)), script, effort)
    finally:
        db.close()


def aggregates(rows: Sequence[tuple[str, str, str]], effort: Effort, native: bool) -> Answers:
    """A table of texts, or with native integers."""
    from aggregates import run_queries

    db = open_database()
    columns = {"o": "VARCHAR", "c": "VARCHAR", "v": "BIGINT" if native else "VARCHAR"}
    db.execute(
        f"CREATE TABLE amount ({', '.join(f'{name} {kind}' for name, kind in columns.items())})"
    )
    insert_rows(db, "amount", columns, rows)
    try:
        return run_queries(lambda query: db.execute(query).fetchone()[0], effort, native)
    finally:
        db.close()


def distances(edges: Sequence[Sequence[int]], effort: Effort) -> tuple[Sample, int]:
    """Distances from node 0, by a recursive query that keeps one row for each node."""
    from distances import SQL

    db = open_database()
    db.execute("CREATE TABLE edge (x INTEGER, y INTEGER, w INTEGER)")
    insert_rows(db, "edge", dict.fromkeys(("x", "y", "w"), "INTEGER"), edges)
    try:
        total = int(db.execute(SQL).fetchone()[1])
        return median_of(lambda: int(db.execute(SQL).fetchone()[0]), effort), total
    finally:
        db.close()


def equivalence(pairs: Sequence[Sequence[int]], effort: Effort) -> Sample:
    """The number of pairs, from labels of names."""
    from equivalence import SQL

    db = open_database()
    db.execute("CREATE TABLE alias (x INTEGER, y INTEGER)")
    insert_rows(db, "alias", dict.fromkeys(("x", "y"), "INTEGER"), pairs)
    try:
        return median_of(lambda: int(db.execute(SQL).fetchone()[0]), effort)
    finally:
        db.close()


def handed_out(edges: Sequence[Sequence[str]], effort: Effort) -> dict[str, Sample]:
    """The closure of a graph with its names, as tuples and as an Arrow table."""
    from answers import HANDED_OUT

    db = open_database()
    db.execute("CREATE TABLE edge (x VARCHAR, y VARCHAR)")
    insert_rows(db, "edge", {"x": "VARCHAR", "y": "VARCHAR"}, edges)
    try:
        tuples = median_of(lambda: len(db.execute(HANDED_OUT).fetchall()), effort)
        try:
            table = median_of(lambda: int(db.sql(HANDED_OUT).to_arrow_table().num_rows), effort)
        except ImportError:
            table = Sample(None, None, "needs pyarrow")
        return {"tuples": tuples, "Arrow": table}
    finally:
        db.close()


def access(base: Access, rules: str, script: Sequence[Step], effort: Effort) -> Streamed:
    """Lists and checks with names handed out, as many as there is time for."""
    db = open_database()

    def insert(name: str, rows: Sequence[Sequence[str]]) -> None:
        insert_rows(db, name, {"a": "VARCHAR", "b": "VARCHAR"}, rows)

    fill_access(db.execute, insert, base, "")
    try:
        return run_script(lambda sql, args: db.execute(sql, list(args)), script, effort)
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
        db.execute(
            f"INSERT INTO edge SELECT * FROM read_csv('{file.name}', header = false, columns = {columns})"
        )
        seconds = (time.process_time_ns() - start) / 1e9
    count = db.execute("SELECT count(*) FROM edge").fetchone()[0]
    db.close()
    return Sample(seconds, count)
