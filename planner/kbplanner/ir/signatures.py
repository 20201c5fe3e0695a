"""Signatures of builtins: their numbers of arguments, and the opposite of each comparison."""

from __future__ import annotations

OPPOSITE = {
    "=": "!=",
    "!=": "=",
    "==": "!==",
    "!==": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
"""The comparison that `not` before a comparison means."""

FUNCTION_ARITY = {
    "abs": (1, 1),
    "round": (1, 2),
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
}
"""Minimum and maximum number of arguments of functions; the others take one or more."""


def fits_as_atom(name: str, count: int) -> bool:
    """Return True if a string function written like an atom may have `count` arguments, including
    its value.
    """
    return count >= 2 if name == "concat" else count == 2
