"""Numeric text: which constants are numbers, their exact order, and the order of constants in
answers.

A plain number is written in digits, with or without a fraction, and has the exact value of its
digits, whatever their length. A number with an exponent has a value within the doubles; a text with
an exponent beyond them is no number. csrc/text/number.c reads the same numbers in the engine.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_POWER = re.compile(r"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)[eE][+-]?[0-9]+")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")

MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 63) - 1
_MAX_INTEGER_CHARS = 20
"""Longer texts of digits have more than 64 bits."""
_MAX_EXACT_REAL = 1 << 53
_MAX_PYTHON_DIGITS = 4300
"""Digits of the longest integer that Python converts from and to text."""

Number = int | float


def number(text: str) -> Number | None:
    """Return the value of a constant in arithmetic: an int within 64 bits, or a finite float.

    None for a text, and for a number beyond these, which can only be compared.
    """
    if _INTEGER.fullmatch(text):
        value = int(text) if len(text) <= _MAX_INTEGER_CHARS else MAX_INTEGER + 1
        return value if MIN_INTEGER <= value <= MAX_INTEGER else None
    if _PLAIN.fullmatch(text):
        real = float(text)
        return real if math.isfinite(real) else None
    return _power(text)


def _power(text: str) -> float | None:
    """Return the value of a number with an exponent; None for other text, and beyond the
    doubles.
    """
    match = _POWER.fullmatch(text)
    if match is None:
        return None
    real = float(text)
    is_zero = not match[1].strip("-0.")
    return real if math.isfinite(real) and (is_zero or real != 0) else None


def is_number(text: str) -> bool:
    """Return True if a constant is a number, whatever its length."""
    return bool(_PLAIN.fullmatch(text)) or _power(text) is not None


def has_exponent(text: str) -> bool:
    """Return True if a text has the form of a number with an exponent; `=` compares it as text."""
    return bool(_POWER.fullmatch(text))


def is_whole(text: str) -> bool:
    """Return True if a constant is a whole number in plain digits, whatever its length."""
    return bool(_INTEGER.fullmatch(text))


def whole(text: str) -> int | None:
    """Return the value of a constant where a whole number of 64 bits is needed; None for others.

    Numbers without a fraction are whole however they are written: `2`, `2.0`, `2e0`.
    """
    match = _WHOLE.fullmatch(text)
    if match is not None:
        value = number(match[1])
        return value if isinstance(value, int) else None
    real = _power(text)
    is_integral = real is not None and real.is_integer() and abs(real) <= _MAX_EXACT_REAL
    return int(real) if real is not None and is_integral else None


def python_number(text: str) -> Number | None:
    """Return a number as a Python value: whole numbers exactly; None for a text.

    None also for whole numbers that Python itself does not read (more than 4,300 digits) and
    decimals beyond the doubles.
    """
    value = number(text)
    if value is None and len(text) <= _MAX_PYTHON_DIGITS and _INTEGER.fullmatch(text):
        return int(text)
    return value


def exact(text: str) -> int | Decimal | None:
    """Return the exact value of a number; None for a text. Values compare exactly."""
    if _PLAIN.fullmatch(text):
        is_short = len(text) <= _MAX_INTEGER_CHARS and "." not in text
        return int(text) if is_short else Decimal(text)
    real = _power(text)
    return None if real is None else 0 if real == 0 else Decimal(text)


def number_text(value: Number) -> str:
    """Return the canonical text of a finite number: the shortest that reads back, whole numbers as
    digits.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return repr(value)


def canonical(text: str) -> str | None:
    """Return a number as computed values are written; None for a text.

    Whole numbers keep all digits. Other numbers become the nearest double; beyond the doubles they
    have no canonical text.
    """
    value = number(text)
    if value is not None:
        return number_text(value)
    return text if is_whole(text) else None


def answer_key(text: str) -> tuple[int, int | Decimal, str]:
    """Return the sort key of one argument: numbers before text, numbers by value then text, text by
    code point.
    """
    value = exact(text)
    return (1, 0, text) if value is None else (0, value, text)
