"""The one write path: queue, check, append, sync, apply, answer.

Group commit: whoever finds nobody at work leads. The leader takes everything that waits, writes it with one append and one
sync, and hands the lead on. Changes of all tenants share a batch, in one order. A conditional change set goes first in its
batch, so that its check sees everything before it.

After the sync each writer applies its tenant's durable changes, in log order, under that tenant's lock. So a tenant whose
readers take long delays its own writers only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kbcore.clock import LoggedClock
from kbcore.durable.records import CHANGES, VERSION, encode_changes, stamp
from kbcore.errors import EngineFault, KBError, NotReady, RateLimited, StorageFailed
from kbcore.plug.ports import LogStore
from kbcore.state.apply import apply
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, Delta
from kbcore.state.tenant import Tenant

T = TypeVar("T")

MAX_BATCH_RECORDS = 1024
MAX_BATCH_BYTES = 4 << 20

_log = logging.getLogger("kbcore.commit")


@dataclass(slots=True, eq=False)
class _Pending:
    """A change set on its way; `woken` is set when it is durable, refused, or when its writer shall lead."""

    changes: ChangeSet
    payload: bytes
    woken: threading.Event = field(default_factory=threading.Event)
    lead: bool = False
    tenant: Tenant | None = None
    at: int = 0
    delta: Delta | None = None
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether it is durable or refused."""
        return self.tenant is not None or self.error is not None


class Committer:
    """Makes change sets durable and applies them.

    `offload` runs a call that blocks (the append and sync) where it does not hold up others. `on_failure` is told when a
    sync failed: the process must stop then, since nobody knows what is on the disk.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        clock: LoggedClock,
        *,
        offload: Callable[[Callable[[], int]], int],
        max_records: int,
        max_bytes: int,
        on_failure: Callable[[StorageFailed], None] | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._offload = offload
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._on_failure = on_failure
        self._mutex = threading.Lock()
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._leading = False
        self._closed: KBError | None = None
        self.records = 0
        self.batches = 0
        self.bytes = 0

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it; returns what really changed.

        Raises what its check raises, StorageFull, RateLimited when too much waits, NotReady when closed. Then nothing of
        it was applied.
        """
        pending = _Pending(changes, encode_changes(changes))
        with self._mutex:
            self._admit(pending)
            pending.lead = not self._leading
            self._leading = True
        while not pending.settled:
            if pending.lead:
                pending.lead = False
                try:
                    self._write(self._take())
                finally:
                    self._hand_on()
            else:
                pending.woken.wait()
                pending.woken.clear()
        return self._finish(pending)

    def exclusively(self, action: Callable[[int], T]) -> T:
        """Run `action(sequence number)` between two batches, with everything durable applied and nobody else writing."""
        gate = _Pending(ChangeSet("", "", ()), b"")
        with self._mutex:
            lead = not self._leading
            self._leading = True
            if not lead:
                self._queue.appendleft(gate)
        if not lead:
            gate.woken.wait()
            with self._mutex:
                if gate in self._queue:
                    self._queue.remove(gate)
        try:
            for tenant in self._catalog.tenants():
                drain(tenant)
            return action(self._store.status().head)
        finally:
            self._hand_on()

    def close(self) -> None:
        """Refuse new changes; those queued are finished by their writers."""
        with self._mutex:
            self._closed = self._closed or NotReady("the server is stopping")

    def _admit(self, pending: _Pending) -> None:
        if self._closed is not None:
            raise self._closed
        size = len(pending.payload)
        if len(self._queue) >= self._max_records or (self._queue and self._queued_bytes + size > self._max_bytes):
            raise RateLimited("too many writes are waiting for the disk", 1.0, {"waiting": len(self._queue)})
        self._queue.append(pending)
        self._queued_bytes += size

    def _take(self) -> list[_Pending]:
        """The next batch: at most one conditional change set, at its front."""
        batch: list[_Pending] = []
        size = 0
        with self._mutex:
            while self._queue and len(batch) < MAX_BATCH_RECORDS and size < MAX_BATCH_BYTES:
                following = self._queue[0]
                if not following.payload or (batch and following.changes.check is not None):
                    break
                batch.append(self._queue.popleft())
                size += len(following.payload)
            self._queued_bytes -= size
        return batch

    def _hand_on(self) -> None:
        """Give the lead to the first that waits, or lay it down."""
        with self._mutex:
            if self._queue:
                self._queue[0].lead = True
                self._queue[0].woken.set()
            else:
                self._leading = False

    def _write(self, batch: list[_Pending]) -> None:
        written: list[_Pending] = []
        try:
            for pending in batch:
                if self._check(pending):
                    pending.at = self._clock.now_ms()
                    written.append(pending)
            records = [(CHANGES, VERSION, stamp(pending.payload, pending.at)) for pending in written]
            if records:
                self._offload(lambda: self._append(records))
                self.records += len(records)
                self.batches += 1
                self.bytes += sum(len(payload) for _, _, payload in records)
        except BaseException as error:  # noqa: BLE001 - whatever it is, every writer of the batch must hear of it
            self._refuse(written, error)
            return
        for pending in written:
            tenant = self._catalog.need_tenant(pending.changes.database, pending.changes.tenant, pending.at)
            tenant.backlog.append(_application(pending, tenant))
            pending.tenant = tenant
        for pending in written:
            pending.woken.set()

    def _append(self, records: list[tuple[int, int, bytes]]) -> int:
        last = self._store.append(records)
        self._store.sync()
        return last

    def _check(self, pending: _Pending) -> bool:
        try:
            if self._closed is not None and isinstance(self._closed, StorageFailed):
                raise self._closed
            tenant = self._catalog.tenant(pending.changes.database, pending.changes.tenant)
            if pending.changes.check is not None:
                if tenant is not None:
                    drain(tenant)
                pending.changes.check()
        except Exception as error:  # noqa: BLE001 - nothing of it was written, so it concerns its own writer only
            pending.error = error
            pending.woken.set()
            return False
        return True

    def _refuse(self, batch: list[_Pending], error: BaseException) -> None:
        if not isinstance(error, KBError):
            # The batch may be in the log or not, so memory must not go on without it.
            error = StorageFailed(f"a write was interrupted: {type(error).__name__}")
        if isinstance(error, StorageFailed):
            with self._mutex:
                self._closed = error
            _log.error("the log failed; nothing more is acknowledged: %s", error)
        for pending in batch:
            pending.error = error
            pending.woken.set()
        if isinstance(error, StorageFailed) and self._on_failure is not None:
            self._on_failure(error)

    def _finish(self, pending: _Pending) -> Delta:
        if pending.error is None and pending.delta is None and pending.tenant is not None:
            drain(pending.tenant)
        if pending.error is not None:
            raise pending.error
        if pending.delta is None:
            raise AssertionError("a durable change was not applied")
        return pending.delta


def _application(pending: _Pending, tenant: Tenant) -> Callable[[], None]:
    def run() -> None:
        try:
            if tenant.failed is not None:
                raise tenant.failed
            pending.delta = apply(tenant, pending.changes.changes, pending.at)
        except Exception as error:  # noqa: BLE001
            # The change is durable but not in memory: this tenant must not be read until a restart has replayed it.
            tenant.failed = tenant.failed or EngineFault(f"a durable change could not be applied: {error}")
            pending.error = tenant.failed

    return run


def drain(tenant: Tenant) -> None:
    """Apply what is durable, in log order."""
    with tenant.lock.write():
        while tenant.backlog:
            tenant.backlog.popleft()()
