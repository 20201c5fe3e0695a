"""Declared inputs: predicates that get facts from outside, with names and types of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.values.instants import instant
from kbplanner.ir.values.numbers import is_number, is_whole
from kbplanner.ir.values.words import is_plain, is_word

INPUT = "input"
"""The word of the declaration."""

TYPES: Mapping[str, Callable[[str], bool]] = {
    "text": lambda constant: True,
    "number": is_number,
    "integer": is_whole,
    "instant": lambda constant: instant(constant) is not None,
    "boolean": lambda constant: constant in ("true", "false"),
}
"""Types of arguments; each with a function that returns True for the constants of the type. Every
constant is a text.
"""


@dataclass(frozen=True, slots=True)
class Input:
    """A predicate with the names of its arguments and its gloss: a text that says what its facts
    mean, for people and language models. `scope` is the partition that it is declared for (None:
    every one). `types` has a type of TYPES for each argument, None for an argument without one; it
    is empty if none has a type. If the input is strict, facts with arguments of other types are
    refused.
    """

    predicate: str
    args: tuple[str, ...]
    gloss: str | None = None
    scope: str | None = None
    types: tuple[str | None, ...] = ()
    is_strict: bool = False

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.args)

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, which identifies the declaration in its scope."""
        return f"{self.predicate}/{len(self.args)}"

    @property
    def checks(self) -> bool:
        """True if facts of the predicate are checked when they are stored."""
        return self.is_strict and any(self.types)

    @property
    def typed_args(self) -> tuple[str, ...]:
        """The arguments as they are declared, such as `size: number`."""
        types = self.types or (None,) * len(self.args)
        return tuple(
            name if of_type is None else f"{name}: {of_type}"
            for name, of_type in zip(self.args, types, strict=True)
        )

    def mistyped(self, args: Sequence[str]) -> int | None:
        """Return the index of the first argument that is not of its type; None without one."""
        for index, of_type in enumerate(self.types):
            if of_type is not None and not TYPES[of_type](args[index]):
                return index
        return None


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
        if ":" in name:
            return "the name of an argument has no colon"
        if name in names:
            return f"two arguments are named {name}"
        names.add(name)
    if len(declared.types) not in (0, declared.arity):
        return f"there is one type for each argument: {declared.arity}, not {len(declared.types)}"
    for of_type in declared.types:
        if of_type is not None and of_type not in TYPES:
            return f"there is no type {of_type}; the types are {', '.join(TYPES)}"
    if declared.types and not any(declared.types):
        return "the types are left out where no argument has one"
    return None if declared.gloss is None else _gloss_problem(declared.gloss, limits)


def _gloss_problem(gloss: str, limits: Limits) -> str | None:
    if problem := limits.constant_problem(gloss):
        return problem
    if not gloss.strip() or gloss != gloss.strip() or not gloss.isprintable():
        return "a gloss is one line of text, without spaces at its ends"
    return None
