"""Aggregates of a group and the total of a column, computed as in csrc/run/aggregate.c and
csrc/store/total.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from kbplanner.engine.backend import Total
from kbplanner.ir.values.comparison import best_of
from kbplanner.ir.values.instants import instant
from kbplanner.ir.values.numbers import Number, answer_key, is_number, number, number_text


def fold(function: str, texts: Sequence[str]) -> tuple[str | None, int]:
    """Return an aggregate of constants (None where it has no value) and the number of warnings.

    Constants that are not numbers are left out of all aggregates but `count`, with one warning
    each. A sum is computed exactly and rounded once if it contains reals, so that the order of the
    constants does not matter; beyond 64 bits, or beyond the doubles, it has no value, and neither
    if one of the numbers is. `min` and `max` are the first and last of the numbers in answer order;
    in a group without numbers, of the instants by time. `representative` is the first of all
    constants.
    """
    if function == "count":
        return str(len(texts)), 0
    if function == "representative":
        return min(texts, key=answer_key), 0
    numbers = [text for text in texts if is_number(text)]
    if function in ("min", "max"):
        counted = numbers or [text for text in texts if instant(text) is not None]
        return best_of(function, counted), len(texts) - len(counted)
    warnings = len(texts) - len(numbers)
    if function == "avg" and not numbers:
        return None, warnings
    values = [value for text in numbers if (value := number(text)) is not None]
    if len(values) < len(numbers):
        return None, warnings + 1
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
    try:
        return float(sum(map(Fraction, values)))
    except OverflowError:
        return None


def total(values: Sequence[int], texts: Mapping[int, str]) -> Total:
    """Return the total of a column: a symbol for each row, and the text of each symbol."""
    is_numeric = {symbol: is_number(texts[symbol]) for symbol in set(values)}
    ordered = sorted(
        (symbol for symbol in is_numeric if is_numeric[symbol]),
        key=lambda symbol: answer_key(texts[symbol]),
    )
    known = {symbol: number(texts[symbol]) for symbol in ordered}
    numbers = [known[symbol] for symbol in values if symbol in known]
    reals = [value for value in numbers if not isinstance(value, int)]
    return Total(
        len(values),
        len(numbers),
        sum(value for value in numbers if isinstance(value, int)),
        sum((Fraction(value) for value in reals if value is not None), Fraction())
        if reals
        else None,
        None in reals,
        *((ordered[0], ordered[-1]) if ordered else (0, 0)),
        next((symbol for symbol in values if symbol not in known), 0),
    )
