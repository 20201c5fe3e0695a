"""Windows made a moment ago: asked for again while nothing has changed, the same request gives the same window.

Being in a window counts as an access, which moves facts; without this a repeated request could give another order.
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
"""How long a window is given again."""

MOST = 32
"""Windows of a tenant that are kept for that."""

Key = tuple[WindowRequest, int, int]


class Recent:
    """The last windows of one tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, tuple[float, Made]] = OrderedDict()

    def close(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def get(self, tenant: Tenant, request: WindowRequest) -> Made | None:
        """The window for a request, if it was made a moment ago and no fact or rule has come, gone or changed since."""
        with self._lock:
            found = self._known.get(_key(tenant, request))
        if found is None or self._clock.monotonic() - found[0] >= SECONDS:
            return None
        return found[1]

    def keep(self, tenant: Tenant, request: WindowRequest, made: Made) -> None:
        """Note a window that was made; the caller holds the read lock."""
        with self._lock:
            self._known[_key(tenant, request)] = self._clock.monotonic(), made
            while len(self._known) > MOST:
                self._known.popitem(last=False)


def _key(tenant: Tenant, request: WindowRequest) -> Key:
    same = replace(request, goals=tuple(request.goals), buckets=tuple(request.buckets))
    return same, tenant.version, tenant.generation
