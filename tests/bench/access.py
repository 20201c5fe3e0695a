"""Access control: groups in groups, folders in folders, grants, bans that win; lists, checks, and now and then a write."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import graphs
from measure import Effort, Row, Sample, Skipped, collector_off, percentile

import kbcore
from kbcore.config import Config

RULES = """
belongs(?who, ?group) :- member(?who, ?group).
belongs(?who, ?group) :- member(?who, ?inner), belongs(?inner, ?group).
under(?thing, ?folder) :- inside(?thing, ?folder).
under(?thing, ?folder) :- inside(?thing, ?inner), under(?inner, ?folder).
granted(?group, ?right, ?thing) :- grant(?group, ?right, ?thing).
granted(?group, ?right, ?thing) :- under(?thing, ?folder), grant(?group, ?right, ?folder).
may(?who, ?right, ?thing) :- belongs(?who, ?group), granted(?group, ?right, ?thing), not banned(?who, ?thing).
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A goal (`thing` None: the list of `who`), or a write: `tell` or `retract` of `relation`(`args`)."""

    args: tuple[str, ...]
    thing: str | None = None
    write: str = ""
    relation: str = ""


def goals(base: graphs.Access, count: int, checks: bool, rng: random.Random) -> list[Step]:
    """Lists, or checks, of random users."""
    made = []
    for _ in range(count):
        who = rng.choice(base.users)
        thing = rng.choice(base.things) if checks else None
        made.append(Step((who, thing) if thing else (who,), thing))
    return made


def with_writes(base: graphs.Access, asked: list[Step], share: float, rng: random.Random) -> list[Step]:
    """`share` of the steps become writes: by turns a fact of a random relation goes and comes back."""
    made: list[Step] = []
    gone: list[tuple[str, tuple[str, str]]] = []
    relations = {"member": base.member, "inside": base.inside, "allowed": base.grants, "banned": base.banned}
    every = round(1 / share)
    for number, step in enumerate(asked):
        if number % every == every // 2:
            if gone:
                relation, pair = gone.pop()
                made.append(Step(pair, None, "tell", relation))
            else:
                relation = rng.choice(list(relations))
                gone.append((relation, rng.choice(relations[relation])))
                made.append(Step(gone[-1][1], None, "retract", relation))
        made.append(step)
    return made


def script_for(base: graphs.Access, count: int, checks: bool, share: float) -> list[Step]:
    """The same goals with and without writes."""
    asked = goals(base, count, checks, random.Random(6))
    return with_writes(base, asked, share, random.Random(7)) if share else asked


def ours(base: graphs.Access, script: list[Step], seconds: float) -> tuple[list[float], list[int], dict[str, list[float]]]:
    """CPU seconds and answers of each goal through `kb.ask`; the seconds of writes and of the first goals after them."""
    times: list[float] = []
    counts: list[int] = []
    other: dict[str, list[float]] = {"tell": [], "retract": [], "first goal after a write": []}
    with kbcore.open_kb(config=Config()) as kb:
        for name, rows in (("member", base.member), ("inside", base.inside), ("banned", base.banned)):
            kb.tell_many(name, rows)
        kb.tell_many("grant", [(group, "read", thing) for group, thing in base.grants])
        kb.teach(RULES)
        for step in [s for s in script if not s.write][:20]:
            kb.ask("may", [step.args[0], "read", step.thing or "?x"])
        written = False
        started = time.monotonic()
        with collector_off():
            for step in script:
                if time.monotonic() - started > seconds:
                    break
                if step.write:
                    relation, args = step.relation, list(step.args)
                    if relation == "allowed":
                        relation, args = "grant", [args[0], "read", args[1]]
                    start = time.process_time_ns()
                    (kb.tell if step.write == "tell" else kb.retract)(relation, args)
                    other[step.write].append((time.process_time_ns() - start) / 1e9)
                    written = True
                    continue
                start = time.process_time_ns()
                found = list(kb.ask("may", [step.args[0], "read", step.thing or "?x"]))
                times.append((time.process_time_ns() - start) / 1e9)
                counts.append(len(found))
                if written:
                    other["first goal after a write"].append(times[-1])
                    written = False
    return times, counts, other


def access(effort: Effort, peers: dict[str, Callable]) -> Iterator[Row]:
    """p50 and p99 of lists and checks, without writes and with 1 % of them."""
    base = graphs.access(effort.pick(100_000, 1000), 8)
    size = f"{base.facts:,}"
    for kind, count in (("list", effort.pick(3000, 120)), ("check", effort.pick(20_000, 200))):
        for share, label in ((0.0, "no writes"), (0.01, "1 % writes")):
            script = script_for(base, count, kind == "check", share)
            times, counts, other = ours(base, script, effort.seconds)
            made = []
            for mark in (50, 99):
                sample = Sample(percentile(times, mark / 100))
                made.append(Row(f"access {kind}, {label}, p{mark}", size, sum(counts), sample))
            for what, found in other.items():
                if found:
                    made.append(Row(f"access {kind}, {what}, p50", size, None, Sample(percentile(found, 0.5))))
            if len(counts) < count:
                made[0].ratio = f"only {len(counts):,} of {count:,} goals in {effort.seconds:g} s"
            for name, run in peers.items():
                try:
                    peer_times, peer_counts = run(base, RULES, script, effort)
                except Skipped as why:
                    made[0].peers[name] = made[1].peers[name] = Sample(None, None, str(why))
                    continue
                both = min(len(counts), len(peer_counts))
                if peer_counts[:both] != counts[:both] or not both:
                    place = next((i for i, pair in enumerate(zip(counts, peer_counts)) if pair[0] != pair[1]), 0)  # noqa: B905
                    made[0].wrong = f"{made[0].workload}: {name} differs at goal {place} ({len(peer_counts)} goals)"
                for row, mark in zip(made[:2], (0.5, 0.99), strict=True):
                    row.peers[name] = Sample(percentile(peer_times, mark)) if peer_times else Sample(None, None, "nothing")
            yield from made
