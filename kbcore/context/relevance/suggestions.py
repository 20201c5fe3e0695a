"""Goals that a question in words means: readings that are run, and the one that is believed.

No language model is asked. The best reading is believed if it has an answer, and no other reading
that is about as good has different ones; otherwise no goal is, and the reason is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kbcore.context.relevance.chains import MeantGoal, is_of_kind
from kbcore.errors import BudgetExceeded, InvalidInput, PredicateFailed
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.partition import Partition
from kbplanner.engine.backend import RunLimits
from kbplanner.ir.terms import Literal

MIN_COVERAGE = 0.99
"""Least share of the words of a question that a goal has to have."""

MARGIN = 0.04
"""Difference of the scores up to which two readings are about as good."""

MAX_RUN = 4
"""Readings that are run."""

MAX_ANSWERS = 100
"""Answers of a goal that are read and compared."""

NO_CONSTANT = "noConstant"
NO_GOAL = "noGoal"
NO_ANSWER = "noAnswer"
DISAGREE = "disagree"
UNFINISHED = "unfinished"

REASONS = {
    NO_CONSTANT: "the question names no constant of the knowledge base",
    NO_GOAL: "no chain of predicates has enough of its words",
    NO_ANSWER: "the goals that have enough of its words have no answer of the kind asked for",
    DISAGREE: "two goals that are about as good have different answers, or one is stored and denied",
    UNFINISHED: "a goal was not finished within its limits",
}
"""Reasons for which no goal is believed."""

TRUE, FALSE = "true", "false"
"""The values of a goal without variables that holds, and of one that is denied."""

RUN_SHARE = 4
"""Equal parts of the remaining time, of which the run of a reading gets one."""

RUN_LIMITS = RunLimits(rows=100_000, bytes=64 << 20, steps=5_000_000)
"""Limits of the run of a reading; those of the request are kept too."""

Run = Callable[[MeantGoal], Sequence[str]]
"""A function that returns the answers of a reading, as `values_of` does."""


class RunGoal(NamedTuple):
    """A reading and its answers, in order; None if it was not run, or not to its end."""

    reading: MeantGoal
    answers: tuple[str, ...] | None


class Suggestion(NamedTuple):
    """The goals that a question can mean, best first, and the one that is believed.

    `answers` are its answers, or the number of them if the question asks how many; `reason` is one
    of REASONS if none is believed.
    """

    outcomes: tuple[RunGoal, ...]
    believed: RunGoal | None
    reason: str | None
    answers: tuple[str, ...] = ()


def decided(readings: Sequence[MeantGoal], constants: int, run: Run) -> Suggestion:
    """Run the readings of a question that are about as good as the best one, and decide.

    `constants` is the number of constants in the question.
    """
    if not constants:
        return Suggestion((), None, NO_CONSTANT)
    able = [each for each in readings if each.coverage >= MIN_COVERAGE]
    if not able:
        return Suggestion((), None, NO_GOAL)
    least = able[0].score - MARGIN
    near = [each for each in able if each.score >= least]
    outcomes = [RunGoal(each, _answers(each, run)) for each in near[:MAX_RUN]]
    rest = [RunGoal(each, None) for each in able[len(outcomes) :]]
    believed, reason = _believed(outcomes)
    if believed is not None and len(near) > MAX_RUN:
        believed, reason = None, UNFINISHED
    answers = () if believed is None else _said(believed)
    return Suggestion((*outcomes, *rest), believed, reason, answers)


def limit_run(budget: Budget) -> None:
    """Lower the limits of a budget, which no other goal has, to those of the run of a reading."""
    own, least = budget.limits, RUN_LIMITS
    budget.limits = RunLimits(
        min(own.rows or least.rows, least.rows),
        min(own.bytes or least.bytes, least.bytes),
        min(own.steps or least.steps, least.steps),
    )
    budget.deadline = budget.part(RUN_SHARE).deadline


def values_of(
    reasoner: Reasoner,
    partitions: Sequence[Partition],
    reading: MeantGoal,
    as_of: int | None,
    budget: Budget,
    *,
    is_asked: bool = True,
) -> list[str]:
    """Return the values of the variable of a reading in some partitions, at most MAX_ANSWERS and
    one more; of a reading without a variable "true" if it holds, "false" if it is denied.

    Stored facts count as accessed if the goal `is_asked` by a client. The caller holds the read
    lock. Raises BudgetExceeded.
    """
    options = GoalOptions(as_of, MAX_ANSWERS + 1, counts_accesses=is_asked)
    values: dict[str, None] = {}
    for partition in partitions:
        if reading.variable is not None:
            variables = (reading.variable,)
            rows, _ = reasoner.solve_body(partition, reading.body, variables, budget, options)
            values |= dict.fromkeys(reasoner.tenant.engine.texts(rows[: MAX_ANSWERS + 1]))
            continue
        for value, body in ((TRUE, reading.body), (FALSE, _denied(reading.body))):
            _, count = reasoner.solve_body(partition, body, (), budget, options)
            values |= dict.fromkeys([value] * min(count, 1))
    return list(values)[: MAX_ANSWERS + 1]


def _denied(body: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """Return a body with the explicit negative of its last literal."""
    *first, last = body
    return *first, Literal(replace(last.atom, positive=False))


def _answers(reading: MeantGoal, run: Run) -> tuple[str, ...] | None:
    """Return the answers of a reading; None if it takes too long or cannot be asked so."""
    try:
        return tuple(run(reading))
    except (BudgetExceeded, InvalidInput, PredicateFailed):
        return None


def _believed(outcomes: Sequence[RunGoal]) -> tuple[RunGoal | None, str | None]:
    if any(each.answers is None for each in outcomes):
        return None, UNFINISHED
    answered = [
        each for each in outcomes if each.answers and is_of_kind(_said(each), each.reading.kind)
    ]
    if not answered:
        return None, NO_ANSWER
    first = answered[0]
    if first.reading.variable is None and len(first.answers or ()) > 1:
        return None, DISAGREE
    if any(frozenset(_said(each)) != frozenset(_said(first)) for each in answered):
        return None, DISAGREE
    if first.reading.is_counted and len(first.answers or ()) > MAX_ANSWERS:
        return None, UNFINISHED
    return first, None


def _said(outcome: RunGoal) -> tuple[str, ...]:
    """Return what the answers of a goal say: their number if the question asks how many, and they
    are not a number themselves.
    """
    answers = outcome.answers or ()
    reading = outcome.reading
    if reading.is_counted and answers and not is_of_kind(answers, reading.kind):
        return (str(len(answers)),)
    return answers
