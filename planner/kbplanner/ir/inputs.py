"""Declared inputs: predicates that get facts from outside, with names of their arguments."""

from __future__ import annotations

from dataclasses import dataclass

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.values.words import is_plain, is_word

INPUT = "input"
"""The word of the declaration."""


@dataclass(frozen=True, slots=True)
class Input:
    """A predicate with the names of its arguments and its gloss: a text that says what its facts
    mean, for people and language models. `scope` is the partition that it is declared for (None:
    every one).
    """

    predicate: str
    args: tuple[str, ...]
    gloss: str | None = None
    scope: str | None = None

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.args)

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, which identifies the declaration in its scope."""
        return f"{self.predicate}/{len(self.args)}"


def input_problem(declared: Input, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a declared input; None if nothing is."""
    if problem := limits.predicate_problem(declared.predicate):
        return problem
    if problem := limits.args_problem(declared.arity):
        return problem
    names: set[str] = set()
    for name in declared.args:
        if not (is_word(name) and is_plain(name)):
            return "an argument is named by a word, such as person"
        if name in names:
            return f"two arguments are named {name}"
        names.add(name)
    return None if declared.gloss is None else _gloss_problem(declared.gloss, limits)


def _gloss_problem(gloss: str, limits: Limits) -> str | None:
    if problem := limits.constant_problem(gloss):
        return problem
    if not gloss.strip() or gloss != gloss.strip() or not gloss.isprintable():
        return "a gloss is one line of text, without spaces at its ends"
    return None
