"""Thread pool for work that releases the interpreter lock: the C engine, syncs of the disk.

Greenlets share one thread, so a long call there would block all requests. Pure Python code does not belong in the pool:
it would only compete for the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

import gevent
from gevent.threadpool import ThreadPool

T = TypeVar("T")


class _Outcome(Generic[T]):
    """The value or the error of a call: gevent would print an error that a thread of the pool raises."""

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


SOCKET_POLL_SECONDS = 0.001


def yield_to_sockets() -> None:
    """Let other greenlets run, also those that wait for a socket.

    `yield_now` alone checks the sockets only now and then.
    """
    gevent.sleep(SOCKET_POLL_SECONDS)


def yield_now() -> None:
    """Let other greenlets run."""
    gevent.sleep(0)
