"""Admission of long goals: a limit and a queue per tenant, and cancellation.

A goal that ends in its first slice needs no admission. Tenants do not compete for slots: each has
its own engine, and engine work is done in slices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from kbcore.errors import Cancelled, KBError, RateLimited
from kbplanner.engine.backend import Offload, RunState, Steps

LIMIT = "TENANT_MAX_INFERENCES"
"""The setting that an error names if no slot became free."""

RETRY_SECONDS = 1.0


class Caller(Protocol):
    """The receiver of an answer, such as the client of a connection."""

    def watch(self, stop: Callable[[KBError], None]) -> Callable[[], None]:
        """Call `stop` once with the error to raise when the receiver is gone.

        Return a function that stops watching.
        """


class Turns:
    """The slots for long goals and their queues by tenant, first come, first served.

    Thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._mutex = threading.Lock()
        self._working: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[Turn]] = {}

    def working(self, tenant: Hashable) -> int:
        """Return the number of admitted goals of a tenant."""
        return self._working.get(tenant, 0)

    def waiting(self, tenant: Hashable) -> int:
        """Return the number of queued goals of a tenant."""
        return len(self._waiting.get(tenant, ()))

    def all_working(self) -> int:
        """Return the number of admitted goals of all tenants."""
        return sum(list(self._working.values()))

    def all_waiting(self) -> int:
        """Return the number of queued goals of all tenants."""
        return sum(len(line) for line in list(self._waiting.values()))

    def enter(self, turn: Turn) -> bool:
        """Take a free slot and return True, or join the queue: `turn.come` is set when a slot
        becomes free.
        """
        with self._mutex:
            if self.working(turn.tenant) < self.limit:
                self._working[turn.tenant] = self.working(turn.tenant) + 1
                return True
            self._waiting.setdefault(turn.tenant, deque()).append(turn)
            return False

    def leave(self, turn: Turn) -> None:
        """Pass the slot to the first waiting goal, or leave the queue."""
        with self._mutex:
            line = self._waiting.get(turn.tenant)
            if line and turn in line:
                line.remove(turn)
            elif line:
                line.popleft().come.set()
            else:
                self._working[turn.tenant] -= 1
                if not self._working[turn.tenant]:
                    del self._working[turn.tenant]
            if line is not None and not line:
                del self._waiting[turn.tenant]


class Turn:
    """The admission of one request with a long goal, and the error that cancels it."""

    def __init__(self, turns: Turns, tenant: Hashable, caller: Caller | None = None) -> None:
        self.tenant = tenant
        self.taken = False
        self.stopped: KBError | None = None
        self.come = threading.Event()
        self._turns = turns
        self._caller = caller
        self._unwatch: Callable[[], None] | None = None
        self._in_line = False
        self._at_work: Steps | None = None

    def take(self, seconds: float) -> None:
        """Wait at most `seconds` for a slot, and watch the caller for a disconnect from here on.

        Raises RateLimited if no slot became free in time, or the error that stopped the work.
        """
        if self.taken:
            return
        self.taken = True
        if self._caller is not None:
            self._unwatch = self._caller.watch(self.stop)
        self._in_line = True
        if not self._turns.enter(self) and not self.come.wait(max(seconds, 0)):
            limit = self._turns.limit
            message = (
                f"{limit} long goals of this tenant are running and none ended in time; retry later"
            )
            raise RateLimited(message, RETRY_SECONDS, {"limit": LIMIT, "value": limit})
        self.check()

    def leave(self) -> None:
        """Release the slot at the end of the request, for the next goal in the queue."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._in_line:
            self._in_line = False
            self._turns.leave(self)

    def stop(self, error: KBError) -> None:
        """Cancel the work with this error; may be called from any thread or greenlet."""
        self.stopped = self.stopped or error
        self.come.set()
        run = self._at_work
        if run is not None:
            run.cancel()

    def check(self) -> None:
        """Raise the error that stopped the work, if any."""
        if self.stopped is not None:
            raise self.stopped

    def step(self, run: Steps, fuel: int, offload: Offload | None) -> RunState:
        """Step a run or a model that `stop` can cancel."""
        self._at_work = run
        try:
            self.check()
            return run.step(fuel, offload)
        except Cancelled as error:
            raise self.stopped or error from error
        finally:
            self._at_work = None
