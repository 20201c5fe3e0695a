"""Words of dates: the month and the weekday of a date that a fact has, and the dates that a
question means, such as "last May" or "three days ago".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone

from kbplanner.pacing import CHARS_PER_YIELD, YieldNow, go_on, paced

MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

DATE_LENGTH = 10
"""Characters of an ISO date, with which an ISO instant begins."""

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_MONTH = "|".join(MONTHS)
_WEEKDAY = "|".join(WEEKDAYS)
_COUNT = rf"\d{{1,3}}|an?|{'|'.join(NUMBERS)}"
_RELATIVE = re.compile(
    rf"\b(?P<day>yesterday|today|tonight|tomorrow)\b"
    rf"|\b(?P<which>last|next|this)\s+(?:(?P<month>{_MONTH})|(?P<weekday>{_WEEKDAY})"
    rf"|(?P<unit>month|year))\b"
    rf"|\b(?P<count>{_COUNT})\s+(?P<units>day|week|month|year)s?\s+ago\b",
    re.IGNORECASE,
)
_MAX_CHARS = 100
"""Characters of a relative date, with blanks, that begins at the end of a piece of a text."""

_DAYS = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}


def date_words(text: str) -> list[str]:
    """Return the words of a value that is an ISO date or instant: day, month and weekday.

    The result is empty for any other text. The year, and the month and day as two digits, are words
    of the text itself.
    """
    if len(text) < DATE_LENGTH or (match := _ISO.fullmatch(text)) is None:
        return []
    try:
        day = date(*map(int, match.groups()))
    except ValueError:  # no such day
        return []
    number = [str(day.day)] if day.day < 10 else []  # otherwise the text has it
    return [*number, MONTHS[day.month - 1], WEEKDAYS[day.weekday()]]


def words_of_day(at: int) -> str:
    """Return the words of the day of an instant (epoch milliseconds): its number, month, year and
    weekday; empty outside the years 1 to 9999.
    """
    try:
        day = (_EPOCH + timedelta(milliseconds=at)).date()
    except OverflowError:
        return ""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year} {WEEKDAYS[day.weekday()]}"


def resolved_dates(text: str, now: int, yield_now: YieldNow = go_on) -> str:
    """Return the dates that a text names relative to an instant (epoch milliseconds), as words.

    "last May" gives the month and its year, "yesterday" and "two weeks ago" the day, "last month"
    and "last year" the month and the year. The result is empty if the text has none of them.
    `yield_now` is called about once a millisecond.
    """
    today = datetime.fromtimestamp(now / 1000, timezone.utc).date()
    words: list[str] = []
    for match in _relative(text, yield_now):
        words += _words_of(match, today)
    return " ".join(words)


def _relative(text: str, yield_now: YieldNow) -> Iterator[re.Match[str]]:
    """Yield the relative dates of a text."""
    at = 0
    for start in paced(range(0, len(text), CHARS_PER_YIELD), yield_now, 1):
        end = start + CHARS_PER_YIELD
        for match in _RELATIVE.finditer(text, max(start, at), end + _MAX_CHARS):
            if match.start() >= end:
                break
            at = match.end()
            yield match


def _words_of(match: re.Match[str], today: date) -> Iterator[str]:
    part = {key: value.casefold() for key, value in match.groupdict().items() if value is not None}
    which = part.get("which")
    if "day" in part:
        yield from _of_day(today + timedelta(days=_DAYS[part["day"]]))
    elif "month" in part:
        number = MONTHS.index(part["month"]) + 1
        year = today.year
        if which == "last" and number >= today.month:
            year -= 1
        elif which == "next" and number <= today.month:
            year += 1
        yield str(year)
    elif "weekday" in part:
        ahead = (WEEKDAYS.index(part["weekday"]) - today.weekday()) % 7
        if which == "last":
            ahead -= 7
        elif which == "next" and not ahead:
            ahead = 7
        yield from _of_day(today + timedelta(days=ahead))
    elif "unit" in part:
        step = {"last": -1, "this": 0, "next": 1}[which or "this"]
        yield from _shifted(today, step, part["unit"])
    else:
        count = part["count"]
        number = (
            int(count) if count.isdecimal() else NUMBERS.index(count) + 1 if count in NUMBERS else 1
        )
        yield from _shifted(today, -number, part["units"])


def _shifted(today: date, count: int, unit: str) -> Iterator[str]:
    """Yield the words of the day, month or year that is `count` units away."""
    if unit in ("day", "week"):
        yield from _of_day(today + timedelta(days=count * (7 if unit == "week" else 1)))
    elif unit == "month":
        index = today.year * 12 + today.month - 1 + count
        yield MONTHS[index % 12]
        yield str(index // 12)
    else:
        yield str(today.year + count)


def _of_day(day: date) -> Iterator[str]:
    yield str(day.day)
    yield MONTHS[day.month - 1]
    yield str(day.year)
