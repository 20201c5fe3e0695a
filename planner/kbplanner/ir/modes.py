"""Modes: the arguments that a relation has to be asked with.

A predicate of a plugin can be called only with some of its arguments bound. A mode has a letter for
each argument, as an adornment has: `b` where the argument must be bound, `f` where it need not be.
A relation without modes can be asked in any way, one with an empty tuple of modes in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbplanner.ir.schema import RelationSchema

Modes = Mapping[RelationSchema, tuple[str, ...]]
"""The modes of relations, which are not adorned."""

NO_MODES: Modes = {}
"""Modes of a program in which every relation can be asked in any way."""


def permits(mode: str, marks: str) -> bool:
    """Return True if a relation asked with `marks` has every argument bound that a mode
    requires.
    """
    return all(needed == "f" or mark == "b" for needed, mark in zip(mode, marks, strict=True))


def permitted(modes: Modes, schema: RelationSchema, marks: str) -> bool:
    """Return True if a relation can be asked with these arguments bound."""
    own = modes.get(schema)
    return own is None or any(permits(mode, marks) for mode in own)


def best_mode(modes: Sequence[str], marks: str) -> str | None:
    """Return the permitted mode that uses most of the bound arguments; the first of equal ones.

    None if no mode is permitted.
    """
    return max((m for m in modes if permits(m, marks)), key=lambda m: m.count("b"), default=None)


def missing(modes: Sequence[str], marks: str) -> list[int]:
    """Return the indexes of the unbound arguments that the nearest mode requires.

    The list is empty if a mode is permitted, and without modes.
    """
    unbound = (
        [
            index
            for index, (needed, mark) in enumerate(zip(mode, marks, strict=True))
            if needed == "b" and mark == "f"
        ]
        for mode in modes
    )
    return min(unbound, key=len, default=[])
