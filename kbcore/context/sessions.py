"""Sessions: the last window of each conversation, kept in memory to compare with the next
window.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass

from kbcore.clock import Clock
from kbcore.config.settings import Config
from kbcore.context.request import WindowRequest
from kbcore.state.labels import Labels
from kbtypes.windows import Window

SessionKey = tuple[Labels, str]
"""The view that a session was made with, and its name."""

IDLE_SECONDS = 3600.0
"""A session ends so long after its last use."""


@dataclass(frozen=True, slots=True)
class Session:
    """The last window of a session, its request, and its time in seconds of the monotonic clock."""

    window: Window
    request: WindowRequest
    used: float


class Sessions:
    """The sessions of one tenant; above `most`, the least recently used ones of the view with the
    most sessions are removed, so that readers of one view do not end the sessions of others.
    """

    def __init__(self, clock: Clock, most: int = Config().tenant_max_sessions) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[SessionKey, Session] = OrderedDict()

    def close(self) -> None:
        """Remove all sessions."""
        self._known.clear()

    def get(self, key: SessionKey) -> Session | None:
        """Return a session that was used within the last hour, or None."""
        with self._lock:
            self._expire()
            return self._known.get(key)

    def keep(self, key: SessionKey, window: Window, request: WindowRequest) -> None:
        """Store the last window of a session."""
        with self._lock:
            self._expire()
            self._known[key] = Session(window, request, self._clock.monotonic())
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                ((largest, _),) = Counter(view for view, _ in self._known).most_common(1)
                del self._known[next(each for each in self._known if each[0] == largest)]

    def clear(self, key: SessionKey) -> None:
        """Remove a session, if it exists."""
        with self._lock:
            self._known.pop(key, None)

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - IDLE_SECONDS
        while self._known and next(iter(self._known.values())).used <= oldest:
            self._known.popitem(last=False)
