"""Earlier states of one tenant, rebuilt from a snapshot and the log.

The log has what each change set says, not the state before it. An earlier state is therefore
rebuilt in a catalog of its own: from the newest snapshot that is not later, and the records after
that snapshot. Further records can then be applied there, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kbcore.durable.records import read_body, read_changes
from kbcore.durable.replay import replayed
from kbcore.durable.snapshot import Restorer
from kbcore.errors import BudgetExceeded, LogTruncated
from kbcore.plug.ports import KeepsSnapshots, LogStore
from kbcore.reason.budget import Budget
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeCatalog, ChangeSet, Delta
from kbcore.state.tenant import Tenant

RECORDS_AT_ONCE = 64
"""Records read between two checks of the budget."""

Owner = tuple[str, str]
"""A database and a tenant."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change set of the log: its number, its time in epoch milliseconds, and its JSON.

    The time is that of the record; it may be before that of an earlier record if the clock of the
    machine went back.
    """

    seq: int
    at: int
    body: dict[str, Any]

    @property
    def request(self) -> str | None:
        """The idempotency key of the request, None without one."""
        key = self.body.get("req")
        return None if not key else str(key[0])

    @property
    def transaction(self) -> str | None:
        """The id of the transaction, None outside of one."""
        return self.body.get("tx")

    @property
    def undoes(self) -> int | None:
        """The number of the change that this one undid, None if it is no undo."""
        return self.body.get("undoes")

    def changes(self) -> ChangeSet:
        """Return the decoded change set; raise LogCorrupted for an unknown change."""
        return read_changes(self.body)[1]


class EarlierStates:
    """Rebuilds earlier states of one tenant in `scratch`, a catalog that nothing else uses.

    After `restore`, `records` and `apply` go on from that state. All reading meets the budget and
    lets other requests run; writers are never held up. The methods raise LogTruncated if the log
    no longer has what they need, and BudgetExceeded, also if a state takes over `max_bytes`.
    """

    def __init__(
        self,
        store: LogStore,
        scratch: Catalog,
        owner: Owner,
        budget: Budget,
        max_bytes: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._store = store
        self._scratch = scratch
        self._owner = owner
        self._budget = budget
        self.at = 0
        """Number of the last record that was read: those after it have not been applied."""
        scratch.need_database(owner[0], 0)

    def first_record(self) -> int:
        """Return the number of the first record that the log still has, head + 1 if it has none."""
        return first_record(self._store)

    def restore(self, seq: int, until: int | None = None) -> None:
        """Rebuild the state after the record `seq`; 0 is the empty state.

        Validity is judged at the time of that record, or of the snapshot if that is later, but not
        after `until` (epoch milliseconds). With `until` no accesses of facts are restored either:
        the log has none, so they would depend on when snapshots were taken. Call it at most once.
        """
        snapshot = snapshot_up_to(self._store, seq)
        self.at = 0 if snapshot is None else snapshot[0]
        first = self.first_record()
        if self.at + 1 < first:
            raise LogTruncated(f"records up to {first - 1} are no longer kept", {"first": first})
        if snapshot is not None:
            restorer = Restorer(self._scratch, self._owner, until)
            for chunk in snapshot[1]:
                restorer.feed(chunk)
                self._yield_now()
        for change in self.records(seq):
            self.apply(change)
        self._yield_now()

    def records(self, upto: int | None = None) -> Iterator[LoggedChange]:
        """Yield the change sets of the tenant after `at`, in order, up to a number or the head.

        Changes of its whole database are among them. They are not applied.
        """
        database, tenant = self._owner
        for record in self._store.read(self.at):
            if upto is not None and record.seq > upto:
                return
            if record.seq % RECORDS_AT_ONCE == 0:
                self._yield_now()
            self.at = record.seq
            body = read_body(record.type, record.version, record.payload)
            if body["db"] == database and body["tenant"] in ("", tenant):
                yield LoggedChange(record.seq, body["at"], body)

    def tenant(self, at: int) -> Tenant:
        """Return the tenant as it is now in the scratch catalog, created at `at` if it is new."""
        return self._scratch.need_tenant(*self._owner, at)

    def apply(self, change: LoggedChange, *, noted: bool = False) -> Delta | None:
        """Apply a change set; return its effect, None for a change of a whole tenant or database.

        With `noted`, the effect lists the facts that were asserted again.
        """
        changes = change.changes()
        if not changes.of_catalog:
            tenant = self.tenant(change.at)
            return replayed(tenant, changes, change.at, change.seq, noted=noted)
        first = changes.changes[0]
        if isinstance(first, ChangeCatalog) and not first.action.value.startswith("create"):
            # It deleted or emptied the tenant, which begins again.
            self._scratch.forget()
            self._scratch.need_database(self._owner[0], 0)
        return None

    def _yield_now(self) -> None:
        """Check the budget and let other requests run."""
        self._budget.check_time()
        self._budget.yield_now()
        if self._max_bytes is None:
            return
        tenant = self._scratch.find(*self._owner)
        if tenant is not None and tenant.engine.bytes > self._max_bytes:
            mb = self._max_bytes >> 20
            raise BudgetExceeded(
                f"the earlier state takes more memory than HISTORY_CACHE_MB={mb}", "historyMb", mb
            )


def first_record(store: LogStore) -> int:
    """Return the number of the first record that a log still has."""
    try:
        store.read(0)
    except LogTruncated as error:
        return int((error.details or {}).get("first", 1))
    return 1


def snapshot_up_to(store: LogStore, seq: int) -> tuple[int, Iterator[bytes]] | None:
    """Return the newest snapshot of a state at `seq` or before, None without one."""
    if isinstance(store, KeepsSnapshots):
        return store.load_snapshot_before(seq + 1)
    newest = store.load_snapshot()
    return newest if newest is not None and newest[0] <= seq else None
