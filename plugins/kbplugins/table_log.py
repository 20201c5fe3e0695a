"""Code shared by logs in database tables: checksums, verified reading, and the choice of snapshots.

A record's CRC-32 covers the log id and the record's number, type, version and payload. Each row of
`snapshots` and of `chunks` has a checksum too. Bytes that were changed in the database and missing
rows are therefore detected when they are read.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from kbcore.errors import (
    Conflict,
    InvalidInput,
    LogCorrupted,
    LogTruncated,
    TooLarge,
)
from kbcore.plug.ports import LogRecord, LogStatus
from kbplanner.syntax.diagnostics import counted
from kbplugins.store_base import KEPT_SNAPSHOTS, MAX_PAYLOAD, StoreBase

FORMAT = 2
"""Version of the tables and of the payloads in them, raised with that of payloads, so that an older
version refuses them. 2 has payloads of version 8.
"""
"""Format of the tables; a store refuses a newer one."""

READ_ROWS = 512
READ_BYTES = 8 << 20
"""Size of a read: at most this many records or, if the payloads are large, this many bytes."""

ASK_AGAIN_SECONDS = 0.001
"""Time after which a waiter asks again for the lock of a connection."""

_HEAD = struct.Struct("<QBBI")
_SNAPSHOT = struct.Struct("<QQQI")

logger = logging.getLogger(__name__)


class ConnectionLock:
    """A reentrant lock that greenlets of the server and threads of its pool share.

    Reads of the log run in greenlets, writes in the pool. With gevent, a waiter may never hear that
    another thread has released the lock, not even with a timeout, so waiters ask again instead.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> ConnectionLock:
        while not self._lock.acquire(blocking=False):
            time.sleep(ASK_AGAIN_SECONDS)
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


@dataclass(frozen=True, slots=True)
class LogMeta:
    """The row of `meta`: the log id, the term, and the numbers of the first and last record."""

    log_id: bytes
    epoch: int
    first: int
    head: int


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A finished snapshot: the number of its last record, its chunks and bytes, their checksum in
    `crc`, and the checksum of the row in `check`.
    """

    id: int
    seq: int
    chunks: int
    size: int
    crc: int
    check: int


class Tables(ABC):
    """The rows of a log, as a database returns them. Values can be of any type after damage."""

    location: str
    """The file or the redacted URL, for messages."""

    @abstractmethod
    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the tables `log` and `chunks` with `?` for each value."""

    @abstractmethod
    def first(self) -> int:
        """Return the number of the lowest stored record, head + 1 for an empty log."""

    @abstractmethod
    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the finished snapshots, oldest first."""

    def bounds(self, first: int) -> tuple[int, int, int]:
        """Return lowest number, highest number and count of the records from `first` on, or
        zeros.
        """
        text = (
            "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM log WHERE seq >= ?"
        )
        low, high, count = self.query(text, first)[0]
        return low, high, count

    def sizes(self, after: int, limit: int) -> Sequence[tuple[Any, ...]]:
        """Return numbers and payload sizes of the next `limit` records, in order."""
        text = (
            "SELECT seq, coalesce(length(payload), 0) FROM log WHERE seq > ? ORDER BY seq LIMIT ?"
        )
        return self.query(text, after, limit)

    def rows(self, after: int, upto: int) -> Sequence[tuple[Any, ...]]:
        """Return (seq, type, version, crc, payload) of the records over `after` up to `upto`."""
        columns = "SELECT seq, type, version, crc, payload "
        return self.query(columns + "FROM log WHERE seq > ? AND seq <= ? ORDER BY seq", after, upto)

    def chunk(self, snapshot: int, number: int) -> tuple[Any, ...] | None:
        """Return checksum and data of a chunk of the snapshot with this id; numbers begin at 0."""
        text = "SELECT crc, data FROM chunks WHERE snapshot = ? AND number = ?"
        rows = self.query(text, snapshot, number)
        return rows[0] if rows else None


class TableStore(StoreBase, ABC):
    """The part of a `LogStore` that is the same for every database."""

    _meta: LogMeta
    _seed: int

    def __init__(self, policy: str) -> None:
        super().__init__()
        self._policy = policy
        self._snapshotting = threading.Lock()
        self._head = self._durable = 0
        self._snapshots: list[SnapshotRow] = []
        self._erased = 0

    @property
    @abstractmethod
    def _tables(self) -> Tables:
        """The tables of the log."""

    @abstractmethod
    def _accepts_writes(self) -> bool:
        """Return True unless the storage is full or not reachable."""

    def _load(self, meta: LogMeta, verified: tuple[SnapshotRow | None, int] = (None, 0)) -> None:
        """Verify the log that `meta` describes, except what is `verified`: a snapshot, and the
        records up to a number. Raises LogCorrupted.
        """
        self._meta = meta
        self._seed = seed(meta.log_id)
        row, read = verified
        snapshots = list(self._tables.snapshots()) if read >= meta.first - 1 else []
        if row is not None and snapshots and snapshots[-1] == row:
            self._snapshots = snapshots
        elif row is None and read and not snapshots and meta.first == 1:
            self._snapshots = []
        else:
            self._snapshots = examine(self._tables, self._seed, meta.first, meta.head)
            damaged = len(self._tables.snapshots()) - len(self._snapshots)
            self.note_damaged(damaged, self._newest())
        self._head = self._durable = meta.head

    def read(self, after: int) -> Iterator[LogRecord]:
        """Yield the records with a number over `after` up to the current head, in order."""
        self._check()
        first = self._meta.first
        if after + 1 < first:
            raise LogTruncated(f"records up to {first - 1} are no longer kept", {"first": first})
        return records(self._tables, self._seed, after, self._head)

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; it was verified when the log was opened or when it was
        saved.
        """
        self._check()
        if not self._snapshots:
            return None
        row = self._snapshots[-1]
        return row.seq, chunks(self._tables, row)

    def load_snapshot_before(self, seq: int) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot before `seq`."""
        self._check()
        rows = [row for row in self._snapshots if row.seq < seq]
        return (rows[-1].seq, chunks(self._tables, rows[-1])) if rows else None

    def snapshot_numbers(self) -> Sequence[int]:
        """Return the numbers of the stored snapshots, ascending."""
        self._check()
        return [row.seq for row in self._snapshots]

    def begin_apart(self) -> None:
        """Do nothing: each record is a row of its own."""
        self._check()

    def erased(self) -> int:
        """Return the highest number for which `erase_before` has ended."""
        return self._erased

    def status(self) -> LogStatus:
        """Return the state of the log; `durable` is the last record that is known to be synced."""
        return self.with_damage(
            LogStatus(
                head=self._head,
                durable=self._durable,
                log_id=self._meta.log_id.hex(),
                epoch=self._meta.epoch,
                snapshot=self._newest(),
                tail_bytes_dropped=0,
                writable=self._is_open and self._accepts_writes(),
            )
        )

    def _newest(self) -> int:
        return self._snapshots[-1].seq if self._snapshots else 0

    def _check_snapshot(self, seq: int) -> None:
        self._check()
        if not self._newest() <= seq <= self._head:
            raise InvalidInput(
                f"a snapshot at {seq} must be from {self._newest()}, the newest, "
                f"to {self._head}, the head"
            )

    def _check_empty(self) -> None:
        self._check()
        if self._head or self._snapshots:
            raise Conflict("only an empty log can begin with a snapshot")

    def _previous_snapshots(self, seq: int) -> list[SnapshotRow]:
        """Return the stored snapshots to keep next to a new one at `seq`."""
        rows = [row for row in self._snapshots if row.seq != seq]
        chosen = self.chosen([*(row.seq for row in rows), seq])
        return [row for row in rows if row.seq in chosen]

    def _kept_from(self, seq: int) -> list[SnapshotRow]:
        """Return the snapshots at `seq` or later; raise InvalidInput without any."""
        self._check()
        later = [row for row in self._snapshots if row.seq >= seq]
        if not later:
            raise InvalidInput(f"no snapshot is at {seq} or later")
        return later

    def _first_to_keep(self, seq: int) -> int:
        """Return the first record that a drop of the records up to `seq` leaves.

        With fewer than two snapshots, a damaged one is replaced by the whole log: all records stay.
        """
        self._check()
        if len(self._snapshots) < KEPT_SNAPSHOTS:
            return self._meta.first
        return max(self._meta.first, min(seq, *(row.seq for row in self._snapshots)) + 1)


def seed(log_id: bytes) -> int:
    """Return the start value of every checksum of a log, so that rows of another log never
    match.
    """
    return crc32(log_id)


def checksum(start: int, seq: int, kind: int, version: int, payload: bytes) -> int:
    """Return the checksum of a record."""
    return crc32(payload, crc32(_HEAD.pack(seq, kind, version, len(payload)), start))


def encoded(
    records: Iterable[tuple[int, int, bytes]], seq: int, start: int
) -> list[tuple[int, int, int, int, bytes]]:
    """Return the rows for (type, version, payload) records from `seq` on.

    Raises InvalidInput, TooLarge.
    """
    rows = []
    for kind, version, payload in records:
        _check_size("log record", payload)
        if not payload or not 0 <= kind <= 255 or not 0 <= version <= 255:
            raise InvalidInput("a log record needs a payload, and a type and version of 0 to 255")
        rows.append((seq, kind, version, checksum(start, seq, kind, version, payload), payload))
        seq += 1
    return rows


def _check_size(subject: str, data: bytes) -> None:
    if len(data) > MAX_PAYLOAD:
        message = f"a {subject} of {len(data)} bytes is over the limit of {MAX_PAYLOAD}"
        raise TooLarge(message, {"limit": "recordBytes", "value": MAX_PAYLOAD, "bytes": len(data)})


class SnapshotEncoder:
    """Makes the rows of a snapshot: `chunk_rows` one for each chunk, then `row` its own."""

    def __init__(self, id: int, seq: int, start: int) -> None:
        self._id, self._seq, self._start = id, seq, start
        self._count = self._size = self._crc = 0

    def chunk_rows(self, chunks: Iterable[bytes]) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield (snapshot, number, crc, data) for each chunk. Raises TooLarge."""
        for chunk in chunks:
            _check_size("snapshot chunk", chunk)
            yield self._id, self._count, crc32(chunk), bytes(chunk)
            self._count += 1
            self._size += len(chunk)
            self._crc = crc32(chunk, self._crc)

    def row(self) -> SnapshotRow:
        """Return the row of the snapshot with the chunks so far."""
        check = snapshot_check(self._start, self._seq, self._count, self._size, self._crc)
        return SnapshotRow(self._id, self._seq, self._count, self._size, self._crc, check)


def snapshot_check(start: int, seq: int, chunks: int, size: int, crc: int) -> int:
    """Return the checksum of a snapshot's own row."""
    return crc32(_SNAPSHOT.pack(seq, chunks, size, crc), start)


def corrupted(location: str, table: str, seq: int, problem: str) -> LogCorrupted:
    """Return the error for a damaged log: table, expected record, stored value, and what to do."""
    return LogCorrupted(
        f"{location}: table {table} is damaged: expected record {seq}, found {problem}. "
        "Restore a backup, or run `kbcore storage copy` to copy one into empty storage",
        directory=location,
        segment=table,
        offset=0,
        expectedSeq=seq,
        found=problem,
    )


def records(tables: Tables, start: int, after: int, head: int) -> Iterator[LogRecord]:
    """Yield every record over `after` up to `head`, in order, each verified.

    Raises LogCorrupted, LogTruncated.
    """
    expected = after + 1
    while expected <= head:
        for row in tables.rows(expected - 1, _upto(tables, expected, head)):
            yield _verified(tables, start, expected, row)
            expected += 1
            if expected > head:
                return


def _upto(tables: Tables, expected: int, head: int) -> int:
    """Return the last record of the next read, so that its rows and bytes are within the limits."""
    total, last = 0, 0
    for seq, size in tables.sizes(expected - 1, READ_ROWS):
        if last and (total + size > READ_BYTES or seq > head):
            break
        total, last = total + size, seq
    if last < expected:
        raise _missing(tables, expected, "no such row")
    return last


def _missing(tables: Tables, expected: int, problem: str) -> LogTruncated | LogCorrupted:
    first = tables.first()
    if expected < first:
        return LogTruncated("records were dropped while they were read", {"first": first})
    return corrupted(tables.location, "log", expected, problem)


def _verified(tables: Tables, start: int, expected: int, row: tuple[Any, ...]) -> LogRecord:
    seq, kind, version, crc, payload = row
    if seq != expected:
        raise _missing(tables, expected, f"record {seq}")
    if not (isinstance(kind, int) and isinstance(version, int) and isinstance(payload, bytes)):
        raise corrupted(tables.location, "log", expected, "values of another type")
    in_range = 0 <= kind <= 255 and 0 <= version <= 255
    if not in_range or checksum(start, seq, kind, version, payload) != crc:
        raise corrupted(tables.location, "log", expected, "a wrong checksum")
    return LogRecord(seq, kind, version, payload)


def chunks(tables: Tables, row: SnapshotRow) -> Iterator[bytes]:
    """Yield the chunks of a snapshot, each verified. Raises LogCorrupted."""
    crc = size = 0
    for number in range(row.chunks):
        chunk_row = tables.chunk(row.id, number)
        if chunk_row is None:
            raise corrupted(
                tables.location, "chunks", row.seq, f"no chunk {number} of its snapshot"
            )
        check, data = chunk_row
        if not isinstance(data, bytes) or crc32(data) != check:
            problem = f"chunk {number} of its snapshot with a wrong checksum"
            raise corrupted(tables.location, "chunks", row.seq, problem)
        crc, size = crc32(data, crc), size + len(data)
        yield data
    if (crc, size) != (row.crc, row.size):
        raise corrupted(tables.location, "snapshots", row.seq, "a snapshot with other chunks")


def snapshot_problem(tables: Tables, start: int, row: SnapshotRow) -> str:
    """Read a whole snapshot; return "" if it is intact, otherwise what is wrong with it."""
    try:
        if snapshot_check(start, row.seq, row.chunks, row.size, row.crc) != row.check:
            return "a snapshot whose row has a wrong checksum"
        for _ in chunks(tables, row):
            pass
    except (struct.error, TypeError):
        return "a snapshot whose row has values of another type"
    except LogCorrupted as error:
        return str((error.details or {})["found"])
    return ""


def examine(tables: Tables, start: int, first: int, head: int) -> list[SnapshotRow]:
    """Verify a log when it is opened; return its intact snapshots. Raises LogCorrupted.

    A damaged newest snapshot is skipped if the one before it, or the empty state, and all records
    after that are stored.
    """
    low, high, count = tables.bounds(first)
    expected = (first, head, head - first + 1) if head >= first else (0, 0, 0)
    if (low, high, count) != expected:
        problem = f"{counted(count, 'record')} from {low} to {high}; there must be {expected[2]} up to {head}"
        raise corrupted(tables.location, "log", first, problem)
    snapshots = list(tables.snapshots())
    while snapshots and (problem := snapshot_problem(tables, start, snapshots[-1])):
        before = snapshots[-2].seq if len(snapshots) > 1 else 0
        if first > before + 1:
            problem = f"{problem}, and the log before record {first} was dropped"
            raise corrupted(tables.location, "snapshots", before + 1, problem)
        logger.warning(
            "%s: %s; using the snapshot at %d and the records after it",
            tables.location,
            problem,
            before,
        )
        snapshots.pop()
    newest = snapshots[-1].seq if snapshots else 0
    if first > newest + 1 or newest > head:
        raise corrupted(tables.location, "log", newest + 1, f"a log from {first} to {head}")
    return snapshots
