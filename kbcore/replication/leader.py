"""Leader side of replication: ships synced records, and retains those that followers still need."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from zlib import crc32

from kbcore.clock import Clock
from kbcore.config.settings import Config
from kbcore.errors import Diverged, LogTruncated
from kbcore.plug.ports import LogRecord, LogSeed, LogStore
from kbcore.replication.in_sync import InSync
from kbcore.replication.wire_format import framed, packed, record_crc

MAX_BYTES = 4 << 20
"""Approximate maximum bytes of records in one answer at any requested limit."""

MAX_FOLLOWERS = 64
"""Maximum number of remembered followers; beyond it, the longest-silent one is dropped."""

_RECORDS_PER_SLICE = 256
_MARK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogCursor:
    """Position of a follower: log id, term, last record, and its `record_crc` if known.

    `synced` is the last record on the follower's disk; followers of earlier versions do not send
    it, and are never in sync.
    """

    log_id: str
    epoch: int
    after: int
    crc: int | None = None
    synced: int = 0


@dataclass(frozen=True, slots=True)
class Shipment:
    """Answer of a leader: frames after the cursor (possibly none), its term and last synced record.

    `waited` is the number of seconds that the leader waited before it answered. The answer
    describes the leader's state that many seconds after the request was sent.
    """

    log_id: str
    epoch: int
    head: int
    data: bytes
    waited: float = 0.0


@dataclass(slots=True)
class FollowerInfo:
    """A follower as its leader knows it: last synced record, and time of the last request.

    The time is in monotonic seconds.
    """

    name: str
    seq: int
    seen: float


@dataclass(slots=True, eq=False)
class ReceivedProgress:
    """An increasing number that threads can wait on."""

    reached: int = 0
    _waiting: set[threading.Event] = field(default_factory=set)

    def moved(self, to: int) -> None:
        """Raise the number and wake the waiting threads."""
        self.reached = max(to, self.reached)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Make all waiting threads check their condition again."""
        for event in list(self._waiting):
            event.set()

    def wait(self, reached: Callable[[], bool], seconds: float, clock: Clock) -> bool:
        """Wait until `reached()` is true, at most `seconds`; return its last value."""
        if reached():
            return True
        event, end = threading.Event(), clock.monotonic() + seconds
        self._waiting.add(event)
        try:
            while not reached():
                left = end - clock.monotonic()
                if left <= 0 or not event.wait(left):
                    return reached()
                event.clear()
            return True
        finally:
            self._waiting.discard(event)


class Leader:
    """Ships the log of a node to followers; `synced` advances with every durable batch."""

    def __init__(
        self, store: LogStore, clock: Clock, config: Config, yield_now: Callable[[], None]
    ) -> None:
        self.synced = ReceivedProgress()
        self.closing = False
        self.in_sync: InSync | None = None
        """The in-sync set, if writes wait for it."""
        self._store = store
        self._clock = clock
        self._yield_now = yield_now
        self._retain_bytes = config.wal_retain_mb << 20
        self._retain_seconds = config.wal_retain_hours * 3600
        self._followers: dict[str, FollowerInfo] = {}
        self._marks: deque[tuple[int, int]] = deque()
        self._written = 0

    def wrote(self, seq: int, size: int) -> None:
        """Record a synced batch of `size` bytes whose last record is `seq`."""
        self._written = size
        if not self._marks or size - self._marks[-1][1] >= _MARK_BYTES:
            self._marks.append((seq, size))
        if self.in_sync is not None:
            self.in_sync.wrote(seq)
        self.synced.moved(seq)

    def ship(self, name: str, cursor: LogCursor, wait_seconds: float, max_bytes: int) -> Shipment:
        """Return the records after a follower's cursor; wait if there are none yet.

        Raises Diverged if the follower's log is not a prefix of this one, LogTruncated if the
        records it needs were dropped, and what `InSync.asking` raises.
        """
        begun = self._clock.monotonic()
        records = self._after(cursor)
        self._note(name, cursor.after)
        # A follower of an earlier term has to learn of this one before it counts.
        is_current = cursor.epoch == self._store.status().epoch
        with (
            self.in_sync.asking(name, min(cursor.after, cursor.synced))
            if self.in_sync is not None and is_current
            else nullcontext()
        ):
            if is_current and self._store.status().durable <= cursor.after:
                self.synced.wait(
                    lambda: self.closing or self._store.status().durable > cursor.after,
                    wait_seconds,
                    self._clock,
                )
                records = self._store.read(cursor.after)
        waited = self._clock.monotonic() - begun
        status = self._store.status()
        data = self._frames(
            records, status.log_id, status.durable, status.epoch, min(max_bytes, MAX_BYTES)
        )
        return Shipment(status.log_id, status.epoch, status.durable, data, waited)

    def snapshot(self, name: str) -> tuple[LogSeed, Iterator[bytes]]:
        """Return the newest snapshot in wire format and its log seed, or an empty one at 0."""
        if self.in_sync is not None:
            self.in_sync.restarts(name)
        status = self._store.status()
        newest = self._store.load_snapshot()
        seq, chunks = (0, iter(())) if newest is None else newest
        self._note(name, seq)
        seed = LogSeed(status.log_id, status.epoch, seq)
        return seed, packed(seed, chunks)

    def followers(self) -> list[FollowerInfo]:
        """Return the followers that sent a request within WAL_RETAIN_HOURS, by name."""
        now = self._clock.monotonic()
        for name, known in list(self._followers.items()):
            if now - known.seen > self._retain_seconds:
                self._followers.pop(name, None)
        return sorted(self._followers.values(), key=lambda known: known.name)

    def droppable(self, head: int) -> int:
        """Return the last record that may be dropped without affecting followers.

        The last record of each follower is retained too, because its next request refers to that
        record.
        """
        needed = min((known.seq - 1 for known in self.followers()), default=head)
        while len(self._marks) > 1 and self._written - self._marks[1][1] >= self._retain_bytes:
            self._marks.popleft()
        if self._marks and self._written - self._marks[0][1] >= self._retain_bytes:
            needed = max(
                needed, self._marks[0][0]
            )  # a follower must not make the log fill the disk
        return max(0, min(head, needed))

    def close(self) -> None:
        """Answer all waiting followers, and refuse further waits."""
        self.closing = True
        self.synced.wake()

    def _after(self, cursor: LogCursor) -> Iterator[LogRecord]:
        """Yield the records after a cursor, once the cursor is verified to be in this log."""
        status = self._store.status()
        about = {"logId": status.log_id, "epoch": status.epoch, "head": status.durable}
        if cursor.log_id != status.log_id:
            raise Diverged("the follower has another log", {**about, "reason": "log_id"})
        if cursor.epoch > status.epoch:
            raise Diverged(
                "the follower is in a later term: this leader is an old one",
                {**about, "reason": "epoch"},
            )
        if cursor.after > status.durable:
            raise Diverged("the follower is ahead of this leader", {**about, "reason": "ahead"})
        if cursor.crc is None and cursor.after and cursor.epoch < status.epoch:
            raise Diverged(
                f"record {cursor.after} of an earlier term cannot be compared",
                {**about, "reason": "record"},
            )
        if cursor.crc is None or not cursor.after:
            return self._store.read(cursor.after)
        records = self._store.read(cursor.after - 1)
        last = next(records, None)
        if last is None or last.seq != cursor.after:
            raise LogTruncated(
                f"record {cursor.after} is no longer kept", {"first": cursor.after + 1}
            )
        if record_crc(status.log_id, last) != cursor.crc:
            raise Diverged(
                f"the follower has another record {cursor.after}", {**about, "reason": "record"}
            )
        return records

    def _frames(
        self, records: Iterator[LogRecord], log_id: str, durable: int, epoch: int, limit: int
    ) -> bytes:
        log_crc = crc32(bytes.fromhex(log_id))
        parts: list[bytes] = []
        size = 0
        for record in records:
            if record.seq > durable or (parts and size + len(record.payload) > limit):
                break
            parts.append(framed(record, log_crc, durable, epoch))
            size += len(parts[-1])
            if len(parts) % _RECORDS_PER_SLICE == 0:
                self._yield_now()
        return b"".join(parts)

    def _note(self, name: str, seq: int) -> None:
        known = self._followers.setdefault(name, FollowerInfo(name, seq, 0.0))
        known.seq, known.seen = seq, self._clock.monotonic()
        if len(self._followers) > MAX_FOLLOWERS:
            self._followers.pop(min(self._followers.values(), key=lambda other: other.seen).name)
