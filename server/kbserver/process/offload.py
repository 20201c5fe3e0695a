"""Thread pool for work that releases the interpreter lock: the C engine, syncs of the disk.

Greenlets share one thread, so a long call there would block all requests. Pure Python code does not
belong in the pool: it would only compete for the interpreter lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar, cast

import gevent
from gevent.threadpool import ThreadPool

from kbcore.scheduling import MAX_CALLS

T = TypeVar("T")

READ = 1
"""The event of a watcher that waits for input."""


class _Outcome(Generic[T]):
    """The value or the error of a call: gevent would print an error that a thread of the pool
    raises.
    """

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def result(self) -> T:
        """Return the value, or raise the error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it refers to this frame
        return cast(T, self._value)


def _outcome(function: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome(function())
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        return _Outcome(error=error)


class Offload:
    """Runs a function in a thread pool and waits for it while other greenlets run.

    Calls that wait for a thread are served in order.
    """

    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPool(threads)

    def __call__(self, function: Callable[[], T]) -> T:
        """Return or raise the outcome of the function."""
        outcome: _Outcome[T] = self._pool.apply(_outcome, (function,))
        return outcome.result()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.kill()


class OffloadWithin:
    """Runs functions that may take too long in a pool of their own, and waits no longer than asked.

    A function that was given up keeps its thread until it ends; calls beyond the pool wait.
    """

    def __init__(self, threads: int = MAX_CALLS) -> None:
        self._pool = ThreadPool(threads)

    def __call__(self, function: Callable[[], T], seconds: float) -> T:
        """Return or raise the outcome of the function; raise TimeoutError after `seconds`."""
        outcome: _Outcome[T] | None = None
        with gevent.Timeout(max(seconds, 0), False):
            outcome = self._pool.spawn(_outcome, function).get()
        if outcome is None:
            raise TimeoutError
        return outcome.result()


SOCKET_POLL_SECONDS = 0.001
"""Longest time between two checks of the sockets while requests yield, and the pause of background
work."""


def yield_to_sockets() -> None:
    """Let other greenlets run, also those that wait for a socket, and pause for a moment."""
    gevent.sleep(SOCKET_POLL_SECONDS)


MIN_SLICE_SECONDS = 0.0003
"""Time for which a greenlet goes on after it was resumed: a switch takes some microseconds, and
loops may yield more often than their work is worth.
"""


class YieldNow:
    """Lets other greenlets run, and those whose socket became ready in the last millisecond.

    Calls within MIN_SLICE_SECONDS after the last switch do nothing.

    `gevent.sleep(0)` alone checks the sockets only after 50 switches, which are 50 ms or more while
    requests work in slices of a millisecond. Waiting for a pipe that is always readable makes the
    loop check all sockets at once, without the pause of a timer.
    """

    def __init__(self) -> None:
        self._pipe: int | None = None
        self._checked_at = 0.0
        self._resumed_at = 0.0

    def __call__(self) -> None:
        """Let other greenlets run."""
        now = monotonic()
        if now - self._resumed_at < MIN_SLICE_SECONDS:
            return
        if now - self._checked_at < SOCKET_POLL_SECONDS:
            gevent.sleep(0)
            self._resumed_at = monotonic()
            return
        hub = gevent.get_hub()
        watcher = hub.loop.io(self._readable(), READ)
        try:
            hub.wait(watcher)
        finally:
            watcher.close()
        self._checked_at = self._resumed_at = monotonic()

    def _readable(self) -> int:
        """Return the reading end of a pipe that holds a byte; made at the first call, because
        workers are forked.
        """
        if self._pipe is None:
            self._pipe, writing = os.pipe()
            os.write(writing, b"\0")
            os.close(writing)
        return self._pipe


yield_now = YieldNow()
