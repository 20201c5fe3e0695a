"""The number of open event streams, of changes and of goals together, and its limits."""

from __future__ import annotations

import threading
from collections import Counter

from kbcore.config.settings import Config
from kbcore.errors import RateLimited

FULL_RETRY_SECONDS = 5.0

_MAX_SHARE_OF_CONNECTIONS = 3 / 4


class OpenStreams:
    """Counts the event streams of a node, in all and for each tenant."""

    def __init__(self, config: Config) -> None:
        self._per_tenant = config.events_max_streams
        self._connections = config.max_connections
        self._in_all = max(1, int(config.max_connections * _MAX_SHARE_OF_CONNECTIONS))
        self._counts: Counter[tuple[str, str]] = Counter()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return self._counts.total()

    def enter(self, tenant: tuple[str, str]) -> None:
        """Count a new stream of a database and tenant; raise RateLimited beyond the limits."""
        with self._mutex:
            if self._counts[tenant] >= self._per_tenant:
                raise RateLimited(
                    f"a tenant has at most {self._per_tenant} event streams",
                    FULL_RETRY_SECONDS,
                    {"limit": "EVENTS_MAX_STREAMS", "value": self._per_tenant},
                )
            if self._counts.total() >= self._in_all:
                limit = {"limit": "MAX_CONNECTIONS", "value": self._connections}
                raise RateLimited(
                    f"there are at most {self._in_all} event streams", FULL_RETRY_SECONDS, limit
                )
            self._counts[tenant] += 1

    def leave(self, tenant: tuple[str, str]) -> None:
        """Count the end of a stream."""
        with self._mutex:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]
