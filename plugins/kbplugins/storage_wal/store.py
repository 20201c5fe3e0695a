"""The durable log: segments, rotation, syncing by policy, snapshots.

Locks, always taken in this order: `_writing` (append and rotation), `_syncing` (fdatasync and the
change of the file it applies to), `_naming` (MANIFEST and its lists). Readers use immutable lists
and take no lock.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kbcore.clock import Clock, SystemClock
from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbcore.errors import (
    Conflict,
    InvalidInput,
    LogTruncated,
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
from kbplugins.storage_wal.presence import Presence, removed
from kbplugins.storage_wal.segment import Extent, Tail
from kbplugins.storage_wal.space import RESERVE_BYTES, Space
from kbplugins.store_base import KEPT_SNAPSHOTS, StoreBase

logger = logging.getLogger(__name__)

_SMALL_SEGMENT = 1 << 20
MAX_BATCH = 1 << 30
"""Maximum bytes of one append: Linux writes less than 2 GiB per call, and a short write is a
failure.
"""


class WalStore(LeaderMark, StoreBase):
    """A `LogStore` on files; tests replace `fs`, `clock`, `random_bytes` and the sizes."""

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
        super().__init__()
        self._disk = Disk(fs or OsFiles(), path_of(config.storage_url) or config.storage_dir)
        self._clock = clock or SystemClock()
        self._policy = config.fsync_policy
        self._segment_bytes = segment_bytes or config.wal_segment_mb << 20
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._naming = threading.Lock()
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
        self._presence = Presence(self._disk, self._clock)
        self._use(opened)
        if self._policy == "interval":
            self._flusher = Flusher(self._flush, config.fsync_interval_ms / 1000)

    def _use(self, opened: opening.Opened) -> None:
        self._manifest = opened.manifest
        self._sealed = opened.sealed
        self._tail = opened.tail
        self._head = self._durable = opened.head
        self._crc = opened.crc
        self._dropped = opened.dropped
        self.note_damaged(opened.damaged, (0, *opened.manifest.snapshots)[-1])
        self._log_id = opened.manifest.log_id_bytes
        self._id_crc = opened.manifest.id_crc

    def work_through(self, offload: Callable[[Callable[[], None]], None]) -> None:
        """Run background syncs through `offload`, so that they do not block other tasks."""
        if self._flusher is not None:
            self._flusher.offload = offload

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Write records in one call, all or none; return the last sequence number."""
        return self._append(records, for_room=False)

    def append_for_room(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Append records that free space, also when the disk is full, if necessary from the
        reserve.
        """
        try:
            return self._append(records, for_room=True)
        except StorageFull:
            with self._writing:
                if not self._space.release():
                    raise
            return self._append(records, for_room=True)

    def look_for_room(self) -> bool:
        """Accept writes again if the disk has free space; return whether writes are accepted."""
        with self._writing:
            self._check()
            if self._space.full:
                try:
                    with self._recording_failure():
                        self._space.admit(0)
                except StorageFull:
                    return False
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
                    {"limit": "batchBytes", "value": MAX_BATCH, "bytes": len(data)},
                )
            try:
                with self._recording_failure():
                    self._write(data, for_room)
            except StorageFull as error:
                if error.details and "freeBytes" in error.details:
                    raise
                raise self._space.ran_out(len(data), cause=error) from error
            self._tail.extent.mark(self._head + 1, self._tail.extent.end - len(data))
            self._crc = crc
            # Last: a sync that reads this number must find the bytes in the kernel.
            self._head += len(records)
            return self._head

    def _write(self, data: bytes, for_room: bool) -> None:
        if not for_room:
            self._space.admit(len(data))
        if self._tail.extent.end + len(data) > self._tail.capacity:
            # The batch was encoded before the rotation syncs the records before it, so `durable` in
            # its headers is lower than it could be, which is allowed.
            size = min(_SMALL_SEGMENT, self._segment_bytes) if for_room else self._segment_bytes
            self._rotate(len(data), size)
        self._tail.write(data)

    def sync(self) -> None:
        """Make the appended records as durable as FSYNC_POLICY requires.

        `always` waits for the disk. Under `interval` and `never` the kernel already has the bytes,
        so they survive a killed process; under `interval` a thread syncs them later.
        """
        self._check()
        if self._policy == "always":
            self._flush()
        elif self._flusher is not None and self._durable < self._head:
            self._flusher.written()
        with self._recording_failure():
            try:
                self._check_files()
            except StorageFull as error:  # must not look like a refusal: the records are appended
                raise StorageFailed(error.message, error.details) from error

    def _check_files(self) -> None:
        """Raise StorageFailed if the log has lost files; records must not be acknowledged then.

        Complete segments whose records a snapshot has, snapshots of which the log has all later
        records, and MANIFEST are no loss.
        """
        while True:
            tail = self._tail
            try:
                self._presence.check_tail(tail)
                break
            except StorageFailed:
                if self._tail is tail:  # otherwise another segment was begun in the meantime
                    raise
        if self._missing():
            with self._naming:  # without this lock, files may be missing that were just dropped
                if missing := self._missing():
                    self._make_up_for(missing)

    def _missing(self) -> set[str]:
        return self._presence.missing(self._sealed, self._manifest.snapshots)

    def _make_up_for(self, missing: Collection[str]) -> None:
        logger.warning(
            "%s: removed by another program: %s", self._disk.folder, ", ".join(sorted(missing))
        )
        saved = self._manifest.snapshots
        intact = tuple(number for number in saved if snapshots.name_of(number) not in missing)
        sealed, newest = self._sealed, (0, *intact)[-1]
        if newest + 1 < self._manifest.segments[0]:
            raise removed(self._disk, snapshots.name_of(saved[-1]))
        for index, extent in enumerate(sealed):
            if extent.name in missing:
                following = (*sealed, self._tail.extent)[index + 1].first
                if newest < following - 1:
                    raise removed(self._disk, extent.name)
                self._sealed = sealed[index + 1 :]
        try:
            segments = tuple(each.first for each in (*self._sealed, self._tail.extent))
            self._save(segments=segments, snapshots=intact)
        except StorageFull as error:  # the records are in the log; the next sync tries again
            logger.warning("%s", error.message)
            return
        if len(intact) < len(saved):
            is_newest_lost = intact[-1:] != saved[-1:]
            self.note_damaged(
                self._damaged + len(saved) - len(intact),
                newest if is_newest_lost else self._replaced_by,
            )

    def _flush(self) -> None:
        """Sync all appended records."""
        with self._syncing:
            self._check()
            head = self._head
            if head == self._durable:
                return
            with self._recording_failure():
                # No record may be acknowledged before this has returned.
                self._tail.sync()
            self._durable = max(self._durable, head)

    def _rotate(self, needed: int, segment_bytes: int) -> None:
        """Begin a new segment with space for a batch. A crash between two steps leaves a log that
        opens.

        The old segment is synced first, because only the last segment may have a torn tail. The new
        one is complete on the disk before MANIFEST names it, and it is empty until then.
        """
        with self._syncing:
            old = self._tail
            old.sync()
            self._presence.check_tail(old)
            self._durable = self._head
            epoch, created = self._manifest.epoch, self._clock.now_ms()
            header = segment.SegmentHeader(self._log_id, epoch, self._head + 1, self._crc, created)
            tail = Tail.begin(self._disk, header, needed, segment_bytes)
            if tail.extent.first != old.extent.first:
                self._name(old, tail)
            # Otherwise an empty segment was replaced by a larger one with the same name.
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
                # MANIFEST is unchanged, so the new segment is removed. After any other failure the
                # new MANIFEST may be on the disk or in the cache, so the segment must stay.
                tail.close()
                self._disk.discard(tail.extent.name)
                raise
            except BaseException:
                tail.close()
                raise
            self._sealed = sealed

    # -- reading ------------------------------------------------------------

    def read(self, after: int) -> Iterator[LogRecord]:
        """Yield the records with a number over `after` up to the current head, in order."""
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
            # The end moves during the read; all records up to `head` are before it.
            end = extent.end
            seq, offset = extent.start_for(after + 1)
            reader = segment.SegmentReader(
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
        """Store a snapshot of the state at `seq`, keep the one before it, and delete older ones."""
        self._check()
        newest = self._manifest.snapshots[-1] if self._manifest.snapshots else 0
        if not newest <= seq <= self._head:
            raise InvalidInput(
                f"a snapshot at {seq} must be from {newest}, the newest, to {self._head}, the head"
            )
        with self._recording_failure():
            if seq > self._durable:
                # Otherwise a power loss could leave a snapshot that is ahead of its log.
                self._flush()
            if self._space.full:
                # The log that this snapshot replaces frees more space than the reserve.
                self._space.release()
            header = snapshots.SnapshotHeader(
                self._log_id, self._manifest.epoch, seq, self._clock.now_ms()
            )
            snapshots.write(self._disk, header, chunks)
            with self._naming:
                known = (*(number for number in self._manifest.snapshots if number != seq), seq)
                chosen = self.chosen(known)
                self._save(
                    snapshots=chosen,
                    durable=max(self._durable, self._manifest.durable),
                )
        for number in known:
            if number not in chosen:
                self._disk.discard(snapshots.name_of(number))

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot of another log; the next record is seq + 1."""
        self._check()
        if self._head or self._manifest.snapshots:
            raise Conflict("only an empty log can begin with a snapshot")
        self.replace_with(LogSeed(self._manifest.log_id, self._manifest.epoch, seq), chunks)

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Replace this log by another, all or nothing; see `replacing`."""
        with self._writing, self._syncing, self._naming:
            self._check()
            with self._recording_failure():
                replacing.stage(self._disk, self._clock, seed, chunks, self._segment_bytes)
                replacing.finish(self._disk)
                self._tail.close()
                self._use(opening.open_log(self._disk, self._clock, b"", self._segment_bytes))

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; MANIFEST has it before the first record of that term is written."""
        with self._writing, self._syncing, self._naming:
            self._check()
            with self._recording_failure():
                self._save(epoch=replacing.later(epoch, self._manifest.epoch))

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; it was verified when the log was opened or when it was
        saved.
        """
        self._check()
        seqs = self._manifest.snapshots
        return (seqs[-1], snapshots.read(self._disk, self._log_id, seqs[-1])) if seqs else None

    def snapshot_numbers(self) -> Sequence[int]:
        """Return the numbers of the stored snapshots, ascending."""
        self._check()
        return self._manifest.snapshots

    def drop_before(self, seq: int) -> None:
        """Delete segments of records up to `seq` that both kept snapshots cover; with fewer than
        two, none.
        """
        self._check()
        with self._naming:
            if len(self._manifest.snapshots) < KEPT_SNAPSHOTS:
                return  # if the snapshot is damaged, the whole log is needed
            limit = min(seq, *self._manifest.snapshots)
            extents = (*self._sealed, self._tail.extent)
            dropped = [old for old, new in pairwise(extents) if new.first <= limit + 1]
            if not dropped:
                return
            self._sealed = self._sealed[len(dropped) :]
            try:
                # MANIFEST first: after a crash in between, the next start removes the files.
                with self._recording_failure():
                    self._save(segments=self._manifest.segments[len(dropped) :])
            except StorageFull:
                self._sealed = (*dropped, *self._sealed)
                raise
        for extent in dropped:
            self._disk.discard(extent.name)

    def load_snapshot_before(self, seq: int) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot before `seq`."""
        self._check()
        seqs = [number for number in self._manifest.snapshots if number < seq]
        return (seqs[-1], snapshots.read(self._disk, self._log_id, seqs[-1])) if seqs else None

    def begin_apart(self) -> None:
        """Begin a new segment, unless the last one is empty."""
        with self._writing:
            self._check()
            if self._tail.extent.first <= self._head:
                with self._recording_failure():
                    self._rotate(0, self._segment_bytes)

    def erase_before(self, seq: int) -> None:
        """Delete the snapshots before `seq`, and the segments whose records it all covers."""
        self._check()
        with self._naming:
            later = tuple(number for number in self._manifest.snapshots if number >= seq)
            if not later:
                raise InvalidInput(f"no snapshot is at {seq} or later")
            gone = self._manifest.snapshots[: -len(later)]
            extents = (*self._sealed, self._tail.extent)
            dropped = [old for old, new in pairwise(extents) if new.first <= seq + 1]
            with self._recording_failure():
                # MANIFEST first: after a crash in between, the next start removes the files.
                self._save(snapshots=later, segments=self._manifest.segments[len(dropped) :])
            self._sealed = self._sealed[len(dropped) :]
        for extent in dropped:
            self._disk.discard(extent.name)
        for number in gone:
            self._disk.discard(snapshots.name_of(number))

    def erased(self) -> int:
        """Return the last number that no segment and only later snapshots cover."""
        manifest = self._manifest
        return min((manifest.segments[0] - 1, *manifest.snapshots)) if manifest.snapshots else 0

    # -- state --------------------------------------------------------------

    def status(self) -> LogStatus:
        """Return the state of the log; `durable` is the last synced record under every policy."""
        return self.with_damage(
            LogStatus(
                head=self._head,
                durable=self._durable,
                log_id=self._manifest.log_id,
                epoch=self._manifest.epoch,
                snapshot=self._manifest.snapshots[-1] if self._manifest.snapshots else 0,
                tail_bytes_dropped=self._dropped,
                writable=self._is_open and not self._space.full,
            )
        )

    def close(self, *, clean: bool = True) -> None:
        """Release the folder; if `clean`, sync first and mark the log as complete in MANIFEST."""
        with self._writing:
            if self._closing.is_set():
                return
            if self._flusher is not None:
                self._flusher.stop()
            try:
                if clean and self._failed is None:
                    self._flush()
                    self._mark_clean()
            finally:
                self._closing.set()
                self._tail.close()
                self._disk.close(self._lock_fd)

    def _mark_clean(self) -> None:
        with self._naming:
            try:
                # After the sync: a log with this flag must end exactly at `end`.
                self._save(clean=True, durable=self._head, end=self._tail.extent.end)
            except StorageFull as error:
                logger.warning(
                    "%s: closed, but not marked clean: %s", self._disk.folder, error.message
                )

    def _save(self, **changes: object) -> None:
        manifest = replace(self._manifest, **changes)  # type: ignore[arg-type]
        manifests.save(self._disk, manifest)
        self._manifest = manifest
