"""SQLite in memory: goal-directed recursive queries written by hand, integers or names as keys, an
index each way.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Effort, Sample, collector_off, median_of, too_late

if TYPE_CHECKING:
    from access import Step
    from aggregates import Answers
    from graphs import Access
    from programs import Goal, Program, Rows
    from retracts import Deletions
    from writes import Outcomes, Retractions

Insert = Callable[[str, "Sequence[Sequence[Any]]"], object]
"""Puts rows into a table."""

Streamed = tuple["list[float]", "list[int]"]
"""CPU seconds and answers of each goal."""

VERSION = sqlite3.sqlite_version


@contextmanager
def stopped_after(seconds: float, stop: Callable[[], None]) -> Iterator[None]:
    """What runs inside is interrupted by `stop`, from another thread, when it takes longer."""
    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def fill(
    execute: Callable[[str], object], insert: Insert, relations: Mapping[str, Rows], tail: str
) -> None:
    """A table for each relation, over integers, with a key and, for pairs, an index the other
    way.
    """
    for name, rows in relations.items():
        columns = ("x", "y", "z")[: len(rows[0])]
        typed = ", ".join(f"{column} INTEGER" for column in columns)
        execute(f"CREATE TABLE {name} ({typed}, PRIMARY KEY ({', '.join(columns)})) {tail}")
        insert(name, [tuple(int(arg[1:]) for arg in row) for row in rows])
        if len(columns) == 2:
            execute(f"CREATE INDEX {name}_back ON {name} (y, x)")


def programs(program: Program, effort: Effort) -> list[Sample]:
    """Each goal's query, the nodes as integers."""
    db = sqlite3.connect(":memory:", check_same_thread=False)

    def insert(name: str, rows: Sequence[Sequence[int]]) -> None:
        db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    fill(db.execute, insert, program.relations, "WITHOUT ROWID")
    db.execute("ANALYZE")
    known: dict[tuple[str, int | None], Sample] = {}  # the forms of a recursion are one query here
    for goal in program.goals:
        if (goal.sql, goal.constant) not in known:

            def count(goal: Goal = goal) -> int:
                return int(
                    db.execute(
                        goal.sql, () if goal.constant is None else (goal.constant,)
                    ).fetchone()[0]
                )

            try:
                sample = median_of(
                    count, effort, partial(stopped_after, effort.limit, db.interrupt)
                )
            except sqlite3.OperationalError as error:
                sample = (
                    too_late(effort.limit)
                    if "interrupt" in str(error)
                    else Sample(None, None, str(error))
                )
            known[goal.sql, goal.constant] = sample
    db.close()
    return [known[goal.sql, goal.constant] for goal in program.goals]


def external(path: Path, query: str, effort: Effort) -> Sample:
    """A query over a file, all of its rows fetched."""
    db = sqlite3.connect(path)
    try:
        return median_of(lambda: len(db.execute(query).fetchall()), effort)
    finally:
        db.close()


REACHED = (
    "WITH RECURSIVE r(y) AS (SELECT y FROM edge WHERE x = ?1 UNION SELECT e.y FROM r JOIN edge e ON e.x = r.y)"
    " SELECT y FROM r"
)


def run_retractions(
    execute: Callable[[str, Sequence[str]], Any], script: Retractions, effort: Effort
) -> Outcomes:
    """An edge goes, the goal is asked, the edge comes back: seconds of the first, of the second,
    and how many answers.
    """
    found: Outcomes = []
    started = time.monotonic()
    with collector_off():
        for edge in script.gone:
            if time.monotonic() - started > effort.stream:
                break
            start = time.process_time_ns()
            execute("DELETE FROM edge WHERE x = ? AND y = ?", edge)
            between = time.process_time_ns()
            count = len([row[0] for row in execute(REACHED, [script.start]).fetchall()])
            end = time.process_time_ns()
            execute("INSERT INTO edge VALUES (?, ?)", edge)
            found.append(((between - start) / 1e9, (end - between) / 1e9, count))
    return found


ALL_PAIRS = (
    "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM edge UNION SELECT r.x, e.y FROM r JOIN edge e ON e.x = r.y)"
    " SELECT count(*) FROM r"
)


def run_deletions(
    execute: Callable[[str, Sequence[str]], Any], script: Deletions, effort: Effort
) -> Outcomes:
    """An edge goes for good, the goal is asked: seconds of the first, of the second, and how many
    answers.
    """
    found: Outcomes = []
    started = time.monotonic()
    with collector_off():
        for edge, start in script.steps:
            if time.monotonic() - started > effort.stream:
                break
            begin = time.process_time_ns()
            execute("DELETE FROM edge WHERE x = ? AND y = ?", edge)
            between = time.process_time_ns()
            if start is None:
                count = execute(ALL_PAIRS, []).fetchone()[0]
            else:
                count = len([row[0] for row in execute(REACHED, [start]).fetchall()])
            found.append(((between - begin) / 1e9, (time.process_time_ns() - between) / 1e9, count))
    return found


def retracts(script: Deletions, effort: Effort) -> Outcomes:
    """Names as keys; nothing is materialised."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE edge (x TEXT, y TEXT, PRIMARY KEY (x, y)) WITHOUT ROWID")
    db.executemany("INSERT INTO edge VALUES (?, ?)", script.edges)
    db.execute("ANALYZE")
    try:
        return run_deletions(db.execute, script, effort)
    finally:
        db.close()


def aggregates(rows: Sequence[tuple[str, str, str]], effort: Effort, native: bool) -> Answers:
    """A table of texts, or with native integers."""
    from aggregates import run_queries

    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(f"CREATE TABLE amount (o TEXT, c TEXT, v {'INTEGER' if native else 'TEXT'})")
    db.executemany("INSERT INTO amount VALUES (?, ?, ?)", rows)
    try:
        return run_queries(lambda query: db.execute(query).fetchone()[0], effort, native)
    finally:
        db.close()


def retractions(script: Retractions, effort: Effort) -> Outcomes:
    """Names as keys; every answer handed out by its name."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE edge (x TEXT, y TEXT, PRIMARY KEY (x, y)) WITHOUT ROWID")
    db.executemany("INSERT INTO edge VALUES (?, ?)", script.edges)
    db.execute("ANALYZE")
    try:
        return run_retractions(db.execute, script, effort)
    finally:
        db.close()


GROUPS = "WITH RECURSIVE g(id) AS (SELECT ?1 UNION SELECT m.b FROM g JOIN member m ON m.a = g.id)"
LIST = (
    GROUPS + ", f(id) AS (SELECT gr.b FROM g JOIN allowed gr ON gr.a = g.id"
    " UNION SELECT i.a FROM f JOIN inside i ON i.b = f.id)"
    " SELECT id FROM f WHERE NOT EXISTS (SELECT 1 FROM banned WHERE a = ?1 AND b = f.id)"
)
CHECK = (
    GROUPS + ", t(id) AS (SELECT ?2 UNION SELECT i.b FROM t JOIN inside i ON i.a = t.id)"
    " SELECT EXISTS (SELECT 1 FROM g, t, allowed gr WHERE gr.a = g.id AND gr.b = t.id)"
    " AND NOT EXISTS (SELECT 1 FROM banned WHERE a = ?1 AND b = ?2)"
)


def fill_access(execute: Callable[[str], object], insert: Insert, base: Access, tail: str) -> None:
    """The tables of the access-control base, with names as keys and an index each way."""
    for table, rows in (
        ("member", base.member),
        ("inside", base.inside),
        ("allowed", base.grants),
        ("banned", base.banned),
    ):
        execute(f"CREATE TABLE {table} (a TEXT, b TEXT, PRIMARY KEY (a, b)) {tail}")
        insert(table, rows)
        execute(f"CREATE INDEX {table}_back ON {table} (b, a)")


def run_script(
    execute: Callable[[str, Sequence[str]], Any], script: Iterable[Step], effort: Effort
) -> Streamed:
    """Goals and writes in order until the time is over. Only goals are timed."""
    times, counts = [], []
    started = time.monotonic()
    with collector_off():
        for step in script:
            if time.monotonic() - started > effort.stream:
                break
            if step.write:
                verb = "INSERT INTO" if step.write == "tell" else "DELETE FROM"
                tail = "VALUES (?, ?)" if step.write == "tell" else "WHERE a = ? AND b = ?"
                execute(f"{verb} {step.relation} {tail}", step.args)
                continue
            start = time.process_time_ns()
            if step.thing is None:
                count = len([row[0] for row in execute(LIST, step.args[:1]).fetchall()])
            else:
                count = int(execute(CHECK, step.args).fetchone()[0])
            times.append((time.process_time_ns() - start) / 1e9)
            counts.append(count)
    return times, counts


def access(base: Access, rules: str, script: Sequence[Step], effort: Effort) -> Streamed:
    """Lists and checks with names handed out; the module keeps the statements prepared."""
    db = sqlite3.connect(":memory:", isolation_level=None)

    def insert(name: str, rows: Sequence[Sequence[str]]) -> None:
        db.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)

    fill_access(db.execute, insert, base, "WITHOUT ROWID")
    db.execute("ANALYZE")
    try:
        return run_script(db.execute, script, effort)
    finally:
        db.close()


def load(rows: Sequence[tuple[str, str]]) -> Sample:
    """Pairs of names into a table with an index each way, one transaction."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE edge (x TEXT, y TEXT, PRIMARY KEY (x, y)) WITHOUT ROWID")
    db.execute("CREATE INDEX reverse ON edge (y, x)")
    with collector_off():
        start = time.process_time_ns()
        db.execute("BEGIN")
        for first in range(0, len(rows), 5000):
            db.executemany("INSERT INTO edge VALUES (?, ?)", rows[first : first + 5000])
        db.execute("COMMIT")
        seconds = (time.process_time_ns() - start) / 1e9
    count = db.execute("SELECT count(*) FROM edge").fetchone()[0]
    db.close()
    return Sample(seconds, count)
