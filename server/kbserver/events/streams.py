"""Streams of events: who reads them, who is woken when, and who is let go of.

A write puts its change set into the ring of its tenant and goes on. A thread of our own wakes the streams, a few at a time
and not more often than they can follow, each of which takes what is new in one piece. Whoever does not keep up finds the
ring gone on without him, and is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import orjson

from kbcore.errors import NotReady, RateLimited
from kbcore.events.events import Place, Wanted, mark_of
from kbcore.events.feed import Committed
from kbcore.node.runtime import Runtime
from kbserver.events.ring import Behind, Reader, Ring

KEEP_ALIVE_SECONDS = 15.0
RETRY_MS = 3000
"""What a client is told to wait before it comes again."""

FULL_RETRY_SECONDS = 5.0

AT_ONCE = 20
BETWEEN_SECONDS = 0.002
"""So many streams are woken at a time, with a pause for everybody else between: 1,000 streams hold up nobody."""

PACE_SECONDS = 0.02
"""The least time between two rounds: what is committed meanwhile goes out together."""

_SHARE = 3 / 4
_LOOK_SECONDS = 30.0

log = logging.getLogger(__name__)


def _nothing() -> None:
    """Before there is a subscription there is none to end."""


@dataclass(slots=True, eq=False)
class _Tenant:
    """What is kept for a tenant that has streams, or had some lately."""

    ring: Ring
    leave: Callable[[], None] = _nothing
    streams: set[Stream] = field(default_factory=set)
    empty_since: float = 0.0
    fresh: bool = False


class Stream:
    """One stream, as the body of an answer: an iterator of bytes that waits for events, and ends when it has to."""

    def __init__(self, hub: EventHub, of: _Tenant, wanted: Wanted, reader: Reader, first: bytes) -> None:
        self.woken = threading.Event()
        self._hub, self._of, self._wanted, self._reader = hub, of, wanted, reader
        self._first: bytes = first
        self._told = reader.entry
        self._over = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        while not self._over and not self._hub.closing:
            self.woken.clear()
            try:
                if text := self._of.ring.read(self._reader, self._wanted):
                    self._told = self._reader.entry
                    return text
            except Behind:
                self._over = True
                log.info("an event stream was too slow and is dropped")
                return self._hub.lost(self._of.ring, self._of.ring.oldest(), "too_slow")
            if not self.woken.wait(KEEP_ALIVE_SECONDS):
                return self._keep_alive()
        raise StopIteration

    def _keep_alive(self) -> bytes:
        if self._told == self._reader.entry:
            return b": keep-alive\n\n"
        self._told = self._reader.entry  # others' events went by: who resumes need not ask for them
        return b": keep-alive\nid: %b\n\n" % self._of.ring.place(self._reader).text.encode()

    def close(self) -> None:
        """End it; more than once does no harm."""
        self._over = True
        self._hub.left(self._of, self)


class EventHub:
    """The streams of a runtime, a ring for each tenant that has some."""

    def __init__(self, runtime: Runtime) -> None:
        self.closing = False
        self._runtime = runtime
        self._mark = mark_of(runtime.log_id)
        runtime.replication.on_became.append(self.renew)
        self._mutex = threading.Lock()
        self._tenants: dict[tuple[str, str], _Tenant] = {}
        self._count = 0
        self._news = threading.Event()
        self._stop = threading.Event()
        self._waker: threading.Thread | None = None

    def __len__(self) -> int:
        return self._count

    def open(self, database: str, tenant: str, wanted: Wanted, since: Place | int | None = None) -> Stream:
        """Begin a stream of what is committed from now on, or after an event, or since a time in epoch milliseconds.

        Where not everything since then is kept, the stream says so first. Raises UnknownDatabase, RateLimited, NotReady.
        """
        self._runtime.knowledge_base(database, tenant)
        config = self._runtime.config
        with self._mutex:
            if self.closing:
                raise NotReady("the server is stopping")
            known = self._tenants.get((database, tenant))
            if known is not None and len(known.streams) >= config.events_max_streams:
                raise RateLimited(
                    f"a tenant has at most {config.events_max_streams} event streams",
                    FULL_RETRY_SECONDS,
                    {"limit": "EVENTS_MAX_STREAMS", "value": config.events_max_streams},
                )
            if self._count >= (most := max(1, int(config.max_connections * _SHARE))):
                limit = {"limit": "MAX_CONNECTIONS", "value": config.max_connections}
                raise RateLimited(f"there are at most {most} event streams", FULL_RETRY_SECONDS, limit)
            if known is None:
                known = self._tenants[database, tenant] = self._begin(database, tenant)
            stream = self._stream(known, wanted, since)
            known.streams.add(stream)
            self._count += 1
            if self._waker is None:
                self._waker = threading.Thread(target=self._wake, name="kbserver-events", daemon=True)
                self._waker.start()
        return stream

    def left(self, of: _Tenant, stream: Stream) -> None:
        """Forget a stream."""
        with self._mutex:
            if stream in of.streams:
                of.streams.remove(stream)
                self._count -= 1
                of.empty_since = self._runtime.clock.monotonic()

    def close(self) -> None:
        """End all streams, each after what it is sending, and take no more."""
        with self._mutex:
            self.closing = True
            streams = [stream for known in self._tenants.values() for stream in known.streams]
        for stream in streams:
            stream.woken.set()
        self._stop.set()
        self._news.set()
        for known in list(self._tenants.values()):
            known.leave()

    def renew(self) -> None:
        """End all streams because all state was replaced: whoever comes again is told that events are missing."""
        with self._mutex:
            known, self._tenants = list(self._tenants.values()), {}
            self._mark = mark_of(self._runtime.log_id)
        for each in known:
            each.leave()
            for stream in list(each.streams):
                stream.close()
                stream.woken.set()

    def lost(self, ring: Ring, reader: Reader, reason: str) -> bytes:
        """The event that says that others are missing."""
        place = ring.place(reader).text
        now = self._runtime.clock.now_ms()
        shape = {"type": "events_lost", "eventId": place, "timestamp": now, "reason": reason}
        return b"event: events_lost\nid: %b\ndata: %b\n\n" % (place.encode(), orjson.dumps(shape))

    def _begin(self, database: str, tenant: str) -> _Tenant:
        config = self._runtime.config
        ring = Ring(self._mark, config.events_buffer, config.events_buffer_mb << 20)
        made = _Tenant(ring)
        made.leave = self._runtime.feed.subscribe(partial(self._heard, made), database, tenant)
        ring.begin(self._runtime.applied(database, tenant), self._runtime.clock.now_ms())
        return made

    def _heard(self, known: _Tenant, committed: Committed) -> None:
        known.ring.add(committed)
        known.fresh = True
        self._news.set()

    def _stream(self, known: _Tenant, wanted: Wanted, since: Place | int | None) -> Stream:
        ring, missing = known.ring, b""
        if since is None:
            reader = ring.newest()
        elif isinstance(since, int):
            reader = ring.since(since)
            if since <= ring.base_time:
                missing = self.lost(ring, reader, "not_kept")
        else:
            reader, missing = self._resumed(ring, since)
        hello = b"retry: %d\n: kbcore events\nid: %b\n\n" % (RETRY_MS, ring.place(reader).text.encode())
        if isinstance(since, Place) and not missing:
            hello = b"retry: %d\n: kbcore events\n\n" % RETRY_MS  # the client knows better where it is
        return Stream(self, known, wanted, reader, hello + missing)

    def _resumed(self, ring: Ring, since: Place) -> tuple[Reader, bytes]:
        if since.log != ring.log or since.seq > self._runtime.log_head():
            return ring.newest(), self.lost(ring, ring.newest(), "unknown_id")
        try:
            return ring.after(since), b""
        except Behind:
            return ring.oldest(), self.lost(ring, ring.oldest(), "not_kept")

    def _wake(self) -> None:
        """Wake the streams of tenants with news; ends when there is nobody left to wake."""
        while not self._stop.is_set():
            self._news.wait(_LOOK_SECONDS)
            self._news.clear()
            with self._mutex:
                self._sweep()
                if not self._tenants:
                    self._waker = None
                    return
                fresh = [known for known in self._tenants.values() if known.fresh]
            for known in fresh:
                known.fresh = False
                self._wake_all(list(known.streams))
            self._stop.wait(PACE_SECONDS)

    def _wake_all(self, streams: list[Stream]) -> None:
        for start in range(0, len(streams), AT_ONCE):
            for stream in streams[start : start + AT_ONCE]:
                stream.woken.set()
            if start + AT_ONCE < len(streams):
                self._stop.wait(BETWEEN_SECONDS)

    def _sweep(self) -> None:
        """Let go of the rings of tenants that have had no stream for long."""
        now, keep = self._runtime.clock.monotonic(), self._runtime.config.events_keep_ms / 1000
        for key, known in list(self._tenants.items()):
            if not known.streams and now - known.empty_since >= keep:
                del self._tenants[key]
                known.leave()
