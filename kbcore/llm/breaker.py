"""Circuit breaker for plugin calls: stops calling a failing service for a while."""

from __future__ import annotations

import threading

from kbcore.clock import Clock


class Breaker:
    """A circuit breaker that opens after `failures` consecutive failures, for `seconds`.

    After that time one trial call decides whether the breaker closes. The pattern is Michael
    Nygard's ("Release It!", 2007).
    """

    def __init__(self, failures: int, seconds: float, clock: Clock) -> None:
        self._max_failures = failures
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._until: float | None = None
        self._probing = False

    def admit(self) -> float | None:
        """Return None if a call may be made, else the seconds to wait.

        An admitted call must end with `succeeded`, `failed` or `passed`.
        """
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
        """Record a successful call: close the breaker."""
        with self._lock:
            self._failed, self._until, self._probing = 0, None, False

    def failed(self) -> None:
        """Record a failure that is likely to repeat."""
        with self._lock:
            self._failed += 1
            if self._probing or self._failed >= self._max_failures:
                self._until = self._clock.monotonic() + self._seconds
            self._probing = False

    def passed(self) -> None:
        """Record the end of a call whose outcome does not predict the next."""
        with self._lock:
            self._probing = False

    @property
    def open_for(self) -> float:
        """The remaining seconds for which calls are refused; 0 if calls are allowed."""
        with self._lock:
            return 0.0 if self._until is None else max(0.0, self._until - self._clock.monotonic())

    @property
    def closed(self) -> bool:
        """True if the breaker is closed."""
        with self._lock:
            return self._until is None
