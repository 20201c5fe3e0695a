"""The latest events of one tenant, shared by all its streams: each change set is kept once, each event written once.

A change set becomes text when the first stream reads it, a block of events at a time, so a write pays nothing for it. What
is too much is let go of at the old end, whoever still wanted it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import orjson

from kbcore.events.events import Event, Place, Wanted, events_of
from kbcore.events.feed import Committed

BLOCK = 200
"""Events written at a time: a few milliseconds."""

READ_BYTES = 64 * 1024
"""About as much text a stream takes at a time."""

_ROW_BYTES = 256
_TEXTS = 8


class Behind(Exception):
    """What comes next for a reader is not kept any more."""


@dataclass(slots=True)
class _Block:
    events: list[tuple[Event, bytes]]
    texts: dict[Wanted, bytes] = field(default_factory=dict)

    def text(self, wanted: Wanted) -> bytes:
        """What somebody wants of it, made once for all who want the same."""
        found = self.texts.get(wanted)
        if found is None:
            found = b"".join(written for event, written in self.events if wanted.takes(event))
            if len(self.texts) < _TEXTS:
                self.texts[wanted] = found
        return found


class _Entry:
    """One change set: its place, what it weighs, and its events as far as they are written."""

    def __init__(self, committed: Committed) -> None:
        delta = committed.delta
        removed = sum(len(group.rows) for group in delta.removed)
        rules = len(delta.rules_added) + len(delta.rules_removed)
        self.events = max(1, delta.asserted + delta.updated + delta.evicted + removed + rules)
        self.bytes = committed.size + _ROW_BYTES * (removed + self.events)
        self.seq, self.at = committed.seq, committed.at
        self._committed = committed
        self._coming: Iterator[Event] | None = events_of(committed)
        self._blocks: list[_Block] = []

    def block(self, number: int, log: str) -> _Block | None:
        """A block of its events, None after the last."""
        while len(self._blocks) <= number:
            if self._coming is None:
                return None
            events = list(islice(self._coming, BLOCK))
            self._blocks.append(_Block([(event, self._written(event, log)) for event in events]))
            if len(events) < BLOCK:
                self._coming = None
        return self._blocks[number]

    def _written(self, event: Event, log: str) -> bytes:
        shape = event.shape(log, self._committed)
        return b"event: %b\nid: %b\ndata: %b\n\n" % (event.kind.encode(), shape["eventId"].encode(), orjson.dumps(shape))


@dataclass(slots=True)
class Reader:
    """How far somebody has read: the next change set and block of it, and of a change set seen in part the last event."""

    entry: int
    block: int = 0
    seen: int = -1


class Ring:
    """The latest change sets of a tenant, at most so many events and about so many bytes; the newest one whatever its size.

    `base` is a place in the log after which everything is here, `base_time` a time (epoch milliseconds) likewise.
    """

    def __init__(self, log: str, max_events: int, max_bytes: int) -> None:
        self.log = log
        self.base = self.base_time = 0
        self._max_events, self._max_bytes = max_events, max_bytes
        self._entries: dict[int, _Entry] = {}
        self._first = self._next = 0
        self._events = self._bytes = 0
        self._mutex = threading.Lock()

    def begin(self, base: int, now: int) -> None:
        """Start after a place in the log, and now; what came in already and lies before it does not count."""
        with self._mutex:
            self.base, self.base_time = base, now
            while self._first < self._next and self._entries[self._first].seq <= base:
                self._drop()

    def add(self, committed: Committed) -> None:
        """Take the next change set."""
        if committed.seq <= self.base:
            return
        entry = _Entry(committed)
        with self._mutex:
            self._entries[self._next] = entry
            self._next += 1
            self._events += entry.events
            self._bytes += entry.bytes
            while self._first < self._next - 1 and (self._events > self._max_events or self._bytes > self._max_bytes):
                self._drop()

    def _drop(self) -> None:
        gone = self._entries.pop(self._first)
        self._first += 1
        self._events -= gone.events
        self._bytes -= gone.bytes
        self.base, self.base_time = max(self.base, gone.seq), max(self.base_time, gone.at)

    def newest(self) -> Reader:
        """A reader of what comes from now on."""
        return Reader(self._next)

    def oldest(self) -> Reader:
        """A reader of everything that is kept."""
        return Reader(self._first)

    def after(self, place: Place) -> Reader:
        """A reader of what came after a place; raises Behind where not all of it is kept."""
        with self._mutex:
            if place.seq < self.base:
                raise Behind
            for number in range(self._next - 1, self._first - 1, -1):
                entry = self._entries[number]
                if entry.seq == place.seq:
                    return Reader(number, seen=place.number)
                if entry.seq < place.seq:
                    return Reader(number + 1)
            return Reader(self._first)

    def since(self, at: int) -> Reader:
        """A reader of what is kept of a logged time, in epoch milliseconds, and later."""
        with self._mutex:
            for number in range(self._first, self._next):
                if self._entries[number].at >= at:
                    return Reader(number)
            return Reader(self._next)

    def place(self, reader: Reader) -> Place:
        """How far a reader has come, to resume from."""
        with self._mutex:
            before = self._entries.get(reader.entry - 1)
            return Place(self.log, before.seq if before else self.base)

    def read(self, reader: Reader, wanted: Wanted) -> bytes:
        """What comes next and is wanted, b"" for nothing yet; raises Behind."""
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
            if reader.seen >= 0:
                text = b"".join(t for event, t in block.events if event.number > reader.seen and wanted.takes(event))
            else:
                text = block.text(wanted)
            if text:
                parts.append(text)
                size += len(text)
        return b"".join(parts)
