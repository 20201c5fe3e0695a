"""The durable log: segments in order, rotation, syncing as the policy says, snapshots.

Locks, always taken in this order: `_writing` (append and rotation), `_syncing` (fdatasync and the change of the
file it is for), `_naming` (MANIFEST and the lists it holds). A reader takes none: it works on immutable lists.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kbcore.clock import Clock, SystemClock
from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbcore.errors import (
    Conflict,
    InvalidInput,
    LogTruncated,
    NotReady,
    StorageFailed,
    StorageFull,
    TooLarge,
)
from kbcore.plug.ports import LogRecord, LogSeed, LogStatus
from kbplugins.storage_wal import frame, lock, opening, recovery, replacing, segment, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import READ, Disk, Files, OsFiles
from kbplugins.storage_wal.flusher import Flusher
from kbplugins.storage_wal.leader_mark import LeaderMark
from kbplugins.storage_wal.segment import Extent, Tail
from kbplugins.storage_wal.space import RESERVE_BYTES, Space

logger = logging.getLogger(__name__)

KEPT_SNAPSHOTS = 2
_SMALL_SEGMENT = 1 << 20
MAX_BATCH = 1 << 30
"""Bytes of one append: the kernel takes less than 2 GiB in one call, and a short write counts as a failure."""


class WalStore(LeaderMark):
    """A `LogStore` on files. `fs`, `clock`, `random_bytes` and sizes of segments and of the reserve are seams for tests."""

    def __init__(
        self,
        config: Config,
        *,
        fs: Files | None = None,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        segment_bytes: int | None = None,
        reserve_bytes: int | None = None,
    ) -> None:
        self._disk = Disk(fs or OsFiles(), path_of(config.storage_url) or config.storage_dir)
        self._clock = clock or SystemClock()
        self._policy = config.fsync_policy
        self._segment_bytes = segment_bytes or config.wal_segment_mb << 20
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._naming = threading.Lock()
        self._failed: StorageFailed | None = None
        self._closed = False
        self._flusher: Flusher | None = None
        self._disk.make_folder()
        self._lock_fd = lock.take(self._disk)
        try:
            replacing.finish(self._disk)
            opened = opening.open_log(
                self._disk, self._clock, random_bytes(16), self._segment_bytes
            )
            min_free = config.min_free_mb << 20
            reserve = min(RESERVE_BYTES, min_free) if reserve_bytes is None else reserve_bytes
            try:
                self._space = Space(self._disk, self._clock, min_free, reserve)
            except BaseException:
                opened.tail.close()
                raise
        except BaseException:
            self._disk.close(self._lock_fd)
            raise
        self._hold(opened)
        if self._policy == "interval":
            self._flusher = Flusher(self._flush, config.fsync_interval_ms / 1000)

    def _hold(self, opened: opening.Opened) -> None:
        self._manifest = opened.manifest
        self._sealed = opened.sealed
        self._tail = opened.tail
        self._head = self._durable = opened.head
        self._crc = opened.crc
        self._dropped = opened.dropped
        self._log_id = bytes.fromhex(opened.manifest.log_id)
        self._id_crc = opening.id_checksum(self._log_id)

    def work_through(self, offload: Callable[[Callable[[], None]], None]) -> None:
        """Run the syncs that no caller waits for through `offload`, so that they block no other task."""
        if self._flusher is not None:
            self._flusher.offload = offload

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Hand records to the kernel in one write, all or none; returns the last sequence number."""
        return self._append(records, for_room=False)

    def append_for_room(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Do the same for records that make room: also on a disk that is called full, and out of the reserve if need be."""
        try:
            return self._append(records, for_room=True)
        except StorageFull:
            with self._writing:
                if not self._space.release():
                    raise
            return self._append(records, for_room=True)

    def look_for_room(self) -> bool:
        """Take writes again where the disk has room again; whether they are taken now."""
        with self._writing:
            self._check()
            if self._space.full:
                try:
                    self._space.admit(0)
                except StorageFull:
                    return False
                except StorageFailed as error:
                    self._fail(error)
                    raise
        return True

    def _append(self, records: Sequence[tuple[int, int, bytes]], *, for_room: bool) -> int:
        with self._writing:
            self._check()
            if not records:
                return self._head
            data, crc = frame.encode(
                records, self._head + 1, self._durable, self._manifest.epoch, self._id_crc
            )
            if len(data) > MAX_BATCH:
                raise TooLarge(
                    f"a batch of {len(data)} bytes is over the limit of {MAX_BATCH}",
                    {"limit": MAX_BATCH},
                )
            try:
                if not for_room:
                    self._space.admit(len(data))
                if self._tail.extent.end + len(data) > self._tail.room:
                    self._rotate(
                        len(data),
                        min(_SMALL_SEGMENT, self._segment_bytes)
                        if for_room
                        else self._segment_bytes,
                    )
                    # The batch was framed before the rotation synced what is before it: its `durable` is merely low.
                self._tail.write(data)
            except StorageFull as error:
                if error.details and "freeBytes" in error.details:
                    raise
                raise self._space.ran_out(len(data), cause=error) from error
            except StorageFailed as error:
                self._fail(error)
                raise
            self._tail.extent.mark(self._head + 1, self._tail.extent.end - len(data))
            self._crc = crc
            self._head += len(
                records
            )  # last: a sync that reads this number must find the bytes in the kernel
            return self._head

    def sync(self) -> None:
        """Make what was appended as durable as FSYNC_POLICY promises.

        `always` waits for the disk. Under `interval` and `never` append has already handed the bytes to the
        kernel, which a killed process does not take with it; under `interval` a thread syncs them in time.
        """
        self._check()
        if self._policy == "always":
            self._flush()
        elif self._flusher is not None and self._durable < self._head:
            self._flusher.written()

    def _flush(self) -> None:
        """Put everything appended so far on the disk."""
        with self._syncing:
            self._check()
            head = self._head
            if head == self._durable:
                return
            try:
                # The one promise of the log: no caller acknowledges a record before this has returned.
                self._tail.sync()
            except StorageFailed as error:
                self._fail(error)
                raise
            self._durable = max(self._durable, head)

    def _rotate(self, needed: int, want: int) -> None:
        """Begin a new segment with room for a batch. A crash between any two steps leaves a log that opens.

        The old segment is synced first: only the last segment may end in a torn tail. The new one is whole and
        has its name on the disk before MANIFEST names it, and no record is written before that.
        """
        with self._syncing:
            old = self._tail
            old.sync()
            self._durable = self._head
            tail = opening.begin(
                self._disk,
                self._clock,
                self._log_id,
                self._manifest.epoch,
                self._head + 1,
                self._crc,
                needed,
                want,
            )
            if tail.extent.first != old.extent.first:
                self._name(old, tail)
            # Otherwise a segment without records was replaced by one with more room, under the name it had.
            self._tail = tail
            old.close()

    def _name(self, old: Tail, tail: Tail) -> None:
        with self._naming:
            sealed = (*self._sealed, old.extent)
            try:
                self._save(
                    segments=tuple(extent.first for extent in (*sealed, tail.extent)),
                    durable=self._durable,
                )
            except StorageFull:
                # MANIFEST is the old one and the segment is in the way. After any other failure MANIFEST may
                # already name it, on the disk or in the cache, so it must stay.
                tail.close()
                self._disk.discard(tail.extent.name)
                raise
            except BaseException:
                tail.close()
                raise
            self._sealed = sealed

    # -- reading ------------------------------------------------------------

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return every record with a sequence number over `after` up to the head of this moment, in order, streamed."""
        self._check()
        head = self._head
        tail = self._tail.extent
        extents = [extent for extent in self._sealed if extent.first != tail.first] + [tail]
        first = extents[0].first
        if after + 1 < first:
            raise LogTruncated(f"records up to {first - 1} are no longer kept", {"first": first})
        return self._records(extents, after, head)

    def _records(self, extents: list[Extent], after: int, head: int) -> Iterator[LogRecord]:
        for index, extent in enumerate(extents):
            if index + 1 < len(extents) and extents[index + 1].first <= after + 1:
                continue
            if extent.first > head:
                return
            yield from self._segment_records(extent, after, head)

    def _segment_records(self, extent: Extent, after: int, head: int) -> Iterator[LogRecord]:
        try:
            fd = self._disk.open(extent.name, READ)
        except StorageFailed as error:
            if extent.first < self._manifest.segments[0]:
                raise LogTruncated("records were dropped while they were read", None) from error
            raise
        try:
            end = (
                extent.end
            )  # it grows while we read; everything up to the head of this reading is before it
            seq, offset = extent.start_for(after + 1)
            reader = segment.Reader(
                self._disk, extent.name, fd, self._id_crc, seq=seq, offset=offset, limit=end
            )
            for number, kind, version, payload in reader.records():
                if number > head:
                    return
                if number > after:
                    yield LogRecord(number, kind, version, payload)
            if reader.offset < end:
                problem = reader.problem or "zeros"
                raise recovery.corrupted(
                    self._disk.folder, extent.name, reader.offset, reader.seq, problem, 0
                )
        finally:
            self._disk.close(fd)

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`; the one before it is kept, older ones are deleted."""
        self._check()
        newest = self._manifest.snapshots[-1] if self._manifest.snapshots else 0
        if not newest <= seq <= self._head:
            raise InvalidInput(
                f"a snapshot at {seq} must be from {newest}, the newest, to {self._head}, the head"
            )
        try:
            if seq > self._durable:
                # Else a power cut could leave a snapshot that is ahead of its log.
                self._flush()
            if self._space.full:
                self._space.release()  # what it takes, the log that it makes unnecessary gives back
            snapshots.write(
                self._disk, self._log_id, self._manifest.epoch, seq, self._clock.now_ms(), chunks
            )
            with self._naming:
                known = (*(number for number in self._manifest.snapshots if number != seq), seq)
                self._save(
                    snapshots=known[-KEPT_SNAPSHOTS:],
                    durable=max(self._durable, self._manifest.durable),
                )
        except StorageFailed as error:
            self._fail(error)
            raise
        for number in known[:-KEPT_SNAPSHOTS]:
            self._disk.discard(snapshots.name_of(number))

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot made elsewhere; the next record is seq + 1."""
        self._check()
        if self._head or self._manifest.snapshots:
            raise Conflict("only an empty log can begin with a snapshot")
        self.replace_with(LogSeed(self._manifest.log_id, self._manifest.epoch, seq), chunks)

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Put another log in the place of this one, all or none; see `replacing`."""
        with self._writing, self._syncing, self._naming:
            self._check()
            try:
                replacing.stage(self._disk, self._clock, seed, chunks, self._segment_bytes)
                replacing.finish(self._disk)
                self._tail.close()
                self._hold(opening.open_log(self._disk, self._clock, b"", self._segment_bytes))
            except StorageFailed as error:
                self._fail(error)
                raise

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; MANIFEST says so before the first record of it."""
        with self._writing, self._syncing, self._naming:
            self._check()
            try:
                self._save(epoch=replacing.later(epoch, self._manifest.epoch))
            except StorageFailed as error:
                self._fail(error)
                raise

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; it was read and found sound when the log was opened or when it was saved."""
        self._check()
        seqs = self._manifest.snapshots
        return (seqs[-1], snapshots.read(self._disk, self._log_id, seqs[-1])) if seqs else None

    def drop_before(self, seq: int) -> None:
        """Delete segments of records up to `seq` that both kept snapshots cover; with fewer than two, none."""
        self._check()
        with self._naming:
            if len(self._manifest.snapshots) < KEPT_SNAPSHOTS:
                return  # the state to fall back to is the empty one, and the way from there is the whole log
            limit = min(seq, *self._manifest.snapshots)
            extents = (*self._sealed, self._tail.extent)
            gone = [old for old, new in pairwise(extents) if new.first <= limit + 1]
            if not gone:
                return
            self._sealed = self._sealed[len(gone) :]
            try:
                # MANIFEST first: a crash in between leaves files too many, which the next start removes.
                self._save(segments=self._manifest.segments[len(gone) :])
            except StorageFull:
                self._sealed = (*gone, *self._sealed)
                raise
            except StorageFailed as error:
                self._fail(error)
                raise
        for extent in gone:
            self._disk.discard(extent.name)

    # -- state --------------------------------------------------------------

    def status(self) -> LogStatus:
        """Return the state of the log. `durable` is what was really synced, under every policy."""
        return LogStatus(
            head=self._head,
            durable=self._durable,
            log_id=self._manifest.log_id,
            epoch=self._manifest.epoch,
            snapshot=self._manifest.snapshots[-1] if self._manifest.snapshots else 0,
            tail_bytes_dropped=self._dropped,
            writable=self._failed is None and not self._closed and not self._space.full,
        )

    def close(self, *, clean: bool = True) -> None:
        """Sync, mark in MANIFEST that nothing is missing, and let the folder go; without `clean` only the last."""
        with self._writing:
            if self._closed:
                return
            if self._flusher is not None:
                self._flusher.stop()
            try:
                if clean and self._failed is None:
                    self._flush()
                    self._mark_clean()
            finally:
                self._closed = True
                self._tail.close()
                self._disk.close(self._lock_fd)

    def _mark_clean(self) -> None:
        with self._naming:
            try:
                # After the sync: with this flag no start may find less than the end it names.
                self._save(clean=True, durable=self._head, end=self._tail.extent.end)
            except StorageFull as error:
                logger.warning(
                    "%s: closed, but not marked clean: %s", self._disk.folder, error.message
                )

    def _save(self, **changes: object) -> None:
        manifest = replace(self._manifest, **changes)  # type: ignore[arg-type]
        manifests.save(self._disk, manifest)
        self._manifest = manifest

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise NotReady("the log is closed")

    def _fail(self, error: StorageFailed) -> None:
        if self._failed is None:
            self._failed = error
