"""States of tenants as they were known at an instant, rebuilt on demand and kept for a while.

The instant of a state is the time of its last record, which never decreases along a log: where a
record has an earlier time than one before it, the later of both counts, as for the clock of a
tenant. A purge, and emptying or deleting a tenant, end its history: states before it are refused
at once, whether or not the records are still in the storage.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import orjson

from kbcore.durable.earlier_states import (
    RECORDS_AT_ONCE,
    EarlierStates,
    Owner,
    first_record,
    snapshot_up_to,
)
from kbcore.errors import InvalidInput, LogTruncated
from kbcore.plug.ports import LogStore
from kbcore.reason.budget import Budget
from kbcore.state.catalog import Catalog
from kbcore.state.tenant import Tenant
from kbcore.timestamps import time_text

FIELD = "knownAt"

NO_HISTORY = "this storage keeps no history"

MAX_STATES = 16
"""Number of earlier states that are kept at most; memory usually limits them before."""

SAMPLED = 64
"""Records between two entries of a timeline: few enough to be read for every question."""

_HEAD = re.compile(rb'\{"at":(\d+),"db":"([^"\\]*)","tenant":"([^"\\]*)",')
_ENDS = b'"op":"catalog"', b'"op":"purge"'


class RecordInstant(NamedTuple):
    """A record and its instant in epoch milliseconds."""

    seq: int
    at: int


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """The earliest state of a tenant that can be rebuilt.

    `seq` is the number of its last record, `at` the first instant at which it was known.
    """

    seq: int
    at: int


class Timeline:
    """The instants of the records of one log, and what ended the history of a tenant.

    It is read along the log once; every SAMPLED-th record is remembered.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = RecordInstant(first - 1, 0)
        self._numbers: list[int] = []
        self._times: list[int] = []
        self._reading = threading.Lock()
        self._ends: dict[Owner, RecordInstant] = {}
        """The last purge and the last change of each tenant as a whole; the tenant "" stands for
        all tenants of a database."""

    def read(self, store: LogStore, upto: int, budget: Budget) -> None:
        """Read the records that were added, up to a number; raises BudgetExceeded."""
        with self._reading:
            for record in store.read(self.last.seq) if self.last.seq < upto else ():
                if record.seq > upto:
                    return
                if record.seq % RECORDS_AT_ONCE == 0:
                    budget.yield_now()
                at, owner = _place(record.payload)
                moment = RecordInstant(record.seq, max(at, self.last.at))
                if any(mark in record.payload for mark in _ENDS) and _ends(record.payload):
                    self._ends[owner] = moment
                if (record.seq - self.first) % SAMPLED == 0:
                    self._numbers.append(record.seq)
                    self._times.append(moment.at)
                self.last = moment

    def end(self, owner: Owner) -> RecordInstant | None:
        """Return the record before which a tenant has no history, None without one."""
        known = (self._ends.get(owner), self._ends.get((owner[0], "")))
        return max((each for each in known if each is not None), default=None)

    def last_until(self, store: LogStore, instant: int) -> RecordInstant:
        """Return the last record that was written at an instant or before.

        Before the first record, that is the place before it, at the instant 0.
        """
        if self.last.at <= instant:
            return self.last
        index = bisect_right(self._times, instant) - 1
        if index < 0:
            return RecordInstant(self.first - 1, 0)
        moment = RecordInstant(self._numbers[index], self._times[index])
        for record in store.read(max(moment.seq, first_record(store) - 1)):
            at = max(_place(record.payload)[0], moment.at)
            if at > instant:
                break
            moment = RecordInstant(record.seq, at)
        return moment

    def time_of(self, store: LogStore, seq: int) -> int:
        """Return the instant of a record, or of the next one if the log no longer has it."""
        if seq == self.last.seq:
            return self.last.at
        index = bisect_right(self._numbers, seq) - 1
        at = self._times[index]
        if self._numbers[index] == seq:
            return at
        after = max(self._numbers[index], first_record(store) - 1)
        for record in store.read(after):
            at = max(at, _place(record.payload)[0])
            if record.seq >= max(seq, after + 1):
                break
        return at


@dataclass(slots=True)
class _KnownState:
    """A rebuilt state, the catalog that holds it, and the instants and records it is right for.

    It is right from the instant `since` up to `due` (exclusive), as long as the last record was
    between `tenant.seq` and `upto`.
    """

    tenant: Tenant
    catalog: Catalog
    seq: int
    upto: int
    since: int
    due: float

    def fits(self, upto: int, instant: int) -> bool:
        """Return True if this is the state after the record `upto`, at an instant."""
        return self.seq <= upto <= self.upto and self.since <= instant < self.due


@dataclass(slots=True)
class _Working:
    """The questions about one tenant: one of them has the lock and works, the others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    questions: int = 0


class KnownStates:
    """Rebuilds states of tenants as they were known at an instant.

    A few of the last ones are kept, at most MAX_STATES and `max_bytes` together, so that further
    questions about the same state are answered at once. `scratch` makes an empty catalog.
    """

    def __init__(self, scratch: Callable[[], Catalog], max_bytes: int) -> None:
        self._scratch = scratch
        self.max_bytes = max_bytes
        self._mutex = threading.Lock()
        self._timelines: dict[tuple[str, int], Timeline] = {}
        self._states: OrderedDict[tuple[Owner, int], _KnownState] = OrderedDict()
        self._working: dict[Owner, _Working] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        """Return the number of states that are kept."""
        return len(self._states)

    def state(
        self, store: LogStore, visible: int, owner: Owner, instant: int, budget: Budget
    ) -> Tenant:
        """Return a tenant as it was known at an instant (epoch milliseconds).

        `visible` is the number of the last record that reads may see. The tenant must not be
        changed. Raises InvalidInput, with the oldest instant in its details, if the state cannot
        be rebuilt, and BudgetExceeded.
        """
        # One at a time for a tenant: questions about the same state share the work.
        with self._alone(owner, budget):
            try:
                return self._state(store, visible, owner, instant, budget)
            except LogTruncated as error:
                first = (error.details or {}).get("first")
                raise InvalidInput.at(
                    FIELD,
                    f"the log was compacted during the question, up to the record {first}; ask again",
                ) from error

    @contextmanager
    def _alone(self, owner: Owner, budget: Budget) -> Iterator[None]:
        """Wait until no other question about a tenant is worked on; raises BudgetExceeded.

        Nothing stays in memory for a tenant without questions, whose name a client chooses.
        """
        with self._mutex:
            working = self._working.setdefault(owner, _Working())
            working.questions += 1
        try:
            while not working.lock.acquire(
                timeout=max(0.0, budget.deadline - budget.clock.monotonic())
            ):
                budget.check_time()
            try:
                yield
            finally:
                working.lock.release()
        finally:
            with self._mutex:
                working.questions -= 1
                if not working.questions:
                    del self._working[owner]

    def start(self, store: LogStore, visible: int, owner: Owner, budget: Budget) -> HistoryStart:
        """Return the earliest state of a tenant that can be rebuilt.

        Raises InvalidInput if the storage keeps no history.
        """
        timeline = self._timeline(store, visible, budget)
        end = timeline.end(owner)
        if (snapshot := oldest_base(store)) is None:
            raise InvalidInput(NO_HISTORY)
        if snapshot >= timeline.first:
            at = timeline.time_of(store, snapshot)
        elif snapshot == 0:
            at = timeline.time_of(store, 1) if timeline.last.seq else budget.clock.now_ms()
        else:
            at = _snapshot_time(store, snapshot, owner)
        start = HistoryStart(snapshot, at)
        return start if end is None or end.seq <= snapshot else HistoryStart(end.seq, end.at)

    def last_before(
        self, store: LogStore, visible: int, owner: Owner, instant: int, budget: Budget
    ) -> int:
        """Return the number of the last record before an instant, 0 without one.

        Raises InvalidInput if the state after that record cannot be rebuilt.
        """
        start = self.start(store, visible, owner, budget)
        seq = self._timeline(store, visible, budget).last_until(store, instant - 1).seq
        if seq < start.seq or (start.seq and instant <= start.at):
            raise InvalidInput.at("since", "is before the oldest instant available")
        return seq

    def forget(self, database: str, tenant: str) -> None:
        """Drop the states of a tenant, or with "" those of all tenants of a database."""
        with self._mutex:
            self._forgotten += 1
            for key in list(self._states):
                if key[0][0] == database and tenant in ("", key[0][1]):
                    self._states.pop(key).catalog.forget()

    def _timeline(self, store: LogStore, visible: int, budget: Budget) -> Timeline:
        status, first = store.status(), first_record(store)
        key = status.log_id, status.epoch
        with self._mutex:
            timeline = self._timelines.get(key)
            if timeline is None or timeline.last.seq > visible or timeline.last.seq < first - 1:
                timeline = self._timelines[key] = Timeline(first)
        timeline.read(store, visible, budget)
        return timeline

    def _state(
        self, store: LogStore, visible: int, owner: Owner, instant: int, budget: Budget
    ) -> Tenant:
        if oldest_base(store) is None:
            raise InvalidInput.at(FIELD, f"is not available: {NO_HISTORY}")
        start = self.start(store, visible, owner, budget)
        moment = self._timeline(store, visible, budget).last_until(store, instant)
        if instant < start.at or moment.seq < start.seq:
            raise InvalidInput(
                f"{FIELD}: is before {time_text(start.at)}, the oldest instant available",
                {"fields": {FIELD: ["is before the oldest instant available"]}, "oldest": start.at},
            )
        with self._mutex:
            forgotten = self._forgotten
            for key, known in self._states.items():
                if key[0] == owner and known.fits(moment.seq, instant):
                    self._states.move_to_end(key)
                    return known.tenant
        known = self._rebuilt(store, owner, moment, instant, budget)
        with self._mutex:
            if forgotten == self._forgotten:
                self._keep(owner, known)
        return known.tenant

    def _rebuilt(
        self, store: LogStore, owner: Owner, moment: RecordInstant, instant: int, budget: Budget
    ) -> _KnownState:
        scratch = self._scratch()
        scratch.counts = False
        states = EarlierStates(store, scratch, owner, budget, self.max_bytes)
        states.restore(moment.seq, min(moment.at, instant))
        tenant = scratch.find(*owner) or scratch.empty_tenant(*owner)
        # Only to the last change of visibility, so that the state is right for earlier instants
        # too.
        while (due := tenant.next_due()) is not None and due <= instant:
            tenant.advance(due)
        return _KnownState(
            tenant, scratch, tenant.seq, moment.seq, tenant.at(0), inf if due is None else due
        )

    def _keep(self, owner: Owner, known: _KnownState) -> None:
        """Add a state, and drop the least recently used ones that are too much; in the mutex."""
        self._states[owner, id(known)] = known
        while len(self._states) > 1 and (
            len(self._states) > MAX_STATES
            or sum(each.tenant.engine.bytes for each in self._states.values()) > self.max_bytes
        ):
            self._states.popitem(last=False)[1].catalog.forget()


def oldest_base(store: LogStore) -> int | None:
    """Return the number of the oldest state from which the log can be followed to its end.

    0 is the empty state. The result is None if the log begins later than its snapshots.
    """
    first, oldest = first_record(store), None
    if first == 1:
        return 0
    seq = store.status().head
    while (snapshot := snapshot_up_to(store, seq)) is not None and snapshot[0] + 1 >= first:
        oldest = snapshot[0]
        seq = oldest - 1
    return oldest


def _place(payload: bytes) -> tuple[int, Owner]:
    """Return the time of a record, and its database and tenant, without reading all of it."""
    match = _HEAD.match(payload)
    if match is None:
        body = orjson.loads(payload)
        return body["at"], (body["db"], body["tenant"])
    return int(match[1]), (match[2].decode(), match[3].decode())


def time_of_payload(payload: bytes) -> int:
    """Return the time of a record in epoch milliseconds, without reading all of it."""
    return _place(payload)[0]


def owner_of_payload(payload: bytes) -> Owner:
    """Return the database and the tenant of a record, without reading all of it."""
    return _place(payload)[1]


def _ends(payload: bytes) -> bool:
    """Return True if a record ends the history of its tenant, or of all tenants of its database."""
    return any(
        change["op"] == "purge"
        or (change["op"] == "catalog" and not change["action"].startswith("create"))
        for change in orjson.loads(payload)["changes"]
    )


def _snapshot_time(store: LogStore, seq: int, owner: Owner) -> int:
    """Return an instant at which the state of a tenant in a snapshot was known.

    For a snapshot whose last record the log no longer has.
    """
    latest, snapshot = 0, snapshot_up_to(store, seq)
    for chunk in () if snapshot is None else snapshot[1]:
        if chunk.startswith(b'{"kind":"tenant"'):
            head = orjson.loads(chunk)
            if (head["db"], head["tenant"]) == owner:
                return int(head["now"])
            latest = max(latest, head["now"])
    return latest
