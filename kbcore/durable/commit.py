"""The one write path: queue, check, append, sync, apply, answer.

Group commit: the first writer to arrive becomes the leader and commits the whole queue with one
append and one sync, then hands the lead on. Change sets of all tenants share a batch, in one order.
A conditional change set joins a batch only if no change set before it in the batch could change the
outcome of its check.

After the sync each writer applies the durable changes of its tenant, in log order, under the
tenant's lock. So a tenant with slow readers delays its own writers only.

With synchronous replication (`held`) durable change sets wait for `confirm` before they can be
applied, while later batches are written. Reads and checks therefore see confirmed changes only.
A check that depends on an unconfirmed change set waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kbcore.clock import LoggedClock
from kbcore.config.settings import Config
from kbcore.durable.records import (
    CHANGES,
    VERSION,
    chained,
    decode_changes,
    encode_changes,
    stamp,
)
from kbcore.errors import (
    BadShipment,
    EngineFault,
    KBError,
    NotReady,
    RateLimited,
    ReadOnlyFollower,
    StorageFailed,
    StorageFull,
    Unconfirmed,
)
from kbcore.events.feed import CommitFeed, Committed
from kbcore.plug.ports import KeepsReserve, LogRecord, LogStore
from kbcore.scheduling import Scheduling
from kbcore.state.apply import apply
from kbcore.state.argument_types import check_arguments
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, Delta, WriteSet
from kbcore.state.tenant import Tenant
from kbcore.tracing import spans
from kbcore.tracing.causes import note_cause
from kbplanner.pacing import YieldNow

T = TypeVar("T")

MAX_BATCH_RECORDS = 1024
MAX_BATCH_BYTES = 4 << 20

_log = logging.getLogger("kbcore.commit")


class LogTimes(NamedTuple):
    """The times of an append and a sync, in epoch nanoseconds, and the size of the batch."""

    appending: int
    syncing: int
    ended: int
    records: int
    bytes: int


@dataclass(slots=True, eq=False)
class _Pending:
    """A change set on its way to the log.

    `woken` is set when the change set is durable or refused, when its writer becomes the leader, or
    with `behind`: a tenant that readers hold, whose changes the writer has to apply before its
    check.
    """

    changes: ChangeSet
    payload: bytes
    woken: threading.Event = field(default_factory=threading.Event)
    lead: bool = False
    tenant: Tenant | None = None
    behind: Tenant | None = None
    at: int = 0
    seq: int = 0
    logged_at: float = 0.0
    chained: bytes | None = None
    delta: Delta | None = None
    error: BaseException | None = None
    cause: object | None = None
    """The span of the write, for spans of what the write causes; None if it is not recorded."""
    writing: LogTimes | None = None


class _BatchWrites:
    """The write sets of a growing batch by tenant, computed only when a check depends on them."""

    def __init__(self) -> None:
        self._tenants: dict[tuple[str, str], WriteSet] = {}
        self._seen = 0

    def meets(self, changes: ChangeSet, batch: Sequence[_Pending]) -> bool:
        """Return True if a change set has a check that depends on what a batch writes.

        The batch is that of the last call, or a longer one that begins with it.
        """
        if not batch or changes.check is None:
            return False
        if changes.of_catalog:
            return True
        for pending in batch[self._seen :]:
            earlier = pending.changes
            self._tenants.setdefault((earlier.database, earlier.tenant), WriteSet()).add(
                earlier.changes
            )
        self._seen = len(batch)
        write_set = self._tenants.get((changes.database, changes.tenant))
        return write_set is not None and write_set.meets(changes.depends)


class Committer:
    """Makes change sets durable and applies them.

    `scheduling` runs a blocking call (the append and sync) where it does not hold up other work,
    and lets other work run while a change set is applied, under the lock of its tenant.
    `on_failure` is called after a failed sync: the process must stop then, since the contents of
    the disk are unknown. `synced` is called with the seconds of each batch. `feed` publishes the
    applied change sets.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: Catalog,
        clock: LoggedClock,
        config: Config,
        *,
        scheduling: Scheduling,
        on_failure: Callable[[StorageFailed], None] | None = None,
        synced: Callable[[float], None] | None = None,
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.clock = clock
        self.feed = CommitFeed()
        self._offload = scheduling.offload_disk
        self._yield_now = scheduling.yield_now
        self._on_failure = on_failure
        self._synced = synced
        self._max_records = config.write_queue_records
        self._max_bytes = config.write_queue_bytes
        self._mutex = threading.Lock()
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._leading = False
        self._behind = 0
        """Number of writers that apply the changes of their tenant before they are queued again."""
        self._closed: KBError | None = None
        self._placing = threading.Lock()
        """Held while confirmed change sets are placed, and by `between_batches`; taken before
        `_mutex`.
        """
        self._unconfirmed: list[_Pending] = []
        self._confirmed = 0
        self._stalled = False
        """True if no writer leads because the first one depends on an unconfirmed change set."""
        self._waiting_ended = ""
        """Why nothing is confirmed any more, "" while it is."""
        self.held = False
        """True if durable change sets are applied only after `confirm`; set within
        `exclusively`.
        """
        self.admitting: Callable[[], None] | None = None
        """Called for each change set; raises NotReady if it could not be acknowledged now."""
        self.confirmed: Callable[[float], None] | None = None
        """Called with the seconds that a change set has waited for its confirmation."""
        self.applied_late: Callable[[ChangeSet, Delta], None] | None = None
        """Called for each change set that was confirmed after its writer got `Unconfirmed`."""
        self.leader: str | None = None
        """Address of the leader on a follower, which takes no writes itself; "" if it is
        unknown.
        """
        self.wrote: Callable[[int, int], None] | None = None
        """Called after each durable batch with its last sequence number and the bytes of all
        batches so far."""
        self.records = 0
        self.batches = 0
        self.bytes = 0

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it; return its real effect.

        Raises what its check raises, StorageFull, RateLimited if too many writes wait, NotReady if
        closed. Nothing was applied then. Raises Unconfirmed if the change set is in the log, but
        was not confirmed; it is applied if it is confirmed later.
        """
        pending = _Pending(changes, encode_changes(changes))
        tracer = spans.tracer
        if tracer is None or spans.CURRENT.get() is spans.DROPPED:
            return self._commit(pending)
        span = tracer.begin("commit")
        if span is spans.INSIDE:
            return self._commit(pending)
        with span:
            pending.cause = tracer.cause() if span.is_recorded else None
            delta = self._commit(pending)
            if pending.cause is not None:
                _describe(tracer, span, pending, delta)
            return delta

    def _commit(self, pending: _Pending) -> Delta:
        with self._mutex:
            self._admit(pending)
            pending.lead = not self._leading
            self._leading = True
        # Until it is durable or refused.
        while pending.tenant is None and pending.delta is None and pending.error is None:
            if pending.behind is not None:
                self._catch_up(pending, pending.behind)
            elif pending.lead:
                pending.lead = False
                if (batch := self._take()) is None:
                    continue
                try:
                    self._write(batch)
                finally:
                    self._hand_on()
            else:
                pending.woken.wait()
                pending.woken.clear()
        return self._finish(pending)

    def exclusively(self, action: Callable[[int], T]) -> T:
        """Run `action(sequence number)` between two batches, with everything up to that number
        applied and no other writer active. All writers wait for the readers of tenants with changes
        that are not applied yet.
        """

        def with_all_applied(seq: int) -> T:
            for tenant in self.catalog.tenants():
                if (
                    tenant.backlog or tenant.lock.written
                ):  # no new write can start, so all other tenants are up to date
                    drain(tenant)
            return action(seq)

        return self.between_batches(with_all_applied)

    def between_batches(self, action: Callable[[int], T]) -> T:
        """Run `action(sequence number)` between two batches: everything up to that number is
        applied, or in the backlog of its tenant. It must not wait for readers.
        """
        gate = _Pending(ChangeSet("", "", ()), b"")
        with self._mutex:
            lead = not self._leading or self._stalled
            self._leading, self._stalled = True, False
            if not lead:
                self._queue.appendleft(gate)
        if not lead:
            gate.woken.wait()
            with self._mutex:
                if gate in self._queue:
                    self._queue.remove(gate)
        try:
            with self._placing:
                return action(self.visible)
        finally:
            self._hand_on()

    @property
    def visible(self) -> int:
        """Sequence number of the last change set that is, or can be, applied."""
        with self._mutex:
            return self._unconfirmed[0].seq - 1 if self._unconfirmed else self.store.status().head

    @property
    def unconfirmed(self) -> int:
        """Number of durable change sets that wait for `confirm`."""
        return len(self._unconfirmed)

    @property
    def is_idle(self) -> bool:
        """True if no change set is in the queue, being written, or waits for `confirm`."""
        return not (self._leading or self._unconfirmed or self._behind)

    @property
    def _is_waiting(self) -> bool:
        """True if unconfirmed change sets may be confirmed while this node takes writes."""
        return self.held and not self._waiting_ended

    def confirm(self, seq: int) -> None:
        """Make the durable change sets up to `seq` visible, and wake their writers."""
        with self._placing:
            self._confirmed = max(self._confirmed, seq)
        self._place_confirmed()

    def give_up_waiting(self, reason: str) -> None:
        """Raise Unconfirmed in the writers that wait for a confirmation.

        `confirm` still applies their change sets.
        """
        if not self._unconfirmed:
            return
        with self._placing, self._mutex:
            waiting = [pending for pending in self._unconfirmed if pending.error is None]
            for pending in waiting:
                pending.error = Unconfirmed(reason)
        for pending in waiting:
            pending.woken.set()

    def end_waiting(self, reason: str) -> None:
        """Confirm nothing more: every writer that waits, or would wait, gets NotReady."""
        with self._mutex:
            self._waiting_ended = reason
            self._closed = self._closed or NotReady(reason)
        self.give_up_waiting(reason)
        self._go_on()

    def drop_unconfirmed(self) -> None:
        """Forget the unconfirmed change sets, because the log was replaced; within
        `exclusively`.
        """
        with self._mutex:
            dropped, self._unconfirmed, self._confirmed = self._unconfirmed, [], 0
        for pending in dropped:
            pending.error = pending.error or Unconfirmed("this node follows another leader")
            pending.woken.set()

    def _place_confirmed(self) -> None:
        late: list[_Pending] = []
        with self._placing:
            with self._mutex:
                count = sum(1 for pending in self._unconfirmed if pending.seq <= self._confirmed)
                ready = self._unconfirmed[:count]
            now = self.clock.monotonic()
            for pending in ready:
                if pending.error is None and self.confirmed is not None:
                    self.confirmed(now - pending.logged_at)
                self._place(pending)
            with self._mutex:
                del self._unconfirmed[:count]
            for pending in ready:
                if pending.error is None:
                    pending.woken.set()
                else:
                    late.append(pending)
        if ready:
            self._go_on()
        if late:
            # A separate thread: this one must not wait for the readers of the tenants.
            threading.Thread(
                target=self._apply_late, args=(late,), name="kbcore-late-writes", daemon=True
            ).start()

    def _apply_late(self, late: Sequence[_Pending]) -> None:
        """Apply change sets whose writers no longer wait."""
        for pending in late:
            if pending.tenant is not None:
                drain(pending.tenant)
            if pending.delta is not None and self.applied_late is not None:
                self.applied_late(pending.changes, pending.delta)
        self.feed.tell()

    def _go_on(self) -> None:
        """Hand on the lead if no writer has it because of an unconfirmed change set."""
        with self._mutex:
            stalled, self._stalled = self._stalled, False
        if stalled:
            self._hand_on()

    def take(
        self, records: Sequence[LogRecord], is_current: Callable[[], bool]
    ) -> list[tuple[ChangeSet, Delta]]:
        """Make records of the leader's log durable under their sequence numbers, and apply them.

        `is_current` says if their leader is still followed. Return the change sets with their
        effects. Raises BadShipment if the records do not continue
        this log, NotReady on a node that is not (or no longer) a follower, and what the log raises;
        no record was taken then.
        """
        read = [decode_changes(record.type, record.version, record.payload) for record in records]

        def take_over(head: int) -> list[tuple[ChangeSet, Delta]]:
            if not is_current():
                raise NotReady("another leader is followed")
            return self._take_over(head, records, read)

        applied = self.exclusively(take_over)
        self.feed.tell()
        return applied

    def _take_over(
        self, head: int, records: Sequence[LogRecord], read: Sequence[tuple[int, ChangeSet]]
    ) -> list[tuple[ChangeSet, Delta]]:
        if self._closed is not None or self.leader is None:
            raise self._closed or NotReady("this node is not a follower")
        if [record.seq for record in records] != list(range(head + 1, head + 1 + len(records))):
            raise BadShipment(f"the records do not continue this log, whose last record is {head}")
        pending = [
            _Pending(changes, record.payload, at=at)
            for record, (at, changes) in zip(records, read, strict=True)
        ]
        try:
            self._log(
                pending, [(record.type, record.version, record.payload) for record in records]
            )
        except BaseException as error:
            self.give_up(error)
            raise
        for each in pending:
            self.clock.seen(each.at)
            self._place(each)
        for tenant in {
            id(each.tenant): each.tenant for each in pending if each.tenant is not None
        }.values():
            drain(tenant)
        # A change that could not be applied makes its tenant unusable; other tenants are not
        # affected.
        return [(each.changes, each.delta) for each in pending if each.delta is not None]

    @property
    def waiting(self) -> int:
        """Number of change sets in the queue."""
        return len(self._queue)

    def close(self) -> None:
        """Refuse new change sets; the writers finish those in the queue."""
        with self._mutex:
            self._closed = self._closed or NotReady("the server is stopping")

    def _admit(self, pending: _Pending) -> None:
        if self._closed is not None:
            raise self._closed
        if self.leader is not None:
            raise not_leading(self.leader)
        if pending.changes.request is not None or pending.changes.transaction is not None:
            self._check_repeated(pending.changes)
        if self.admitting is not None:
            self.admitting()
        size = len(pending.payload)
        for limit, max_value, is_exceeded in (
            ("WRITE_QUEUE_RECORDS", self._max_records, len(self._queue) >= self._max_records),
            (
                "WRITE_QUEUE_BYTES",
                self._max_bytes,
                bool(self._queue) and self._queued_bytes + size > self._max_bytes,
            ),
        ):
            if is_exceeded:
                details = {"limit": limit, "value": max_value, "waiting": len(self._queue)}
                raise RateLimited("too many writes are waiting for the disk", 1.0, details)
        self._queue.append(pending)
        self._queued_bytes += size

    def _check_repeated(self, changes: ChangeSet) -> None:
        """Raise Unconfirmed if a change set repeats one whose writer no longer waits."""
        for pending in self._unconfirmed:
            earlier = pending.changes
            is_same_request = changes.request is not None and changes.request == earlier.request
            is_same_commit = (
                changes.transaction is not None and changes.transaction == earlier.transaction
            )
            if (
                pending.error is not None
                and (earlier.database, earlier.tenant) == (changes.database, changes.tenant)
                and (is_same_request or is_same_commit)
            ):
                raise Unconfirmed("this write was sent before and is not confirmed yet")

    def _take(self) -> list[_Pending] | None:
        """Remove and return the next batch.

        No check in the batch depends on an earlier change set in it or on an unconfirmed one, and a
        change of the catalog or of declared inputs ends the batch. Returns None, and gives the lead
        up until the next confirmation, if the first writer depends on an unconfirmed change set.
        """
        batch: list[_Pending] = []
        written: _BatchWrites | None = None
        unconfirmed: _BatchWrites | None = None
        size = 0
        with self._mutex:
            while self._queue and len(batch) < MAX_BATCH_RECORDS and size < MAX_BATCH_BYTES:
                following = self._queue[0]
                if not following.payload:
                    break
                if following.changes.check is not None:
                    written = written or _BatchWrites()
                    if written.meets(following.changes, batch):
                        break
                    unconfirmed = unconfirmed or _BatchWrites()
                    if self._is_waiting and unconfirmed.meets(following.changes, self._unconfirmed):
                        if not batch:
                            self._stalled = True
                            return None
                        break
                if self._is_waiting and self._declares_before(following.changes):
                    if not batch:
                        self._stalled = True
                        return None
                    break
                batch.append(self._queue.popleft())
                size += len(following.payload)
                if following.changes.of_catalog or following.changes.declares_inputs:
                    break
            self._queued_bytes -= size
        return batch

    def _declares_before(self, changes: ChangeSet) -> bool:
        """Return True if an unconfirmed change set declares inputs of the same tenant."""
        return any(
            earlier.declares_inputs
            and (earlier.database, earlier.tenant) == (changes.database, changes.tenant)
            for earlier in (pending.changes for pending in self._unconfirmed)
        )

    def _hand_on(self) -> None:
        """Make the first waiting writer the leader, or leave the lead free."""
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
                    pending.at = self.clock.now_ms()
                    if self._is_no_op(pending, written):
                        pending.delta = Delta(pending.at, self.visible)
                        pending.woken.set()
                    else:
                        written.append(pending)
            if written:
                try:
                    self._log(written, _stamped(written))
                except StorageFull as error:
                    written = self._log_removals(written, error)
        except BaseException as error:  # noqa: BLE001 - every writer of the batch must be woken
            self._refuse(written, error)
            return
        if self.held:
            now = self.clock.monotonic()
            with self._mutex:
                for pending in written:
                    pending.logged_at = now
                self._unconfirmed += written
            self._place_confirmed()  # a follower may have been faster than this thread
            if self._waiting_ended:
                self.give_up_waiting(self._waiting_ended)
            return
        for pending in written:
            self._place(pending)
        for pending in written:
            pending.woken.set()

    def _place(self, pending: _Pending) -> None:
        """Queue a durable change set for application to its tenant, or apply a change of the
        catalog.
        """
        if pending.changes.of_catalog:
            self._change_catalog(pending)
            return
        tenant = self.catalog.need_tenant(
            pending.changes.database, pending.changes.tenant, pending.at
        )
        tenant.backlog.append(_application(pending, tenant, self.feed, self._yield_now))
        if pending.changes.declares_inputs:
            tenant.has_new_inputs = True
        pending.tenant = tenant

    def _change_catalog(self, pending: _Pending) -> None:
        changes = pending.changes
        has_listeners = (
            self.feed.heard and changes.database != ""
        )  # changes of API keys are not published
        if has_listeners:  # earlier changes are published first
            for tenant in self.catalog.tenants():
                if tenant.database == changes.database and changes.tenant in ("", tenant.name):
                    drain(tenant)
        self.catalog.place(changes, pending.at, pending.seq)
        pending.delta = Delta(pending.at, pending.seq)
        if has_listeners:
            self.feed.note(_committed(pending, pending.delta))

    def _log(
        self,
        written: list[_Pending],
        records: list[tuple[int, int, bytes]],
        *,
        for_room: bool = False,
    ) -> None:
        store = self.store
        is_traced = spans.tracer is not None and _has_cause(written)
        times: list[int] = []

        def append_and_sync() -> int:
            for pending, record in zip(written, records, strict=True):
                pending.chained = chained(*record)
            if is_traced:
                times.append(time.time_ns())
            reserve = store if for_room and isinstance(store, KeepsReserve) else None
            last = reserve.append_for_room(records) if reserve else store.append(records)
            if is_traced:
                times.append(time.time_ns())
            store.sync()
            return last

        started_at = self.clock.monotonic()
        seq = self._offload(append_and_sync) - len(records)
        if self._synced is not None:
            self._synced(self.clock.monotonic() - started_at)
        for pending in written:
            pending.seq = seq = seq + 1
        if is_traced:
            begun, synced_from = times
            size = _bytes_of(records)
            _note_times(written, LogTimes(begun, synced_from, time.time_ns(), len(records), size))
        self.records += len(records)
        self.batches += 1
        for _, _, payload in records:
            self.bytes += len(payload)
        if self.wrote is not None:
            self.wrote(seq, self.bytes)

    def _log_removals(self, batch: list[_Pending], error: StorageFull) -> list[_Pending]:
        """On a full disk, write the change sets that only remove data and refuse the others.

        Return those written.
        """
        removals = [pending for pending in batch if pending.changes.makes_room]
        if not removals or not isinstance(self.store, KeepsReserve):
            raise error
        self._refuse([pending for pending in batch if pending not in removals], error)
        batch[:] = removals
        self._log(removals, _stamped(removals), for_room=True)
        return removals

    def _check(self, pending: _Pending) -> bool:
        try:
            if self._closed is not None and (
                self._waiting_ended or isinstance(self._closed, StorageFailed)
            ):
                raise self._closed
            if self.leader is not None:  # since this change set was queued
                raise not_leading(self.leader)
            tenant = None
            if not pending.changes.of_catalog:
                tenant = self.catalog.tenant(pending.changes.database, pending.changes.tenant)
            if tenant is not None and _is_behind(tenant, pending.changes):
                # The leader waits for no reader: the writers of all other tenants would wait too.
                if not tenant.lock.acquire_unless_read():
                    self._put_behind(pending, tenant)
                    return False
                try:
                    _apply_backlog(tenant)
                finally:
                    tenant.lock.release()
            if pending.changes.check is not None:
                pending.changes.check()
            if tenant is not None:
                self._check_arguments(tenant, pending.changes)
        except Exception as error:  # noqa: BLE001 - nothing was written, so the error is for this writer only
            pending.error = error
            pending.woken.set()
            return False
        return True

    def _put_behind(self, pending: _Pending, tenant: Tenant) -> None:
        """Have a writer apply the changes of its tenant, and queue its own again."""
        with self._mutex:
            self._behind += 1
        pending.behind = tenant
        pending.woken.set()

    def _catch_up(self, pending: _Pending, tenant: Tenant) -> None:
        try:
            drain(tenant)
        except BaseException:
            with self._mutex:
                self._behind -= 1
            raise
        pending.behind = None
        with self._mutex:
            self._behind -= 1
            self._queue.appendleft(pending)
            self._queued_bytes += len(pending.payload)
            pending.lead = not self._leading
            self._leading = True

    def _check_arguments(self, tenant: Tenant, changes: ChangeSet) -> None:
        """Check the types of arguments again if inputs were declared since the writer did."""
        if changes.checked_inputs != tenant.inputs_state:
            check_arguments(tenant, changes.changes, self.clock.now_ms(), changes.yield_now)

    def _is_no_op(self, pending: _Pending, written: Sequence[_Pending]) -> bool:
        """Return True if a change set stores nothing and its tenant does not exist, not even after
        `written`.
        """
        changes = pending.changes
        if (
            changes.creates_tenant
            or self.catalog.tenant(changes.database, changes.tenant) is not None
        ):
            return False
        return all(
            (w.changes.database, w.changes.tenant) != (changes.database, changes.tenant)
            for w in (*self._unconfirmed, *written)
        )

    def give_up(self, error: BaseException) -> None:
        """Take no more writes after a call of the log that left the contents of the disk
        unknown.
        """
        self._refuse([], error)

    def _refuse(self, batch: list[_Pending], error: BaseException) -> None:
        if not isinstance(error, KBError):
            # The batch may or may not be in the log, so memory must not be used without it.
            error = StorageFailed(f"a write was interrupted: {type(error).__name__}")
        if isinstance(error, StorageFailed):
            with self._mutex:
                self._closed = error
            _log.error("the log failed; no further write is acknowledged: %s", error)
        for pending in batch:
            pending.error = error
            pending.woken.set()
        if isinstance(error, StorageFailed) and self._on_failure is not None:
            self._on_failure(error)

    def _finish(self, pending: _Pending) -> Delta:
        if pending.error is None and pending.delta is None and pending.tenant is not None:
            drain(pending.tenant)
        if self.feed.heard:
            self.feed.tell()
        if pending.error is not None:
            raise pending.error
        if pending.delta is None:
            raise AssertionError("a durable change was not applied")
        return pending.delta


def _has_cause(written: Sequence[_Pending]) -> bool:
    """Return True if the span of a writer is recorded; a loop, because every batch asks."""
    for pending in written:  # noqa: SIM110
        if pending.cause is not None:
            return True
    return False


def _bytes_of(records: Sequence[tuple[int, int, bytes]]) -> int:
    return sum(len(payload) for _, _, payload in records)


def _note_times(written: Sequence[_Pending], times: LogTimes) -> None:
    """Note the times of a batch for the writers whose spans are recorded, and what they cause."""
    for pending in written:
        if pending.cause is not None:
            pending.writing = times
            changes = pending.changes
            note_cause(changes.database, changes.tenant, pending.seq, pending.cause)


def _describe(tracer: spans.Tracer, span: spans.TraceSpan, pending: _Pending, delta: Delta) -> None:
    """Add to the span of a commit how long the log took, and what has changed."""
    span.set("kbcore.commit.asserted", delta.asserted)
    span.set("kbcore.commit.removed", sum(len(removed.rows) for removed in delta.removed))
    times = pending.writing
    if times is not None:
        size = {"kbcore.log.records": times.records, "kbcore.log.bytes": times.bytes}
        tracer.add("log append", times.appending, times.syncing, size)
        tracer.add("log sync", times.syncing, times.ended)


def not_leading(leader: str) -> KBError:
    """Return the error of a write on a follower; `leader` is "" while no node leads."""
    if leader:
        return ReadOnlyFollower(leader)
    return NotReady(
        "there is no leader at present: this write was not carried out",
        {"reason": "no leader", "outcome": "not_done"},
    )


def _stamped(written: Sequence[_Pending]) -> list[tuple[int, int, bytes]]:
    records = []
    for pending in written:
        records.append((CHANGES, VERSION, stamp(pending.payload, pending.at)))
    return records


def _application(
    pending: _Pending, tenant: Tenant, feed: CommitFeed, yield_now: YieldNow
) -> Callable[[], None]:
    def run() -> None:
        try:
            if tenant.failed is not None:
                raise tenant.failed
            pending.delta = apply(
                tenant,
                pending.changes,
                pending.at,
                pending.seq,
                noted=feed.heard,
                yield_now=yield_now,
                chained=pending.chained,
            )
            if tenant.observer is not None:
                tenant.observer()
            if feed.heard:
                feed.note(_committed(pending, pending.delta))
        except BaseException as error:
            # The change is durable but not in memory: this tenant must not be read until a restart
            # has replayed it.
            tenant.failed = tenant.failed or EngineFault(
                f"a durable change could not be applied: {str(error) or type(error).__name__}"
            )
            pending.error = tenant.failed
            if not isinstance(error, Exception):  # the writer was ended at a call of `yield_now`
                raise

    return run


def _committed(pending: _Pending, delta: Delta) -> Committed:
    changes = pending.changes
    return Committed(
        changes.database,
        changes.tenant,
        pending.seq,
        pending.at,
        changes,
        delta,
        len(pending.payload),
    )


def drain(tenant: Tenant) -> None:
    """Apply the durable changes of a tenant, in log order."""
    with tenant.lock.write():
        _apply_backlog(tenant)


def _apply_backlog(tenant: Tenant) -> None:
    while tenant.backlog:
        tenant.backlog.popleft()()
    tenant.has_new_inputs = False


def _is_behind(tenant: Tenant, changes: ChangeSet) -> bool:
    """Return True if a check of changes has to see durable changes that are not applied yet."""
    if tenant.has_new_inputs:
        return True
    return changes.check is not None and (bool(tenant.backlog) or tenant.lock.written)
