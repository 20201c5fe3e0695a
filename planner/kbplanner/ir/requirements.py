"""Requirements: the level at which an answer of a predicate must follow to be given."""

from __future__ import annotations

from dataclasses import dataclass

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.values.words import is_word

REQUIRES = "requires"
"""The word of the declaration."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """The level of a dimension that the answers of a predicate need.

    `args` are names of the arguments, `_` for those without one. It is declared for the whole
    tenant: `scope` is None.
    """

    predicate: str
    args: tuple[str, ...]
    dimension: str
    level: str
    scope: str | None = None

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.args)

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, which identifies the requirement in its tenant."""
        return f"{self.predicate}/{self.arity}"


def requirement_problem(required: Requirement, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a requirement by itself; None if nothing is."""
    if problem := limits.predicate_problem(required.predicate):
        return problem
    if problem := limits.args_problem(required.arity):
        return problem
    if required.scope is not None:
        return "a requirement is declared for the whole tenant, without a scope"
    if not is_word(required.dimension) or not is_word(required.level):
        return "a requirement has the name of a dimension and a level of it"
    return None
