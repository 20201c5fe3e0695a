"""Comparisons of constants by value: numbers exactly, instants by time, all others as texts.

csrc/store/sort.c compares the same way in the engine, `kbplugins.bulk_sql.values` in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbplanner.ir.values.instants import instant
from kbplanner.ir.values.numbers import answer_key, canonical, exact, has_exponent, is_whole


def order(a: str, b: str) -> int | None:
    """Return -1, 0 or 1 as a is less than, equal to or greater than b, as `<` compares them.

    Two numbers compare by value, two instants by time, two other texts, or a text with an instant,
    by code point. None for a number with a text: they are not ordered.
    """
    if a == b:
        return 0
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        return (x > y) - (x < y)
    if x is not None or y is not None:
        return None
    first, second = instant(a), instant(b)
    if first is not None and second is not None:
        return (first.moment > second.moment) - (first.moment < second.moment)
    return (a > b) - (a < b)


def is_equal(a: str, b: str) -> bool:
    """Return True if `a = b` holds: numbers with an exponent are texts here."""
    if a == b or a[:1].isalpha() or b[:1].isalpha():  # neither a number nor an instant
        return a == b
    return not has_exponent(a) and not has_exponent(b) and order(a, b) == 0


def test(op: int, a: str, b: str) -> bool:
    """Apply comparison number `op` (its index in operators.COMPARISONS, +8 to negate) to two
    constants.
    """
    outcome = _test(op & 7, a, b)
    return not outcome if op & 8 else outcome


def _test(op: int, a: str, b: str) -> bool:
    if op in (2, 3):
        return (a == b) == (op == 2)
    if op in (0, 1):
        return is_equal(a, b) == (op == 0)
    sign = order(a, b)
    if sign is None:
        return False
    return {4: sign < 0, 5: sign <= 0, 6: sign > 0, 7: sign >= 0}[op]


def best_of(function: str, texts: Sequence[str]) -> str | None:
    """Return the first (`min`) or last (`max`) of the numbers among constants; without a number, of
    the instants; None if there are neither.

    Equal values are in the order of answers.
    """
    choose = min if function == "min" else max
    numbers = [text for text in texts if exact(text) is not None]
    if numbers:
        return choose(numbers, key=answer_key)
    instants = [(start.moment, text) for text in texts if (start := instant(text)) is not None]
    return choose(instants)[1] if instants else None


def extreme(function: str, args: Sequence[str]) -> str | None:
    """Return the value of the function `min` or `max`: of numbers in canonical text, of instants as
    written; None for other texts, and for both kinds together.

    Of equal numbers it is a whole number in plain digits, if there is one.
    """
    choose = min if function == "min" else max
    prefers_last = function == "max"
    values = [
        (value, is_whole(a) == prefers_last, a) for a in args if (value := exact(a)) is not None
    ]
    if len(values) == len(args):
        return canonical(choose(values, key=lambda each: each[:2])[2])
    return None if values else _extreme_instant(function, args)


def _extreme_instant(function: str, args: Sequence[str]) -> str | None:
    are_instants = all(instant(arg) is not None for arg in args)
    return best_of(function, args) if are_instants else None


def kept(text: str) -> str | None:
    """Return a constant as best values keep it: numbers in canonical text, instants as they are
    written; None if it is neither.
    """
    return extreme("min", [text])
