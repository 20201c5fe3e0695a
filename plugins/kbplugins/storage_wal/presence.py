"""Files of an open log that another program removed or replaced, such as a cleaner of old files.

Writes to a removed file succeed and are lost, so the names are compared before records are
acknowledged: that of the last segment by its inode, the others whenever the folder has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kbcore.clock import Clock
from kbcore.errors import StorageFailed
from kbplugins.storage_wal import lock, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import Disk
from kbplugins.storage_wal.segment import Extent, Tail

_SETTLED_NS = 1_000_000_000
"""Age at which the time of a folder is used as a mark: a later change gets another time, even where
a file system counts in coarse steps."""

logger = logging.getLogger(__name__)


class Presence:
    """Compares the names in the folder of a log with the files that it uses."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._unchanged_since: int | None = None
        self._is_lock_missing = False

    def check_tail(self, tail: Tail) -> None:
        """Raise StorageFailed if the last segment has been removed or replaced."""
        if not self._disk.is_named(tail.extent.name, tail.fd):
            raise removed(self._disk, tail.extent.name)

    def missing(self, sealed: Iterable[Extent], saved: Iterable[int]) -> set[str]:
        """Return the names of files that are gone: complete segments, snapshots and MANIFEST."""
        time = self._disk.folder_time()
        if time == self._unchanged_since:
            return set()
        present = set(self._disk.names())
        used = {manifests.NAME, *(extent.name for extent in sealed), *map(snapshots.name_of, saved)}
        gone = used - present
        if lock.NAME not in present and not self._is_lock_missing:
            logger.warning("%s was removed", self._disk.path(lock.NAME))
        self._is_lock_missing = lock.NAME not in present
        if not gone and self._clock.now_ms() * 1_000_000 - time >= _SETTLED_NS:
            self._unchanged_since = time
        return gone


def removed(disk: Disk, name: str) -> StorageFailed:
    """Return the error for a file of the log that is gone, or is another one of its name."""
    return StorageFailed(
        f"{disk.path(name)} was removed or replaced by another program; nothing more is acknowledged",
        {"file": name},
    )
