"""Replacement of a log by another: written completely in a subfolder, then moved; safe in a crash.

The new log is complete as soon as the subfolder has a MANIFEST, which is written last. From then on
the next start finishes the move before it reads the log, so it opens either the old log or the new
one, never a mixture.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kbcore.clock import Clock
from kbcore.errors import InvalidInput, StorageFailed, StorageFull
from kbcore.plug.ports import LogSeed
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal import segment, snapshots
from kbplugins.storage_wal.files import Disk
from kbplugins.storage_wal.offline import seed as planting

ASIDE = "bootstrap.tmp"

logger = logging.getLogger(__name__)


def stage(
    disk: Disk, clock: Clock, seed: LogSeed, chunks: Iterable[bytes], segment_bytes: int
) -> None:
    """Create the new log in the subfolder, durably.

    Raises StorageFull or SnapshotFailed, with nothing changed.
    """
    aside = Disk(disk.files, disk.path(ASIDE))
    try:
        planting.plant(aside, clock, seed, chunks, segment_bytes)
    except StorageFailed:
        raise
    except BaseException:
        _discard(aside)
        raise


def finish(disk: Disk) -> bool:
    """Replace the current log by a complete staged one; return whether there was one.

    Call this before a log is opened.
    """
    if ASIDE not in disk.names():
        return False
    aside = Disk(disk.files, disk.path(ASIDE))
    names = aside.names()
    if manifests.NAME not in names:
        _discard(aside)
        return False
    try:
        _move(disk, aside, set(names))
    except StorageFull as error:  # the old log is partly removed: only the next start can go on
        raise StorageFailed(error.message, error.details) from error
    return True


def _move(disk: Disk, aside: Disk, staged: set[str]) -> None:
    new = manifests.load(aside)
    logger.info(
        "%s: replaced by log %s from record %d on",
        disk.folder,
        new.log_id,
        new.durable + 1,
    )
    new_files = [snapshots.name_of(seq) for seq in new.snapshots] + [
        segment.name_of(first) for first in new.segments
    ]
    moved = {name for name in new_files if name not in staged}  # by a start that crashed
    for name in disk.names():
        if (
            segment.first_of(name) is not None or snapshots.seq_of(name) is not None
        ) and name not in moved:
            disk.unlink(name)
    for name in new_files:
        if name not in moved:
            disk.rename(f"{ASIDE}/{name}", name)
    # Before MANIFEST: it must never name a file that a power loss removes.
    disk.sync_folder()
    disk.rename(f"{ASIDE}/{manifests.NAME}", manifests.NAME)
    disk.sync_folder()
    aside.sync_folder()


def _discard(aside: Disk) -> None:
    for name in aside.names():
        aside.discard(name)


def later(epoch: int, current: int) -> int:
    """Return a term that may follow the current one; raises InvalidInput for any other."""
    if not current < epoch < 1 << 31:
        raise InvalidInput(f"term {epoch} is not later than {current}")
    return epoch
