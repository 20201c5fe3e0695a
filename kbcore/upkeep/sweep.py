"""The sweeper: a background thread that evicts expired facts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kbcore.clock import Clock
from kbcore.errors import KBError
from kbcore.state.changes import ChangeSet, Delta, EvictReason
from kbcore.state.tenant import Tenant
from kbcore.upkeep.evict import UpkeepTarget, evict, expired, still_expired, total

BATCH = 10_000
"""Facts per eviction: a write of a few milliseconds, with a pause in between for other work."""

_log = logging.getLogger("kbcore.sweep")


class Sweeper:
    """Background eviction of expired facts in all tenants, every `interval_ms` milliseconds (0:
    disabled).

    `find` returns a tenant by database and name, with expiry applied up to now. The sweeper runs in
    a separate thread until it is closed. A follower must not have a sweeper: it gets
    evictions from the log.
    """

    def __init__(
        self,
        tenants: Callable[[], Iterable[Tenant]],
        find: Callable[[str, str], Tenant],
        commit: Callable[[ChangeSet], Delta],
        clock: Clock,
        yield_now: Callable[[], None],
        interval_ms: int,
    ) -> None:
        self._tenants = tenants
        self._find = find
        self._commit = commit
        self._clock = clock
        self._yield_now = yield_now
        self._interval = interval_ms / 1000
        self._swept = clock.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if interval_ms:
            self._thread = threading.Thread(target=self._run, name="kbcore-sweeper", daemon=True)
            self._thread.start()

    def tick(self) -> int:
        """Sweep if the interval has passed since the last time.

        Return the number of evicted facts.
        """
        if not self._interval or self._clock.monotonic() - self._swept < self._interval:
            return 0
        return self.sweep()

    def sweep(self) -> int:
        """Evict expired facts, tenant by tenant; return the number of evicted facts."""
        self._swept = self._clock.monotonic()
        evicted = 0
        for tenant in list(self._tenants()):
            if self._stop.is_set():
                break
            try:
                evicted += self._sweep(tenant.database, tenant.name)
            except KBError as error:
                # For example a full disk or a dropped database; the next sweep tries again.
                _log.warning(
                    "expired facts of tenant %s were not evicted: %s; the next sweep tries again",
                    tenant.name,
                    error,
                )
            self._yield_now()
        return evicted

    def close(self) -> None:
        """Stop the thread after its current batch."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _sweep(self, database: str, name: str) -> int:
        target = UpkeepTarget(
            lambda changes, check: self._commit(ChangeSet(database, name, changes, check)),
            lambda: self._find(database, name),
        )
        evicted = 0
        while not self._stop.is_set():
            tenant = target.find()
            with tenant.lock.read():
                evictions = expired(tenant.partitions(), BATCH, lapsed=True)
            if not evictions:
                break
            batch, _ = evict(target, tenant, evictions, EvictReason.EXPIRED, still_expired)
            if not batch:
                break
            evicted += total(batch)
            self._yield_now()
        return evicted

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.tick()
