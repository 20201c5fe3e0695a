"""Free-space guard of the disk: writes are refused early and resumed with a margin; a reserve file.

The reserve is a file that only occupies space. It is released once, for writes that free space (retractions,
deletions) and for the snapshot after them, which lets the log be dropped; it is created again before ordinary
writes are accepted.
"""

from __future__ import annotations

import logging

from kbcore.clock import Clock
from kbcore.errors import StorageFailed, StorageFull
from kbplugins.storage_wal.files import CREATE, READ, Disk

logger = logging.getLogger(__name__)

RESERVE = "reserve"
RESERVE_BYTES = 16 << 20
"""Size of the reserve where MIN_FREE_MB is as much; with less, it is as much as that."""

PROBE = "probe.tmp"
_PROBE_BYTES = 4096
_LOOK_EVERY_S = 1.0
_OVERHEAD = 8192
"""Bytes a write may take beside its records: the header of a new segment, and MANIFEST written aside."""


class Space:
    """Free room of the log's disk. Below `min_free` writes stop; they go on at an eighth more than that.

    The margin, and what the refused write needed, keep a nearly full disk from switching with every write.
    """

    def __init__(self, disk: Disk, clock: Clock, min_free: int, reserve: int = 0) -> None:
        self._disk = disk
        self._clock = clock
        self._min_free = min_free
        self._reserve = reserve
        self._needed = 0
        self._looked: float | None = None
        self._tried: float | None = None
        self.full = False
        self.released = not self._keep_reserve()

    def admit(self, needed: int) -> None:
        """Let a write of `needed` bytes pass or raise StorageFull. Looks once a second, or each time while full."""
        now = self._clock.monotonic()
        if not self.full and self._looked is not None and now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        free = self._disk.free_bytes()
        if free < self._limit() or not self._resumed(free):
            raise self.ran_out(needed, free=free)

    def ran_out(
        self, needed: int, *, free: int | None = None, cause: StorageFull | None = None
    ) -> StorageFull:
        """Enter the full state; returns the error to raise, with the free and needed bytes."""
        if free is None:
            try:
                free = self._disk.free_bytes()
            except (StorageFull, StorageFailed):
                free = 0
        if not self.full:
            logger.warning(
                "no room in %s: %d bytes free, %d needed; writes are refused until there is",
                self._disk.folder,
                free,
                needed + self._min_free,
            )
        self.full = True
        self._needed = needed
        message = (
            cause.message
            if cause
            else f"the disk of {self._disk.folder} is nearly full; writes are refused"
        )
        details = {"freeBytes": free, "neededBytes": needed + self._min_free}
        return StorageFull(message, {**((cause.details or {}) if cause else {}), **details})

    def writable(self) -> bool:
        """Return True if the next write would be tried; checks again while full, to notice freed space."""
        try:
            return not self.full or self._disk.free_bytes() >= self._limit()
        except (StorageFull, StorageFailed):
            return False

    def release(self) -> bool:
        """Release the reserve; False if it does not exist."""
        if self.released:
            return False
        logger.warning("%s: given up, so that room can be made", self._disk.path(RESERVE))
        self._disk.discard(RESERVE)
        self.released = True
        return True

    def _limit(self) -> int:
        if not self.full:
            return self._min_free
        return (
            self._min_free
            + self._min_free // 8
            + self._needed
            + _OVERHEAD
            + (self._reserve if self.released else 0)
        )

    def _resumed(self, free: int) -> bool:
        """Leave the full state if a write and a sync go well and the reserve is there again; tried once a second."""
        if not self.full:
            return True
        now = self._clock.monotonic()
        if self._tried is not None and now - self._tried < _LOOK_EVERY_S:
            return False
        self._tried = now
        if not self._probe() or (self.released and not self._keep_reserve()):
            return False
        logger.info("room again in %s: %d bytes free; writes are taken", self._disk.folder, free)
        self.full = self.released = False
        self._tried = None
        return True

    def _probe(self) -> bool:
        """Return True if a file can be written; quotas can make the reported free space wrong."""
        try:
            fd = self._disk.open(PROBE, CREATE)
            try:
                self._disk.write(PROBE, fd, bytes(_PROBE_BYTES), 0)
                self._disk.fsync(PROBE, fd)
            finally:
                self._disk.close(fd)
        except StorageFull:
            return False
        finally:
            self._disk.discard(PROBE)
        return True

    def _keep_reserve(self) -> bool:
        """See to it that the reserve is there; False where there is no room for it."""
        if not self._reserve:
            return True
        if self._stands():
            return True
        try:
            if self._disk.free_bytes() < self._min_free + self._reserve:
                self._disk.discard(RESERVE)
                return False
            fd = self._disk.open(RESERVE, CREATE)
            try:
                if not self._disk.allocate(RESERVE, fd, self._reserve):
                    self._disk.write(RESERVE, fd, bytes(self._reserve), 0)
            finally:
                self._disk.close(fd)
        except StorageFull:
            self._disk.discard(RESERVE)
            return False
        return True

    def _stands(self) -> bool:
        if RESERVE not in self._disk.names():
            return False
        fd = self._disk.open(RESERVE, READ)
        try:
            return self._disk.size(RESERVE, fd) == self._reserve
        finally:
            self._disk.close(fd)
