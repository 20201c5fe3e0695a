"""Where the time of a point goal goes: `kb.ask` taken apart into its stages, as they are called.

Each stage is a function of the code, wrapped for the time of the measurement. A stage is charged
with its own time only, not with that of a stage it calls, and not with what the wrapping costs,
which is measured first. What no stage has is `other`: the time of the same goals without any
wrapping, less that of the stages.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import access
import graphs
from measure import Effort, Sample, collector_off
from table import Row

import kbcore.python_api.arguments
import kbcore.reason.ask
from kbcore import KnowledgeBase
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.tables import GoalTables
from kbcore.state import locks
from kbplanner.engine.engine import Engine, Run
from kbplanner.engine.relation import Relation
from kbplanner.evaluate.evaluate import GoalRun, PlanCache

STAGES: dict[str, list[tuple[object, str]]] = {
    "methods of the API": [
        (KnowledgeBase, "ask"),
        (TenantKB, "answers"),
    ],
    "goal read": [(kbcore.python_api.arguments, "literal_from_json")],
    "tenant brought to now, budget": [
        (Runtime, "read_tenant"),
        (Runtime, "reasoner"),
        (TenantKB, "_budget"),
    ],
    "read lock taken and given back": [(locks._Read, "__enter__"), (locks._Read, "__exit__")],
    "symbols of the constants": [(kbcore.reason.ask, "goal_shape")],
    "plan looked up": [
        (Reasoner, "solve"),
        (Reasoner, "_solve"),
        (PlanCache, "get"),
        (Reasoner, "_denied"),
    ],
    "goal table out and back": [
        (GoalTables, "ask"),
        (GoalTables, "_take"),
        (GoalTables, "_keep"),
        (GoalTables, "_count"),
    ],
    "call prepared, answers taken over": [(GoalRun, "ask"), (Run, "ask")],
    "engine: seed, step, match, sort": [(Run, "_alone")],
    "answers of many rows": [
        (GoalRun, "_many"),
        (Budget, "finish"),
        (Relation, "match"),
        (Run, "stats"),
        (Engine, "sort"),
    ],
    "texts": [(Engine, "texts")],
    "rows of names": [(TenantKB, "_symbols"), (TenantKB, "_partitions"), (SymbolAnswers, "tuples")],
}
"""The functions of each stage, in the order in which a goal comes to them."""


@dataclass(slots=True)
class Clock:
    """Own nanoseconds of each stage, its calls, and how many wrapped calls it made itself.

    `open` holds of each call under way what its callees have taken, and how many they were.
    """

    spent: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    open: list[list[int]] = field(default_factory=list)

    def wrapped(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, charged to the stage."""
        now = time.perf_counter_ns
        spent, calls, made, under_way = self.spent, self.calls, self.made, self.open
        for counter in (spent, calls, made):
            counter.setdefault(stage, 0)

        def charged(*args: Any, **options: Any) -> Any:
            own = [0, 0]
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
                if under_way:
                    caller = under_way[-1]
                    caller[0] += took
                    caller[1] += 1

        return charged


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What wrapping costs, in nanoseconds: a call is charged `inner`, its caller `outer`."""

    inner: float
    outer: float

    def own(self, clock: Clock, stage: str) -> float:
        """What a stage has taken without it."""
        return max(
            clock.spent[stage] - clock.calls[stage] * self.inner - clock.made[stage] * self.outer,
            0.0,
        )


def wrapping() -> Wrapping:
    """Measure it on functions that do nothing."""
    clock = Clock()
    count = 10_000

    def empty(first: object, second: object) -> None:
        pass

    child = clock.wrapped("child", empty)

    def calls() -> None:
        for _ in range(count):
            child(None, None)

    def bare() -> None:
        for _ in range(count):
            empty(None, None)

    for name, function in (("calls", calls), ("bare", bare)):
        with collector_off():
            clock.wrapped(name, function)()
    spent = {name: taken / count for name, taken in clock.spent.items()}
    return Wrapping(spent["child"], spent["calls"] - spent["bare"])


def asked(kb: KnowledgeBase, goals: Sequence[list[str]]) -> float:
    """Nanoseconds a goal, all goals in a row."""
    with collector_off():
        start = time.perf_counter_ns()
        for goal in goals:
            list(kb.ask("may", goal))
        return (time.perf_counter_ns() - start) / len(goals)


def taken_apart(kb: KnowledgeBase, goals: Sequence[list[str]], cost: Wrapping) -> dict[str, float]:
    """Own nanoseconds a goal of every stage; a function that the code no longer has is left out,
    here and in `gone`.
    """
    clock = Clock()
    with ExitStack() as patches:
        for stage, functions in STAGES.items():
            for owner, name in functions:
                if hasattr(owner, name):
                    patches.enter_context(
                        patch.object(owner, name, clock.wrapped(stage, getattr(owner, name)))
                    )
        asked(kb, goals)
    return {stage: cost.own(clock, stage) / len(goals) for stage in clock.spent if stage in STAGES}


def gone(stage: str) -> str:
    """Which functions of a stage the code no longer has: their time stands elsewhere."""
    names = [name for owner, name in STAGES.get(stage, []) if not hasattr(owner, name)]
    return f" (no longer there: {', '.join(names)})" if names else ""


def point_goal(effort: Effort, peers: object) -> Iterator[Row]:
    """Check goals and lists of random users, one after the other, no writes; the least of five
    rounds of each stage.
    """
    base = graphs.access(effort.pick(100_000, 1000), 8)
    cost = min(
        (wrapping() for _ in range(effort.repeats)), key=lambda found: found.inner + found.outer
    )
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
                parts.append(taken_apart(kb, rounds.pop(), cost))
            total = min(whole)
            stages = {stage: min(found[stage] for found in parts) for stage in parts[0]}
            stages["other"] = max(total - sum(stages.values()), 0.0)
            for stage, spent in stages.items():
                yield part(f"{kind} goal: {stage}", spent, f"{spent / total:.0%}{gone(stage)}")
            yield part(f"{kind} goal, whole", total, "")


def part(label: str, nanoseconds: float, share: str) -> Row:
    """A line of the second table."""
    return Row(label, "", None, Sample(nanoseconds / 1e9), ratio=share, section="point-goal")
