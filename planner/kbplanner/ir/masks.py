"""Masks: arguments of a predicate that logs of decisions do not show."""

from __future__ import annotations

from dataclasses import dataclass

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits

MASK = "mask"
"""The word of the declaration."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Arguments of a predicate, numbered from 1, whose values are not logged.

    `scope` is the partition that it is declared for (None: every one).
    """

    predicate: str
    arity: int
    positions: tuple[int, ...]
    scope: str | None = None

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, which identifies the mask in its scope."""
        return f"{self.predicate}/{self.arity}"


def mask_problem(mask: Mask, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a mask; None if nothing is."""
    if problem := limits.predicate_problem(mask.predicate):
        return problem
    if problem := limits.args_problem(mask.arity):
        return problem
    if not mask.positions or len(set(mask.positions)) < len(mask.positions):
        return "a mask names each of its arguments once, numbered from 1"
    for position in mask.positions:
        if not 1 <= position <= mask.arity:
            return f"{mask.signature} has no argument {position}"
    return None
