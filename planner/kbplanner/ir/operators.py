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
    function that is `atomic` may also be written like an atom, with its value last. A `test` has
    the values TRUE and FALSE, and is written like an atom where it is a condition.
    """

    name: str
    least: int
    most: int | None
    usage: str
    atomic: bool = False
    test: bool = False

    def takes(self, count: int) -> bool:
        """Return True if the function takes this number of arguments."""
        return self.least <= count and (self.most is None or count <= self.most)


INTERVAL_RELATIONS = (
    "precedes",
    "preceded_by",
    "meets",
    "met_by",
    "overlaps",
    "overlapped_by",
    "starts",
    "started_by",
    "during",
    "includes",
    "finishes",
    "finished_by",
    "equals_interval",
    "intersects",
)
"""The thirteen relations of two intervals, of which one holds for any two (Allen, "Maintaining
knowledge about temporal intervals", 1983), and `intersects`: they have a time in common.
"""

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
    Function("before", 2, 2, "before(?a, ?b)", test=True),
    Function("after", 2, 2, "after(?a, ?b)", test=True),
    Function("days_between", 2, 2, "days_between(?from, ?to)"),
    Function("seconds_between", 2, 2, "seconds_between(?from, ?to)"),
    Function("add_days", 2, 2, "add_days(?instant, 7)"),
    Function("add_seconds", 2, 2, "add_seconds(?instant, 3600)"),
    Function("year", 1, 1, "year(?instant)"),
    Function("month", 1, 1, "month(?instant)"),
    Function("day", 1, 1, "day(?instant)"),
    Function("weekday", 1, 1, "weekday(?instant)"),
    Function("now", 0, 0, "now()"),
    *(
        Function(name, 4, 4, f"{name}(?from1, ?to1, ?from2, ?to2)", test=True)
        for name in INTERVAL_RELATIONS
    ),
    Function("jaro_winkler", 2, 2, "jaro_winkler(?name, ?other)"),
    Function("trigram", 2, 2, "trigram(?name, ?other)"),
)
"""The functions of expressions. A new one is a record here, a body in Python (`compute.py` says
where), and a body in C with a row in the table of csrc/text/compute.c, all at the same place.
"""

FUNCTION = {function.name: function for function in FUNCTION_LIST}
"""The functions by name."""

FUNCTIONS = tuple(FUNCTION)
"""Names of the functions of expressions."""

STRING_FUNCTIONS = tuple(function.name for function in FUNCTION_LIST if function.atomic)
"""Functions that may also be written like atoms, with their value last: `length(?text, ?n)`."""

TRUE, FALSE = "true", "false"
"""The values of functions that are tests."""

GENERATOR_LIST = (
    Function("member", 1, None, "member(?x, [a, b])"),
    Function("range", 2, 2, "range(0, 10, ?x)"),
    Function("split", 2, 2, 'split(?text, ",", ?part)'),
)
"""Conditions that give a variable one value after the other. The numbers of arguments are without
that variable; those of `member` are the elements of its list. Their order gives the numbers of the
bytecode.
"""

GENERATOR = {function.name: function for function in GENERATOR_LIST}
"""The generators by name."""

MEMBERSHIP = {"member": "is_member", "range": "is_in_range", "split": "is_part"}
"""The function by which a generator tests a value, for the compiler alone: it takes the value
before the arguments of the generator.
"""

RESERVED_CONDITIONS = ("range", "split")
"""Conditions that are builtins with any number of arguments. `member` is one with a list, the
others with the number of arguments that they take, so that predicates of their names are rarely in
the way.
"""

OPERATIONS = (*ARITHMETIC, *FUNCTIONS, *MEMBERSHIP.values())
"""Operators and functions that compute a value."""

AGGREGATES = ("count", "sum", "min", "max", "avg", "representative")
"""Aggregates, as head terms."""

CHOICES = ("min", "max", "representative")
"""Aggregates whose value is one of the constants: further equal ones do not change it."""

EXTREMA = ("min", "max")
"""Words before the last variable of a rule head that keep the least or greatest value of a
group.
"""

BUILTINS = (*COMPARISONS, *STRING_TESTS, *FUNCTIONS, *GENERATOR)
"""Names of the builtins that a body item of JSON can have."""

RESERVED = frozenset(
    (*COMPARISONS, *STRING_TESTS, *STRING_FUNCTIONS, *RESERVED_CONDITIONS, *ARITHMETIC)
)
"""Names that mean a builtin in text unless they are quoted."""


def is_builtin(name: str, count: int) -> bool:
    """Return True if an unquoted name with `count` arguments is a builtin where an atom can be."""
    function = FUNCTION.get(name)
    return name in RESERVED or (function is not None and function.test and function.takes(count))


def needs_quotes(name: str, count: int) -> bool:
    """Return True if text has to quote a predicate with `count` arguments although its name is a
    plain word or a sign.
    """
    return name == "not" or is_builtin(name, count)


def fits_as_atom(name: str, count: int) -> bool:
    """Return True if a function written like an atom may have `count` arguments, including its
    value.
    """
    return FUNCTION[name].takes(count - 1)
