"""The period that a question names: a year, a month, or a day, as in "in 2024" or "on 5 March 2024"."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import NamedTuple

from kbcore.search.dates import MONTHS

DAY = 86_400_000
"""Milliseconds of a day."""

_EPOCH = date(1970, 1, 1).toordinal()
_MONTH = "|".join(MONTHS)
_YEAR = r"(?P<year>[12]\d{3})"
_PERIODS = tuple(
    re.compile(rf"\b(?:in|during|on|as of|at)?\s*(?:the year\s+)?{each}\b(?!-)[,]?", re.IGNORECASE)
    for each in (
        rf"{_YEAR}-(?P<number>\d\d)-(?P<day>\d\d)",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH}),?\s+{_YEAR}",
        rf"(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+{_YEAR}",
        rf"(?P<month>{_MONTH})\s+{_YEAR}",
        _YEAR,
    )
)
_EDGE = re.compile(
    r"\b(?:at|by|on)\s+the\s+(?P<edge>end|start|beginning)\s+of\s*$", re.IGNORECASE
)
_END = "end"


class AskedPeriod(NamedTuple):
    """A question without the period that it names, and the first and the last millisecond of it."""

    question: str
    first: int
    last: int


def period_of(question: str) -> AskedPeriod | None:
    """Return the period of a question that names exactly one; otherwise None."""
    for pattern in _PERIODS:
        matches = list(pattern.finditer(question))
        if matches:
            return _period(question, matches[0]) if len(matches) == 1 else None
    return None


def _period(question: str, match: re.Match[str]) -> AskedPeriod | None:
    parts = match.groupdict()
    month, day = parts.get("month"), parts.get("day")
    number = MONTHS.index(month.casefold()) + 1 if month else int(parts.get("number") or 1)
    try:
        first = date(int(parts["year"]), number, int(day or 1))
    except ValueError:  # no such day
        return None
    if day:
        last = first
    elif month:
        last = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    else:
        last = first.replace(month=12, day=31)
    before = question[: match.start()]
    edge = _EDGE.search(before)
    if edge is not None:
        before = before[: edge.start()]
        first, last = (last, last) if edge["edge"].casefold() == _END else (first, first)
    rest = f"{before.rstrip()} {question[match.end() :].lstrip()}"
    return AskedPeriod(rest, _milliseconds(first), _milliseconds(last) + DAY - 1)


def _milliseconds(day: date) -> int:
    """Return the start of a day in UTC in epoch milliseconds."""
    return (day.toordinal() - _EPOCH) * DAY
