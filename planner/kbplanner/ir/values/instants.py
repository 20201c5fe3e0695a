"""Instants: reading of ISO 8601 texts, and the bodies of the functions of time.

csrc/text/instants.c computes the same values in the engine. An instant is a date, which is its
midnight in UTC, or a date and a time with an offset from UTC; without an offset the time is in UTC.
Fractions of a second have at most nine digits, years are 0001 to 9999, and there are no leap
seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from kbplanner.ir.operators import INTERVAL_RELATIONS
from kbplanner.ir.values.numbers import number_text, whole

OPEN_END = ".."
"""The text of an end of an interval that is open: before all instants, or after all (ISO
8601-2).
"""

_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:([Tt ])(\d\d):(\d\d)(?::(\d\d)([.,](\d{1,9}))?)?(Z|z|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_DAY = 86_400
_SECOND_NS = 1_000_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH_DAY
_FIRST_DAY = date.min.toordinal() - _EPOCH_DAY

Moment = tuple[int, int]
"""Seconds since 1970 in UTC, and nanoseconds: compares by time."""

_ALWAYS: Moment = (-(1 << 62), 0)
_NEVER: Moment = (1 << 62, 0)


@dataclass(frozen=True, slots=True)
class InstantValue:
    """A text that is an instant: the moment it names, and its parts as they are written.

    `day` counts from 1970-01-01, `second` from midnight; both are local, at the offset of the text.
    """

    moment: Moment
    day: int
    second: int
    text: str


def instant(text: str) -> InstantValue | None:
    """Return the instant that a text names, None if it names none."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    year, month, day, _, hour, minute, second, _, part, _, sign, hours, minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    hour, minute, second = int(hour or 0), int(minute or 0), int(second or 0)
    offset = int(hours or 0) * 3600 + int(minutes or 0) * 60
    if hour > 23 or minute > 59 or second > 59 or int(minutes or 0) > 59 or offset >= _DAY:
        return None
    local = hour * 3600 + minute * 60 + second
    utc = days * _DAY + local + (offset if sign == "-" else -offset)
    return InstantValue((utc, int((part or "0").ljust(9, "0"))), days, local, text)


def milliseconds(named: InstantValue) -> int:
    """Return the moment of an instant in epoch milliseconds."""
    seconds, nanoseconds = named.moment
    return seconds * 1000 + nanoseconds // 1_000_000


def instant_text(at: int) -> str:
    """Return epoch milliseconds as an instant in UTC, always with milliseconds.

    Outside the years 1 to 9999 it is the first or last instant of these years.
    """
    first, last = _FIRST_DAY * _DAY * 1000, (_LAST_DAY + 1) * _DAY * 1000 - 1
    seconds, milliseconds = divmod(min(max(at, first), last), 1000)
    day, second = divmod(seconds, _DAY)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{milliseconds:03}"
    return f"{date.fromordinal(day + _EPOCH_DAY).isoformat()}T{clock}Z"


def _pair(args: Sequence[str]) -> tuple[Moment, Moment] | None:
    """Return the moments of two instants; None if a text is none."""
    first, second = instant(args[0]), instant(args[1])
    return None if first is None or second is None else (first.moment, second.moment)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _before(args: Sequence[str]) -> str | None:
    pair = _pair(args)
    return None if pair is None else _truth(pair[0] < pair[1])


def _after(args: Sequence[str]) -> str | None:
    return _before((args[1], args[0]))


def _elapsed(args: Sequence[str]) -> Moment | None:
    """Return the seconds and nanoseconds from one instant to another, both of the same sign."""
    pair = _pair(args)
    if pair is None:
        return None
    seconds, rest = pair[1][0] - pair[0][0], pair[1][1] - pair[0][1]
    if seconds > 0 > rest:
        return seconds - 1, rest + _SECOND_NS
    return (seconds + 1, rest - _SECOND_NS) if seconds < 0 < rest else (seconds, rest)


def _days_between(args: Sequence[str]) -> str | None:
    elapsed = _elapsed(args)
    if elapsed is None:
        return None
    seconds, rest = elapsed
    if rest == 0 and seconds % _DAY == 0:
        return str(seconds // _DAY)
    return number_text((seconds * _SECOND_NS + rest) / (_DAY * _SECOND_NS))


def _seconds_between(args: Sequence[str]) -> str | None:
    elapsed = _elapsed(args)
    if elapsed is None:
        return None
    seconds, rest = elapsed
    return str(seconds) if rest == 0 else number_text((seconds * _SECOND_NS + rest) / _SECOND_NS)


def _date_text(day: int) -> str | None:
    """Return the date of a day that counts from 1970; None outside the years 1 to 9999."""
    return (
        date.fromordinal(day + _EPOCH_DAY).isoformat() if _FIRST_DAY <= day <= _LAST_DAY else None
    )


def _add_days(args: Sequence[str]) -> str | None:
    """Move the date by whole days; the time and the offset stay as they are written."""
    start, days = instant(args[0]), whole(args[1])
    if start is None or days is None:
        return None
    moved = _date_text(start.day + days)
    return None if moved is None else moved + start.text[10:]


def _add_seconds(args: Sequence[str]) -> str | None:
    """Move the time by whole seconds; the fraction and the offset stay as they are written.

    A date becomes a time in UTC. Seconds are left out where the text has none and they are 0.
    """
    start, seconds = instant(args[0]), whole(args[1])
    if start is None or seconds is None:
        return None
    day, second = divmod(start.second + seconds, _DAY)
    moved = _date_text(start.day + day)
    if moved is None:
        return None
    text = start.text if len(start.text) > 10 else start.text + "T00:00:00Z"
    clock = f"{moved}{text[10]}{second // 3600:02}:{second // 60 % 60:02}"
    if text[16:17] == ":":
        return f"{clock}:{second % 60:02}{text[19:]}"
    return f"{clock}:{second % 60:02}{text[16:]}" if second % 60 else clock + text[16:]


def _date_part(part: Callable[[date], int]) -> Callable[[Sequence[str]], str | None]:
    """Return the body of a function of the date as it is written."""

    def body(args: Sequence[str]) -> str | None:
        start = instant(args[0])
        return None if start is None else str(part(date.fromordinal(start.day + _EPOCH_DAY)))

    return body


def _end(text: str, open_end: Moment) -> Moment | None:
    """Return the moment of an end of an interval, which may be open."""
    if text == OPEN_END:
        return open_end
    end = instant(text)
    return None if end is None else end.moment


def _interval(texts: Sequence[str]) -> tuple[Moment, Moment] | None:
    """Return the ends of an interval; None if they are none, or in the wrong order."""
    start, end = _end(texts[0], _ALWAYS), _end(texts[1], _NEVER)
    return (start, end) if start is not None and end is not None and start < end else None


def _relation(a: tuple[Moment, Moment], b: tuple[Moment, Moment]) -> str:
    """Return the name of the one relation of two intervals that holds."""
    (start, end), (other_start, other_end) = a, b
    if end <= other_start:
        return "meets" if end == other_start else "precedes"
    if other_end <= start:
        return "met_by" if other_end == start else "preceded_by"
    if start == other_start:
        if end == other_end:
            return "equals_interval"
        return "starts" if end < other_end else "started_by"
    if end == other_end:
        return "finishes" if start > other_start else "finished_by"
    if start < other_start:
        return "includes" if end > other_end else "overlaps"
    return "during" if end < other_end else "overlapped_by"


_DISJOINT = ("precedes", "preceded_by", "meets", "met_by")


def _holds(name: str) -> Callable[[Sequence[str]], str | None]:
    """Return the body of a relation of two intervals."""

    def body(args: Sequence[str]) -> str | None:
        first, second = _interval(args[:2]), _interval(args[2:])
        if first is None or second is None:
            return None
        relation = _relation(first, second)
        return _truth(relation == name or (name == "intersects" and relation not in _DISJOINT))

    return body


TIME_FUNCTIONS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "before": _before,
    "after": _after,
    "days_between": _days_between,
    "seconds_between": _seconds_between,
    "add_days": _add_days,
    "add_seconds": _add_seconds,
    "year": _date_part(lambda day: day.year),
    "month": _date_part(lambda day: day.month),
    "day": _date_part(lambda day: day.day),
    "weekday": _date_part(lambda day: day.isoweekday()),
    **{name: _holds(name) for name in INTERVAL_RELATIONS},
}
"""The body of each function of instants."""
