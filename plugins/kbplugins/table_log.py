"""Code shared by logs in tables: checksums, verified reading, and the choice of sound snapshots.

A record's CRC-32 covers the log id, its number, type, version and payload; a snapshot's row has one of its own, and every
chunk too. So a byte that changed under the database, or a row that went missing, is noticed and never passed on.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from kbcore.errors import InvalidInput, LogCorrupted, LogTruncated, TooLarge
from kbcore.plug.ports import LogRecord

FORMAT = 1
"""Of the tables; a store refuses a newer one."""

MAX_PAYLOAD = 64 << 20
KEPT_SNAPSHOTS = 2
READ_ROWS = 512
READ_BYTES = 8 << 20
"""Records are fetched in batches of this many, or of this many bytes if they are large."""

_HEAD = struct.Struct("<QBBI")
_SNAPSHOT = struct.Struct("<QQQI")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot that was finished: its place in the log, how many chunks and bytes it has, their checksum and its own."""

    id: int
    seq: int
    chunks: int
    size: int
    crc: int
    check: int


class Tables(Protocol):
    """The rows of a log, as a database returns them. Values are as stored, of any type after damage."""

    place: str
    """The file or the redacted URL, for messages."""

    def first(self) -> int:
        """Return the number of the lowest stored record, head + 1 for an empty log."""

    def bounds(self, first: int) -> tuple[int, int, int]:
        """Lowest number, highest number and count of the records from `first` on; zeros where there are none."""

    def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """Numbers and bytes of payload of the next `limit` records, in order."""

    def rows(self, after: int, upto: int) -> Sequence[tuple[Any, ...]]:
        """(seq, type, version, crc, payload) of the records over `after` up to `upto`, in order."""

    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the finished snapshots, oldest first."""

    def chunk(self, snapshot: int, number: int) -> tuple[Any, Any] | None:
        """Checksum and data of a chunk of a snapshot, by the id of its row; numbers begin at 0."""


def seed(log_id: bytes) -> int:
    """Return the start value of every checksum of a log, so that rows of another log never match."""
    return crc32(log_id)


def checksum(start: int, seq: int, kind: int, version: int, payload: bytes) -> int:
    """Return the checksum of a record."""
    return crc32(payload, crc32(_HEAD.pack(seq, kind, version, len(payload)), start))


def encoded(
    records: Iterable[tuple[int, int, bytes]], seq: int, start: int
) -> list[tuple[int, int, int, int, bytes]]:
    """Return the rows for (type, version, payload) records from `seq` on; raises InvalidInput, TooLarge."""
    rows = []
    for kind, version, payload in records:
        if len(payload) > MAX_PAYLOAD:
            message = f"a log record of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}"
            raise TooLarge(message, {"bytes": len(payload), "limit": MAX_PAYLOAD})
        if not payload or not 0 <= kind <= 255 or not 0 <= version <= 255:
            raise InvalidInput("a log record needs a payload, and a type and version of 0 to 255")
        rows.append((seq, kind, version, checksum(start, seq, kind, version, payload), payload))
        seq += 1
    return rows


def snapshot_check(start: int, seq: int, chunks: int, size: int, crc: int) -> int:
    """Return the checksum of a snapshot's own row."""
    return crc32(_SNAPSHOT.pack(seq, chunks, size, crc), start)


def corrupted(place: str, table: str, seq: int, found: str) -> LogCorrupted:
    """Return the refusal of a damaged log: where, which record, what was found, and the way out."""
    return LogCorrupted(
        f"{place}: table {table} is damaged: expected record {seq}, found {found}. "
        "Way out: restore a backup, or `kbcore storage copy` one into an empty place",
        directory=place,
        segment=table,
        offset=0,
        expectedSeq=seq,
        found=found,
    )


def records(tables: Tables, start: int, after: int, head: int) -> Iterator[LogRecord]:
    """Yield every record over `after` up to `head`, in order, each checked; raises LogCorrupted, LogTruncated."""
    expected = after + 1
    while expected <= head:
        for row in tables.rows(expected - 1, _upto(tables, expected, head)):
            yield _checked(tables, start, expected, row)
            expected += 1
            if expected > head:
                return


def _upto(tables: Tables, expected: int, head: int) -> int:
    """Return the last record to fetch next, by number and by size; raises what is wrong where the next one is missing."""
    total, last = 0, 0
    for seq, size in tables.sizes(expected - 1, READ_ROWS):
        if last and (total + size > READ_BYTES or seq > head):
            break
        total, last = total + size, seq
    if last >= expected:
        return last
    first = tables.first()
    if expected < first:
        raise LogTruncated("records were dropped while they were read", {"first": first})
    raise corrupted(tables.place, "log", expected, "no such row")


def _checked(tables: Tables, start: int, expected: int, row: tuple[Any, ...]) -> LogRecord:
    seq, kind, version, crc, payload = row
    if seq != expected:
        first = tables.first()
        if expected < first:
            raise LogTruncated("records were dropped while they were read", {"first": first})
        raise corrupted(tables.place, "log", expected, f"record {seq}")
    if not (isinstance(kind, int) and isinstance(version, int) and isinstance(payload, bytes)):
        raise corrupted(tables.place, "log", expected, "values of another type")
    if (
        not (0 <= kind <= 255 and 0 <= version <= 255)
        or checksum(start, seq, kind, version, payload) != crc
    ):
        raise corrupted(tables.place, "log", expected, "a wrong checksum")
    return LogRecord(seq, kind, version, payload)


def chunks(tables: Tables, row: SnapshotRow) -> Iterator[bytes]:
    """Yield the chunks of a snapshot, each checked; raises LogCorrupted."""
    crc = size = 0
    for number in range(row.chunks):
        chunk_row = tables.chunk(row.id, number)
        if chunk_row is None:
            raise corrupted(tables.place, "chunks", row.seq, f"no chunk {number} of its snapshot")
        check, data = chunk_row
        if not isinstance(data, bytes) or crc32(data) != check:
            raise corrupted(
                tables.place,
                "chunks",
                row.seq,
                f"chunk {number} of its snapshot with a wrong checksum",
            )
        crc, size = crc32(data, crc), size + len(data)
        yield data
    if (crc, size) != (row.crc, row.size):
        raise corrupted(tables.place, "snapshots", row.seq, "a snapshot with other chunks")


def problem(tables: Tables, start: int, row: SnapshotRow) -> str:
    """Read a whole snapshot; empty when it is sound, else what is wrong with it."""
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
    """Judge a log at its opening: are all records there, and which snapshots are sound? Raises LogCorrupted.

    A damaged newest snapshot is given up if the one before it, or the empty state, and the log since then are there.
    """
    low, high, count = tables.bounds(first)
    expected = (first, head, head - first + 1) if head >= first else (0, 0, 0)
    if (low, high, count) != expected:
        raise corrupted(
            tables.place,
            "log",
            first,
            f"{count} records from {low} to {high}; there must be {expected[2]} up to {head}",
        )
    sound = list(tables.snapshots())
    while sound and (wrong := problem(tables, start, sound[-1])):
        before = sound[-2].seq if len(sound) > 1 else 0
        if first > before + 1:
            raise corrupted(
                tables.place,
                "snapshots",
                before + 1,
                f"{wrong}, and the log before record {first} is gone",
            )
        logger.warning(
            "%s: %s; going on from record %d and the log since then", tables.place, wrong, before
        )
        sound.pop()
    newest = sound[-1].seq if sound else 0
    if first > newest + 1 or newest > head:
        raise corrupted(tables.place, "log", newest + 1, f"a log from {first} to {head}")
    return sound
