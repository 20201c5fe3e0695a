"""Values of the operators and functions of expressions: text in, text out, or no value.

csrc/text/compute.c computes the same values in the engine. This module serves the reference engine
and proofs. The bodies of functions of texts are in `texts.py`, those of functions of time in
`instants.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

from kbplanner.ir.conditions import MEMBERSHIP_FUNCTIONS
from kbplanner.ir.terms import Apply, Expr, Variable
from kbplanner.ir.values.comparison import extreme
from kbplanner.ir.values.instants import TIME_FUNCTIONS
from kbplanner.ir.values.numbers import (
    MAX_INTEGER,
    MIN_INTEGER,
    Number,
    number,
    number_text,
    whole,
)
from kbplanner.ir.values.texts import TEXT_FUNCTIONS

MAX_TEXT_BYTES = 64 * 1024
"""Maximum bytes of a computed text; a longer text is no value."""

MAX_ROUND_DIGITS = 15
"""Maximum number of digits after the point that `round` keeps."""

_MAX_EXACT_REAL = float(1 << 53)
_ROUNDING = Context(prec=64)


def compute(function: str, args: Sequence[str]) -> str | None:
    """Return a function of constants, in canonical text; None where it has no value.

    Integers are exact and have no value beyond 64 bits, neither as argument nor as result; other
    numbers are IEEE doubles and have none beyond their range. `min` and `max` only compare. Text
    that is not a number has no value in arithmetic, nor has a division by zero, nor a text beyond
    MAX_TEXT_BYTES. `capture` needs a valid pattern and group; `check_rule` refuses others.
    """
    body = _BODIES.get(function)
    if body is not None:
        text = body(args)
        return text if text is not None and fits(text) else None
    values = [number(arg) for arg in args]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    if function == "now":  # its value belongs to a request: `with_now` writes it into a rule
        return None
    value = _ARITHMETIC[function](numbers)
    if value is None or not (
        MIN_INTEGER <= value <= MAX_INTEGER if isinstance(value, int) else math.isfinite(value)
    ):
        return None
    return number_text(value)


def fits(text: str) -> bool:
    """Return True if a text is short enough for a value."""
    return len(text) * 4 <= MAX_TEXT_BYTES or len(text.encode()) <= MAX_TEXT_BYTES


def value_of(expr: Expr, known: Mapping[str, str]) -> str | None:
    """Return the value of an expression, given values of variables by name; None if it has none.

    An expression with a variable that is not `known` has no value.
    """
    if isinstance(expr, Variable):
        return known.get(expr.name)
    if not isinstance(expr, Apply):
        return expr
    args = [value for arg in expr.args if (value := value_of(arg, known)) is not None]
    return compute(expr.function, args) if len(args) == len(expr.args) else None


def text_test(op: int, text: str, part: str) -> bool:
    """Apply test number `op` (its index in SUBSTRING_TESTS, +8 to negate) to two strings."""
    outcome = (text.startswith, text.endswith, text.__contains__)[op & 7](part)
    return not outcome if op & 8 else outcome


def _add(args: Sequence[Number]) -> Number:
    return args[0] + args[1]


def _subtract(args: Sequence[Number]) -> Number:
    return args[0] - args[1]


def _multiply(args: Sequence[Number]) -> Number:
    return args[0] * args[1]


def _divide(args: Sequence[Number]) -> Number | None:
    a, b = args
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return float(a) / float(b)


def _div(args: Sequence[Number]) -> Number | None:
    a, b = args
    if b == 0:
        return None
    return a // b if isinstance(a, int) and isinstance(b, int) else float(a) // float(b)


def _mod(args: Sequence[Number]) -> Number | None:
    a, b = args
    if b == 0:
        return None
    return a % b if isinstance(a, int) and isinstance(b, int) else float(a) % float(b)


def _abs(args: Sequence[Number]) -> Number:
    return abs(args[0])


def _round(args: Sequence[str]) -> str | None:
    """Round to this many digits after the point, halves away from zero, by the double nearest to
    the number.
    """
    value, digits = number(args[0]), whole(args[1]) if len(args) > 1 else 0
    if value is None or digits is None or not 0 <= digits <= MAX_ROUND_DIGITS:
        return None
    if isinstance(value, int) or abs(value) >= _MAX_EXACT_REAL:
        return number_text(value)
    unit = Decimal(1).scaleb(-digits)
    return number_text(float(Decimal(repr(value)).quantize(unit, ROUND_HALF_UP, _ROUNDING)))


_BODIES: dict[str, Callable[[Sequence[str]], str | None]] = {
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
    **MEMBERSHIP_FUNCTIONS,
    "min": lambda args: extreme("min", args),
    "max": lambda args: extreme("max", args),
    "round": _round,
}
"""Bodies of the functions whose arguments are texts."""

_ARITHMETIC: dict[str, Callable[[Sequence[Number]], Number | None]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "div": _div,
    "mod": _mod,
    "abs": _abs,
}
