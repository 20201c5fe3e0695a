"""The one write path: queue, check, append, sync, apply, answer.

Group commit: whoever finds nobody at work leads. The leader takes everything that waits, writes it with one append and one
sync, and hands the lead on. Changes of all tenants share a batch, in one order. A conditional change set joins a batch only
where nothing before it there could change the outcome of its check, so that the check sees everything that matters to it.

After the sync each writer applies its tenant's durable changes, in log order, under that tenant's lock. So a tenant whose
readers take long delays its own writers only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kbcore.clock import LoggedClock
from kbcore.durable.records import CHANGES, VERSION, decode_changes, encode_changes, stamp
from kbcore.durable.write_set import Written
from kbcore.errors import (
    BadShipment,
    EngineFault,
    KBError,
    NotReady,
    RateLimited,
    ReadOnlyFollower,
    StorageFailed,
    StorageFull,
)
from kbcore.events.feed import CommitFeed, Committed
from kbcore.plug.ports import KeepsReserve, LogRecord, LogStore
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
    seq: int = 0
    delta: Delta | None = None
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether it is durable or refused."""
        return self.tenant is not None or self.delta is not None or self.error is not None


class Committer:
    """Makes change sets durable and applies them.

    `offload` runs a call that blocks (the append and sync) where it does not hold up others. `on_failure` is told when a
    sync failed: the process must stop then, since nobody knows what is on the disk. `feed` tells of what was
    applied, `synced` is told the seconds of each batch.
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
        synced: Callable[[float], None] | None = None,
        feed: CommitFeed | None = None,
    ) -> None:
        self._synced = synced
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._offload = offload
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._on_failure = on_failure
        self._feed = feed or CommitFeed()
        self._mutex = threading.Lock()
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._leading = False
        self._closed: KBError | None = None
        self.leader: str | None = None
        """Where writes are taken, on a node that follows: it takes none itself."""
        self.wrote: Callable[[int, int], None] | None = None
        """Told of each batch that is durable: its last sequence number, and the bytes of all batches so far."""
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
                if tenant.backlog or tenant.lock.written:  # nothing new comes in, so the others are done
                    drain(tenant)
            return action(self._store.status().head)
        finally:
            self._hand_on()

    def take(self, records: Sequence[LogRecord]) -> list[tuple[ChangeSet, Delta]]:
        """Make records of the leader's log durable here, under the numbers they have there, and apply them.

        Gives what they changed. Raises BadShipment where they do not follow on what is here, and what the log raises;
        then none of them counts. Raises NotReady on a node that does not follow (any more).
        """
        read = [decode_changes(record.type, record.version, record.payload) for record in records]
        taken = self.exclusively(lambda head: self._take_over(head, records, read))
        self._feed.tell()
        return taken

    def _take_over(
        self, head: int, records: Sequence[LogRecord], read: Sequence[tuple[int, ChangeSet]]
    ) -> list[tuple[ChangeSet, Delta]]:
        if self._closed is not None or self.leader is None:
            raise self._closed or NotReady("this node does not follow another one")
        if [record.seq for record in records] != list(range(head + 1, head + 1 + len(records))):
            raise BadShipment(f"records that do not follow on {head}, the last one here")
        pending = [
            _Pending(changes, record.payload, at=at) for record, (at, changes) in zip(records, read, strict=True)
        ]
        try:
            self._log(pending, [(record.type, record.version, record.payload) for record in records])
        except BaseException as error:
            self.give_up(error)
            raise
        for each in pending:
            self._clock.seen(each.at)
            self._place(each)
        for tenant in {id(each.tenant): each.tenant for each in pending if each.tenant is not None}.values():
            drain(tenant)
        # What could not be applied has made its tenant unusable, which readers are told; the others go on.
        return [(each.changes, each.delta) for each in pending if each.delta is not None]

    @property
    def waiting(self) -> int:
        """Change sets that wait for the disk."""
        return len(self._queue)

    def close(self) -> None:
        """Refuse new changes; those queued are finished by their writers."""
        with self._mutex:
            self._closed = self._closed or NotReady("the server is stopping")

    def _admit(self, pending: _Pending) -> None:
        if self._closed is not None:
            raise self._closed
        if self.leader is not None:
            raise ReadOnlyFollower(self.leader)
        size = len(pending.payload)
        for limit, most, over in (
            ("WRITE_QUEUE_RECORDS", self._max_records, len(self._queue) >= self._max_records),
            ("WRITE_QUEUE_BYTES", self._max_bytes, bool(self._queue) and self._queued_bytes + size > self._max_bytes),
        ):
            if over:
                about = {"limit": limit, "value": most, "waiting": len(self._queue)}
                raise RateLimited("too many writes are waiting for the disk", 1.0, about)
        self._queue.append(pending)
        self._queued_bytes += size

    def _take(self) -> list[_Pending]:
        """The next batch: no check in it depends on what goes before it, and a change of the catalog ends it."""
        batch: list[_Pending] = []
        written = Written()
        size = 0
        with self._mutex:
            while self._queue and len(batch) < MAX_BATCH_RECORDS and size < MAX_BATCH_BYTES:
                following = self._queue[0]
                if not following.payload or written.meets(following.changes, batch):
                    break
                batch.append(self._queue.popleft())
                size += len(following.payload)
                if following.changes.of_catalog:
                    break
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
                    if self._is_no_op(pending, written):
                        pending.delta = Delta(pending.at, self._store.status().head)
                        pending.woken.set()
                    else:
                        written.append(pending)
            if written:
                try:
                    self._log(written, _stamped(written))
                except StorageFull as error:
                    written = self._log_what_makes_room(written, error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, every writer of the batch must hear of it
            self._refuse(written, error)
            return
        for pending in written:
            self._place(pending)
        for pending in written:
            pending.woken.set()

    def _place(self, pending: _Pending) -> None:
        """Have a durable change set applied when its turn comes."""
        if pending.changes.of_catalog:
            self._change_catalog(pending)
            return
        tenant = self._catalog.need_tenant(pending.changes.database, pending.changes.tenant, pending.at)
        tenant.backlog.append(_application(pending, tenant, self._feed))
        pending.tenant = tenant

    def _change_catalog(self, pending: _Pending) -> None:
        changes = pending.changes
        heard = self._feed.heard and changes.database != ""  # keys of the node are nobody's news
        if heard:  # what came before it is noted before it
            for tenant in self._catalog.tenants():
                if tenant.database == changes.database and changes.tenant in ("", tenant.name):
                    drain(tenant)
        self._catalog.place(changes, pending.at, pending.seq)
        pending.delta = Delta(pending.at, pending.seq)
        if heard:
            self._feed.note(_committed(pending, pending.delta))

    def _log(self, written: list[_Pending], records: list[tuple[int, int, bytes]], *, for_room: bool = False) -> None:
        store = self._store

        def away() -> int:
            reserve = store if for_room and isinstance(store, KeepsReserve) else None
            last = reserve.append_for_room(records) if reserve else store.append(records)
            store.sync()
            return last

        begun = self._clock.monotonic()
        seq = self._offload(away) - len(records)
        if self._synced is not None:
            self._synced(self._clock.monotonic() - begun)
        for pending in written:
            pending.seq = seq = seq + 1
        self.records += len(records)
        self.batches += 1
        self.bytes += sum(len(payload) for _, _, payload in records)
        if self.wrote is not None:
            self.wrote(seq, self.bytes)

    def _log_what_makes_room(self, batch: list[_Pending], error: StorageFull) -> list[_Pending]:
        """On a full disk, write what takes something away and refuse the rest; what was written."""
        chosen = [pending for pending in batch if pending.changes.makes_room]
        if not chosen or not isinstance(self._store, KeepsReserve):
            raise error
        self._refuse([pending for pending in batch if pending not in chosen], error)
        batch[:] = chosen
        self._log(chosen, _stamped(chosen), for_room=True)
        return chosen

    def _check(self, pending: _Pending) -> bool:
        try:
            if self._closed is not None and isinstance(self._closed, StorageFailed):
                raise self._closed
            tenant = None
            if not pending.changes.of_catalog:
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

    def _is_no_op(self, pending: _Pending, written: Sequence[_Pending]) -> bool:
        """Return whether a change set stores nothing and its tenant does not exist, also not after `written`."""
        changes = pending.changes
        if changes.creates_tenant or self._catalog.tenant(changes.database, changes.tenant) is not None:
            return False
        return all((w.changes.database, w.changes.tenant) != (changes.database, changes.tenant) for w in written)

    def give_up(self, error: BaseException) -> None:
        """Take no more writes where a call of the log has ended so that nobody knows what is on the disk."""
        self._refuse([], error)

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
        if self._feed.heard:
            self._feed.tell()
        if pending.error is not None:
            raise pending.error
        if pending.delta is None:
            raise AssertionError("a durable change was not applied")
        return pending.delta


def _stamped(written: Sequence[_Pending]) -> list[tuple[int, int, bytes]]:
    return [(CHANGES, VERSION, stamp(pending.payload, pending.at)) for pending in written]


def _application(pending: _Pending, tenant: Tenant, feed: CommitFeed) -> Callable[[], None]:
    def run() -> None:
        try:
            if tenant.failed is not None:
                raise tenant.failed
            pending.delta = apply(tenant, pending.changes, pending.at, pending.seq, noted=feed.heard)
            if feed.heard:
                feed.note(_committed(pending, pending.delta))
        except Exception as error:  # noqa: BLE001
            # The change is durable but not in memory: this tenant must not be read until a restart has replayed it.
            tenant.failed = tenant.failed or EngineFault(f"a durable change could not be applied: {error}")
            pending.error = tenant.failed

    return run


def _committed(pending: _Pending, delta: Delta) -> Committed:
    changes = pending.changes
    return Committed(changes.database, changes.tenant, pending.seq, pending.at, changes, delta, len(pending.payload))


def drain(tenant: Tenant) -> None:
    """Apply what is durable, in log order."""
    with tenant.lock.write():
        while tenant.backlog:
            tenant.backlog.popleft()()
