"""A circuit breaker: a model that keeps failing is left alone for a while, so that nobody waits for it in vain."""

from __future__ import annotations

import threading

from kbcore.clock import Clock


class Breaker:
    """Opens after so many failures one after the other; once its time is over, one call finds out whether to close.

    The pattern is Michael Nygard's ("Release It!", 2007). All times in seconds.
    """

    def __init__(self, failures: int, seconds: float, clock: Clock) -> None:
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._until: float | None = None
        self._probing = False

    def admit(self) -> float | None:
        """None where a call may be made, which then has to end in one of the three below; else the seconds to wait."""
        with self._lock:
            if self._until is None:
                return None
            left = self._until - self._clock.monotonic()
            if left > 0:
                return left
            if self._probing:
                return self._seconds
            self._probing = True
            return None

    def succeeded(self) -> None:
        """A call was answered: the breaker is closed."""
        with self._lock:
            self._failed, self._until, self._probing = 0, None, False

    def failed(self) -> None:
        """A call failed in a way that more calls would."""
        with self._lock:
            self._failed += 1
            if self._probing or self._failed >= self._most:
                self._until = self._clock.monotonic() + self._seconds
            self._probing = False

    def passed(self) -> None:
        """A call ended in a way that says nothing about the next."""
        with self._lock:
            self._probing = False

    @property
    def open_for(self) -> float:
        """The seconds for which calls are refused from now on; 0 where they are not."""
        with self._lock:
            return 0.0 if self._until is None else max(0.0, self._until - self._clock.monotonic())

    @property
    def closed(self) -> bool:
        """Whether the last calls went well enough."""
        with self._lock:
            return self._until is None
