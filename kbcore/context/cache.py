"""The windows of a tenant made in the last seconds, and the time at which its facts are ranked.

Salience fades with time, and the order of two facts can change while it does. Facts are therefore ranked as of the first
window made on a state of the knowledge, so that the same request gives the same window for as long as nothing changes.
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

MOST = 32
"""Windows of a tenant that are kept for that."""

Key = tuple[WindowRequest, int, int, int]
"""A request, and the state: what holds and the access counts."""


class Recent:
    """The last windows of one tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[float, Made]] = OrderedDict()
        self._ranking: tuple[tuple[int, int], int] | None = None
        self._shown_version = -1

    def ranking_time(self, tenant: Tenant, now: int) -> int:
        """Return the time (epoch milliseconds) at which facts are ranked: that of the first window on the present state.

        The state is made of what holds and of the access counts. Facts that earlier windows held are counted as soon as the
        knowledge has changed. The caller holds the read lock.
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
        """Forget all of them."""
        self._known.clear()

    def key(self, tenant: Tenant, request: WindowRequest) -> Key:
        """Return what the window for a request depends on; the caller holds the read lock."""
        tenant.accesses.settle()
        same = replace(request, goals=tuple(request.goals), buckets=tuple(request.buckets))
        return same, tenant.version, tenant.generation, tenant.accesses.epoch

    def get(self, key: Key) -> Made | None:
        """Return the window for a request, if it was made a moment ago and nothing has changed since."""
        with self._lock:
            known = self._known.get(key)
        if known is None or self._clock.monotonic() - known[0] >= SECONDS:
            return None
        return known[1]

    def keep(self, key: Key, made: Made) -> None:
        """Keep a window that was made."""
        with self._lock:
            self._known[key] = self._clock.monotonic(), made
            while len(self._known) > MOST:
                self._known.popitem(last=False)
