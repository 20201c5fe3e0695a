"""Snapshots of a running node.

Captured between two batches, encoded and written in the background.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kbcore.clock import Clock
from kbcore.config.settings import Config
from kbcore.durable.capture import Capture, capture
from kbcore.durable.commit import Committer
from kbcore.durable.snapshot import paced
from kbcore.errors import KBError
from kbcore.plug.ports import LogStatus, LogStore
from kbcore.state.catalog import Catalog

_log = logging.getLogger("kbcore.snapshots")


class Snapshots:
    """Takes snapshots, one at a time, and drops the part of the log that nothing needs any more.

    `taking` is held during a snapshot; replacing log and state holds it too, so that no snapshot of
    the old state gets into the new log. `droppable` returns the last record that may be dropped,
    given the last one a snapshot covers. `told` is called with the seconds and the outcome of each
    snapshot.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        committer: Committer,
        clock: Clock,
        config: Config,
        *,
        offload_disk: Callable[[Callable[[], Any]], Any],
        yield_in_background: Callable[[], None],
        taking: AbstractContextManager[Any],
        droppable: Callable[[int], int],
        told: Callable[[float, str], None],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._committer = committer
        self._clock = clock
        self._offload_disk = offload_disk
        self._yield_in_background = yield_in_background
        self._droppable = droppable
        self._told = told
        self._log_bytes = config.snapshot_log_mb << 20
        self._minutes = config.snapshot_minutes
        self._at_bytes = 0
        self._at = clock.monotonic()
        self._taking = taking

    @property
    def bytes_since(self) -> int:
        """Bytes of log since the last snapshot, or since the start."""
        return self._committer.bytes - self._at_bytes

    def age(self) -> float:
        """Return the seconds since the last snapshot, or since the start."""
        return self._clock.monotonic() - self._at

    def take(self) -> int:
        """Take a snapshot and drop the log it makes unnecessary; return its sequence number."""
        started_at, outcome = self._clock.monotonic(), "failed"
        try:
            with self._taking:
                head = self._take()
            outcome = "ok"
            return head
        finally:
            self._told(self._clock.monotonic() - started_at, outcome)

    def try_take(self) -> None:
        """Take a snapshot; if that fails the whole log is kept, and writes go on."""
        try:
            self.take()
        except KBError as error:
            _log.warning("snapshot failed, the whole log is kept: %s", error)

    def due(self) -> bool:
        """Return True if there are new records, and enough of them or for long enough."""
        return bool(self.bytes_since) and (self.grown or self.age() >= self._minutes * 60)

    @property
    def grown(self) -> bool:
        """True if there is enough new log for a snapshot."""
        return self.bytes_since >= self._log_bytes

    def captured(self) -> tuple[LogStatus, Capture]:
        """Capture the current state between two batches.

        The head of the log status is the last record it includes.
        """
        return self._committer.exclusively(lambda _: (self._store.status(), capture(self._catalog)))

    def _take(self) -> int:
        status, captured = self.captured()
        head = status.head
        chunks = list(paced(captured, self._yield_in_background))
        self._offload_disk(lambda: self._store.save_snapshot(head, chunks))
        unneeded = self._droppable(head)
        self._offload_disk(lambda: self._store.drop_before(unneeded))
        self._at_bytes = self._committer.bytes
        self._at = self._clock.monotonic()
        return head
