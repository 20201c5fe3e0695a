"""Where the time of a point goal goes: `kb.ask` taken apart into its stages, as they are called.

Each stage is a function of the code, wrapped for the time of the measurement. A stage is charged with its own time only, not
with that of a stage it calls, and not with what the wrapping costs, which is measured first. What no stage has is `other`:
the time of the same goals without any wrapping, less that of the stages.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import access
import graphs
from measure import Effort, Sample, collector_off
from table import Row

import kbcore.embed
import kbcore.reason.ask
from kbcore.embed import EmbeddedKB
from kbcore.kb import KnowledgeBase
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.tables import GoalTables
from kbcore.runtime import Runtime
from kbcore.state.locks import ReadWriteLock
from kbplanner.engine import Engine, Run
from kbplanner.evaluate import GoalRun, PlanCache
from kbplanner.relation import Relation

STAGES: dict[str, list[tuple[object, str]]] = {
    "goal from JSON to terms": [(kbcore.embed, "goal_from_json")],
    "tenant brought to now, budget": [(Runtime, "read_tenant"), (Runtime, "reasoner"), (KnowledgeBase, "_budget")],
    "read lock taken and given back": [(ReadWriteLock, "read")],
    "symbols of the constants": [(kbcore.reason.ask, "goal_pattern")],
    "plan looked up": [(PlanCache, "get"), (Reasoner, "_denied")],
    "on the way to the run": [(Reasoner, "solve"), (GoalTables, "ask"), (GoalRun, "ask")],
    "goal table taken out": [(GoalTables, "_take")],
    "goal table put back": [(GoalTables, "_keep"), (Run, "stats")],
    "run checked against its relations": [(Run, "check")],
    "seed": [(Run, "seed")],
    "step": [(Budget, "drive"), (Run, "limit"), (Run, "step")],
    "match": [(Run, "relation"), (Relation, "match")],
    "sort": [(Engine, "sort")],
    "texts": [(Engine, "texts")],
    "rows of names": [(KnowledgeBase, "_tuples")],
}
"""The functions of each stage, in the order in which a goal comes to them."""


@dataclass(slots=True)
class Clock:
    """Own nanoseconds of each stage, its calls, and how many wrapped calls it made itself, plain ones and managers.

    `open` holds the same of each call under way: what its callees have taken, and how many of both kinds they were.
    """

    spent: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    managed: dict[str, int] = field(default_factory=dict)
    open: list[list[int]] = field(default_factory=list)

    def wrapped(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, charged to the stage."""
        now = time.perf_counter_ns
        spent, calls, made, managed, under_way = self.spent, self.calls, self.made, self.managed, self.open
        for counter in (spent, calls, made, managed):
            counter.setdefault(stage, 0)

        def charged(*args: Any, **options: Any) -> Any:
            own = [0, 0, 0]
            under_way.append(own)
            start = now()
            try:
                return function(*args, **options)
            finally:
                took = now() - start
                under_way.pop()
                spent[stage] += took - own[0]
                calls[stage] += 1
                made[stage] += own[1]
                managed[stage] += own[2]
                if under_way:
                    caller = under_way[-1]
                    caller[0] += took
                    caller[1] += 1

        return charged

    def wrapped_manager(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that returns a context manager: making, entering and leaving are charged, what is inside is not."""
        make = self.wrapped(stage, function)
        under_way = self.open

        def managed(*args: Any) -> Charged:
            if under_way:
                under_way[-1][2] += 1
            manager = make(*args)
            return Charged(self.wrapped(stage, manager.__enter__), self.wrapped(stage, manager.__exit__))

        return managed


@dataclass(frozen=True, slots=True)
class Charged:
    """A context manager made of two functions."""

    enter: Callable[..., Any]
    leave: Callable[..., Any]

    def __enter__(self) -> Any:
        return self.enter()

    def __exit__(self, *error: object) -> Any:
        return self.leave(*error)


@dataclass(frozen=True, slots=True)
class Wrapping:
    """Nanoseconds of wrapping: a call is charged `inner`, its caller `outer`, the caller of a manager `manager`."""

    inner: float
    outer: float
    manager: float

    def own(self, clock: Clock, stage: str) -> float:
        """What a stage has taken without it."""
        wrapping = clock.calls[stage] * self.inner + clock.made[stage] * self.outer + clock.managed[stage] * self.manager
        return clock.spent[stage] - wrapping


def wrapping() -> Wrapping:
    """Measure it on functions that do nothing."""
    clock = Clock()
    count = 10_000
    child, manager = clock.wrapped("child", lambda: None), clock.wrapped_manager("inside", nullcontext)

    def calls() -> None:
        for _ in range(count):
            child()

    def managers() -> None:
        for _ in range(count):
            with manager():
                pass

    def nothing() -> None:
        for _ in range(count):
            pass

    for name, function in (("calls", calls), ("managers", managers), ("nothing", nothing)):
        with collector_off():
            clock.wrapped(name, function)()
    spent = {name: taken / count for name, taken in clock.spent.items()}
    outer = spent["calls"] - spent["nothing"]
    return Wrapping(spent["child"], outer, spent["managers"] - spent["nothing"] - 3 * outer)


def asked(kb: EmbeddedKB, goals: Sequence[list[str]]) -> float:
    """Nanoseconds a goal, all goals in a row."""
    with collector_off():
        start = time.perf_counter_ns()
        for goal in goals:
            list(kb.ask("may", goal))
        return (time.perf_counter_ns() - start) / len(goals)


def taken_apart(kb: EmbeddedKB, goals: Sequence[list[str]]) -> dict[str, float]:
    """Own nanoseconds a goal of every stage."""
    clock = Clock()
    cost = wrapping()
    with ExitStack() as patches:
        for stage, functions in STAGES.items():
            for owner, name in functions:
                wrap = clock.wrapped_manager if owner is ReadWriteLock else clock.wrapped
                patches.enter_context(patch.object(owner, name, wrap(stage, getattr(owner, name))))
        asked(kb, goals)
    return {stage: max(cost.own(clock, stage) / len(goals), 0.0) for stage in STAGES}


def point_goal(effort: Effort, peers: object) -> Iterator[Row]:
    """Check goals and lists of random users, one after the other, no writes; the least of five rounds of each stage."""
    base = graphs.access(effort.pick(100_000, 1000), 8)
    with access.opened(base) as kb:
        for kind, count in (("check", effort.pick(2000, 50)), ("list", effort.pick(300, 20))):
            rng = random.Random(34)
            rounds = [
                [access.goal_of(step) for step in access.goals(base, count, kind == "check", rng)]
                for _ in range(2 * effort.repeats + 1)
            ]
            asked(kb, rounds.pop())
            whole, parts = [], []
            while rounds:
                whole.append(asked(kb, rounds.pop()))
                parts.append(taken_apart(kb, rounds.pop()))
            total = min(whole)
            stages = {stage: min(found[stage] for found in parts) for stage in STAGES}
            stages["other"] = max(total - sum(stages.values()), 0.0)
            for stage, spent in stages.items():
                yield part(f"{kind} goal: {stage}", spent, f"{spent / total:.0%}")
            yield part(f"{kind} goal, whole", total, "")


def part(label: str, nanoseconds: float, share: str) -> Row:
    """A line of the second table."""
    return Row(label, "", None, Sample(nanoseconds / 1e9), ratio=share, section="point-goal")
