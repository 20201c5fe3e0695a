"""Access control: groups in groups, folders in folders, grants, bans that win; lists, checks, and
now and then a write.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import graphs
from measure import Effort, Sample, Skipped, collector_off, quieter, stream_of
from table import STREAM, Row

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB

RULES = """
belongs(?who, ?group) :- member(?who, ?group).
belongs(?who, ?group) :- member(?who, ?inner), belongs(?inner, ?group).
under(?thing, ?folder) :- inside(?thing, ?folder).
under(?thing, ?folder) :- inside(?thing, ?inner), under(?inner, ?folder).
granted(?group, ?right, ?thing) :- grant(?group, ?right, ?thing).
granted(?group, ?right, ?thing) :- under(?thing, ?folder), grant(?group, ?right, ?folder).
may(?who, ?right, ?thing) :- belongs(?who, ?group), granted(?group, ?right, ?thing), not banned(?who, ?thing).
"""

Peer = Callable[[graphs.Access, str, "Sequence[Step]", Effort], "tuple[list[float], list[int]]"]


@dataclass(frozen=True, slots=True)
class Step:
    """A goal (`thing` None: the list of `who`), or a write: `tell` or `retract` of
    `relation`(`args`).
    """

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


def with_writes(
    base: graphs.Access, asked: list[Step], share: float, rng: random.Random
) -> list[Step]:
    """`share` of the steps become writes: by turns a fact of a random relation goes and comes
    back.
    """
    made: list[Step] = []
    gone: list[tuple[str, tuple[str, str]]] = []
    relations = {
        "member": base.member,
        "inside": base.inside,
        "allowed": base.grants,
        "banned": base.banned,
    }
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


def opened(base: graphs.Access) -> EmbeddedKB:
    """A knowledge base of it, as anybody would open it."""
    kb = kbcore.open_kb(config=Config())
    for name, rows in (("member", base.member), ("inside", base.inside), ("banned", base.banned)):
        kb.tell_many(name, rows)
    kb.tell_many("grant", [(group, "read", thing) for group, thing in base.grants])
    kb.teach(RULES)
    return kb


def goal_of(step: Step) -> list[str]:
    """The arguments of the goal."""
    return [step.args[0], "read", step.thing or "?x"]


def write(kb: EmbeddedKB, step: Step, counts: bool) -> None:
    """Do what a step that writes says; with `counts` a retraction counts the conclusions that
    fall.
    """
    relation, args = step.relation, list(step.args)
    if relation == "allowed":
        relation, args = "grant", [args[0], "read", args[1]]
    if step.write == "tell":
        kb.tell(relation, args)
    else:
        kb.retract(relation, args, count=counts)


@dataclass(slots=True)
class Stream:
    """CPU seconds and answers of each goal, seconds of the writes by kind."""

    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    writes: dict[str, list[float]] = field(default_factory=lambda: {"tell": [], "retract": []})


def ours(
    base: graphs.Access, script: Sequence[Step], effort: Effort, counts: bool = True
) -> Stream:
    """The script through `kb.ask`, goal tables as they come, names handed out."""
    found = Stream()
    with opened(base) as kb:
        for step in [s for s in script if not s.write][:20]:
            kb.ask("may", goal_of(step))
        started = time.monotonic()
        with collector_off():
            for step in script:
                if time.monotonic() - started > effort.stream:
                    break
                start = time.process_time_ns()
                if step.write:
                    write(kb, step, counts)
                    found.writes[step.write].append((time.process_time_ns() - start) / 1e9)
                else:
                    count = len(list(kb.ask("may", goal_of(step))))
                    found.times.append((time.process_time_ns() - start) / 1e9)
                    found.counts.append(count)
    return found


def compared(row: Row, name: str, counts: list[int], times: list[float], other: list[int]) -> None:
    """Put a peer's stream into a row; goal by goal its answers must be ours, as far as both have
    come.
    """
    both = min(len(counts), len(other))
    if other[:both] != counts[:both] or not both:
        place = next(
            (i for i, pair in enumerate(zip(counts, other, strict=False)) if pair[0] != pair[1]), 0
        )
        row.wrong = f"{row.workload}: {name} differs at goal {place} ({len(other)} goals)"
    row.peers[name] = stream_of(times)


def again(
    row: Row, base: graphs.Access, script: Sequence[Step], effort: Effort, peers: Mapping[str, Peer]
) -> None:
    """Ours and that of the floor's peer once more, side by side: the quieter of two counts, for
    both.
    """
    assert isinstance(row.ours, Sample)
    row.ours = quieter(row.ours, stream_of(ours(base, script, effort).times))
    for floor in row.floors:
        if floor.peer in peers:
            times, _ = peers[floor.peer](base, RULES, script, effort)
            row.peers[floor.peer] = quieter(row.peers[floor.peer], stream_of(times))


def access(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """p50 / p99 of lists and checks, without writes and with 1 % of them; and of the writes."""
    base = graphs.access(effort.pick(100_000, 1000), 8)
    size = f"{base.facts:,}"
    for kind, count in (("list", effort.pick(3000, 120)), ("check", effort.pick(20_000, 200))):
        for share, label in ((0.0, "no writes"), (0.01, "1 % writes")):
            script = script_for(base, count, kind == "check", share)
            stream = ours(base, script, effort)
            row = Row(f"access {kind}, {label}", size, None, stream_of(stream.times), floors=STREAM)
            row.answers = sum(stream.counts)
            for name, run in peers.items():
                try:
                    times, counts = run(base, RULES, script, effort)
                except Skipped as why:
                    row.peers[name] = Sample(None, None, str(why))
                    continue
                compared(row, name, stream.counts, times, counts)
            again(row, base, script, effort, peers)
            row.compare()
            if len(stream.counts) < count:
                row.ratio += (
                    f" (first {len(stream.counts):,} of {count:,} goals in {effort.stream:g} s)"
                )
            yield row
            for what, found in stream.writes.items():
                if found:
                    yield Row(f"access {kind}, {label}: {what}", size, None, stream_of(found))
            if share:
                uncounted = ours(base, script, effort, counts=False).writes["retract"]
                what = f"access {kind}, {label}: retract, not counted"
                yield Row(what, size, None, stream_of(uncounted))
