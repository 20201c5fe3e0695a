"""Hooks through which a node runs blocking calls and yields to other work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Offload = Callable[[Callable[[], Any]], Any]

CallWithin = Callable[[Callable[[], Any], float], Any]
"""Returns or raises the outcome of a function; raises TimeoutError after a number of seconds, even
if the function goes on."""

MAX_CALLS = 16
"""Calls of foreign code at a time; more wait. Calls that were given up count until they end."""


def _in_place(call: Callable[[], Any]) -> Any:
    return call()


def _no_yield() -> None:
    """Do nothing: there is no other work to yield to."""


class ThreadCalls:
    """Runs each function in a daemon thread of its own, at most `limit` at a time."""

    def __init__(self, limit: int = MAX_CALLS) -> None:
        self._free = threading.BoundedSemaphore(limit)

    def __call__(self, function: Callable[[], Any], seconds: float) -> Any:
        """Return or raise the outcome of the function; raise TimeoutError after `seconds`."""
        if not self._free.acquire(timeout=max(seconds, 0)):
            raise TimeoutError
        outcome: list[tuple[Any, BaseException | None]] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append((function(), None))
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                outcome.append((None, error))
            finally:
                self._free.release()
                done.set()

        threading.Thread(target=run, name="kbcore-call", daemon=True).start()
        if not done.wait(max(seconds, 0)):
            raise TimeoutError
        result, error = outcome[0]
        if error is not None:
            raise error
        return result


class Scheduling:
    """Hooks of the program that hosts a node; by default the node blocks its threads.

    `offload` runs a blocking call without holding up other work, `offload_disk` one that uses the
    disk (default: `offload`), `offload_wait` one that waits for another service (default:
    `offload`). `call_within` runs foreign code, which may take too long (default: in a thread of
    its own). `yield_now` lets other work run between slices of a request, `yield_in_background`
    between slices of background work (default: `yield_now`).
    """

    def __init__(
        self,
        *,
        offload: Offload = _in_place,
        offload_disk: Offload | None = None,
        offload_wait: Offload | None = None,
        yield_now: Callable[[], None] = _no_yield,
        yield_in_background: Callable[[], None] | None = None,
        call_within: CallWithin | None = None,
    ) -> None:
        self.offload = offload
        self.offload_disk = offload_disk or offload
        self.offload_wait = offload_wait or offload
        self.call_within = call_within or ThreadCalls()
        self.yield_now = yield_now
        self.yield_in_background = yield_in_background or yield_now
