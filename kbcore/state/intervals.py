"""Closed intervals of facts, and other entries of stored metadata that no client can send.

A stored fact is one row with one validity window: its newest. The intervals that ended before it
are an entry of its metadata, as its evidence is, and follow the metadata into snapshots, copies,
merges and transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

EVIDENCE_KEY = "\0evidence"
"""Key of the evidence of a fact."""

EARLIER_KEY = "\0earlier"
"""Key of the closed intervals of a fact before its newest one."""

STATED_KEY = "\0stated"
"""Key of the time of the last assertion of a fact whose opposite is stored, if that is not its
creation."""

RESTATED_KEY = "\0restated"
"""Key of the times within the newest interval of a fact from which it was stated again."""

RESERVED_KEYS = frozenset((EVIDENCE_KEY, EARLIER_KEY, STATED_KEY, RESTATED_KEY))
"""Keys of stored metadata that the metadata of clients must not contain."""

MAX_EARLIER = 1000
"""Closed intervals that a fact keeps, the newest of them."""

MAX_RESTATED = 100
"""Times that an interval keeps from which its fact was stated again, the newest of them."""


class Interval(NamedTuple):
    """A closed interval of a fact, from `start` up to, not including, `end` (epoch milliseconds),
    with the values that the fact had in it.

    `restated` are the times within it from which the fact was stated again: another value that
    arrives late ends the fact only up to the next of them.
    """

    start: int
    end: int
    created_at: int
    confidence: float | None = None
    metadata: Mapping[str, Any] = {}
    restated: Sequence[int] = ()

    def without(self, at: int) -> list[Interval]:
        """Return what is left of the interval when another value begins at a time in it."""
        again = [time for time in self.restated if time > at]
        left = [self._replace(end=at, restated=within(self.restated, self.start, at))]
        if again:
            left.append(self._replace(start=again[0], restated=again[1:]))
        return left


def within(times: Iterable[int], start: int, end: int) -> list[int]:
    """Return the times between two others, in order and each once; of many the newest."""
    return sorted({time for time in times if start < time < end})[-MAX_RESTATED:]


def without_reserved(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return stored metadata as the client gave them."""
    if RESERVED_KEYS.isdisjoint(metadata):
        return metadata
    return {key: value for key, value in metadata.items() if key not in RESERVED_KEYS}


def earlier_of(metadata: Mapping[str, Any]) -> list[Interval]:
    """Return the closed intervals in stored metadata, the oldest first."""
    return [Interval(*each) for each in metadata.get(EARLIER_KEY, ())]


def with_earlier(metadata: Mapping[str, Any], intervals: Iterable[Interval]) -> Mapping[str, Any]:
    """Return metadata with exactly these closed intervals, as they are stored.

    Empty intervals are left out, and of equal ones all but one.
    """
    unique = {each[:2]: each for each in intervals if each.start < each.end}
    ordered = [_stored(unique[name]) for name in sorted(unique)[-MAX_EARLIER:]]
    bare = {key: value for key, value in metadata.items() if key != EARLIER_KEY}
    return {**bare, EARLIER_KEY: ordered} if ordered else bare


def with_late(intervals: Iterable[Interval], late: Interval) -> list[Interval]:
    """Return closed intervals and one more, which takes in those that it meets."""
    left: list[Interval] = []
    for each in intervals:
        if each.start < late.end and late.start < each.end:
            start, end = min(each.start, late.start), max(each.end, late.end)
            times = [each.start, late.start, *each.restated, *late.restated]
            late = late._replace(start=start, end=end, restated=within(times, start, end))
        else:
            left.append(each)
    return [*left, late]


def restated_of(metadata: Mapping[str, Any]) -> Sequence[int]:
    """Return the times in stored metadata from which the fact was stated again in its newest
    interval.
    """
    times: Sequence[int] = metadata.get(RESTATED_KEY, ())
    return times


def with_restated(metadata: Mapping[str, Any], times: Sequence[int]) -> Mapping[str, Any]:
    """Return metadata with exactly these times of the newest interval, as they are stored."""
    bare = {key: value for key, value in metadata.items() if key != RESTATED_KEY}
    return {**bare, RESTATED_KEY: list(times)} if times else bare


def interval_at(metadata: Mapping[str, Any] | None, at: int) -> Interval | None:
    """Return the closed interval in stored metadata that contains a point in time, if any."""
    for each in () if metadata is None else metadata.get(EARLIER_KEY, ()):
        if each[0] <= at < each[1]:
            return Interval(*each)
    return None


def united(target: Mapping[str, Any], source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of two facts that become one: the source wins a key that both have, the
    closed intervals and the times are united, and the later assertion counts.
    """
    both = {**target, **source}
    stated: Sequence[int] = [
        each[STATED_KEY] for each in (target, source) if each.get(STATED_KEY) is not None
    ]
    if stated:
        both[STATED_KEY] = max(stated)
    times = {*restated_of(target), *restated_of(source)}
    if times:
        both[RESTATED_KEY] = sorted(times)[-MAX_RESTATED:]
    return with_earlier(both, [*earlier_of(target), *earlier_of(source)])


def _stored(interval: Interval) -> list[Any]:
    return list(interval) if interval.restated else list(interval[:-1])
