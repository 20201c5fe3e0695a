"""Free-space guard of the disk: writes are refused early and resumed with a margin; a reserve file.

The reserve is a file that only occupies space. It is released once, for writes that free space
(retractions, deletions) and for the snapshot after them, which lets the log be dropped; it is
created again before ordinary writes are accepted.
"""

from __future__ import annotations

import logging

from kbcore.clock import Clock
from kbcore.errors import StorageFailed, StorageFull
from kbplugins.storage_wal.files import CREATE, READ, Disk

logger = logging.getLogger(__name__)

RESERVE = "reserve"
RESERVE_BYTES = 16 << 20
"""Maximum size of the reserve; it is not larger than MIN_FREE_MB."""

PROBE = "probe.tmp"
_PROBE_BYTES = 4096
_CHECK_INTERVAL_S = 1.0
_OVERHEAD = 8192
"""Bytes a write may need in addition to its records: a segment header and a new MANIFEST."""


class Space:
    """The free space of the log's disk. Below `min_free` writes are refused.

    They are accepted again at an eighth more than that plus the size of the refused write, so that
    a nearly full disk does not change state with every write.
    """

    def __init__(self, disk: Disk, clock: Clock, min_free: int, reserve: int = 0) -> None:
        self._disk = disk
        self._clock = clock
        self._min_free = min_free
        self._reserve = reserve
        self._needed = 0
        self._checked_at: float | None = None
        self._tried_at: float | None = None
        self.full = False
        self.released = not self._keep_reserve()

    def admit(self, needed: int) -> None:
        """Raise StorageFull if a write of `needed` bytes must be refused.

        Checks the disk once a second, and every time while the disk is full.
        """
        now = self._clock.monotonic()
        if (
            not self.full
            and self._checked_at is not None
            and now - self._checked_at < _CHECK_INTERVAL_S
        ):
            return
        self._checked_at = now
        free = self._disk.free_bytes()
        if free < self._limit() or not self._resumed(free):
            raise self.ran_out(needed, free=free)

    def ran_out(
        self, needed: int, *, free: int | None = None, cause: StorageFull | None = None
    ) -> StorageFull:
        """Enter the full state; return the error to raise, with the free and needed bytes."""
        if free is None:
            try:
                free = self._disk.free_bytes()
            except (StorageFull, StorageFailed):
                free = 0
        if not self.full:
            logger.warning(
                "the disk of %s is full: %d bytes free, %d needed; writes are refused",
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
        """Return True if the next write would be tried; while full, check the disk again."""
        try:
            return not self.full or self._disk.free_bytes() >= self._limit()
        except (StorageFull, StorageFailed):
            return False

    def release(self) -> bool:
        """Release the reserve; False if it does not exist."""
        if self.released:
            return False
        logger.warning(
            "%s: removed, so that writes that free space can be made", self._disk.path(RESERVE)
        )
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
        """Leave the full state if a test write and a new reserve succeed; tried once a second."""
        if not self.full:
            return True
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < _CHECK_INTERVAL_S:
            return False
        self._tried_at = now
        if not self._probe() or (self.released and not self._keep_reserve()):
            return False
        logger.info(
            "the disk of %s has space again: %d bytes free; writes are accepted",
            self._disk.folder,
            free,
        )
        self.full = self.released = False
        self._tried_at = None
        return True

    def _probe(self) -> bool:
        """Return True if a file can be written: with quotas the reported free space can be
        wrong.
        """
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
        """Create the reserve if necessary; return False if the disk has no space for it."""
        if not self._reserve:
            return True
        if self._reserve_exists():
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

    def _reserve_exists(self) -> bool:
        if RESERVE not in self._disk.names():
            return False
        fd = self._disk.open(RESERVE, READ)
        try:
            return self._disk.size(RESERVE, fd) == self._reserve
        finally:
            self._disk.close(fd)
