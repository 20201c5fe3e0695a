"""Long goals take turns: so many of a tenant at a time, the others wait in line. And how a goal is stopped from outside.

A goal that ends in its first slice never comes here. Among tenants nothing is shared out: each has an engine of its own, and
whoever works the engines does so in slices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from kbcore.errors import Cancelled, KBError, RateLimited
from kbplanner.engine.backend import RunState, Steps, Via

LIMIT = "TENANT_MAX_INFERENCES"
"""What an error names where no turn came."""

RETRY_SECONDS = 1.0


class Caller(Protocol):
    """Whoever waits for an answer, such as the client at the other end of a connection."""

    def watch(self, stop: Callable[[KBError], None]) -> Callable[[], None]:
        """Call `stop` once when the answer is not wanted any more, with what to raise; gives a function that ends this."""


class Turns:
    """Who works and who waits, by tenant; first come, first served. Safe between threads."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._mutex = threading.Lock()
        self._working: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[Turn]] = {}

    def working(self, tenant: Hashable) -> int:
        """How many goals of a tenant have their turn."""
        return self._working.get(tenant, 0)

    def waiting(self, tenant: Hashable) -> int:
        """How many wait for theirs."""
        return len(self._waiting.get(tenant, ()))

    def all_working(self) -> int:
        """How many goals have their turn, of all tenants."""
        return sum(list(self._working.values()))

    def all_waiting(self) -> int:
        """How many wait, of all tenants."""
        return sum(len(line) for line in list(self._waiting.values()))

    def enter(self, turn: Turn) -> bool:
        """Have a turn at once, or join the line: then `turn.come` is set when it comes."""
        with self._mutex:
            if self.working(turn.tenant) < self.most:
                self._working[turn.tenant] = self.working(turn.tenant) + 1
                return True
            self._waiting.setdefault(turn.tenant, deque()).append(turn)
            return False

    def leave(self, turn: Turn) -> None:
        """Give a turn to the first who waits, or leave the line."""
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
    """One request, from when its goal turns out to be long until it is answered; and what stops it before."""

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
        """Wait for the turn at most so long; from here on the caller is watched.

        Raises RateLimited when no turn came in time, and what the work was stopped with.
        """
        if self.taken:
            return
        self.taken = True
        if self._caller is not None:
            self._unwatch = self._caller.watch(self.stop)
        self._in_line = True
        if not self._turns.enter(self) and not self.come.wait(max(seconds, 0)):
            most = self._turns.most
            said = f"{most} long goals of this tenant are at work already, and none ended in time"
            raise RateLimited(said, RETRY_SECONDS, {"limit": LIMIT, "value": most})
        self.check()

    def leave(self) -> None:
        """The request is done: whoever waits may go on."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._in_line:
            self._in_line = False
            self._turns.leave(self)

    def stop(self, error: KBError) -> None:
        """Make the work end soon, with this error; from any thread or greenlet."""
        self.stopped = self.stopped or error
        self.come.set()
        run = self._at_work
        if run is not None:
            run.cancel()

    def check(self) -> None:
        """Raise what the work was stopped with, if it was."""
        if self.stopped is not None:
            raise self.stopped

    def step(self, run: Steps, fuel: int, via: Via | None) -> RunState:
        """Step a run or a model that `stop` can cancel."""
        self._at_work = run
        try:
            self.check()
            return run.step(fuel, via)
        except Cancelled as error:
            raise self.stopped or error from error
        finally:
            self._at_work = None
