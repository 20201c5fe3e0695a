"""Writes between goals: an edge of a dense cyclic graph goes and a bound goal is asked; the first
goal after a write.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import access
import graphs
from measure import Effort, Sample, Skipped, collector_off, percentile, stream_of
from table import STREAM, Row

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB

PATHS = {
    "right": "path(?x, ?y) :- edge(?x, ?y). path(?x, ?y) :- edge(?x, ?z), path(?z, ?y).",
    "left": "path(?x, ?y) :- edge(?x, ?y). path(?x, ?y) :- path(?x, ?z), edge(?z, ?y).",
}

Outcomes = list[tuple[float, float, int]]
"""Of each round: CPU seconds of the retraction, of the goal, and the number of answers."""


@dataclass(frozen=True, slots=True)
class Retractions:
    """Each of `gone` is retracted, path(`start`, ?y) is asked, the edge is asserted again."""

    edges: Sequence[graphs.Pair]
    rules: str
    start: str
    gone: Sequence[graphs.Pair]


Peer = Callable[[Retractions, Effort], Outcomes]


def opened(edges: Sequence[graphs.Pair], rules: str) -> EmbeddedKB:
    """A knowledge base as anybody would open it."""
    kb = kbcore.open_kb(config=Config())
    for start in range(0, len(edges), 5000):
        kb.tell_many("edge", edges[start : start + 5000])
    kb.teach(rules)
    return kb


def our_retractions(script: Retractions, effort: Effort) -> Outcomes:
    """Through the Python API, which also finds out what fell with each edge; names handed out."""
    found: Outcomes = []
    with opened(script.edges, script.rules) as kb:
        kb.ask("path", [script.start, "?y"])
        started = time.monotonic()
        with collector_off():
            for edge in script.gone:
                if time.monotonic() - started > effort.stream:
                    break
                start = time.process_time_ns()
                kb.retract("edge", edge)
                between = time.process_time_ns()
                count = len(list(kb.ask("path", [script.start, "?y"])))
                end = time.process_time_ns()
                kb.tell("edge", edge)
                found.append(((between - start) / 1e9, (end - between) / 1e9, count))
    return found


def retract_then_goal(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """p50 / p99 of the two together, and of the goal alone."""
    n, m = effort.pick(500, 20), effort.pick(20_000, 100)
    edges = graphs.scattered(n, m, 2)
    gone = random.Random(30).choices(edges, k=effort.pick(500, 20))
    base = Retractions(edges, PATHS["left"], edges[0][0], gone)
    known: dict[str, Outcomes] = {}
    for form, rules in PATHS.items():
        script = replace(base, rules=rules)
        ours = our_retractions(script, effort)
        counts = [count for _, _, count in ours]
        label = f"dense cyclic, {form} bf"
        both = Row(
            f"retract, then goal, {label}",
            f"{n:,}/{m:,}",
            sum(counts),
            both_of(ours),
            floors=STREAM,
        )
        goal = Row(
            f"goal after a retract, {label}",
            f"{n:,}/{m:,}",
            sum(counts),
            goal_of(ours),
            floors=STREAM,
        )
        for name, run in peers.items():
            try:
                if name == "swipl" or name not in known:  # only rules have a form
                    known[name] = run(script, effort)
            except Skipped as why:
                both.peers[name] = goal.peers[name] = Sample(None, None, str(why))
                continue
            found = known[name]
            access.compared(both, name, counts, [], [count for _, _, count in found])
            both.peers[name], goal.peers[name] = both_of(found), goal_of(found)
        yield both
        yield goal


def both_of(found: Outcomes) -> Sample:
    """p50 / p99 of retraction and goal together."""
    return stream_of([gone + asked for gone, asked, _ in found])


def goal_of(found: Outcomes) -> Sample:
    """p50 / p99 of the goal alone."""
    return stream_of([asked for _, asked, _ in found])


@dataclass(frozen=True, slots=True)
class Write:
    """A pair of writes that leaves the facts as they were; only the first stands between two
    goals.
    """

    label: str
    there: Callable[[], object]
    back: Callable[[], object]


def first_goals(
    kb: EmbeddedKB,
    predicate: str,
    goals: Sequence[list[str]],
    write: Write,
    elsewhere: Write,
    effort: Effort,
) -> Row:
    """Each goal asked for the first time, again, again with a write just before, and with that
    write `elsewhere`.

    A write takes milliseconds, after which no goal finds the caches of the processor as it left
    them. So there is also the goal after as much work in another knowledge base; the floor is
    judged against the goal with no write at all.
    """
    new: list[float] = []
    warm: list[float] = []
    before: list[float] = []
    after: list[float] = []
    answers = 0
    started = time.monotonic()
    with collector_off():
        for goal in goals[:-1]:
            if time.monotonic() - started > effort.stream:
                break
            kb.ask(predicate, goals[-1])  # this one comes first after the write before
            new.append(seconds_of(kb, predicate, goal)[0])
            warm.append(seconds_of(kb, predicate, goal)[0])
            elsewhere.there()
            before.append(seconds_of(kb, predicate, goal)[0])
            elsewhere.back()
            seconds_of(kb, predicate, goal)
            write.there()
            seconds, count = seconds_of(kb, predicate, goal)
            after.append(seconds)
            answers += count
            write.back()
    ratio, elsewhere_ratio = (
        percentile(after, 0.5) / percentile(other, 0.5) for other in (warm, before)
    )
    row = Row(f"first goal after a {write.label}", "", answers, stream_of(after))
    row.ratio = f"{ratio:.3g} × without ({stream_of(warm)}), {elsewhere_ratio:.3g} × with the write elsewhere"
    row.ratio += f" ({stream_of(before)}), asked for the first time {stream_of(new)}"
    row.floor, row.met = "≤ 2 × without", ratio <= 2
    return row


def seconds_of(kb: EmbeddedKB, predicate: str, goal: list[str]) -> tuple[float, int]:
    """CPU seconds of one goal, names handed out, and its answers."""
    start = time.process_time_ns()
    count = len(list(kb.ask(predicate, goal)))
    return (time.process_time_ns() - start) / 1e9, count


def tell_and_retract(
    kb: EmbeddedKB, relation: str, new: Sequence[str], old: Sequence[str]
) -> list[Write]:
    """A new fact comes and goes; an old one goes and comes."""
    return [
        Write(
            f"tell of {relation}", lambda: kb.tell(relation, new), lambda: kb.retract(relation, new)
        ),
        Write(
            f"retract of {relation}",
            lambda: kb.retract(relation, old),
            lambda: kb.tell(relation, old),
        ),
    ]


def first_goal(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """For the access-control base and for a closure: each goal without and with a write before
    it.
    """
    base = graphs.access(effort.pick(100_000, 1000), 8)
    count = effort.pick(300, 10)
    with access.opened(base) as kb, access.opened(base) as other:
        made = [
            [
                *tell_and_retract(one, "member", ["u0", base.member[-1][1]], base.member[1]),
                *tell_and_retract(one, "banned", ["u0", base.banned[1][1]], base.banned[0]),
            ]
            for one in (kb, other)
        ]
        rng = random.Random(31)
        for kind in ("list", "check"):
            for write, elsewhere in zip(*made, strict=True):
                goals = [
                    access.goal_of(step) for step in access.goals(base, count, kind == "check", rng)
                ]
                row = first_goals(kb, "may", goals, write, elsewhere, effort)
                row.workload += f", access {kind}"
                row.size = f"{base.facts:,}"
                yield row
    n, m = effort.pick(100_000, 100), effort.pick(300_000, 300)
    edges = graphs.downhill(n, m, 32)
    rng = random.Random(33)
    for form, rules in PATHS.items():
        with opened(edges, rules) as kb, opened(edges, rules) as other:
            made = [
                tell_and_retract(one, "edge", [graphs.node(0), graphs.node(n)], edges[0])
                for one in (kb, other)
            ]
            for write, elsewhere in zip(*made, strict=True):
                goals = [[graphs.node(rng.randrange(n)), "?y"] for _ in range(count)]
                row = first_goals(kb, "path", goals, write, elsewhere, effort)
                row.workload += f", acyclic closure, {form} bf"
                row.size = f"{n:,}/{m:,}"
                yield row
