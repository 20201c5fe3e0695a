"""Sources of time, injected everywhere so that tests can move the clock."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from kbcore.system_calls import boot_ns

STEP_BACK_MS = 5000
"""A larger step back of the wall clock is logged."""

_log = logging.getLogger("kbcore.clock")


def boot_seconds() -> float:
    """Return seconds since the start of the machine, which go on while it is suspended."""
    return boot_ns() / 1e9


class Clock(Protocol):
    """Two readings: the wall clock for stored times, the monotonic clock for time-outs."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds that never go back; the function itself, because every request asks it several
    times.
    """


class ManualClock:
    """A clock that stands still until it is moved; `now` is in epoch milliseconds."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Return the time the clock was set to."""
        return self._now

    def monotonic(self) -> float:
        """Seconds advanced so far; steps of the wall clock do not show here."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Advance both clocks by `ms` milliseconds."""
        self._now += ms
        self._monotonic += ms / 1000

    def step(self, ms: int) -> None:
        """Set the wall clock forward or back, as an operator would; the monotonic clock does not
        change.
        """
        self._now += ms


class LoggedClock:
    """Times for the log: the wall clock, but never before a time given out earlier.

    `steps_back` counts how often the wall clock went back by more than STEP_BACK_MS, which is also
    logged.
    """

    def __init__(self, clock: Clock, last: int = 0) -> None:
        self._last = last
        self._lock = threading.Lock()
        self._behind = False
        self.steps_back = 0
        self._present = clock.now_ms
        self.monotonic = clock.monotonic
        """Return seconds that never decrease."""

    def now_ms(self) -> int:
        """Return epoch milliseconds that never decrease."""
        now = self._present()
        if now == self._last and not self._behind:  # as for most calls: there is nothing to store
            return now
        with self._lock:
            now = self._present()
            if now >= self._last:
                self._last = now
                self._behind = False
            elif not self._behind and self._last - now > STEP_BACK_MS:
                self._behind = True
                self.steps_back += 1
                behind = self._last - now
                _log.warning(
                    "the clock went back by %d ms; logged times stand still until it has caught up",
                    behind,
                )
            return self._last

    def seen(self, ms: int) -> None:
        """Never return a time before `ms`, which the log already holds."""
        with self._lock:
            self._last = max(self._last, ms)
