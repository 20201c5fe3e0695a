"""Snapshots of a running node, captured between two batches and written in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from kbcore.config.settings import Config
from kbcore.durable.capture import Capture, capture
from kbcore.durable.commit import Committer
from kbcore.durable.retention import kept_history
from kbcore.durable.snapshot import paced
from kbcore.errors import KBError
from kbcore.plug.ports import Erases, KeepsHistory, LogStatus
from kbcore.replication.role import Replication
from kbcore.scheduling import Scheduling

_log = logging.getLogger("kbcore.snapshots")


class Snapshots:
    """Takes snapshots, one at a time, and drops the part of the log that nothing needs any more.

    `replication` is locked during a snapshot, so that no snapshot of the old state gets into a log
    that replaces it; it also keeps the log that followers still need. `report` is called with the
    seconds and the outcome of each snapshot.
    """

    def __init__(
        self,
        committer: Committer,
        config: Config,
        scheduling: Scheduling,
        replication: Replication,
        report: Callable[[float, str], None],
    ) -> None:
        self._committer = committer
        self._store = committer.store
        self._clock = committer.clock
        self._scheduling = scheduling
        self._replication = replication
        self._report = report
        self._log_bytes = config.snapshot_log_mb << 20
        self._history_days = config.history_days
        self._minutes = config.snapshot_minutes
        self._at_bytes = 0
        self._at = self._clock.monotonic()
        self._replayed = False

    @property
    def is_behind(self) -> bool:
        """True if there are records, new or replayed at the start, that no snapshot has."""
        return bool(self.bytes_since) or self._replayed

    def note_replayed(self, records: int) -> None:
        """Note how many records the start replayed: a snapshot saves the next start from that."""
        self._replayed = records > 0

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
            with self._replication.replacing:
                head = self._take()
            outcome = "ok"
            return head
        finally:
            self._report(self._clock.monotonic() - started_at, outcome)

    def try_take(self) -> None:
        """Take a snapshot; if that fails the whole log is kept, and writes go on."""
        try:
            self.take()
        except KBError as error:
            _log.warning("snapshot failed, the whole log is kept: %s", error)

    def due(self) -> bool:
        """Return True if there are new records, and enough of them or for long enough."""
        return bool(self.bytes_since) and (self.grown or self.is_old)

    @property
    def is_old(self) -> bool:
        """True if the last snapshot is so long ago that new records are due for one."""
        return self.age() >= self._minutes * 60

    @property
    def grown(self) -> bool:
        """True if there is enough new log for a snapshot."""
        return self._committer.bytes - self._at_bytes >= self._log_bytes

    def captured(self) -> tuple[LogStatus, Capture]:
        """Capture the current state between two batches.

        The head of the log status is the last record it includes.
        """
        return self._committer.between_batches(
            lambda seq: (
                replace(self._store.status(), head=seq),
                capture(self._committer.catalog),
            )
        )

    def erase(self, seq: int) -> bool:
        """Remove the bytes of all records up to `seq` from the storage; return True if that is
        done.

        A follower that still needs the records delays it, and a store that cannot erase never does
        it. Raises what `take` raises.
        """
        if not isinstance(self._store, Erases):
            return False
        store = self._store
        if store.erased() >= seq:
            return True
        if self._replication.leader.droppable(self._committer.visible) < seq:
            return False  # a follower needs the records
        started_at, outcome = self._clock.monotonic(), "failed"
        try:
            with self._replication.replacing:
                self._scheduling.offload_disk(store.begin_apart)
                head = self._take()
                unneeded = self._replication.leader.droppable(head)
                if unneeded >= seq:
                    self._scheduling.offload_disk(lambda: store.erase_before(unneeded))
            outcome = "ok"
        finally:
            self._report(self._clock.monotonic() - started_at, outcome)
        return store.erased() >= seq

    def waits_for(self, seq: int) -> str | None:
        """Return what prevents `erase(seq)`: `storage`, `followers`, or None."""
        if not isinstance(self._store, Erases):
            return "storage"
        if self._replication.leader.droppable(self._committer.visible) < seq:
            return "followers"
        return None

    def begin_apart(self) -> None:
        """Store later records apart from earlier ones, so that those can be erased."""
        if isinstance(self._store, Erases):
            self._scheduling.offload_disk(self._store.begin_apart)

    def erased(self) -> int:
        """Return the highest number up to which no record has bytes in the storage."""
        return self._store.erased() if isinstance(self._store, Erases) else 0

    def _take(self) -> int:
        status, captured = self.captured()
        head = status.head
        history = kept_history(self._store, self._clock.now_ms(), self._history_days)
        if isinstance(self._store, KeepsHistory):
            self._store.keep_also(history.snapshots)
        chunks = list(paced(captured, self._scheduling.yield_in_background))
        self._scheduling.offload_disk(lambda: self._store.save_snapshot(head, chunks))
        if unneeded := history.unneeded(self._replication.leader.droppable(head)):
            self._scheduling.offload_disk(lambda: self._store.drop_before(unneeded))
        self._at_bytes = self._committer.bytes
        self._replayed = False
        self._at = self._clock.monotonic()
        return head
