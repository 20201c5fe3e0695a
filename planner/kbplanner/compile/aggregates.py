"""Aggregates of a group and the total of a column, computed as in csrc/aggregate.c and
csrc/total.c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from kbplanner.engine.backend import Total
from kbplanner.ir.values.numbers import Number, answer_key, number, number_text


def fold(function: str, texts: Sequence[str]) -> tuple[str | None, int]:
    """Return an aggregate of constants (None where it has no value) and the number of warnings.

    Constants that are not numbers are left out of all aggregates but `count`, with one warning
    each. A sum is computed exactly and rounded once if it contains reals, so that the order of the
    constants does not matter; beyond 64 bits, or beyond the doubles, it has no value. `min` and
    `max` are the first and last of the numbers in answer order, `representative` is the first of
    all constants.
    """
    if function == "count":
        return str(len(texts)), 0
    if function == "representative":
        return min(texts, key=answer_key), 0
    numbers = [text for text in texts if number(text) is not None]
    warnings = len(texts) - len(numbers)
    if function in ("min", "max"):
        if not numbers:
            return None, warnings
        return (min if function == "min" else max)(numbers, key=answer_key), warnings
    values = [value for text in numbers if (value := number(text)) is not None]
    if function == "avg" and not values:
        return None, warnings
    result = _sum(values) if function == "sum" else _mean(values)
    return (None, warnings + 1) if result is None else (number_text(result), warnings)


def _sum(values: Sequence[Number]) -> Number | None:
    if all(isinstance(value, int) for value in values):
        whole = sum(values)
        return whole if _fits(whole) else None
    return _nearest(values)


def _mean(values: Sequence[Number]) -> Number | None:
    if all(isinstance(value, int) for value in values):
        whole = int(sum(values))
        if _fits(whole) and whole % len(values) == 0:
            return whole // len(values)
    nearest = _nearest(values)
    return None if nearest is None else nearest / len(values)


def _fits(whole: Number) -> bool:
    return -(1 << 63) <= whole < 1 << 63


def _nearest(values: Sequence[Number]) -> float | None:
    """Return the double nearest to the exact sum."""
    if any(isinstance(value, float) and math.isinf(value) for value in values):
        return None
    try:
        return float(sum(map(Fraction, values)))
    except OverflowError:
        return None


def total(values: Sequence[int], texts: Mapping[int, str]) -> Total:
    """Return the total of a column: a symbol for each row, and the text of each symbol."""
    known = {symbol: number(texts[symbol]) for symbol in set(values)}
    numbers = [value for symbol in values if (value := known[symbol]) is not None]
    ordered = sorted(
        (symbol for symbol in known if known[symbol] is not None),
        key=lambda symbol: answer_key(texts[symbol]),
    )
    reals = [value for value in numbers if isinstance(value, float)]
    return Total(
        len(values),
        len(numbers),
        sum(value for value in numbers if isinstance(value, int)),
        sum((Fraction(value) for value in reals if math.isfinite(value)), Fraction())
        if reals
        else None,
        any(map(math.isinf, reals)),
        *((ordered[0], ordered[-1]) if ordered else (0, 0)),
        next((symbol for symbol in values if known[symbol] is None), 0),
    )
