"""A standing goal: the answers that each write changes, beside asking the goal again after each
write.

A forest of short chains is closed transitively. Edges are added and retracted one at a time. The
baseline asks for all answers again after each write, with its goal tables, and gets their number
only.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping

from measure import Effort, collector_off, stream_of
from table import Row

import kbcore
from kbcore.config import Config
from kbplanner.syntax.parser import parse_goal

RULES = "path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)."
CHAIN = 20
"""Nodes of a chain: a write changes a few hundred answers at most."""

WRITES = 200
GOAL = "path(?x, ?y)"


def standing(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """Time of writes with a standing goal, and of writes with the goal asked again after each."""
    chains = effort.pick(1000, 10)
    edges = [
        (f"n{chain}_{at}", f"n{chain}_{at + 1}") for chain in range(chains) for at in range(CHAIN)
    ]
    draw = random.Random(17)
    writes = [
        (draw.random() < 0.5, draw.choice(edges), draw.choice(edges))
        for _ in range(effort.pick(WRITES, 10))
    ]
    followed, counts = _run(edges, writes, follows=True)
    again, expected = _run(edges, writes, follows=False)
    if counts != expected:
        raise AssertionError("the standing goal differs from the goal asked again")
    for name, adds in (("tell", True), ("retract", False)):
        ours, baseline = (
            stream_of(
                [seconds for seconds, write in zip(times, writes, strict=True) if write[0] == adds]
            )
            for times in (followed, again)
        )
        row = Row(f"a standing goal, {name}", f"{len(edges):,} edges", counts[-1], ours)
        if ours.seconds and baseline.seconds:
            times = baseline.seconds / ours.seconds
            row.ratio = f"{times:.1f} × asking again"
            if not effort.small:
                row.floor, row.met = "≥ 1 × asking again", times >= 1
        yield row


def _run(
    edges: list[tuple[str, str]],
    writes: list[tuple[bool, tuple[str, str], tuple[str, str]]],
    *,
    follows: bool,
) -> tuple[list[float], list[int]]:
    """Return the CPU seconds of each write with its answers, and the number of answers after it."""
    times, counts = [], []
    config = Config(query_max_rows=1 << 30, query_max_answers=1 << 30, standing_goals_ms=60_000)
    with kbcore.open_kb(config=config) as kb:
        kb.tell_many("edge", edges)
        kb.teach(RULES)
        goal = kb.follow(GOAL) if follows else None
        tenant, partition = kb.kb._read_tenant(), kb.kb._partitions(kb.kb._read_tenant(), None)[0]
        reasoner, atom = kb._runtime.reasoner(tenant), parse_goal(GOAL).body[0].atom
        count = len(goal) if goal is not None else 0

        def ask() -> int:
            with kb.kb._budget() as budget:
                return reasoner.solve(partition, atom, budget)[1]

        ask()
        with collector_off():
            for adds, (start, _), (_, end) in writes:
                began = time.process_time()
                if adds:
                    kb.tell("edge", [start, end])
                else:
                    kb.retract("edge", [start, "?any"], count=False)
                if goal is None:
                    count = ask()
                else:
                    for change in goal.changes():
                        count += len(change.appeared) - len(change.disappeared)
                times.append(time.process_time() - began)
                counts.append(count)
        if goal is not None:
            goal.close()
    return times, counts
