"""Token buckets: `quota` requests per `window` seconds, with bursts up to the quota."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from kbserver.rate_headers import Rate

MAX_BUCKETS = 20_000


class Buckets:
    """A bucket of `quota` tokens for each name, which fills up in `window` seconds; `now` is a
    monotonic clock.

    At most `max_buckets` are stored: the least recently used one is dropped, and is full when it is
    needed again.
    """

    def __init__(
        self,
        name: str,
        quota: int,
        window: int,
        now: Callable[[], float],
        max_buckets: int = MAX_BUCKETS,
    ) -> None:
        self.name, self.quota, self.window = name, quota, window
        self._speed = quota / window
        self._now = now
        self._max_buckets = max_buckets
        self._mutex = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def details(self) -> dict[str, object]:
        """Return the details of the error of a request for which there is no token."""
        return {
            "limit": self.name,
            "value": self.quota,
            "requests": self.quota,
            "seconds": self.window,
        }

    def wait(self, key: Hashable) -> float:
        """Return the seconds until a token is available, 0 for now; takes none."""
        with self._mutex:
            left = self._left(key, self._now())
        return 0.0 if left >= 1 else (1 - left) / self._speed

    def take(self, key: Hashable) -> Rate:
        """Take a token and return the state of the limit; `left` is negative if there was no token.

        An empty bucket stays empty: further requests do not prolong the wait.
        """
        with self._mutex:
            now = self._now()
            left = self._left(key, now)
            after = left - 1
            self._known[key] = (after if after >= 0 else left, now)
            self._known.move_to_end(key)
            while len(self._known) > self._max_buckets:
                self._known.popitem(last=False)
        whole = int(after) if after >= 0 else -1
        return Rate(
            self.name, self.quota, self.window, whole, (self.quota - max(after, 0.0)) / self._speed
        )

    def _left(self, key: Hashable, now: float) -> float:
        tokens, at = self._known.get(key, (float(self.quota), now))
        return min(float(self.quota), tokens + (now - at) * self._speed)
