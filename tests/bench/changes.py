"""A goal asked again after each of many single changes, and a standing goal, beside evaluation from
the start.

The list program is the one of text editors in Datalog (Kleppmann, "Data structures as queries",
2018): elements inserted after others, and removed, in order; the inserts are made here. Each change
retracts a fact, or puts it back. What is timed is the goal alone, counted, and for standing goals
the write with the changes read. The baseline has no goal tables.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from measure import Effort, Sample, collector_off, stream_of
from table import Row

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB

LIST = """
has_child(?p) :- insert(?e, ?p).
later_child(?p, ?b) :- insert(?a, ?p), insert(?b, ?p), ?a > ?b.
first_child(?p, ?c) :- insert(?c, ?p), not later_child(?p, ?c).
later_sibling(?a, ?b) :- insert(?a, ?p), insert(?b, ?p), ?a > ?b.
later_sibling_of_two(?a, ?c) :- insert(?a, ?p), insert(?b, ?p), insert(?c, ?p), ?a > ?b, ?b > ?c.
next_sibling(?a, ?b) :- later_sibling(?a, ?b), not later_sibling_of_two(?a, ?b).
has_next_sibling(?a) :- later_sibling(?a, ?b).
next_after(?a, ?b) :- next_sibling(?a, ?b).
next_after(?a, ?b) :- insert(?a, ?p), not has_next_sibling(?a), next_after(?p, ?b).
next_element(?p, ?n) :- first_child(?p, ?n).
next_element(?p, ?n) :- insert(?p, ?x), not has_child(?p), next_after(?p, ?n).
has_value(?e) :- insert(?e, ?p), not removed(?e).
skip_blank(?a, ?b) :- next_element(?a, ?b).
skip_blank(?a, ?c) :- next_element(?a, ?b), not has_value(?b), skip_blank(?b, ?c).
next_visible(?a, ?b) :- has_value(?a), skip_blank(?a, ?b), has_value(?b).
"""
CLOSURE = """
path(?x, ?y) :- edge(?x, ?y).
path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).
"""
FREE = CLOSURE + "free(?x, ?y) :- path(?x, ?y), not shut(?y)."
DISTANCES = """
dist(?x, min ?d) :- start(?x), ?d = 0.
dist(?y, min ?d) :- dist(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.
"""
SUMS = "total(?group, sum(?value)) :- amount(?group, ?order, ?value)."

Facts = Mapping[str, Sequence[tuple[str, ...]]]
Change = tuple[str, tuple[str, ...]]
"""A fact that is retracted and put back."""


@dataclass(frozen=True, slots=True)
class Program:
    """Rules over facts, a goal, and the facts that change."""

    name: str
    size: str
    rules: str
    goal: str
    facts: Facts
    changes: Sequence[Change]
    asked: float
    """Seconds that the goal after a change is asked to take at p50, 0: a share of the whole."""


WARM = 2
"""Changes before the clock: a table is kept from the second on."""

SHARE = 50
"""The goal after a change is asked to take one of this many of the evaluation of the list."""


def changes(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """Time of a goal after single changes."""
    for program in _programs(effort):
        whole, ours, answers = _asked_again(program)
        row = Row(f"changes: {program.name}", program.size, answers, ours, section="changes")
        row.ratio = (
            f"{whole / max(ours.seconds or 0, 1e-9):.1f} × evaluation ({whole * 1e3:.3g} ms)"
        )
        if not effort.small:
            limit = program.asked or whole / SHARE
            row.floor = f"p50 ≤ {limit * 1e3:.3g} ms"
            row.met = ours.seconds is not None and ours.seconds <= limit
        yield row
    yield _standing(effort)
    yield _untouched(effort)


def _programs(effort: Effort) -> Iterator[Program]:
    draw = random.Random(45)
    count = effort.pick(100, 5)
    elements = effort.pick(60_000, 200)
    inserts = [
        (str(at), str(at - 1 if draw.random() < 0.95 else draw.randrange(at)))
        for at in range(1, elements + 1)
    ]
    gone = [(at,) for at, _ in inserts if draw.random() < 0.4]
    some: list[Change] = [
        ("insert", draw.choice(inserts)) if each % 2 else ("removed", draw.choice(gone))
        for each in range(count)
    ]
    facts: Facts = {"insert": inserts, "removed": gone}
    size = f"{elements:,} inserts"
    yield Program("a list", size, LIST, "next_visible(?a, ?b)", facts, some, 0)

    nodes = effort.pick(475, 20)
    edges = [(f"n{draw.randrange(nodes)}", f"n{draw.randrange(nodes)}") for _ in range(3 * nodes)]
    facts = {"edge": edges, "shut": [("n1",), ("n7",)]}
    some = [("edge", draw.choice(edges)) for _ in range(count)]
    size = f"{nodes}/{3 * nodes:,}"
    yield Program("a cyclic closure", size, CLOSURE, "path(?x, ?y)", facts, some, 0.001)
    yield Program("a closure below not", size, FREE, "free(?x, ?y)", facts, some, 0.001)

    places = effort.pick(10_000, 30)
    roads = [
        (str(draw.randrange(places)), str(draw.randrange(places)), str(draw.randrange(1, 100)))
        for _ in range(6 * places)
    ]
    facts = {"edge": roads, "start": [("0",)]}
    some = [("edge", draw.choice(roads)) for _ in range(count)]
    size = f"{6 * places:,} edges"
    yield Program("distances", size, DISTANCES, "dist(?x, ?d)", facts, some, 0.001)

    orders = effort.pick(1_000_000, 500)
    amounts = [(f"g{at % 1000}", f"o{at}", str(at % 97)) for at in range(orders)]
    some = [("amount", draw.choice(amounts)) for _ in range(count)]
    facts = {"amount": amounts}
    size = f"{orders:,} facts"
    yield Program("sums of groups", size, SUMS, "total(?g, ?v)", facts, some, 0.000_05)


def _opened(program: Program, **more: int) -> EmbeddedKB:
    config = Config(
        query_max_rows=1 << 30, query_max_answers=1 << 30, standing_goals_ms=60_000, **more
    )
    kb = kbcore.open_kb(config=config)
    for predicate, rows in program.facts.items():
        kb.tell_many(predicate, rows)
    kb.teach(program.rules)
    return kb


def _asked_again(program: Program) -> tuple[float, Sample, int]:
    """Return the seconds of an evaluation, and those of the goal after each change."""
    with _opened(program, goal_table_mb=0) as kb:
        kb.ask(program.goal).count()
        whole = min(_timed(kb, program.goal)[0] for _ in range(3))
        expected = kb.ask(program.goal).count()
    times: list[float] = []
    with _opened(program, goal_table_mb=1024) as kb, collector_off():
        kb.ask(program.goal).count()
        for number, (predicate, args) in enumerate(program.changes):
            for write in (_retract, _tell):
                write(kb, predicate, args)
                seconds, answers = _timed(kb, program.goal)
                if number >= WARM:
                    times.append(seconds)
    if answers != expected:
        raise AssertionError(f"{program.name}: {answers} answers, {expected} from the start")
    return whole, stream_of(times), answers


def _timed(kb: EmbeddedKB, goal: str) -> tuple[float, int]:
    began = time.process_time()
    count = kb.ask(goal).count()
    return time.process_time() - began, count


def _retract(kb: EmbeddedKB, predicate: str, args: tuple[str, ...]) -> None:
    kb.retract(predicate, list(args), count=False)


def _tell(kb: EmbeddedKB, predicate: str, args: tuple[str, ...]) -> None:
    kb.tell(predicate, list(args))


def _standing(effort: Effort) -> Row:
    """Writes with a standing goal on the list, and its changes read."""
    program = next(_programs(effort))
    times: list[float] = []
    with _opened(program) as kb:
        began = time.process_time()
        goal = kb.follow(program.goal)
        whole = time.process_time() - began
        with collector_off():
            for predicate, args in program.changes:
                for write in (_retract, _tell):
                    began = time.process_time()
                    write(kb, predicate, args)
                    for change in goal.changes():
                        len(change.appeared)
                    times.append(time.process_time() - began)
        answers = len(goal)
        goal.close()
    ours = stream_of(times[2 * WARM :])
    row = Row(
        "changes: a standing goal on the list", program.size, answers, ours, section="changes"
    )
    row.ratio = f"{whole / (ours.seconds or 1):.1f} × its first evaluation ({whole * 1e3:.3g} ms)"
    return row


def _untouched(effort: Effort) -> Row:
    """Writes of a predicate that none of many standing goals reads, in turns with and without
    them.
    """
    goals, writes = effort.pick(100, 5), effort.pick(2000, 20)
    chains = [(f"n{at}", f"n{at + 1}") for at in range(200) if at % 20]
    program = Program("", "", CLOSURE, "", {"edge": chains}, (), 0)
    times: dict[bool, list[float]] = {False: [], True: []}
    with _opened(program) as one, _opened(program) as other, collector_off():
        standing_goals = [other.follow(f"path(n{at}, ?y)") for at in range(goals)]
        for number in range(writes):
            for kb in (one, other):
                began = time.process_time()
                kb.tell("elsewhere", [f"x{number}"])
                times[kb is other].append(time.process_time() - began)
        for goal in standing_goals:
            goal.close()
    ours, baseline = stream_of(times[True]), stream_of(times[False])
    row = Row(
        "changes: a write that no goal reads", f"{goals} goals", None, ours, section="changes"
    )
    if ours.seconds and baseline.seconds:
        times_more = ours.seconds / baseline.seconds
        row.ratio = f"{times_more:.2f} × without goals"
        if not effort.small:
            row.floor, row.met = "≤ 1.2 × without goals", times_more <= 1.2
    return row
