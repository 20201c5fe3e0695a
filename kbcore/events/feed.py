"""Feed of committed changes, for event streams, notifications and the commit hook of plugins.

A runtime has one feed. Changes are recorded under their tenant's lock, so that they are in log
order, and delivered after the lock is released. Writers never wait for each other: if another
thread is delivering, that thread delivers the new change too. Without subscribers, a commit only
checks `heard`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet, Delta

_log = logging.getLogger("kbcore.feed")


@dataclass(frozen=True, slots=True)
class Committed:
    """A durable and applied change set, with its sequence number and logged time (epoch ms).

    `tenant` is empty if the change concerns a whole database. `delta` has the effective changes and
    must not be modified. `size` is the approximate number of bytes in the log.
    """

    database: str
    tenant: str
    seq: int
    at: int
    changes: ChangeSet
    delta: Delta
    size: int = 0

    @property
    def catalog_action(self) -> CatalogAction | None:
        """The operation on the whole tenant or database, or None for changes within a tenant."""
        change = self.changes.changes[0] if self.changes.of_catalog else None
        return change.action if isinstance(change, ChangeCatalog) else None


Listener = Callable[[Committed], None]
_Key = tuple[str | None, str | None]


class CommitFeed:
    """Delivers every durable and applied change set to listeners once, per tenant in log order.

    A writer calls the listeners outside the tenant's lock, before or soon after the writer's
    request is answered. A listener must be quick, for example append to a queue. A listener may
    write; that change is delivered after the current one. An exception of a listener is logged and
    counted in `failures`, and affects neither the writer nor other listeners.
    """

    def __init__(self) -> None:
        self.heard = False
        self.failures = 0
        self._listeners: dict[_Key, tuple[Listener, ...]] = {}
        self._mutex = threading.Lock()
        self._turn = threading.Lock()
        self._noted: deque[Committed] = deque()

    def subscribe(
        self, listener: Listener, database: str | None = None, tenant: str | None = None
    ) -> Callable[[], None]:
        """Call `listener` for later commits; return a function that unsubscribes.

        `database` and `tenant` restrict the commits. A listener to a tenant also receives
        operations on its whole database.
        """
        key = (database, tenant)
        entry: Listener = lambda committed: listener(committed)  # noqa: E731 - distinct per subscription
        with self._mutex:
            self._listeners[key] = (*self._listeners.get(key, ()), entry)
            self.heard = True

        def unsubscribe() -> None:
            with self._mutex:
                left = tuple(other for other in self._listeners.get(key, ()) if other is not entry)
                if left:
                    self._listeners[key] = left
                else:
                    self._listeners.pop(key, None)
                self.heard = bool(self._listeners)

        return unsubscribe

    def note(self, committed: Committed) -> None:
        """Record an applied change set; the caller holds the lock that orders the tenant's
        changes.
        """
        if self._audience(committed):
            self._noted.append(committed)

    def tell(self) -> None:
        """Deliver recorded changes, unless another thread does; the caller holds no lock."""
        while self._noted and self._turn.acquire(blocking=False):
            try:
                while self._noted:
                    committed = self._noted.popleft()
                    for listener in self._audience(committed):
                        self._call(listener, committed)
            finally:
                self._turn.release()

    def _audience(self, committed: Committed) -> list[Listener]:
        database, tenant = committed.database, committed.tenant
        if tenant:
            keys: list[_Key] = [(None, None), (database, None), (None, tenant), (database, tenant)]
        else:
            keys = [key for key in list(self._listeners) if key[0] in (None, database)]
        return [listener for key in keys for listener in self._listeners.get(key, ())]

    def _call(self, listener: Listener, committed: Committed) -> None:
        try:
            listener(committed)
        except Exception:  # noqa: BLE001 - a plugin's error must not fail the writer
            self.failures += 1
            _log.exception("a listener failed on change set %d; it stays subscribed", committed.seq)


class Feeds:
    """The feeds of the shards of a node, by their numbers, as one feed.

    `shard_of` returns the shard of a tenant. Subscriptions outlive a shard: they continue when it
    is added again. A change of a whole database is made in every shard; listeners to several
    tenants get the lowest shard's only.
    """

    def __init__(
        self, feeds: Mapping[int, CommitFeed], shard_of: Callable[[str, str], int]
    ) -> None:
        self._feeds = dict(feeds)
        self._shard_of = shard_of
        self._mutex = threading.Lock()
        self._joint: dict[_Joint, None] = {}

    @property
    def heard(self) -> bool:
        """True if there are listeners."""
        return bool(self._joint) or any(feed.heard for feed in list(self._feeds.values()))

    @property
    def failures(self) -> int:
        """Number of exceptions that listeners raised."""
        return sum(feed.failures for feed in list(self._feeds.values()))

    def add(self, number: int, feed: CommitFeed) -> None:
        """Add the feed of a shard, for the listeners to its tenants too."""
        with self._mutex:
            self._feeds[number] = feed
            for joint in self._joint:
                self._join(joint, number)

    def remove(self, number: int) -> None:
        """Remove the feed of a shard."""
        with self._mutex:
            self._feeds.pop(number, None)
            for joint in self._joint:
                if (leave := joint.leave.pop(number, None)) is not None:
                    leave()

    def subscribe(
        self, listener: Listener, database: str | None = None, tenant: str | None = None
    ) -> Callable[[], None]:
        """Call `listener` for later commits; return a function that unsubscribes.

        `database` and `tenant` restrict the commits as in `CommitFeed`.
        """
        has_tenant = database is not None and tenant is not None
        shard = self._shard_of(database or "", tenant or "") if has_tenant else None
        joint = _Joint(listener, database, tenant, shard)
        with self._mutex:
            self._joint[joint] = None
            for number in self._feeds:
                self._join(joint, number)

        def unsubscribe() -> None:
            with self._mutex:
                self._joint.pop(joint, None)
                leave, joint.leave = joint.leave, {}
            for end in leave.values():
                end()

        return unsubscribe

    def _join(self, joint: _Joint, number: int) -> None:
        if joint.shard not in (None, number):
            return

        def hear(committed: Committed) -> None:
            if (
                committed.tenant
                or joint.shard is not None
                or number == min(self._feeds, default=number)
            ):
                joint.listener(committed)

        joint.leave[number] = self._feeds[number].subscribe(hear, joint.database, joint.tenant)


@dataclass(slots=True, eq=False)
class _Joint:
    """A listener, and how it unsubscribes from the feed of each shard.

    `shard` is that of its tenant, None for a listener to several tenants.
    """

    listener: Listener
    database: str | None
    tenant: str | None
    shard: int | None
    leave: dict[int, Callable[[], None]] = field(default_factory=dict)
