"""Opening of a log folder: check the existing files, then make the log writable.

The order matters. No file is changed before all were checked. After an unclean stop the surviving
records are made durable before any is served. MANIFEST loses its `clean` flag before the first
record is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kbcore.clock import Clock
from kbcore.errors import LogCorrupted
from kbplanner.syntax.diagnostics import counted
from kbplugins.storage_wal import lock, recovery, segment, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import READ, UPDATE, Disk
from kbplugins.storage_wal.manifest import Manifest
from kbplugins.storage_wal.segment import Extent, SegmentHeader, Tail

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """An opened log: its manifest, complete segments, the segment being written, and its last
    record.

    `damaged` is the number of snapshots that were damaged and removed.
    """

    manifest: Manifest
    sealed: tuple[Extent, ...]
    tail: Tail
    head: int
    crc: int
    dropped: int
    damaged: int


def open_log(disk: Disk, clock: Clock, new_id: bytes, segment_bytes: int) -> Opened:
    """Open the log of a locked folder, or begin one in an empty folder."""
    names = disk.names()
    manifest = _manifest(disk, names, new_id)
    held = _HeldFolder.take(disk, names)
    try:
        return _open(disk, clock, manifest, names, segment_bytes, held)
    finally:
        held.release()


class _HeldFolder:
    """The lock on the last segment of the folder, so that no other process has the log open."""

    def __init__(self, disk: Disk, name: str, fd: int | None) -> None:
        self._disk = disk
        self._name = name
        self._fd = fd

    @classmethod
    def take(cls, disk: Disk, names: Iterable[str]) -> _HeldFolder:
        """Lock the last of the segments, if there is one. Raises StorageBusy."""
        last = max((name for name in names if segment.first_of(name) is not None), default="")
        return cls(disk, last, lock.take_log(disk, last, UPDATE) if last else None)

    def reopen(self, name: str) -> int:
        """Return the descriptor of a segment, with its lock."""
        if name == self._name and self._fd is not None:
            fd, self._fd = self._fd, None
            return fd
        return lock.take_log(self._disk, name, UPDATE)

    def release(self) -> None:
        """Release the lock, unless `reopen` has returned it."""
        if self._fd is not None:
            self._disk.close(self._fd)


def _open(
    disk: Disk,
    clock: Clock,
    manifest: Manifest,
    names: list[str],
    segment_bytes: int,
    held: _HeldFolder,
) -> Opened:
    content = recovery.examine(disk, names, manifest)
    kept_snapshots = sound_snapshots(disk, manifest, content.extents, content.head)
    if content.dropped:
        logger.warning(
            "%s: torn tail cut at byte %d after record %d; dropped %s that were never acknowledged",
            disk.path(content.extents[-1].name),
            content.extents[-1].end,
            content.head,
            counted(content.dropped, "byte"),
        )

    # From here on the folder is changed.
    _tidy(disk, names, content.surplus, kept_snapshots)
    sealed, crc = content.extents[:-1], content.crc
    damaged = len(manifest.snapshots) - len(kept_snapshots)
    if content.extents:
        tail = _reopen(disk, clock, manifest, content, segment_bytes, held)
    else:
        first = content.head + 1
        header = SegmentHeader(manifest.log_id_bytes, manifest.epoch, first, 0, clock.now_ms())
        tail = Tail.begin(disk, header, 0, segment_bytes)
    manifest = replace(
        manifest,
        segments=tuple(extent.first for extent in (*sealed, tail.extent)),
        snapshots=kept_snapshots,
        durable=content.head,
        clean=False,
        end=0,
    )
    try:
        manifests.save(disk, manifest)
    except BaseException:
        tail.close()
        raise
    return Opened(manifest, tuple(sealed), tail, content.head, crc, content.dropped, damaged)


def _manifest(disk: Disk, names: list[str], new_id: bytes) -> Manifest:
    if manifests.NAME in names:
        return manifests.load(disk)
    log_files = [
        name
        for name in names
        if segment.first_of(name) is not None or snapshots.seq_of(name) is not None
    ]
    if log_files:
        raise LogCorrupted(
            f"{disk.folder}/{manifests.NAME}: the file is missing, but {log_files[0]} exists. "
            "Restore a backup with `kbcore restore`, or save the intact records with `kbcore salvage`",
            directory=disk.folder,
            segment=manifests.NAME,
            offset=0,
            found=log_files,
        )
    # The manifest comes first: a crash before the first segment leaves an empty log, not damage.
    manifest = Manifest(new_id.hex(), epoch=1)
    manifests.save(disk, manifest)
    return manifest


def sound_snapshots(
    disk: Disk, manifest: Manifest, extents: list[Extent], head: int
) -> tuple[int, ...]:
    """Return the snapshots to keep.

    A damaged newest one is dropped if there is an older state and the log has all records since.
    """
    kept_snapshots = list(manifest.snapshots)
    first = extents[0].first if extents else head + 1
    names = disk.names()
    while kept_snapshots:
        name = snapshots.name_of(kept_snapshots[-1])
        problem = (
            snapshots.verify(disk, manifest.log_id_bytes, kept_snapshots[-1])
            if name in names
            else "no such file"
        )
        if not problem:
            break
        base = kept_snapshots[-2] if len(kept_snapshots) > 1 else 0
        if first > base + 1:
            raise LogCorrupted(
                f"{disk.path(name)}: {problem}, and the log before record {first} was dropped. "
                "Restore a backup with `kbcore restore`",
                directory=disk.folder,
                segment=name,
                offset=0,
                expectedSeq=base + 1,
                found=problem,
            )
        logger.warning(
            "%s: %s; using the state at record %d and the log after it",
            disk.path(name),
            problem,
            base,
        )
        kept_snapshots.pop()
    newest = kept_snapshots[-1] if kept_snapshots else 0
    if first > newest + 1 or newest > head:
        name = extents[0].name if extents else manifests.NAME
        raise recovery.corrupted(
            disk.folder, name, 0, newest + 1, f"a log from {first} to {head}", 0
        )
    return tuple(kept_snapshots)


def _tidy(
    disk: Disk, names: list[str], surplus: list[str], kept_snapshots: tuple[int, ...]
) -> None:
    """Remove files left by a crash: incomplete ones, and those that MANIFEST does not name."""
    for name in names:
        seq = snapshots.seq_of(name)
        if (
            name.endswith(".tmp")
            or name in surplus
            or (seq is not None and seq not in kept_snapshots)
        ):
            logger.info("%s: left by a crash, removed", disk.path(name))
            disk.discard(name)


def _reopen(
    disk: Disk,
    clock: Clock,
    manifest: Manifest,
    content: recovery.LogContent,
    segment_bytes: int,
    held: _HeldFolder,
) -> Tail:
    extent = content.extents[-1]
    if content.clean:
        fd = held.reopen(extent.name)
        return Tail(disk, fd, disk.size(extent.name, fd), extent)
    # After an unclean stop a page may be in the cache only: if a sync failed, the kernel may have
    # marked the page clean, and another sync would succeed without writing it. So the records are
    # copied into a new file, which is synced before any record is served.
    source = disk.open(extent.name, READ)
    try:
        old = SegmentHeader.decode(disk.read(extent.name, source, segment.HEADER_BYTES, 0))
        header = old or SegmentHeader(
            manifest.log_id_bytes, manifest.epoch, extent.first, 0, clock.now_ms()
        )
        fd, capacity = segment.create(
            disk,
            header,
            recovery.surviving(disk, extent, source),
            segment_bytes,
            max(extent.end, 1),
        )
    finally:
        disk.close(source)
    return Tail(disk, fd, capacity, extent)
