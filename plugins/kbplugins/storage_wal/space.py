"""Whether there is room on the disk to take writes: refused early, taken up again with a margin."""

from __future__ import annotations

import logging

from kbcore.clock import Clock
from kbcore.errors import StorageFailed, StorageFull
from kbplugins.storage_wal.files import Disk

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_OVERHEAD = 8192
"""Bytes a write may take beside its records: the header of a new segment, and MANIFEST written aside."""


class Space:
    """Free room of the log's disk. Below `min_free` writes stop; they go on at an eighth more than that.

    The margin, and what the refused write needed, keep a nearly full disk from switching with every write.
    """

    def __init__(self, disk: Disk, clock: Clock, min_free: int) -> None:
        self._disk = disk
        self._clock = clock
        self._min_free = min_free
        self._needed = 0
        self._looked: float | None = None
        self.full = False

    def admit(self, needed: int) -> None:
        """Let a write of `needed` bytes pass or raise StorageFull. Looks once a second, or each time while full."""
        now = self._clock.monotonic()
        if not self.full and self._looked is not None and now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        free = self._disk.free_bytes()
        if free < self._limit():
            raise self.ran_out(needed, free=free)
        self._resume(free)

    def writable(self) -> bool:
        """Whether the next write would be tried; looks again while full, so that room made is noticed unasked."""
        if self.full:
            try:
                free = self._disk.free_bytes()
            except (StorageFull, StorageFailed):
                return False
            if free < self._limit():
                return False
            self._resume(free)
        return True

    def ran_out(self, needed: int, *, free: int | None = None, cause: StorageFull | None = None) -> StorageFull:
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
        message = cause.message if cause else f"the disk of {self._disk.folder} is nearly full; writes are refused"
        details = {"freeBytes": free, "neededBytes": needed + self._min_free}
        return StorageFull(message, {**((cause.details or {}) if cause else {}), **details})

    def _limit(self) -> int:
        return self._min_free + self._min_free // 8 + self._needed + _OVERHEAD if self.full else self._min_free

    def _resume(self, free: int) -> None:
        if self.full:
            logger.info("room again in %s: %d bytes free; writes are tried", self._disk.folder, free)
            self.full = False
