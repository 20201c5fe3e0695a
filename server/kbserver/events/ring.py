"""Ring buffer of the latest events of one tenant, shared by all its streams.

Each change set is stored once and each event serialised once: when the first stream reads it, a
block of events at a time, so writes pay nothing. If the buffer is full, the oldest change sets are
dropped, even if a stream has not read them yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice

import orjson

from kbcore.events.events import ChangeEvent, Place, Wanted, events_of
from kbcore.events.feed import Committed
from kbcore.state.changes import PurgeMemory

BLOCK = 200
"""Events serialised at a time, which takes a few milliseconds."""

READ_BYTES = 64 * 1024
"""Approximate size of one read of a stream."""

_ROW_BYTES = 256
_TEXTS = 8


class Behind(Exception):
    """The next change set of a reader was dropped from the ring."""


@dataclass(slots=True)
class _Block:
    events: list[tuple[ChangeEvent, bytes]]
    write: Callable[[ChangeEvent], bytes]
    texts: dict[Wanted, bytes] = field(default_factory=dict)

    def text(self, filter: Wanted, after: int) -> bytes:
        """Return the events that pass the filter, of those after a number; the text of all is
        cached for streams with the same filter and without a view.
        """
        if filter.view is not None or after >= 0:
            return b"".join(self._selected(filter, after))
        text = self.texts.get(filter)
        if text is None:
            text = b"".join(self._selected(filter, after))
            if len(self.texts) < _TEXTS:
                self.texts[filter] = text
        return text

    def _selected(self, filter: Wanted, after: int) -> Iterator[bytes]:
        for event, written in self.events:
            if event.number > after and (seen := filter.select(event)) is not None:
                yield written if seen is event else self.write(seen)


class RingEntry:
    """One change set: its place in the log, its size, and its events as far as they are
    serialised.
    """

    def __init__(self, committed: Committed) -> None:
        delta = committed.delta
        removed = sum(len(group.rows) for group in delta.removed)
        rules = len(delta.rules_added) + len(delta.rules_removed)
        self.events = max(1, delta.asserted + delta.updated + delta.evicted + removed + rules)
        self.bytes = committed.size + _ROW_BYTES * (removed + self.events)
        self.seq, self.at = committed.seq, committed.at
        self.purges = removes_for_good(committed)
        self._committed = committed
        self._pending: Iterator[ChangeEvent] | None = events_of(committed)
        self._blocks: list[_Block] = []

    def texts(self, log: str, filter: Wanted, after: int) -> Iterator[bytes]:
        """Yield the events that pass the filter, of those after a number in the change set, in
        parts.
        """
        numbers = count()
        while (block := self.block(next(numbers), log)) is not None:
            if text := block.text(filter, after):
                yield text

    def block(self, number: int, log: str) -> _Block | None:
        """Return a block of events, None after the last."""
        while len(self._blocks) <= number:
            if self._pending is None:
                return None
            events = list(islice(self._pending, BLOCK))
            write = partial(self._written, log)
            self._blocks.append(_Block([(event, write(event)) for event in events], write))
            if len(events) < BLOCK:
                self._pending = None
        return self._blocks[number]

    def _written(self, log: str, event: ChangeEvent) -> bytes:
        shape = event.shape(log, self._committed)
        return b"event: %b\nid: %b\ndata: %b\n\n" % (
            event.kind.encode(),
            shape["eventId"].encode(),
            orjson.dumps(shape),
        )


def removes_for_good(committed: Committed) -> bool:
    """Return True for a purge, and for a deletion of the tenant or of its database."""
    return committed.catalog_action is not None or any(
        isinstance(change, PurgeMemory) for change in committed.changes.changes
    )


@dataclass(slots=True)
class RingReader:
    """Position of a stream: next change set, next block in it, and last event seen of a change set
    read in part.
    """

    entry: int
    block: int = 0
    seen: int = -1


class Ring:
    """The latest change sets of a tenant, up to `max_events` events and about `max_bytes` bytes.

    The newest change set is stored even if it is larger than the limits. The ring holds everything
    after the log position `base` and after the time `base_time` (epoch milliseconds).
    """

    def __init__(self, log: str, max_events: int, max_bytes: int) -> None:
        self.log = log
        self.base = self.base_time = 0
        self._max_events, self._max_bytes = max_events, max_bytes
        self._entries: dict[int, RingEntry] = {}
        self._first = self._next = 0
        self._events = self._bytes = 0
        self._mutex = threading.Lock()

    def begin(self, base: int, now: int) -> None:
        """Start after the log position `base` at the time `now`; drop change sets up to `base` that
        arrived earlier.
        """
        with self._mutex:
            self.base, self.base_time = base, now
            while self._first < self._next and self._entries[self._first].seq <= base:
                self._drop()

    def add(self, committed: Committed) -> None:
        """Append the next change set."""
        if committed.seq <= self.base:
            return
        entry = RingEntry(committed)
        with self._mutex:
            self._entries[self._next] = entry
            self._next += 1
            self._events += entry.events
            self._bytes += entry.bytes
            while self._first < self._next - 1 and (
                self._events > self._max_events or self._bytes > self._max_bytes
            ):
                self._drop()

    def reader_since(self, since: Place | int) -> RingReader | None:
        """Return a reader of what came after a position, or since a time in epoch milliseconds.

        None if the ring does not hold all of it.
        """
        if isinstance(since, int):
            return None if since <= self.base_time else self.since(since)
        try:
            return self.after(since)
        except Behind:
            return None

    def fits(self, events: int, size: int) -> bool:
        """Return True if this many more events, with a size in bytes, fit into the limits."""
        return self._events + events <= self._max_events and self._bytes + size <= self._max_bytes

    def prepend(self, entries: Sequence[RingEntry], base: int, base_time: int, upto: int) -> None:
        """Add the change sets between the log positions `base` and `upto`.

        `base_time` is a time after which these are all (epoch milliseconds). Nothing changes if the
        ring begins later than that by now, or is too full.
        """
        events, size = sum(each.events for each in entries), sum(each.bytes for each in entries)
        with self._mutex:
            if self.base != upto or not self.fits(events, size):
                return
            for entry in reversed(entries):
                self._first -= 1
                self._entries[self._first] = entry
            self._events += events
            self._bytes += size
            self.base, self.base_time = base, min(self.base_time, base_time)

    def forget_purges(self) -> None:
        """Drop the change sets up to the last purge or deletion: their events may show its text."""
        with self._mutex:
            last = max(
                (number for number, entry in self._entries.items() if entry.purges), default=-1
            )
            while self._first <= last:
                self._drop()

    def _drop(self) -> None:
        dropped = self._entries.pop(self._first)
        self._first += 1
        self._events -= dropped.events
        self._bytes -= dropped.bytes
        self.base, self.base_time = max(self.base, dropped.seq), max(self.base_time, dropped.at)

    def newest(self) -> RingReader:
        """Return a reader of future change sets."""
        return RingReader(self._next)

    def oldest(self) -> RingReader:
        """Return a reader of everything in the ring."""
        return RingReader(self._first)

    def after(self, position: Place) -> RingReader:
        """Return a reader of what came after a position; raises Behind if the ring does not hold
        all of it.
        """
        with self._mutex:
            # Of the change set at the base the ring has nothing, so not the rest of it either.
            if position.seq < self.base + (not position.is_whole):
                raise Behind
            for index in range(self._next - 1, self._first - 1, -1):
                entry = self._entries[index]
                if entry.seq == position.seq:
                    return RingReader(index, seen=position.number)
                if entry.seq < position.seq:
                    return RingReader(index + 1)
            return RingReader(self._first)

    def since(self, at: int) -> RingReader:
        """Return a reader of the change sets in the ring logged at `at` (epoch milliseconds) or
        later.
        """
        with self._mutex:
            for index in range(self._first, self._next):
                if self._entries[index].at >= at:
                    return RingReader(index)
            return RingReader(self._next)

    def place(self, reader: RingReader) -> Place:
        """Return the place of a reader, to resume from."""
        with self._mutex:
            before = self._entries.get(reader.entry - 1)
            return Place(self.log, before.seq if before else self.base)

    def read(self, reader: RingReader, filter: Wanted) -> bytes:
        """Return the next events that pass the filter, b"" if there are none yet; raises Behind."""
        parts: list[bytes] = []
        size = 0
        while size < READ_BYTES and reader.entry < self._next:
            entry = self._entries.get(reader.entry)
            if entry is None:
                raise Behind
            block = entry.block(reader.block, self.log)
            if block is None:
                reader.entry, reader.block, reader.seen = reader.entry + 1, 0, -1
                continue
            reader.block += 1
            if text := block.text(filter, reader.seen):
                parts.append(text)
                size += len(text)
        return b"".join(parts)
