"""The log in a SQLite file: append, snapshots, dropping. Calls that touch the disk may run concurrently."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from zlib import crc32

from kbcore.clock import Clock, SystemClock
from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbcore.errors import (
    Conflict,
    InvalidInput,
    KBError,
    LogTruncated,
    NotReady,
    SnapshotFailed,
    StorageFailed,
    StorageFull,
    TooLarge,
)
from kbcore.plug.ports import LogRecord, LogSeed, LogStatus
from kbplugins import table_log
from kbplugins.storage_sqlite.file import SqliteFile
from kbplugins.storage_wal import lock
from kbplugins.storage_wal.files import Disk, OsFiles
from kbplugins.storage_wal.flusher import Flusher
from kbplugins.storage_wal.leader_mark import LeaderMark
from kbplugins.storage_wal.replacing import later
from kbplugins.storage_wal.space import Space
from kbplugins.table_log import KEPT_SNAPSHOTS, MAX_PAYLOAD, SnapshotRow

NAME = "kbcore.sqlite"
"""Of the file in STORAGE_DIR where STORAGE_URL names none."""

SLICE_BYTES = 1 << 20
"""Of a snapshot that are written in one transaction: what an append waits for at most."""

_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
_WHOLE = 'UPDATE snapshots SET chunks = ?, size = ?, crc = ?, "check" = ?, whole = 1 WHERE id = ?'

logger = logging.getLogger(__name__)


class SqliteStore(LeaderMark):
    """A `LogStore` in one SQLite file, with its lock file, SQLite's journal and the leader mark next to the file.

    Locks, always in this order: `_snapshotting`, then the one of the file. `clock` and `random_bytes` are seams for tests.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        path = os.path.abspath(
            path_of(config.storage_url) or os.path.join(config.storage_dir, NAME)
        )
        self._disk = Disk(OsFiles(), os.path.dirname(path))
        self._mark_name = os.path.basename(path) + ".follows"
        self._policy = config.fsync_policy
        self._failed: StorageFailed | None = None
        self._closed = False
        self._flusher: Flusher | None = None
        self._snapshotting = threading.Lock()
        self._disk.make_folder()
        self._lock_fd = lock.take(self._disk, os.path.basename(path) + ".lock")
        try:
            self._file = SqliteFile(
                self._disk, os.path.basename(path), self._policy, random_bytes(16)
            )
            try:
                self._open()
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            self._disk.close(self._lock_fd)
            raise
        self._space = Space(self._disk, clock or SystemClock(), config.min_free_mb << 20)
        if self._policy == "interval":
            self._flusher = Flusher(self._flush, config.fsync_interval_ms / 1000)

    def _open(self) -> None:
        meta = self._file.meta
        self._seed = table_log.seed(meta.log_id)
        self._snapshots = table_log.examine(self._file, self._seed, meta.first, meta.head)
        self._head = self._durable = meta.head
        try:
            self._drop_rows()
        except StorageFailed as error:  # nothing was acknowledged yet: report damage as damage
            raise self._file.refusal(error.__cause__ or error) from error

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Commit records, all or none; returns the last sequence number. Under `always` they are durable then."""
        with self._file.lock:
            self._check()
            if not records:
                return self._head
            rows = table_log.encoded(records, self._head + 1, self._seed)
            needed = sum(len(row[-1]) for row in rows)
            self._space.admit(needed)
            try:
                with self._file.transaction() as db:
                    db.executemany(_INSERT, rows)
                    meta = self._file.save_meta(head=self._head + len(rows))
            except StorageFull as error:
                raise self._space.ran_out(needed, cause=error) from error
            except StorageFailed as error:
                self._fail(error)
                raise
            self._file.meta = meta
            self._head = meta.head
            if self._policy == "always":
                self._durable = self._head
            return self._head

    def sync(self) -> None:
        """Do nothing under `always`, where each commit was synced; under `interval` a thread syncs in time."""
        self._check()
        if self._flusher is not None and self._durable < self._head:
            self._flusher.written()

    def _flush(self) -> None:
        with self._file.lock:
            head = self._head
            try:
                self._file.checkpoint()
            except StorageFailed as error:
                self._fail(error)
                raise
            self._durable = head

    # -- reading ------------------------------------------------------------

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return every record with a sequence number over `after` up to the head of this moment, in order, streamed."""
        self._check()
        first = self._file.meta.first
        if after + 1 < first:
            raise LogTruncated(f"records up to {first - 1} are no longer kept", {"first": first})
        return table_log.records(self._file, self._seed, after, self._head)

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, beside the appends; the one before it is kept, older ones are deleted."""
        with self._snapshotting:
            self._check()
            newest = self._snapshots[-1].seq if self._snapshots else 0
            if not newest <= seq <= self._head:
                raise InvalidInput(
                    f"a snapshot at {seq} must be from {newest}, the newest, to {self._head}, the head"
                )
            self._count(self._write(seq, chunks, self._seed))
            self._drop_rows()

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot made elsewhere; the next record is seq + 1."""
        with self._snapshotting:
            self._check()
            if self._head or self._snapshots:
                raise Conflict("only an empty log can begin with a snapshot")
            self._count(self._write(seq, chunks, self._seed), begin=True)

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Replace this log by another: write the snapshot first, exchange in one transaction."""
        with self._snapshotting:
            self._check()
            log_id = bytes.fromhex(seed.log_id)
            start = table_log.seed(log_id)
            row = self._write(seed.seq, chunks, start) if seed.seq else None
            try:
                with self._file.lock:
                    with self._file.transaction() as db:
                        if row is not None:
                            db.execute(_WHOLE, (row.chunks, row.size, row.crc, row.check, row.id))
                        db.execute(
                            "DELETE FROM snapshots WHERE id IS NOT ?", (row.id if row else None,)
                        )
                        db.execute("DELETE FROM log")
                        meta = self._file.save_meta(
                            log_id=log_id, epoch=seed.epoch, first=seed.seq + 1, head=seed.seq
                        )
                    self._file.meta, self._seed = meta, start
                    self._head = self._durable = seed.seq
                    self._snapshots = [] if row is None else [row]
                self._file.checkpoint()
            except StorageFailed as error:
                self._fail(error)
                raise
            self._drop_rows()

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term."""
        with self._snapshotting, self._file.lock:
            self._check()
            try:
                with self._file.transaction():
                    meta = self._file.save_meta(epoch=later(epoch, self._file.meta.epoch))
                self._file.meta = meta
                self._file.checkpoint()
            except StorageFailed as error:
                self._fail(error)
                raise

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; it was read and found sound when the log was opened or when it was saved."""
        self._check()
        if not self._snapshots:
            return None
        row = self._snapshots[-1]
        return row.seq, table_log.chunks(self._file, row)

    def _write(self, seq: int, chunks: Iterable[bytes], start: int) -> SnapshotRow:
        """Write the chunks in slices and verify them; the snapshot does not count before `_count`."""
        try:
            id, count, size, crc = self._begin_snapshot(seq), 0, 0, 0
            part: list[tuple[int, int, int, bytes]] = []
            waiting = 0
            for chunk in chunks:
                if len(chunk) > MAX_PAYLOAD:
                    raise TooLarge(
                        f"a snapshot chunk of {len(chunk)} bytes is over the limit of {MAX_PAYLOAD}"
                    )
                part.append((id, count, crc32(chunk), bytes(chunk)))
                count, size, crc, waiting = (
                    count + 1,
                    size + len(chunk),
                    crc32(chunk, crc),
                    waiting + len(chunk),
                )
                if waiting >= SLICE_BYTES:
                    self._write_chunks(part)
                    part, waiting = [], 0
            self._write_chunks(part)
            row = SnapshotRow(
                id, seq, count, size, crc, table_log.snapshot_check(start, seq, count, size, crc)
            )
            if wrong := table_log.problem(self._file, start, row):
                raise SnapshotFailed(f"snapshot at {seq} was not stored: read back, {wrong}")
        except StorageFailed as error:
            self._fail(error)
            raise
        except BaseException:
            self._drop_rows()
            raise
        return row

    def _begin_snapshot(self, seq: int) -> int:
        with self._file.transaction() as db:
            return int(
                db.execute("INSERT INTO snapshots (seq, whole) VALUES (?, 0)", (seq,)).lastrowid
                or 0
            )

    def _write_chunks(self, part: list[tuple[int, int, int, bytes]]) -> None:
        if part:
            with self._file.transaction() as db:
                db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?)", part)

    def _count(self, row: SnapshotRow, *, begin: bool = False) -> None:
        """Make a snapshot count, and those it replaces not, atomically."""
        kept_snapshots = [*(each for each in self._snapshots if each.seq != row.seq), row][
            -KEPT_SNAPSHOTS:
        ]
        try:
            with self._file.transaction() as db:
                db.execute(_WHOLE, (row.chunks, row.size, row.crc, row.check, row.id))
                for gone in self._snapshots:
                    if gone not in kept_snapshots:
                        db.execute("DELETE FROM snapshots WHERE id = ?", (gone.id,))
                if begin:
                    meta = self._file.save_meta(first=row.seq + 1, head=row.seq)
        except StorageFailed as error:
            self._fail(error)
            raise
        if begin:
            self._file.meta = meta
            self._head = self._durable = row.seq
        self._snapshots = kept_snapshots

    def drop_before(self, seq: int) -> None:
        """Delete records up to `seq` that both kept snapshots cover; with fewer than two, none."""
        with self._snapshotting:
            self._check()
            if len(self._snapshots) < KEPT_SNAPSHOTS:
                return  # the state to fall back to is the empty one, and the way from there is the whole log
            limit = min(seq, *(row.seq for row in self._snapshots))
            with self._file.lock:
                if limit < self._file.meta.first:
                    return
                with self._file.transaction():
                    # Said first: a crash in between leaves rows too many, which the next start deletes.
                    meta = self._file.save_meta(first=limit + 1)
                self._file.meta = meta
            self._drop_rows()

    def _drop_rows(self) -> None:
        """Delete rows that do not count: dropped records, chunks of snapshots that are gone or were never finished."""
        if self._failed is not None:
            return
        parts = self._file.delete_in_parts
        known = ",".join(str(row.id) for row in self._snapshots) or "0"
        try:
            parts(
                "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE seq < ? LIMIT 2000)",
                self._file.meta.first,
            )
            doomed = f"SELECT rowid FROM chunks WHERE snapshot NOT IN ({known}) LIMIT 8"  # noqa: S608 - our own numbers  # nosec B608
            parts(f"DELETE FROM chunks WHERE rowid IN ({doomed})")  # noqa: S608  # nosec B608
            parts(f"DELETE FROM snapshots WHERE id NOT IN ({known})")  # noqa: S608  # nosec B608
        except StorageFailed as error:
            self._fail(error)
            raise
        except StorageFull as error:
            logger.warning(
                "%s: what is no longer needed was not deleted: %s", self._file.place, error.message
            )

    # -- state --------------------------------------------------------------

    def status(self) -> LogStatus:
        """Return the state of the log. `durable` is what was really synced, under every policy."""
        return LogStatus(
            head=self._head,
            durable=self._durable,
            log_id=self._file.meta.log_id.hex(),
            epoch=self._file.meta.epoch,
            snapshot=self._snapshots[-1].seq if self._snapshots else 0,
            tail_bytes_dropped=0,
            writable=self._failed is None and not self._closed and self._space.writable(),
        )

    def close(self, *, clean: bool = True) -> None:
        """Sync what a weaker policy has not yet synced, if `clean`, and close the file."""
        if self._flusher is not None:
            self._flusher.stop()
        with self._snapshotting, self._file.lock:
            if self._closed:
                return
            try:
                if clean and self._failed is None and self._policy != "always":
                    self._flush()
            finally:
                self._closed = True
                self._file.close()
                self._disk.close(self._lock_fd)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise NotReady("the log is closed")

    def _fail(self, error: KBError) -> None:
        if self._failed is None and isinstance(error, StorageFailed):
            self._failed = error
