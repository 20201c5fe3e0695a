"""Numeric text: which constants are numbers, and the order of constants in answers."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")

Number = int | float


def number(text: str) -> Number | None:
    """Return the value of numeric text, None for other text: an int within 64 bits, else the
    nearest float.

    Numeric text is an optional minus, digits without a leading zero, an optional fraction and an
    optional exponent.
    """
    if not _NUMBER.match(text):
        return None
    if len(text) <= 20 and _INTEGER.match(text):
        value = int(text)
        if -(1 << 63) <= value < 1 << 63:
            return value
    return float(text)


def number_text(value: Number) -> str:
    """Return the canonical text of a finite number: the shortest that reads back, whole numbers as
    digits.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return repr(value)


def compare(a: Number, b: Number) -> int:
    """Return -1, 0 or 1 as a is less than, equal to or greater than b; exact for large ints and
    floats.
    """
    if a == b:
        return 0
    if isinstance(a, float) and math.isinf(a):
        return 1 if a > 0 else -1
    if isinstance(b, float) and math.isinf(b):
        return -1 if b > 0 else 1
    return -1 if Fraction(a) < Fraction(b) else 1


def answer_key(text: str) -> tuple[int, Number, str]:
    """Return the sort key of one argument: numbers before text, numbers by value then text, text by
    code point.
    """
    value = number(text)
    return (1, 0, text) if value is None else (0, value, text)


def test(op: int, a: str, b: str) -> bool:
    """Apply comparison number `op` (its index in operators.COMPARISONS, +8 to negate) to two constants."""
    outcome = _test(op & 7, a, b)
    return not outcome if op & 8 else outcome


def _test(op: int, a: str, b: str) -> bool:
    if op in (2, 3):
        return (a == b) == (op == 2)
    x, y = number(a), number(b)
    if op in (0, 1):
        same = compare(x, y) == 0 if x is not None and y is not None else a == b
        return same == (op == 0)
    if x is not None and y is not None:
        order = compare(x, y)
    elif x is None and y is None:
        order = (a > b) - (a < b)
    else:
        return False
    return {4: order < 0, 5: order <= 0, 6: order > 0, 7: order >= 0}[op]
