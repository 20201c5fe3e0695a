"""Goals that took long, told to the log with what they used and how they were evaluated, but not what they were about.

The line of a slow goal is for operators, who may not be meant to read what a knowledge base holds. So it has the goal and
its plan by predicates and binding patterns: every constant of the goal is `#`, rules go by their numbers, never their texts.
At level DEBUG a second line has the goal as it was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from kbcore.errors import KBError
from kbcore.reason.analysis import plan_data
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbplanner.ir.terms import BodyItem, Comparison, Variable
from kbplanner.syntax.printer import print_item

REQUEST: ContextVar[str] = ContextVar("kbcore.request", default="")
"""The number of the request that is worked on, for the lines of the log it causes; empty outside of requests."""

PLAN_MS = 1000
"""Milliseconds that finding the plan of a slow goal may take."""

_PLAN_CHARS = 4000

log = logging.getLogger("kbcore.slow")


def goal_was_slow(
    reasoner: Reasoner,
    whose: tuple[str, str],
    kind: str,
    goal: Sequence[BodyItem],
    seconds: float,
    used: Budget,
    spare: Budget,
    error: BaseException | None,
) -> None:
    """Write the line of a goal of a database and tenant; `used` is its budget, `spare` what its plan may take.

    The caller holds the tenant's read lock.
    """
    fields: dict[str, Any] = {
        "id": REQUEST.get() or "-",
        "database": whose[0],
        "tenant": whose[1],
        "kind": kind,
        "ms": round(seconds * 1000, 2),
        "limitMs": used.timeout_ms,
        "rowsMade": used.rows_made,
        "outcome": "answered" if error is None else type(error).__name__,
        "goal": ", ".join(_shape(item) for item in goal),
        "plan": _plan(reasoner, goal, spare),
    }
    log.warning("slow goal", extra={"fields": fields})
    if log.isEnabledFor(logging.DEBUG):
        text = ", ".join(print_item(item) for item in goal)
        log.debug("the slow goal as asked", extra={"fields": {"id": fields["id"], "goal": text}})


def _shape(item: BodyItem) -> str:
    if isinstance(item, Comparison):
        return item.op
    args = ", ".join(str(arg) if isinstance(arg, Variable) else "#" for arg in item.atom.args)
    signs = ("not " if item.negated else "") + ("" if item.atom.positive else "~")
    return f"{signs}{item.atom.predicate}({args})"


def _plan(reasoner: Reasoner, goal: Sequence[BodyItem], spare: Budget) -> str:
    partition = reasoner.tenant.partitions(None) or [reasoner.tenant.new_partition(None)]
    try:
        text = "; ".join(_lines(plan_data(reasoner, partition[0], goal, spare, analyze=False)))
    except KBError as error:
        return f"not known: {type(error).__name__}"
    return text if len(text) <= _PLAN_CHARS else text[:_PLAN_CHARS] + "..."


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    if "lookUp" in data:
        yield f"look up {data['lookUp']['relation']}"
        return
    for number, stratum in enumerate(data["strata"], 1):
        yield f"stratum {number}{' recursive' if stratum['recursive'] else ''}: {', '.join(stratum['relations'])}"
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
