"""Deletions between goals: a closure that is materialised, single edges that go for good, a bound
goal after each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import access
import graphs
from measure import Effort, Sample, Skipped, collector_off, stream_of
from table import Floor, Row
from writes import PATHS, Outcomes, both_of, goal_of

import kbcore
from kbcore.config import Config
from kbplanner.syntax.parser import parse_goal


@dataclass(frozen=True, slots=True)
class Deletions:
    """All of path(?x, ?y) is asked once; then, for each step, an edge goes and path(start, ?y) is
    asked.

    `start` None: all pairs are asked again, and counted.
    """

    edges: Sequence[graphs.Pair]
    rules: str
    steps: Sequence[tuple[graphs.Pair, str | None]]


Peer = Callable[[Deletions, Effort], Outcomes]


def ours(script: Deletions, effort: Effort, tables: bool) -> tuple[Outcomes, list[float]]:
    """Through the Python API, names handed out for bound goals; and seconds of the same goal just
    before the retraction.

    Without `tables` nothing is kept: each goal is evaluated again.
    """
    kept: dict[str, int] = {} if tables else {"goal_table_mb": 0}
    found: Outcomes = []
    without: list[float] = []
    kb = kbcore.open_kb(config=Config(query_max_rows=1 << 30, **kept))
    with kb:
        for first in range(0, len(script.edges), 5000):
            kb.tell_many("edge", script.edges[first : first + 5000])
        kb.teach(script.rules)
        tenant = kb.kb._read_tenant()
        reasoner, atom = kb._runtime.reasoner(tenant), parse_goal("path(?x, ?y)").body[0].atom
        partition = kb.kb._partitions(tenant, None)[0]

        def ask(start: str | None) -> int:
            if start is None:
                with kb.kb._budget() as budget:
                    return reasoner.solve(partition, atom, budget)[1]
            return len(list(kb.ask("path", [start, "?y"])))

        ask(None)
        started = time.monotonic()
        with collector_off():
            for edge, start in script.steps:
                if time.monotonic() - started > effort.stream:
                    break
                if start is not None:
                    ask(start)
                times = [time.process_time_ns()]
                ask(start)
                times.append(time.process_time_ns())
                kb.retract("edge", edge)
                times.append(time.process_time_ns())
                count = ask(start)
                times.append(time.process_time_ns())
                before, gone, asked = ((late - early) / 1e9 for early, late in pairwise(times))
                found.append((gone, asked, count))
                without.append(before)
    return found, without


def retracts(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Bound goals and all pairs, each with our recomputation and with what peers do."""
    n, m = effort.pick(475, 30), effort.pick(1425, 90)  # all pairs are some 200,000 rows
    edges = graphs.scattered(n, m, 40)
    rng = random.Random(41)
    gone = rng.sample(edges, effort.pick(100, 10))
    steps = [(edge, graphs.node(rng.randrange(n))) for edge in gone]
    bound = Deletions(edges, PATHS["right"], steps)
    whole = replace(bound, steps=[(edge, None) for edge in gone[: effort.pick(20, 3)]])
    for label, script in (("a bound goal", bound), ("all pairs", whole)):
        found, without = ours(script, effort, tables=True)
        fresh, _ = ours(script, effort, tables=False)
        counts = [count for _, _, count in found]
        floor = (Floor("sqlite"),) if script is bound else (Floor("swipl"),)
        both = Row(
            f"retracts, then {label}: both",
            f"{n:,}/{m:,}",
            sum(counts),
            both_of(found),
            floors=floor,
        )
        goal = Row(
            f"retracts, then {label}: the goal",
            f"{n:,}/{m:,}",
            sum(counts),
            goal_of(found),
            floors=floor,
        )
        for name, run in peers.items():
            if name not in ("sqlite", "swipl") and script is whole:
                continue
            try:
                outcomes = run(script, effort)
            except Skipped as why:
                both.peers[name] = goal.peers[name] = Sample(None, None, str(why))
                continue
            access.compared(both, name, counts, [], [count for _, _, count in outcomes])
            both.peers[name], goal.peers[name] = both_of(outcomes), goal_of(outcomes)
        yield both
        yield goal
        yield ratio_row(
            f"retracts, {label} after one", goal, goal_of(found), goal_of(fresh), stream_of(without)
        )


def ratio_row(label: str, like: Row, after: Sample, fresh: Sample, before: Sample) -> Row:
    """The goal after a retraction against the same goal without, and against one for which nothing
    is kept.
    """
    row = Row(label, like.size, like.answers, after)
    ratio = (after.seconds or 0) / (before.seconds or 1)
    row.ratio = f"{ratio:.3g} × without ({before}), evaluated again {fresh}"
    row.floor, row.met = "≤ 2 × without", ratio <= 2
    return row
