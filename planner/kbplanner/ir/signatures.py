"""How builtins are written: their numbers of arguments, and which comparison means the opposite of which."""

from __future__ import annotations

OPPOSITE = {"=": "!=", "!=": "=", "==": "!==", "!==": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The comparison that `not` before a comparison means."""

FUNCTION_ARITY = {"abs": (1, 1), "round": (1, 2), "lower": (1, 1), "upper": (1, 1), "length": (1, 1)}
"""Fewest and most arguments of functions; the others take one or more."""


def fits_as_atom(name: str, count: int) -> bool:
    """Whether a function of strings written like an atom may have so many arguments, its value among them."""
    return count >= 2 if name == "concat" else count == 2
