"""Event streams: subscriptions, wake-ups, and removal of streams that are too slow.

A write puts its change set into the ring of its tenant and continues. A separate thread wakes the
streams, a few at a time and at a limited rate; each stream reads all new events in one piece. A
stream that falls behind the ring is ended.

A client that resumes before the ring begins gets the change sets in between from the log. They join
the ring if they fit, so that clients that return together share the work. If they do not fit, the
state that is rebuilt for them is in memory while they are sent: of a tenant one stream at a time
has one, for the time of a request.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from itertools import chain

import orjson

from kbcore.errors import BudgetExceeded, InvalidInput, LogTruncated, NotReady, RateLimited
from kbcore.events.events import Place, Wanted, mark_of
from kbcore.events.feed import Committed
from kbcore.node.runtime import Runtime
from kbcore.node.shard_layout import shard_of
from kbserver.events.open_streams import OpenStreams
from kbserver.events.ring import Behind, Ring, RingEntry, RingReader, removes_for_good

KEEP_ALIVE_SECONDS = 15.0
RETRY_MS = 3000
"""The `retry` field of a stream: milliseconds before a client reconnects."""

WAKE_BATCH_SIZE = 20
WAKE_PAUSE_SECONDS = 0.002
"""Streams are woken in batches with a pause between, so that 1,000 streams do not delay other
requests."""

MIN_WAKE_INTERVAL_SECONDS = 0.02
"""Minimum time between two rounds; commits in the interval are sent together."""

PURGE_SECONDS = 60.0
"""Time for which events before a purge, and those of the purge itself, are kept for streams."""

_SWEEP_SECONDS = 30.0

log = logging.getLogger(__name__)


def _nothing() -> None:
    """Do nothing: the initial value of `leave`, before the subscription exists."""


@dataclass(slots=True, eq=False)
class _Tenant:
    """State of a tenant that has, or recently had, streams."""

    key: tuple[str, str]
    ring: Ring
    log_head: Callable[[], int]
    leave: Callable[[], None] = _nothing
    streams: set[Stream] = field(default_factory=set)
    empty_since: float = 0.0
    fresh: bool = False
    purged_at: float | None = None
    reading_log: threading.Lock = field(default_factory=threading.Lock)
    """Held while change sets are read from the log, and sent if they do not fit into the ring: one
    stream at a time."""


class _LoggedChanges:
    """Change sets of the log, as far as they can be read; `is_complete` is True after the last.

    `is_refused` is True if the tenant has too much long work to read them now.
    """

    def __init__(self, changes: Iterator[Committed]) -> None:
        self._changes = changes
        self.is_complete = self.is_refused = False

    def __iter__(self) -> Iterator[RingEntry]:
        try:
            for committed in self._changes:
                yield RingEntry(committed)
        except (InvalidInput, LogTruncated, BudgetExceeded):  # the stream says what follows
            return
        except RateLimited:
            self.is_refused = True
            return
        self.is_complete = True


class Stream:
    """One stream as the body of a response: an iterator of bytes that waits for events."""

    def __init__(
        self, hub: EventHub, of: _Tenant, filter: Wanted, reader: RingReader, first: bytes
    ) -> None:
        self.woken = threading.Event()
        self._hub, self._of, self._filter, self._reader = hub, of, filter, reader
        self._first: bytes = first
        self._earlier: Generator[bytes, None, None] | None = None
        self._reported_entry = reader.entry
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._earlier is not None and not (self._ended or self._hub.closing):
            if earlier := next(self._earlier, b""):
                return earlier
            self._earlier = None
        while not self._ended and not self._hub.closing:
            self.woken.clear()
            try:
                if text := self._of.ring.read(self._reader, self._filter):
                    self._reported_entry = self._reader.entry
                    return text
            except Behind:
                self._ended = True
                log.info("an event stream was too slow and is dropped")
                return self._hub.lost(self._of.ring, self._of.ring.oldest(), "too_slow")
            if not self.woken.wait(KEEP_ALIVE_SECONDS):
                return self._keep_alive()
        raise StopIteration

    def _keep_alive(self) -> bytes:
        if self._reported_entry == self._reader.entry:
            return b": keep-alive\n\n"
        # Filtered events were skipped: a client that resumes from here does not read them again.
        self._reported_entry = self._reader.entry
        return b": keep-alive\n" + _position(self._of.ring.place(self._reader))

    def begin_with(self, since: Place | int) -> None:
        """Begin with the events of the log after a position, or since a time in epoch ms."""
        self._earlier = self._from_log(since)

    def _from_log(self, since: Place | int) -> Generator[bytes, None, None]:
        """Yield the events that the ring does not hold; the ring continues where they end.

        Where the time of a request ends before the log, the stream ends too, and its client
        resumes.
        """
        ring, reading_log = self._of.ring, self._of.reading_log
        seconds, now = self._hub.log_seconds, self._hub.monotonic
        if not reading_log.acquire(timeout=seconds):
            self._ended = True
            return
        with ExitStack() as reading:
            reading.callback(reading_log.release)
            if (reader := ring.reader_since(since)) is not None:  # another stream has read the log
                self._reader = reader
                return
            deadline = now() + seconds
            self._reader = ring.oldest()
            upto = ring.place(self._reader).seq
            log = _LoggedChanges(self._hub.logged_changes(self._of.key, since, upto))
            changes = iter(log)
            entries = _fitting(ring, changes)
            if log.is_complete:
                ring.prepend(entries, *_base(since, entries, upto), upto)
                reading.close()
            last: RingEntry | None = None
            for last in chain(entries, changes):
                after = since.number if isinstance(since, Place) and since.seq == last.seq else -1
                for text in last.texts(ring.log, self._filter, after):
                    yield text
                    if not log.is_complete and now() >= deadline:
                        self._ended = True
                        return
            if log.is_complete:
                yield _position(Place(ring.log, upto))
            elif last is not None:
                self._ended = True
                yield _position(Place(ring.log, last.seq))
            elif log.is_refused:
                self._ended = True
            else:
                yield self._hub.lost(ring, self._reader, "not_kept")

    def close(self) -> None:
        """End the stream; repeated calls have no effect."""
        self._ended = True
        earlier = self._earlier
        # If it is running, the response closes it again.
        if earlier is not None and getgeneratorstate(earlier) != GEN_RUNNING:
            self._earlier = None
            earlier.close()
        self._hub.left(self._of, self)


def _position(position: Place) -> bytes:
    """Return the message that tells a client where its stream is, without an event."""
    return b": position\nid: %b\n\n" % position.text.encode()


def _fitting(ring: Ring, changes: Iterator[RingEntry]) -> list[RingEntry]:
    """Return the next change sets, up to the first one that does not fit into a ring."""
    entries = list[RingEntry]()
    events = size = 0
    for entry in changes:
        entries.append(entry)
        events, size = events + entry.events, size + entry.bytes
        if not ring.fits(events, size):
            break
    return entries


def _base(since: Place | int, entries: list[RingEntry], upto: int) -> tuple[int, int]:
    """Return a log position, and a time in epoch milliseconds, after which change sets are all."""
    if isinstance(since, int):
        return (entries[0].seq - 1 if entries else upto), since - 1
    base = since.seq if since.is_whole else since.seq - 1
    return base, entries[0].at if entries else sys.maxsize


class EventHub:
    """The streams of a runtime, with one ring per tenant."""

    def __init__(self, runtime: Runtime) -> None:
        self.closing = False
        self.monotonic = runtime.clock.monotonic
        self.log_seconds = runtime.config.query_timeout_ms / 1000
        """Seconds for which a stream waits for the log, and then may read it."""
        self._runtime = runtime
        runtime.replication.on_became.append(self.renew)
        runtime.on_shard_closed.append(self.drop_shard)
        self._mutex = threading.Lock()
        self._tenants: dict[tuple[str, str], _Tenant] = {}
        self.open_streams = OpenStreams(runtime.config)
        """All streams of the node, those of goals included."""
        self._news = threading.Event()
        self._stop = threading.Event()
        self._waker: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self.open_streams)

    def open(
        self, database: str, tenant: str, filter: Wanted, since: Place | int | None = None
    ) -> Stream:
        """Open a stream of commits from now on, after an event, or since a time in epoch
        milliseconds.

        If neither the ring nor the log holds everything since then, the stream begins with
        `events_lost`.
        Raises UnknownDatabase, RateLimited, NotReady.
        """
        self._runtime.knowledge_base(database, tenant)
        with self._mutex:
            if self.closing:
                raise NotReady("the server is stopping")
            state = self._tenants.get((database, tenant))
            self.open_streams.enter((database, tenant))
            try:
                if state is None:
                    state = self._tenants[database, tenant] = self._begin(database, tenant)
                stream = self._stream(state, filter, since)
            except BaseException:
                self.open_streams.leave((database, tenant))
                raise
            state.streams.add(stream)
            if self._waker is None:
                self._waker = threading.Thread(
                    target=self._wake, name="kbserver-events", daemon=True
                )
                self._waker.start()
        return stream

    def left(self, of: _Tenant, stream: Stream) -> None:
        """Forget a stream."""
        with self._mutex:
            if stream in of.streams:
                of.streams.remove(stream)
                self.open_streams.leave(of.key)
                of.empty_since = self._runtime.clock.monotonic()

    def close(self) -> None:
        """End all streams after the events being sent, and refuse new ones."""
        with self._mutex:
            self.closing = True
            streams = [stream for state in self._tenants.values() for stream in state.streams]
        for stream in streams:
            stream.woken.set()
        self._stop.set()
        self._news.set()
        for state in list(self._tenants.values()):
            state.leave()

    def renew(self) -> None:
        """End all streams because all state was replaced; clients that resume get `events_lost`."""
        with self._mutex:
            states, self._tenants = list(self._tenants.values()), {}
        self._end(states)

    def drop_shard(self, shard: int) -> None:
        """End the streams of a shard that leaves this node, and forget its events: others will be
        missing when it returns.
        """
        shards = self._runtime.shard_count
        with self._mutex:
            keys = [key for key in self._tenants if shard_of(*key, shards) == shard]
            states = [self._tenants.pop(key) for key in keys]
        self._end(states)

    def _end(self, states: list[_Tenant]) -> None:
        for state in states:
            state.leave()
            for stream in list(state.streams):
                stream.close()
                stream.woken.set()

    def lost(self, ring: Ring, reader: RingReader, reason: str) -> bytes:
        """Return the event that reports missing events."""
        id = ring.place(reader).text
        now = self._runtime.clock.now_ms()
        shape = {"type": "events_lost", "eventId": id, "timestamp": now, "reason": reason}
        return b"event: events_lost\nid: %b\ndata: %b\n\n" % (id.encode(), orjson.dumps(shape))

    def _begin(self, database: str, tenant: str) -> _Tenant:
        config = self._runtime.config
        mark = mark_of(self._runtime.log_id(database, tenant))
        ring = Ring(mark, config.events_buffer, config.events_buffer_mb << 20)
        state = _Tenant((database, tenant), ring, partial(self._runtime.log_head, database, tenant))
        state.leave = self._runtime.feed.subscribe(partial(self._heard, state), database, tenant)
        ring.begin(self._runtime.applied(database, tenant), self._runtime.clock.now_ms())
        return state

    def _heard(self, state: _Tenant, committed: Committed) -> None:
        state.ring.add(committed)
        if removes_for_good(committed):
            state.purged_at = self._runtime.clock.monotonic()
        state.fresh = True
        self._news.set()

    def _stream(self, state: _Tenant, filter: Wanted, since: Place | int | None) -> Stream:
        ring, missing, reader = state.ring, b"", state.ring.newest()
        is_earlier = False
        if isinstance(since, Place) and (since.log != ring.log or since.seq > state.log_head()):
            missing = self.lost(ring, reader, "unknown_id")
        elif since is not None:
            resumed = ring.reader_since(since)
            is_earlier = resumed is None
            reader = resumed or reader
        hello = b"retry: %d\n: kbcore events\n" % RETRY_MS
        if since is None or (isinstance(since, int) and not is_earlier):
            hello += b"id: %b\n" % ring.place(reader).text.encode()
        # Else no id: the position of the client may be a later one, or events of the log come
        # first.
        stream = Stream(self, state, filter, reader, hello + b"\n" + missing)
        if is_earlier and since is not None:
            stream.begin_with(since)
        return stream

    def logged_changes(
        self, key: tuple[str, str], since: Place | int, upto: int
    ) -> Iterator[Committed]:
        """Yield change sets of a tenant from the log; see `TenantKB.earlier_changes`."""
        return self._runtime.knowledge_base(*key).earlier_changes(since, upto)

    def _wake(self) -> None:
        """Wake the streams of tenants with new events; end when no tenant has streams."""
        while not self._stop.is_set():
            self._news.wait(_SWEEP_SECONDS)
            self._news.clear()
            with self._mutex:
                self._sweep()
                if not self._tenants:
                    self._waker = None
                    return
                fresh = [state for state in self._tenants.values() if state.fresh]
            for state in fresh:
                state.fresh = False
                self._wake_all(list(state.streams))
            self._stop.wait(MIN_WAKE_INTERVAL_SECONDS)

    def _wake_all(self, streams: list[Stream]) -> None:
        for start in range(0, len(streams), WAKE_BATCH_SIZE):
            for stream in streams[start : start + WAKE_BATCH_SIZE]:
                stream.woken.set()
            if start + WAKE_BATCH_SIZE < len(streams):
                self._stop.wait(WAKE_PAUSE_SECONDS)

    def _sweep(self) -> None:
        """Drop the rings of tenants without streams for `EVENTS_KEEP_MS`, and old events of
        purges.
        """
        now, keep = self._runtime.clock.monotonic(), self._runtime.config.events_keep_ms / 1000
        for key, state in list(self._tenants.items()):
            if state.purged_at is not None and now - state.purged_at >= PURGE_SECONDS:
                state.purged_at = None
                state.ring.forget_purges()
            if not state.streams and now - state.empty_since >= keep:
                del self._tenants[key]
                state.leave()
