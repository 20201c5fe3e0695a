"""Operators, tests, functions and aggregates of the language: names and numbers of arguments.

The orders of COMPARISONS, SUBSTRING_TESTS, OPERATIONS and AGGREGATES give the numbers that the
bytecode uses for them.
"""

from __future__ import annotations

COMPARISONS = ("=", "!=", "==", "!==", "<", "<=", ">", ">=")
"""Comparison operators, as written in rules and as predicates of JSON body atoms."""

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

SUBSTRING_TESTS = ("starts_with", "ends_with", "contains")
"""Tests of a string for a part of it."""

STRING_TESTS = (*SUBSTRING_TESTS, "matches")
"""Builtin tests on two strings, written like atoms."""

PRODUCTS = ("*", "/", "div", "mod")
"""Binary operators that bind more strongly than `+` and `-`."""

ARITHMETIC = ("+", "-", *PRODUCTS)
"""Binary operators of expressions."""

STRING_FUNCTIONS = ("concat", "lower", "upper", "length")
"""Functions of strings, which may also be written like atoms, with their value last: `length(?text, ?n)`."""

FUNCTIONS = ("abs", "min", "max", "round", *STRING_FUNCTIONS)
"""Functions of expressions."""

OPERATIONS = (*ARITHMETIC, *FUNCTIONS)
"""Operators and functions that compute a value."""

FUNCTION_ARITY = {
    "abs": (1, 1),
    "round": (1, 2),
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
}
"""Minimum and maximum number of arguments of functions; the others take one or more."""

AGGREGATES = ("count", "sum", "min", "max", "avg")
"""Aggregates, as head terms."""

EXTREMA = ("min", "max")
"""Words before the last variable of a rule head that keep the least or greatest value of a group."""

BUILTINS = (*COMPARISONS, *STRING_TESTS, *STRING_FUNCTIONS)
"""Names of the builtins that can be body items."""

RESERVED = frozenset((*BUILTINS, *ARITHMETIC))
"""Names that mean a builtin in text unless they are quoted."""

QUOTED_NAMES = RESERVED | {"not"}
"""Names of predicates that text has to quote although they are plain words or signs."""


def fits_as_atom(name: str, count: int) -> bool:
    """Return True if a string function written like an atom may have `count` arguments, including
    its value.
    """
    return count >= 2 if name == "concat" else count == 2
