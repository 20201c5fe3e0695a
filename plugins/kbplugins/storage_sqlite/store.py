"""The log in a SQLite file: append, snapshots, dropping of old records. Calls may run
concurrently.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence

from kbcore.clock import Clock, SystemClock
from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbcore.errors import SnapshotFailed, StorageFailed, StorageFull
from kbcore.plug.ports import LogSeed
from kbplugins import table_log
from kbplugins.storage_sqlite.file import SqliteFile
from kbplugins.storage_wal import lock
from kbplugins.storage_wal.files import Disk, OsFiles
from kbplugins.storage_wal.flusher import Flusher
from kbplugins.storage_wal.leader_mark import LeaderMark
from kbplugins.storage_wal.replacing import later
from kbplugins.storage_wal.space import Space
from kbplugins.table_log import LogMeta, SnapshotEncoder, SnapshotRow, TableStore

NAME = "kbcore.sqlite"
"""Name of the file in STORAGE_DIR if STORAGE_URL names none."""

SLICE_BYTES = 1 << 20
"""Bytes of a snapshot in one transaction, which limits how long an append waits."""

_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
_FINISH = 'UPDATE snapshots SET chunks = ?, size = ?, crc = ?, "check" = ?, whole = 1 WHERE id = ?'

logger = logging.getLogger(__name__)


class SqliteStore(LeaderMark, TableStore):
    """A `LogStore` in one SQLite file; next to it are its lock file, SQLite's journal and the
    leader mark.

    Locks, always taken in this order: `_snapshotting`, then the lock of the file. Tests replace
    `clock` and `random_bytes`.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(config.fsync_policy)
        path = os.path.abspath(
            path_of(config.storage_url) or os.path.join(config.storage_dir, NAME)
        )
        name = os.path.basename(path)
        self._disk = Disk(OsFiles(), os.path.dirname(path))
        self._mark_name = name + ".follows"
        self._flusher: Flusher | None = None
        self._disk.make_folder()
        self._lock_fd = lock.take(self._disk, name + ".lock")
        try:
            self._file = SqliteFile(self._disk, name, self._policy, random_bytes(16))
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
        self._load(self._file.meta)
        self._erased = self._file.load_erased()
        try:
            self._drop_rows()
        except StorageFailed as error:  # no write was acknowledged yet, so this is damage
            raise self._file.refusal(error.__cause__ or error) from error

    @property
    def _tables(self) -> SqliteFile:
        return self._file

    def _accepts_writes(self) -> bool:
        return self._space.writable()

    def _set_meta(self, meta: LogMeta) -> None:
        self._meta = self._file.meta = meta

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Commit records, all or none, and return the last number. Under `always` they are
        durable.
        """
        with self._file.lock:
            self._check()
            if not records:
                return self._head
            rows = table_log.encoded(records, self._head + 1, self._seed)
            size = sum(len(row[-1]) for row in rows)
            self._space.admit(size)
            try:
                with self._recording_failure(), self._file.transaction() as db:
                    db.executemany(_INSERT, rows)
                    meta = self._file.save_meta(head=self._head + len(rows))
            except StorageFull as error:
                raise self._space.ran_out(size, cause=error) from error
            self._set_meta(meta)
            self._head = meta.head
            if self._policy == "always":
                self._durable = self._head
            return self._head

    def sync(self) -> None:
        """Wake the syncing thread under `interval`; under `always` each commit was synced.

        Raises StorageFailed if the file was removed.
        """
        self._check()
        if self._flusher is not None and self._durable < self._head:
            self._flusher.written()
        with self._recording_failure():
            self._file.check_files()

    def _flush(self) -> None:
        with self._file.lock:
            head = self._head
            with self._recording_failure():
                self._file.checkpoint()
            self._durable = head

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq` while appends go on, and keep the one before
        it.
        """
        with self._snapshotting:
            self._check_snapshot(seq)
            self._finish(self._write(seq, chunks, self._seed))
            self._drop_rows()

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot of another log; the next record is seq + 1."""
        with self._snapshotting:
            self._check_empty()
            self._finish(self._write(seq, chunks, self._seed), begin=True)

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Replace this log by another: write its snapshot, then exchange the logs in one
        transaction.
        """
        with self._snapshotting:
            self._check()
            log_id = bytes.fromhex(seed.log_id)
            start = table_log.seed(log_id)
            if self._erased:  # a number of the log that is replaced
                with self._recording_failure():
                    self._file.save_erased(0)
                self._erased = 0
            row = self._write(seed.seq, chunks, start) if seed.seq else None
            with self._recording_failure():
                with self._file.lock:
                    with self._file.transaction() as db:
                        if row is not None:
                            db.execute(_FINISH, (row.chunks, row.size, row.crc, row.check, row.id))
                        db.execute(
                            "DELETE FROM snapshots WHERE id IS NOT ?", (row.id if row else None,)
                        )
                        db.execute("DELETE FROM log")
                        meta = self._file.save_meta(
                            log_id=log_id, epoch=seed.epoch, first=seed.seq + 1, head=seed.seq
                        )
                    self._set_meta(meta)
                    self._seed = start
                    self._head = self._durable = seed.seq
                    self._snapshots = [] if row is None else [row]
                self._file.checkpoint()
            self._drop_rows()

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term, durably."""
        with self._snapshotting, self._file.lock:
            self._check()
            with self._recording_failure():
                with self._file.transaction():
                    meta = self._file.save_meta(epoch=later(epoch, self._meta.epoch))
                self._set_meta(meta)
                self._file.checkpoint()

    def _write(self, seq: int, chunks: Iterable[bytes], start: int) -> SnapshotRow:
        """Write the chunks in slices and verify them; the snapshot is used only after `_finish`."""
        try:
            with self._recording_failure():
                with self._file.transaction() as db:
                    insert = "INSERT INTO snapshots (seq, whole) VALUES (?, 0)"
                    id = db.execute(insert, (seq,)).lastrowid or 0
                encoder = SnapshotEncoder(id, seq, start)
                rows: list[tuple[int, int, int, bytes]] = []
                size = 0
                for row in encoder.chunk_rows(chunks):
                    rows.append(row)
                    size += len(row[-1])
                    if size >= SLICE_BYTES:
                        self._write_chunks(rows)
                        rows, size = [], 0
                self._write_chunks(rows)
                snapshot = encoder.row()
                if problem := table_log.snapshot_problem(self._file, start, snapshot):
                    raise SnapshotFailed(f"snapshot at {seq} was not stored: read back, {problem}")
        except BaseException:
            self._drop_rows()
            raise
        return snapshot

    def _write_chunks(self, rows: list[tuple[int, int, int, bytes]]) -> None:
        if rows:
            with self._file.transaction() as db:
                db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?)", rows)

    def _finish(self, row: SnapshotRow, *, begin: bool = False) -> None:
        """Mark a snapshot as finished and delete those it replaces, in one transaction."""
        previous = self._previous_snapshots(row.seq)
        with self._recording_failure(), self._file.transaction() as db:
            db.execute(_FINISH, (row.chunks, row.size, row.crc, row.check, row.id))
            for old in self._snapshots:
                if old not in previous:
                    db.execute("DELETE FROM snapshots WHERE id = ?", (old.id,))
            if begin:
                meta = self._file.save_meta(first=row.seq + 1, head=row.seq)
        if begin:
            self._set_meta(meta)
            self._head = self._durable = row.seq
        self._snapshots = [*previous, row]

    def drop_before(self, seq: int) -> None:
        """Delete records up to `seq` that both kept snapshots cover; with fewer than two, none."""
        with self._snapshotting:
            first = self._first_to_keep(seq)
            with self._file.lock:
                if first <= self._meta.first:
                    return
                with self._file.transaction():
                    # Before the rows are deleted: after a crash in between, the next start deletes
                    # the remaining rows.
                    meta = self._file.save_meta(first=first)
                self._set_meta(meta)
            self._drop_rows()

    def erase_before(self, seq: int) -> None:
        """Delete the snapshots before `seq` and the records up to it, and rewrite the file without
        the pages that had them.
        """
        with self._snapshotting:
            snapshots = self._kept_from(seq)
            with self._file.lock:
                with self._recording_failure(), self._file.transaction() as db:
                    for row in self._snapshots:
                        if row not in snapshots:
                            db.execute("DELETE FROM snapshots WHERE id = ?", (row.id,))
                    meta = self._file.save_meta(first=max(self._meta.first, seq + 1))
                self._set_meta(meta)
                self._snapshots = snapshots
            self._drop_rows()
            with self._recording_failure():
                self._file.rewrite()
                self._file.save_erased(seq)
            self._erased = seq

    def _drop_rows(self) -> None:
        """Delete unused rows: dropped records, and chunks of deleted and unfinished snapshots."""
        if self._failed is not None:
            return
        delete = self._file.delete_in_parts
        ids = ",".join(str(row.id) for row in self._snapshots) or "0"
        try:
            with self._recording_failure():
                delete(
                    "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE seq < ? LIMIT 2000)",
                    self._meta.first,
                )
                unused = f"SELECT rowid FROM chunks WHERE snapshot NOT IN ({ids}) LIMIT 8"  # noqa: S608 - our own numbers  # nosec B608
                delete(f"DELETE FROM chunks WHERE rowid IN ({unused})")  # noqa: S608  # nosec B608
                delete(f"DELETE FROM snapshots WHERE id NOT IN ({ids})")  # noqa: S608  # nosec B608
        except StorageFull as error:
            logger.warning(
                "%s: unused rows were not deleted: %s", self._file.location, error.message
            )

    # -- state --------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Close the file; if `clean`, sync what a weaker policy has not synced yet."""
        if self._flusher is not None:
            self._flusher.stop()
        with self._snapshotting, self._file.lock:
            if self._closing.is_set():
                return
            try:
                if clean and self._failed is None and self._policy != "always":
                    self._flush()
            finally:
                self._closing.set()
                self._file.close()
                self._disk.close(self._lock_fd)
