"""Token buckets: so many requests in so many seconds, spread evenly or at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from kbserver.rate_headers import Rate

MOST_BUCKETS = 20_000


class Buckets:
    """A bucket of `quota` tokens for each name, which fills up in `window` seconds; `now` reads seconds that never go back.

    At most `most` are kept: of more, the one that was not used for longest goes, and is full when it is needed again.
    """

    def __init__(
        self, name: str, quota: int, window: int, now: Callable[[], float], most: int = MOST_BUCKETS
    ) -> None:
        self.name, self.quota, self.window = name, quota, window
        self._speed = quota / window
        self._now = now
        self._most = most
        self._mutex = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def wait(self, key: Hashable) -> float:
        """Seconds until there is a token; 0 where there is one now. None is taken."""
        with self._mutex:
            left = self._left(key, self._now())
        return 0.0 if left >= 1 else (1 - left) / self._speed

    def take(self, key: Hashable) -> Rate:
        """Take a token, whether there is one or not: how the limit stands then; `left` is under 0 where there was none.

        An empty bucket stays as it is: whoever goes on asking does not wait longer for it.
        """
        with self._mutex:
            now = self._now()
            left = self._left(key, now)
            after = left - 1
            self._known[key] = (after if after >= 0 else left, now)
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        whole = int(after) if after >= 0 else -1
        return Rate(self.name, self.quota, self.window, whole, (self.quota - max(after, 0.0)) / self._speed)

    def _left(self, key: Hashable, now: float) -> float:
        tokens, at = self._known.get(key, (float(self.quota), now))
        return min(float(self.quota), tokens + (now - at) * self._speed)
