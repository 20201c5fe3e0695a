"""Slow goals: a list of the slowest recent goals of each tenant, and the log of slow goals.

The list has goals as they were asked, for callers that may read the tenant. The log has their
resource use and plans, but no constants.

Operators who read the log may not be allowed to read a knowledge base. The log line therefore shows
the goal and its plan as predicates and binding patterns: every constant of the goal is `#`, and
rules are named by number, never by text. At level DEBUG a second line has the goal as it was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from kbcore.errors import KBError
from kbcore.operations.evaluated_goal import EvaluatedGoal
from kbcore.reason.analysis import plan_data
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbplanner.ir.terms import BodyItem, Comparison, Variable
from kbplanner.syntax.printer import print_item

REQUEST: ContextVar[str] = ContextVar("kbcore.request", default="")
"""Id of the current request, for its log lines; empty outside of requests."""

PLAN_MS = 1000
"""Time limit for planning a slow goal, in milliseconds."""

_PLAN_CHARS = 4000

log = logging.getLogger("kbcore.slow")


MIN_LISTED_MS = 10
"""Milliseconds from which a goal can be among the listed ones."""

MAX_LISTED = 20
LISTED_FOR_MS = 3_600_000
"""Time after which a goal leaves the list, in milliseconds."""

_MAX_GOAL_CHARS = 500


@dataclass(frozen=True, slots=True)
class ListedGoal:
    """A slow goal of the list: its slowest run, and how often it was slow.

    `goal` is its text, cut off if `is_cut`. `at` is the end of the run in epoch milliseconds.
    `outcome` is "answered" or the name of the error that ended the run.
    """

    goal: str
    is_cut: bool
    kind: str
    ms: float
    rows_made: int
    outcome: str
    at: int
    count: int = 1


class SlowGoals:
    """The slowest goals of one tenant in the last hour, at most MAX_LISTED distinct ones."""

    def __init__(self) -> None:
        self._goals: dict[tuple[str, str], ListedGoal] = {}
        self._lock = Lock()

    def add(self, slow: EvaluatedGoal, now: int) -> None:
        """Add a run of a goal that ended now (epoch milliseconds)."""
        text = _text_of(slow.goal)
        new = ListedGoal(
            text[:_MAX_GOAL_CHARS],
            len(text) > _MAX_GOAL_CHARS,
            slow.kind,
            round(slow.seconds * 1000, 2),
            slow.budget.rows_made,
            slow.outcome,
            now,
        )
        key = new.goal, new.kind
        with self._lock:
            self._forget(now)
            known = self._goals.get(key)
            if known is not None:
                slowest = max(known, new, key=lambda goal: goal.ms)
                new = replace(slowest, count=known.count + 1)
            self._goals[key] = new
            if len(self._goals) > MAX_LISTED:
                del self._goals[min(self._goals, key=lambda each: self._goals[each].ms)]

    def slowest(self, now: int) -> list[ListedGoal]:
        """Return the goals of the last hour, slowest first."""
        with self._lock:
            self._forget(now)
            return sorted(self._goals.values(), key=lambda goal: (-goal.ms, goal.goal))

    def close(self) -> None:
        """Forget all goals, at the end of the tenant."""
        with self._lock:
            self._goals.clear()

    def _forget(self, now: int) -> None:
        for key in [key for key, goal in self._goals.items() if now - goal.at > LISTED_FOR_MS]:
            del self._goals[key]


def _text_of(goal: Sequence[BodyItem]) -> str:
    """Return a goal as text; what is cut off anyway is not written."""
    text = ""
    for item in goal:
        if len(text) > _MAX_GOAL_CHARS:
            break
        text += (", " if text else "") + print_item(item)
    return text


def log_slow_goal(reasoner: Reasoner, slow: EvaluatedGoal, plan_budget: Budget) -> None:
    """Log a slow goal and the error that ended it, if any, with its plan.

    The caller holds the tenant's read lock.
    """
    fields: dict[str, Any] = {
        "id": REQUEST.get() or "-",
        "database": reasoner.tenant.database,
        "tenant": reasoner.tenant.name,
        "kind": slow.kind,
        "ms": round(slow.seconds * 1000, 2),
        "limitMs": slow.budget.timeout_ms,
        "rowsMade": slow.budget.rows_made,
        "outcome": slow.outcome,
        "goal": ", ".join(_shape(item) for item in slow.goal),
        "plan": _plan(reasoner, slow.goal, plan_budget),
    }
    log.warning("slow goal", extra={"fields": fields})
    if log.isEnabledFor(logging.DEBUG):
        text = ", ".join(print_item(item) for item in slow.goal)
        log.debug("the slow goal as asked", extra={"fields": {"id": fields["id"], "goal": text}})


def _shape(item: BodyItem) -> str:
    if isinstance(item, Comparison):
        return item.op
    args = ", ".join(str(arg) if isinstance(arg, Variable) else "#" for arg in item.atom.args)
    signs = ("not " if item.negated else "") + ("" if item.atom.positive else "~")
    return f"{signs}{item.atom.predicate}({args})"


def _plan(reasoner: Reasoner, goal: Sequence[BodyItem], budget: Budget) -> str:
    partition = reasoner.tenant.partitions(None) or [reasoner.tenant.new_partition(None)]
    try:
        text = "; ".join(_lines(plan_data(reasoner, partition[0], goal, budget, analyze=False)))
    except KBError as error:
        return f"no plan: {type(error).__name__}"
    return text if len(text) <= _PLAN_CHARS else text[:_PLAN_CHARS] + "..."


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    if "lookUp" in data:
        yield f"look up {data['lookUp']['relation']}"
        return
    for number, stratum in enumerate(data["strata"], 1):
        kind = " recursive" if stratum["recursive"] else ""
        yield f"stratum {number}{kind}: {', '.join(stratum['relations'])}"
        for rule in stratum["rules"]:
            steps = " > ".join(_step(step) for step in rule["steps"])
            yield f"rule {rule['id'] or '-'}: {steps}"


def _step(step: Mapping[str, Any]) -> str:
    parts = [
        step["operator"],
        *(read["relation"] for read in (step, step.get("with")) if read and "relation" in read),
    ]
    if "relation" in step and step["estimatedRows"] is not None:
        parts.append(f"~{step['estimatedRows']:.0f}")
    return " ".join(parts)
