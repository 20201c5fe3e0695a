"""Context windows: the fast path over a million facts, goals with their premises, and how small a
diff is.

The fast path stands beside one pass over the cells that salience reads; a goal-driven window beside
what its goal takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from measure import Effort, collector_off, median_of, percentile, stream_of
from relevance import question_windows
from scopes import CELL, compared, passed
from table import Row

from kbcore import Config
from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.embed import EmbeddedKB
from kbcore.node.opening import open_runtime
from kbplanner.engine.backend import Attribute
from kbplanner.syntax.parser import parse_goal

START = 1_700_000_000_000
PREDICATES = 10
READ = (
    Attribute.CREATED_AT,
    Attribute.LAST_ACCESS,
    Attribute.ACCESSES,
    Attribute.PRIORITY,
    Attribute.CONFIDENCE,
)
LIMIT = 0.005
"""Seconds a goal-driven window may take beside twice its inference."""

RULES = """
grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
sibling(?x, ?y) :- parent(?p, ?x), parent(?p, ?y), ?x != ?y.
local(?x, ?c) :- works(?x, ?f), seat(?f, ?c), not banned(?x).
"""


def windows(effort: Effort, peers: object = None) -> Iterator[Row]:
    """A row for each kind."""
    yield from _fast(effort)
    yield from _driven(effort)
    yield from _diffs(effort)
    yield from question_windows(effort)


def _opened(clock: ManualClock | None = None) -> EmbeddedKB:
    return EmbeddedKB(open_runtime(Config(storage_backend="memory"), clock=clock), "default")


def _fast(effort: Effort) -> Iterator[Row]:
    clock = ManualClock(START)
    with _opened(clock) as kb:
        for count in (
            effort.pick(5_000, 500),
            effort.pick(100_000, 1000),
            effort.pick(1_000_000, 5000),
        ):
            known = kb.kb.predicates()["totalFacts"]
            for predicate in range(PREDICATES):
                rows = [
                    [f"a{n % 997}", f"b{n}"]
                    for n in range(known, count)
                    if n % PREDICATES == predicate
                ]
                kb.tell_many(f"p{predicate}", rows)

            def make() -> int:
                clock.advance(20_000)  # so that no window is the one before
                return len(kb.kb.context(WindowRequest()).entries)

            best = median_of(make, effort)
            plain = passed(_cells(kb), effort)
            row = compared(
                "window of 100, fast path", f"{count:,}", best, plain, 10, "memcmp of its cells"
            )
            if (
                count < 1_000_000
            ):  # of fewer facts the hundred that are made ready are most of the time
                row.floor, row.met = "", None
            yield row


def _cells(kb: EmbeddedKB) -> int:
    """Bytes of the columns that salience reads, as far as a cell of them was ever set."""
    stored = kb.kb._read_tenant().partition(None).relations()
    return sum(
        CELL * one.relation.counts().rows
        for one in stored
        for what in READ
        if one.relation.uses(what)
    )


def _driven(effort: Effort) -> Iterator[Row]:
    people = effort.pick(1000, 60)
    draw = random.Random(47)
    clock = ManualClock(START)
    with _opened(clock) as kb:
        kb.tell_many("parent", [[f"n{(n - 1) // 3}", f"n{n}"] for n in range(1, people)])
        kb.tell_many("works", [[f"n{n}", f"f{n % 40}"] for n in range(people)])
        kb.tell_many("seat", [[f"f{n}", f"c{n % 7}"] for n in range(40)])
        kb.tell_many("banned", [[f"n{n}"] for n in range(0, people, 50)])
        kb.tell_many("age", [[f"n{n}", str(n % 90)] for n in range(people)])
        kb.tell_many("likes", [[f"n{n}", f"t{n % 300}"] for n in range(people)])
        kb.tell_many("met", [[f"n{n}", f"n{draw.randrange(people)}"] for n in range(people)])
        kb.teach(RULES)
        size = f"{kb.kb.predicates()['totalFacts']:,}"
        some = [
            (50, text)
            for text in ("grandparent(n{}, ?who)", "sibling(n{}, ?who)", "local(n{}, ?city)")
        ]
        for most, text in (*some, (100, "grandparent(?a, ?b)"), (100, "local(?a, ?city)")):
            goals = [text.format(draw.randrange(people // 9)) for _ in range(effort.pick(300, 10))]
            made, inferred = _timed(kb, clock, goals, most)
            row = Row(f"window of {most} for {text.format('…')}", size, None, stream_of(made))
            row.ratio = f"inference {stream_of(inferred)}"
            limit = 2 * percentile(inferred, 0.5) + LIMIT
            row.floor = "p50 ≤ 2 × inference + 5 ms, p99 ≤ 15 ms"
            row.met = percentile(made, 0.5) <= limit and percentile(made, 0.99) <= 0.015
            yield row


def _timed(
    kb: EmbeddedKB, clock: ManualClock, goals: Sequence[str], facts: int
) -> tuple[list[float], list[float]]:
    made: list[float] = []
    inferred: list[float] = []
    with collector_off():
        for goal in goals:
            literal = parse_goal(goal).body[0]
            start = time.process_time()
            kb.kb.infer(literal)  # type: ignore[arg-type]
            inferred.append(time.process_time() - start)
            clock.advance(20_000)
            start = time.process_time()
            kb.kb.context(WindowRequest(max_facts=facts, goals=(literal,)))  # type: ignore[arg-type]
            made.append(time.process_time() - start)
    return made, inferred


def _diffs(effort: Effort) -> Iterator[Row]:
    count = effort.pick(500, 50)
    clock = ManualClock(START)
    with _opened(clock) as kb:
        kb.tell_many("fact", [[f"a{n}", f"b{n}"] for n in range(count)])
        request = WindowRequest(max_facts=2 * count, session="s")
        whole = kb.kb.context(request).chars
        for n in range(count // 50):  # 2 % of it
            kb.retract("fact", [f"a{n}", f"b{n}"])
            kb.tell("fact", [f"a{n}", f"c{n}"])
        clock.advance(20_000)
        found = kb.kb.context_diff("s", {})
        size = sum(entry.char_count for entry in found.added) + sum(
            len(entry.key) for entry in found.removed
        )
        row = Row("diff when 2 % of a window changed", f"{count:,}", None, f"{size:,} characters")
        row.ratio = f"the window: {whole:,}, {whole / size:.3g} × as many"
        row.floor, row.met = "≥ 10 × smaller", whole >= 10 * size
        yield row
