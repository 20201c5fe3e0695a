"""Instants: epoch milliseconds, or ISO 8601 text, in UTC if it has no offset."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|z|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

LAST_INSTANT = 8_640_000_000_000_000
"""The last millisecond, before and after 1970, that dates of the web can name."""

SECONDS = range(500_000_000, 10_000_000_000)
"""Numbers that are rather seconds of the years 1985 to 2286 than milliseconds of the first months
of 1970.
"""

_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|min|m|h|d|w)", re.ASCII)

_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}


def iso_text(at: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC, always with milliseconds, so that texts sort by
    time: `2026-01-31T12:00:00.000Z`.

    Raises OverflowError outside the years 1 to 9999.
    """
    when = _EPOCH + timedelta(milliseconds=at)
    return when.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def time_text(at: int) -> str:
    """Return epoch milliseconds as `iso_text` does, or as a number outside the years 1 to 9999."""
    try:
        return iso_text(at)
    except OverflowError:
        return f"epoch millisecond {at}"


def instant(value: Any) -> int:
    """Read an instant, epoch milliseconds or ISO 8601, as epoch milliseconds.

    A text without an offset is in UTC, and a day means its first instant. Raises ValueError with a
    message for people.
    """
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int and -LAST_INSTANT <= value <= LAST_INSTANT:
        return value
    match = _ISO.fullmatch(value) if type(value) is str else None
    if match is None:
        raise ValueError(
            "must be epoch milliseconds or an ISO 8601 time such as 2026-01-31T12:00:00Z or 2026-01-31"
        )
    year, month, day, hour, minute, second, part, _, sign, hours, minutes = match.groups()
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=timezone.utc,
        )
    except ValueError as error:
        raise ValueError(f"is not a time: {error}") from error
    away = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if away >= timedelta(hours=24) or int(minutes or 0) > 59:
        raise ValueError("has an offset from UTC of a day or more")
    since = local - _EPOCH - (-away if sign == "-" else away)
    return since // timedelta(milliseconds=1) + int((part or "0").ljust(3, "0")[:3])


def seconds_warning(value: Any) -> str | None:
    """Return a warning for an instant that looks like epoch seconds, None for any other value."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) not in SECONDS:
        return None
    return f"{value} looks like seconds, but was read as milliseconds: {iso_text(value)}"


def duration(value: Any) -> int:
    """Read a duration in milliseconds: a number of them, or a text such as `30d`, with a unit ms,
    s, m (minutes), h, d or w.

    Raises ValueError with a message for people.
    """
    if type(value) is str and (match := _DURATION.fullmatch(value.strip())):
        value = int(match[1]) * _UNITS_MS[match[2]]
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 < value <= LAST_INSTANT:
        raise ValueError(
            "must be a positive number of milliseconds, or a text with a unit such as 30d or 12h"
        )
    return value
