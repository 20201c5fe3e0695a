"""Reads of a knowledge base as it was known at an earlier instant.

A state that was rebuilt from the log is a tenant like any other, so every read works on it. The
services of a handle are replaced by ones that return this tenant and a clock that stands still at
the instant, and that refuse to write. Predicates of plugins, the embedder and the language model
are those of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kbcore.clock import Clock
from kbcore.durable.earlier_states import EarlierStates
from kbcore.durable.known_states import FIELD, HistoryStart
from kbcore.errors import InvalidInput, LogTruncated
from kbcore.events.events import EventView, Place
from kbcore.events.feed import Committed
from kbcore.operations.base import TenantHandle
from kbcore.reason.budget import RequestLimits
from kbcore.state.changes import Delta

if TYPE_CHECKING:
    from kbcore.operations.services import Services
    from kbcore.state.changes import ChangeSet
    from kbcore.state.labels import Labels
    from kbcore.state.tenant import Tenant

Reads = TypeVar("Reads", bound="EarlierReads")


class FixedClock:
    """A clock whose wall-clock time stands still; `now` is in epoch milliseconds."""

    def __init__(self, clock: Clock, now: int) -> None:
        self._now = now
        self.monotonic = clock.monotonic

    def now_ms(self) -> int:
        """Return the instant at which the clock stands still."""
        return self._now


class EarlierServices:
    """The services of a node for reading one tenant in an earlier state; others are those of
    now.
    """

    def __init__(self, services: Services, tenant: Tenant, instant: int) -> None:
        self._services = services
        self._tenant = tenant
        self.instant = instant
        self.clock = FixedClock(services.clock, instant)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)

    def read_tenant(self, database: str, name: str, now: int | None = None) -> Tenant:
        """Return the tenant in its earlier state."""
        return self._tenant

    find_tenant = read_tenant
    need_tenant = read_tenant

    def commit(self, changes: ChangeSet) -> Delta:
        """Raise InvalidInput: an earlier state does not change."""
        raise InvalidInput.at(FIELD, "is for reads only")

    def begin(self, database: str, tenant: str, view: Labels = ()) -> str:
        """Raise InvalidInput: an earlier state does not change."""
        raise InvalidInput.at(FIELD, "is for reads only")


class EarlierReads(TenantHandle):
    """Reads as of what was known at an instant."""

    def known_at(
        self: Reads, instant: int | None, request_limits: RequestLimits | None = None
    ) -> Reads:
        """Return a handle that reads the tenant as it was known at an instant; itself for None.

        Facts, rules, scopes, episodes and evidence are those that the log had then, and validity is
        judged at the instant (epoch milliseconds) unless a read says otherwise. Reads do not count
        as accesses. Raises InvalidInput for an instant in the future, in a transaction, and before
        the oldest instant available, which is in the details; BudgetExceeded. A handle on a view
        reads what the view admits of the earlier state, by the levels that are declared now.
        """
        if instant is None:
            return self
        services = self._whole_services()
        if instant > services.clock.now_ms():
            raise InvalidInput.at(FIELD, "is in the future")
        database, name = self.database, self.tenant
        with self._budget(request_limits) as budget:
            tenant = services.known_states.state(
                services.log(database, name),
                services.log_head(database, name),
                (database, name),
                instant,
                budget,
            )
        earlier = cast("Services", EarlierServices(services, tenant, instant))
        handle = type(self)(earlier, database, name, self._caller)
        handle.instant, handle.present = instant, services
        return handle._through(self.view, services.find_tenant(database, name))

    def _through(self: Reads, view: Labels, present: Tenant | None) -> Reads:
        """Return this handle, which reads an earlier state, as a view shows it; `present` is the
        tenant as it is now, whose levels decide what the view admits.
        """
        return self

    def event_view(self) -> EventView | None:
        """Return the view of events that this handle has; None if it sees all of a tenant."""
        return EventView(self.view, self._stored_tenant()) if self.view else None

    def earlier_changes(self, since: int | Place, upto: int) -> Iterator[Committed]:
        """Yield the change sets of the log after a position, or since an instant, with their
        effects.

        A position within a change set begins with that change set. `since` as an int is in epoch
        milliseconds; the record `upto` is the last. The state before is rebuilt first. Raises
        InvalidInput or LogTruncated if the log does not go back so far, and BudgetExceeded.
        """
        services, owner = self._services, (self.database, self.tenant)
        store, visible = services.log(*owner), services.log_head(*owner)
        known = services.known_states
        with self._budget() as budget:
            if isinstance(since, int):
                base = known.last_before(store, visible, owner, since, budget)
            else:
                base = since.seq if since.is_whole else since.seq - 1
                if base < known.start(store, visible, owner, budget).seq:
                    raise LogTruncated("the log does not go back so far")
            states = EarlierStates(store, services.scratch(), owner, budget, known.max_bytes)
            states.restore(base)
            for change in states.records(upto):
                changes = change.changes()
                delta = states.apply(change, noted=True) or Delta(change.at, change.seq)
                yield Committed(*owner, change.seq, change.at, changes, delta)

    def history_start(self) -> HistoryStart:
        """Return the oldest state of the tenant that can still be read with `known_at`.

        Raises InvalidInput if the storage keeps no history.
        """
        services = self._services
        with self._budget(None) as budget:
            return services.known_states.start(
                services.log(self.database, self.tenant),
                services.log_head(self.database, self.tenant),
                (self.database, self.tenant),
                budget,
            )
