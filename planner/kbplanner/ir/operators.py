"""Operators, tests, functions and aggregates of the language: names and numbers of arguments.

The orders of COMPARISONS, SUBSTRING_TESTS, OPERATIONS and AGGREGATES give the numbers that the
bytecode uses for them.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Function:
    """A function of expressions: its name, and the numbers of arguments that it takes.

    `most` is None where any number from `least` on is taken. `usage` shows it in messages. A
    function that is `atomic` may also be written like an atom, with its value last.
    """

    name: str
    least: int
    most: int | None
    usage: str
    atomic: bool = False

    def takes(self, count: int) -> bool:
        """Return True if the function takes this number of arguments."""
        return self.least <= count and (self.most is None or count <= self.most)


FUNCTION_LIST = (
    Function("abs", 1, 1, "abs(?x)"),
    Function("min", 1, None, "min(?x, ?y)"),
    Function("max", 1, None, "max(?x, ?y)"),
    Function("round", 1, 2, "round(?x, 2)"),
    Function("concat", 1, None, "concat(?first, ?second)", atomic=True),
    Function("lower", 1, 1, "lower(?text)", atomic=True),
    Function("upper", 1, 1, "upper(?text)", atomic=True),
    Function("length", 1, 1, "length(?text)", atomic=True),
    Function("quoted", 1, 1, "quoted(?constant)"),
    Function("trim", 1, 1, "trim(?text)"),
    Function("substring", 2, 3, "substring(?text, 0, 3)"),
    Function("replace", 3, 3, 'replace(?text, "old", "new")'),
    Function("join", 2, None, 'join(", ", ?first, ?second)'),
    Function("capture", 3, 3, 'capture(?text, "([a-z]+)", 1)'),
)
"""The functions of expressions. A new one is a record here, a body in Python (`compute.py` says
where), and a body in C with a row in the table of csrc/compute.c, all at the same place.
"""

FUNCTION = {function.name: function for function in FUNCTION_LIST}
"""The functions by name."""

FUNCTIONS = tuple(FUNCTION)
"""Names of the functions of expressions."""

STRING_FUNCTIONS = tuple(function.name for function in FUNCTION_LIST if function.atomic)
"""Functions that may also be written like atoms, with their value last: `length(?text, ?n)`."""

OPERATIONS = (*ARITHMETIC, *FUNCTIONS)
"""Operators and functions that compute a value."""

AGGREGATES = ("count", "sum", "min", "max", "avg")
"""Aggregates, as head terms."""

EXTREMA = ("min", "max")
"""Words before the last variable of a rule head that keep the least or greatest value of a group."""

BUILTINS = (*COMPARISONS, *STRING_TESTS, *FUNCTIONS)
"""Names of the builtins that a body item of JSON can have."""

RESERVED = frozenset((*COMPARISONS, *STRING_TESTS, *STRING_FUNCTIONS, *ARITHMETIC))
"""Names that mean a builtin in text unless they are quoted."""

QUOTED_NAMES = RESERVED | {"not"}
"""Names of predicates that text has to quote although they are plain words or signs."""


def fits_as_atom(name: str, count: int) -> bool:
    """Return True if a function written like an atom may have `count` arguments, including its
    value.
    """
    return FUNCTION[name].takes(count - 1)
