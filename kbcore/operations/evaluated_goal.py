"""Goals that were evaluated, for the logs of slow goals and of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from kbcore.reason.budget import Budget
from kbcore.reason.options import AnswerOptions
from kbplanner.ir.terms import BodyItem

KEY_NAME: ContextVar[str | None] = ContextVar("kbcore-key-name", default=None)
"""The name of the API key of the current request; each request sets it."""

Masks = Mapping[tuple[str, int], frozenset[int]]
"""The masked arguments, numbered from 0, by name and arity of the predicate."""


class InForce(NamedTuple):
    """Members of lines of the decision log about a tenant and a scope, as JSON, and the masks. Both
    change only with rules and declarations.
    """

    members: bytes
    masks: Masks


class EvaluatedGoal(NamedTuple):
    """A goal that was evaluated: the kind of read, its duration, its budget, and its error if it
    failed.

    `options` are those of a goal whose answers were returned, of which there were `answers`;
    `in_force` and `generation` are of the state that answered; None and 0 if decisions are not
    logged.
    """

    kind: str
    goal: Sequence[BodyItem]
    seconds: float
    budget: Budget
    error: BaseException | None = None
    options: AnswerOptions | None = None
    in_force: InForce | None = None
    generation: int = 0
    answers: int = 0

    @property
    def outcome(self) -> str:
        """`answered`, or the name of the error."""
        return "answered" if self.error is None else type(self.error).__name__
