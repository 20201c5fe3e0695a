"""Who is told of what was committed: one feed a runtime, behind event streams, notifications and the telling hook.

Changes are noted under their tenant's lock, so that they are in log order, and told after it is let go. Nobody waits for
anybody: whoever finds another telling leaves its change to that one. While nobody subscribes, a commit pays one look at
`heard`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet, Delta

_log = logging.getLogger("kbcore.feed")


@dataclass(frozen=True, slots=True)
class Committed:
    """A change set that is durable and applied: its place in the log, and its logged time in epoch milliseconds.

    `tenant` is empty for what concerns a whole database. `delta` says what really changed; do not change it. `size` is about
    how many bytes it takes in the log.
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
        """What happened to the tenant or the database as a whole, None for changes within a tenant."""
        change = self.changes.changes[0] if self.changes.of_catalog else None
        return change.action if isinstance(change, ChangeCatalog) else None


Listener = Callable[[Committed], None]
_Key = tuple[str | None, str | None]


class CommitFeed:
    """Tells listeners of every change set once, when it is durable and applied; of each tenant in log order.

    A listener is called by a writer, outside the tenant's lock, before or soon after the writer has its answer: it must be
    quick, such as putting what it hears into a queue of its own. It may write; that is told after what is being told. What
    it raises is logged and counted in `failures`, and reaches neither the writer nor other listeners.
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
        """Tell `listener` of what is committed from now on, to one database or tenant where named; returns what ends that.

        Who listens to a tenant hears too of what happens to its database as a whole.
        """
        key = (database, tenant)
        entry: Listener = lambda committed: listener(committed)  # noqa: E731 - one of its own for each subscription
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
        """Take a change set that has just been applied; the caller holds what keeps its tenant's changes in order."""
        if self._audience(committed):
            self._noted.append(committed)

    def tell(self) -> None:
        """Tell what was noted, unless somebody is at it; the caller holds no lock."""
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
        except Exception:  # noqa: BLE001 - a guest's fault, which its writer cannot help
            self.failures += 1
            _log.exception("a listener failed on change set %d; it stays subscribed", committed.seq)
