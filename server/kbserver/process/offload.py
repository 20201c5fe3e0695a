"""Off the hub: work that lets the interpreter go (the C engine, a sync of the disk) runs in gevent's thread pools.

Greenlets share one thread, so a call that takes long there would hold up everybody; in the pool it holds up nobody. No
Python of ours belongs here: it would only fight for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent
from gevent.threadpool import ThreadPool

T = TypeVar("T")


class Offload:
    """Calls a function in a pool of threads and waits for it, letting other greenlets run meanwhile.

    Calls that wait for a thread are served in order.
    """

    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPool(threads)

    def __call__(self, function: Callable[[], T]) -> T:
        """Give what the function returns, or raise what it raises."""
        result: T = self._pool.apply(function)
        return result

    def close(self) -> None:
        """Let the threads go."""
        self._pool.kill()


GIVE_WAY_SECONDS = 0.001


def give_way() -> None:
    """Let the others have their turn, and those first who wait at a socket: `pause` alone looks there only now and then."""
    gevent.sleep(GIVE_WAY_SECONDS)


def pause() -> None:
    """Let the other greenlets have their turn."""
    gevent.sleep(0)
