"""Admission of long goals: a number of slots and a queue per tenant, and cancellation.

A goal that ends in its first slice needs no slot. Tenants do not compete for slots: each has its
own engine, and engine work is done in slices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from time import thread_time
from typing import Protocol

from kbcore.errors import Cancelled, KBError, RateLimited
from kbplanner.engine.backend import Offload, RunState, Steps
from kbplanner.syntax.diagnostics import counted

LIMIT = "TENANT_MAX_INFERENCES"
"""The setting that an error names if no slot became free."""

RETRY_SECONDS = 1.0

LONG_SECONDS = 0.1
"""CPU time in Python after which a request counts as long and needs a slot.

It is the time of the request alone. If waiting for the engine counted, a short goal beside long
ones would become long and wait in their queue.
"""


class Caller(Protocol):
    """The receiver of an answer, such as the client of a connection."""

    def watch(self, stop: Callable[[KBError], None]) -> Callable[[], None]:
        """Call `stop` once with the error to raise when the receiver is gone.

        Return a function that stops watching.
        """


class Slots:
    """The slots for long goals and their queues by tenant, first come, first served.

    Thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._mutex = threading.Lock()
        self._working: dict[Hashable, int] = {}
        self._queues: dict[Hashable, deque[Admission]] = {}

    def working(self, tenant: Hashable) -> int:
        """Return the number of admitted goals of a tenant."""
        return self._working.get(tenant, 0)

    def waiting(self, tenant: Hashable) -> int:
        """Return the number of queued goals of a tenant."""
        return len(self._queues.get(tenant, ()))

    def all_working(self) -> int:
        """Return the number of admitted goals of all tenants."""
        return sum(list(self._working.values()))

    def all_waiting(self) -> int:
        """Return the number of queued goals of all tenants."""
        return sum(len(queue) for queue in list(self._queues.values()))

    def enter(self, admission: Admission) -> bool:
        """Take a free slot and return True, or join the queue.

        `admission.granted` is set when a slot becomes free.
        """
        tenant = admission.tenant
        with self._mutex:
            if self.working(tenant) < self.limit:
                self._working[tenant] = self.working(tenant) + 1
                return True
            self._queues.setdefault(tenant, deque()).append(admission)
            return False

    def leave(self, admission: Admission) -> None:
        """Pass the slot to the first waiting goal, or leave the queue."""
        tenant = admission.tenant
        with self._mutex:
            queue = self._queues.get(tenant)
            if queue and admission in queue:
                queue.remove(admission)
            elif queue:
                queue.popleft().granted.set()
            else:
                self._working[tenant] -= 1
                if not self._working[tenant]:
                    del self._working[tenant]
            if queue is not None and not queue:
                del self._queues[tenant]


class Admission:
    """The admission of one request with a long goal, and the error that cancels it."""

    # Most goals are short: they never wait, and these values stay those of the class.
    requested = False
    error: KBError | None = None
    _granted: threading.Event | None = None
    _unwatch: Callable[[], None] | None = None
    _holds_place = False
    _run: Steps | None = None

    def __init__(self, slots: Slots, tenant: Hashable, caller: Caller | None = None) -> None:
        self.tenant = tenant
        self._slots = slots
        self._caller = caller
        self._cpu_of_others = thread_time()
        """CPU time of the thread, in seconds, before this request and in calls of `pause`."""

    def pause(self, yield_now: Callable[[], None]) -> None:
        """Let other requests run; their CPU time does not count for this one."""
        before = thread_time()
        yield_now()
        self._cpu_of_others += thread_time() - before

    def is_due(self) -> bool:
        """Return whether a slot is needed, because the request is long, and not yet requested."""
        return not self.requested and thread_time() - self._cpu_of_others >= LONG_SECONDS

    def request(self, seconds: float) -> None:
        """Wait at most `seconds` for a slot, and watch the caller for a disconnect from here on.

        Later calls do nothing. Raises RateLimited if no slot became free in time, or the error that
        cancelled the work.
        """
        if self.requested:
            return
        self.requested = True
        granted = self.granted
        self.check()  # a cancellation before this line has set another event
        if self._caller is not None:
            self._unwatch = self._caller.watch(self.cancel)
        self._holds_place = True
        if not self._slots.enter(self) and not granted.wait(max(seconds, 0)):
            limit = self._slots.limit
            message = f"the tenant has {counted(limit, 'long goal')} running and none ended in time; retry later"
            raise RateLimited(message, RETRY_SECONDS, {"limit": LIMIT, "value": limit})
        self.check()

    def release(self) -> None:
        """Release the slot at the end of the request, for the next goal in the queue."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._holds_place:
            self._holds_place = False
            self._slots.leave(self)

    def cancel(self, error: KBError) -> None:
        """Cancel the work with this error; may be called from any thread or greenlet."""
        self.error = self.error or error
        self.granted.set()
        run = self._run
        if run is not None:
            run.cancel()

    @property
    def granted(self) -> threading.Event:
        """The event that is set when a slot becomes free."""
        if self._granted is None:
            self._granted = threading.Event()
        return self._granted

    def check(self) -> None:
        """Raise the error that cancelled the work, if any."""
        if self.error is not None:
            raise self.error

    def step(self, run: Steps, fuel: int, offload: Offload | None) -> RunState:
        """Step a run or a model that `cancel` can stop."""
        self._run = run
        try:
            self.check()
            return run.step(fuel, offload)
        except Cancelled as error:
            raise self.error or error from error
        finally:
            self._run = None
