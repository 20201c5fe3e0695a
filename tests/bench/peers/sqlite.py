"""SQLite in memory: goal-directed recursive queries written by hand, integers or names as keys, an index each way."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from measure import Effort, Sample, collector_off, median_of

VERSION = sqlite3.sqlite_version


def stopped_after(seconds: float, stop: Callable[[], None], call: Callable[[], int]) -> int:
    """Run `call`, which `stop` interrupts from another thread."""
    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        return call()
    finally:
        timer.cancel()


def closures(edges: Sequence[tuple[str, str]], rules: str, goals: Sequence[Any], effort: Effort) -> list[Sample]:
    """Each goal's query, the nodes as integers."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("CREATE TABLE edge (x INTEGER, y INTEGER, PRIMARY KEY (x, y)) WITHOUT ROWID")
    db.executemany("INSERT INTO edge VALUES (?, ?)", ((int(x[1:]), int(y[1:])) for x, y in edges))
    db.execute("CREATE INDEX reverse ON edge (y, x)")
    db.execute("ANALYZE")
    known: dict[tuple[str, int | None], Sample] = {}  # the forms of a recursion are one query here
    for goal in goals:
        if (goal.sql, goal.constant) not in known:

            def count(goal: Any = goal) -> int:
                return db.execute(goal.sql, () if goal.constant is None else (goal.constant,)).fetchone()[0]

            try:
                sample = median_of(lambda: stopped_after(effort.limit, db.interrupt, count), effort)
            except sqlite3.OperationalError as error:
                sample = Sample(None, None, f"> {effort.limit:g} s" if "interrupt" in str(error) else str(error))
            known[goal.sql, goal.constant] = sample
    db.close()
    return [known[goal.sql, goal.constant] for goal in goals]


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


def fill_access(execute: Callable[[str], object], insert: Callable[[str, list], object], base: Any, options: str) -> None:
    """The tables of the access-control base, with names as keys and an index each way."""
    for table, rows in (("member", base.member), ("inside", base.inside), ("allowed", base.grants), ("banned", base.banned)):
        execute(f"CREATE TABLE {table} (a TEXT, b TEXT, PRIMARY KEY (a, b)) {options}")
        insert(f"INSERT INTO {table} VALUES (?, ?)", rows)
        execute(f"CREATE INDEX {table}_back ON {table} (b, a)")


def run_script(ask: Callable[..., list], change: Callable[[str, tuple], object], script: list[Any], seconds: float) -> Any:
    """Goals and writes in order until the time is over: CPU seconds and answers of each goal."""
    times, counts = [], []
    started = time.monotonic()
    with collector_off():
        for step in script:
            if time.monotonic() - started > seconds:
                break
            if step.write:
                verb = "INSERT INTO" if step.write == "tell" else "DELETE FROM"
                tail = "VALUES (?, ?)" if step.write == "tell" else "WHERE a = ? AND b = ?"
                change(f"{verb} {step.relation} {tail}", step.args)
                continue
            start = time.process_time_ns()
            found = ask(LIST, step.args[:1]) if step.thing is None else ask(CHECK, step.args)
            count = len([row[0] for row in found]) if step.thing is None else int(found[0][0])
            times.append((time.process_time_ns() - start) / 1e9)
            counts.append(count)
    return times, counts


def access(base: Any, rules: str, script: Sequence[Any], effort: Effort) -> Any:
    """Lists and checks with names handed out."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    fill_access(db.execute, db.executemany, base, "WITHOUT ROWID")
    db.execute("ANALYZE")
    try:
        return run_script(lambda sql, args: db.execute(sql, args).fetchall(), db.execute, script, effort.seconds)
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
