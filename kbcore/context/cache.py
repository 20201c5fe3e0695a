"""Cache of a tenant's recent context windows, and the time as of which its facts are ranked.

Salience decays with time, so the order of two facts can change without a write. Facts are therefore
ranked as of the first window built on a state of the knowledge base: the same request returns the
same window until the knowledge base changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from kbcore.clock import Clock
from kbcore.context.optimize import Made
from kbcore.context.request import WindowRequest
from kbcore.state.tenant import Tenant

SECONDS = 10.0
"""Time for which a cached window is reused."""

MAX_WINDOWS = 32
"""Maximum number of cached windows per tenant."""

Key = tuple[WindowRequest, int, int, int, int]
"""A request, and the state: what holds, the access counts and the vectors of facts."""


class Recent:
    """The recent windows of one tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[float, Made]] = OrderedDict()
        self._ranking: tuple[tuple[int, int], int] | None = None
        self._shown_version = -1

    def ranking_time(self, tenant: Tenant, now: int) -> int:
        """Return the time (epoch milliseconds) as of which facts are ranked.

        This is the time of the first window built on the current state: the valid facts and their
        access counts. Facts that earlier windows contained are counted as soon as the knowledge
        base has changed. The caller holds the read lock.
        """
        with self._lock:
            if self._shown_version != tenant.version:
                tenant.accesses.settle_shown()
                self._shown_version = tenant.version
            tenant.accesses.settle()
            state = tenant.version, tenant.accesses.epoch
            if self._ranking is None or self._ranking[0] != state:
                self._ranking = state, now
            return self._ranking[1]

    def close(self) -> None:
        """Remove all cached windows."""
        self._known.clear()

    def key(self, tenant: Tenant, request: WindowRequest, vectors: int = 0) -> Key:
        """Return the cache key of the window for a request; the caller holds the read lock.

        `vectors` is a number that changes with the vectors of facts.
        """
        tenant.accesses.settle()
        same = replace(request, goals=tuple(request.goals), buckets=tuple(request.buckets))
        return same, tenant.version, tenant.generation, tenant.accesses.epoch, vectors

    def get(self, key: Key) -> Made | None:
        """Return the cached window for a request, or None if it is missing, expired or out of
        date.
        """
        with self._lock:
            known = self._known.get(key)
        if known is None or self._clock.monotonic() - known[0] >= SECONDS:
            return None
        return known[1]

    def keep(self, key: Key, window: Made) -> None:
        """Add a window to the cache."""
        with self._lock:
            self._known[key] = self._clock.monotonic(), window
            while len(self._known) > MAX_WINDOWS:
                self._known.popitem(last=False)
