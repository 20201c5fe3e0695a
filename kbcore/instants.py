"""Instants on input: epoch milliseconds, or ISO 8601 text with an offset."""

from __future__ import annotations

from datetime import datetime

MAX_INSTANT = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def instant(value: object) -> int:
    """Epoch milliseconds of an instant given as a whole number or as ISO 8601 text with an offset or `Z`.

    Raises ValueError with a message for people.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be epoch milliseconds or an ISO 8601 time with an offset")
    if isinstance(value, str):
        value = _parse(value)
    if not 0 <= value <= MAX_INSTANT:
        raise ValueError("must lie between the years 1970 and 9999")
    return value


def _parse(text: str) -> int:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text)
    except ValueError as error:
        raise ValueError(f"'{text[:40]}' is not an ISO 8601 time") from error
    if found.tzinfo is None:
        raise ValueError("an ISO 8601 time needs an offset, such as Z or +02:00")
    return round(found.timestamp() * 1000)
