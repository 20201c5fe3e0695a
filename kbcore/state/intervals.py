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

RESERVED_KEYS = frozenset((EVIDENCE_KEY, EARLIER_KEY, STATED_KEY))
"""Keys of stored metadata that the metadata of clients must not contain."""

MAX_EARLIER = 1000
"""Closed intervals that a fact keeps, the newest of them."""


class Interval(NamedTuple):
    """A closed interval of a fact, from `start` up to, not including, `end` (epoch milliseconds),
    with the values that the fact had in it.
    """

    start: int
    end: int
    created_at: int
    confidence: float | None = None
    metadata: Mapping[str, Any] = {}


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
    ordered = [list(unique[name]) for name in sorted(unique)][-MAX_EARLIER:]
    bare = {key: value for key, value in metadata.items() if key != EARLIER_KEY}
    return {**bare, EARLIER_KEY: ordered} if ordered else bare


def interval_at(metadata: Mapping[str, Any] | None, at: int) -> Interval | None:
    """Return the closed interval in stored metadata that contains a point in time, if any."""
    for each in () if metadata is None else metadata.get(EARLIER_KEY, ()):
        if each[0] <= at < each[1]:
            return Interval(*each)
    return None


def united(target: Mapping[str, Any], source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of two facts that become one: the source wins a key that both have, the
    closed intervals are united, and the later assertion counts.
    """
    both = {**target, **source}
    stated: Sequence[int] = [
        each[STATED_KEY] for each in (target, source) if each.get(STATED_KEY) is not None
    ]
    if stated:
        both[STATED_KEY] = max(stated)
    return with_earlier(both, [*earlier_of(target), *earlier_of(source)])
