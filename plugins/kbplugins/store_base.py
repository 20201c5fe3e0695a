"""The base class of the log stores: a store is open, closed, or failed for good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kbcore.errors import NotReady, StorageFailed
from kbcore.plug.ports import LogStatus

MAX_PAYLOAD = 64 << 20
"""Maximum bytes of a log record and of a snapshot chunk, the same in every store."""

KEPT_SNAPSHOTS = 2
"""Number of snapshots a store keeps, so that a damaged newest one can be replaced."""

logger = logging.getLogger(__name__)


class StoreBase:
    """After a failed sync or a close every later call is refused."""

    def __init__(self) -> None:
        self._failed: StorageFailed | None = None
        self._closing = threading.Event()
        self._kept_also: frozenset[int] = frozenset()
        self._damaged = 0
        self._replaced_by = 0

    def note_damaged(self, count: int, newest: int) -> None:
        """Note how many snapshots were found damaged or gone, and the newest one that was left."""
        self._damaged, self._replaced_by = count, newest

    def with_damage(self, status: LogStatus) -> LogStatus:
        """Return a status with the snapshots that were found damaged or gone."""
        return replace(
            status,
            snapshots_damaged=self._damaged,
            snapshot_lost=self._damaged > 0 and status.snapshot <= self._replaced_by,
        )

    def keep_also(self, numbers: Sequence[int]) -> None:
        """Keep these snapshots when later ones are saved, until the next call."""
        self._kept_also = frozenset(numbers)

    def chosen(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the snapshots to keep, of ascending numbers: the newest, and those to keep
        also.
        """
        return tuple(
            number
            for number in numbers
            if number in self._kept_also or number in numbers[-KEPT_SNAPSHOTS:]
        )

    @property
    def _is_open(self) -> bool:
        return self._failed is None and not self._closing.is_set()

    def _check(self) -> None:
        """Raise the earlier StorageFailed, or NotReady if the store is closed."""
        if self._failed is not None:
            raise self._failed
        if self._closing.is_set():
            raise NotReady("the log is closed")

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """After StorageFailed in the block, every later call raises it again."""
        try:
            yield
        except StorageFailed as error:
            if self._failed is None:
                self._failed = error
                logger.error("%s", error.message)
            raise
