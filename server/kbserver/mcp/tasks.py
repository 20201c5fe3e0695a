"""Tasks: calls of tools whose results clients fetch later (extension io.modelcontextprotocol/tasks,
revision 2026-07-28).

The server decides which calls become tasks: those that take long, of clients that declare the
extension. Where there is no capacity for another task, the call is answered as without the
extension. Tasks live in the memory of the process that serves their tenant.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from kbcore.errors import CallerLeft
from kbcore.operations.views import Grant
from kbcore.timestamps import time_text
from kbserver.answers import written
from kbserver.http.request_context import grant_of
from kbserver.mcp.answer_size import BYTES_PER_TOKEN
from kbserver.mcp.calls import Call, Who
from kbserver.mcp.resources.subscriptions import Whose
from kbserver.mcp.rpc import INTERNAL_ERROR, INVALID_PARAMS, Json, RpcFailure

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

MAX_TASKS = 100
"""Maximum number of tasks per tenant, running and finished."""

MAX_BYTES = 64 << 20
"""Maximum size of the results of all tasks of the process. A running task counts with the largest
result that it may have."""

TASK_BYTES = 4096
"""Size that a finished task counts with, besides its result."""

SWEEP_SECONDS = 1.0
"""Interval in which tasks whose time is over are looked for, while there are requests."""

RUN_SECONDS = 3600.0
"""Time after which a running task is cancelled; the limits of goals usually end it before."""

KEEP_SECONDS = 600.0
"""Time that a finished task is kept."""

POLL_MS = 1000
"""Interval in which clients should fetch the state of a task."""

WORKING, COMPLETED, FAILED, CANCELLED = "working", "completed", "failed", "cancelled"


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """The tenant of a task, and the key or token that created it, with its view."""

    whose: Whose
    caller: str | None
    grant: Grant

    @classmethod
    def of(cls, who: Who) -> TaskOwner:
        """Return the owner of the tasks of a caller."""
        return cls((who.database, who.tenant), who.caller, grant_of(who.principal))


@dataclass(eq=False, slots=True)
class McpTask:
    """A call that runs in the background.

    `created` and `updated` are in epoch milliseconds, `began` and `ended` in seconds of the
    monotonic clock; `outcome` is its result or error as JSON. `last_purge` is the number of the
    last purge that the result takes into account, None if its tenant does not exist; a task that
    `writes` takes that of its end, because it may be a purge.
    """

    id: str
    owner: TaskOwner
    call: Call
    created: int
    began: float
    size: int
    writes: bool
    last_purge: int | None
    status: str = WORKING
    updated: int = 0
    ended: float | None = None
    outcome: bytes = b""
    listeners: list[Callable[[Json], None]] = field(default_factory=list)

    def shown(self, now: float) -> Json:
        """Return the task as clients see it, with its result or error."""
        lifetime = RUN_SECONDS if self.ended is None else self.ended - self.began
        shape = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": time_text(self.created),
            "lastUpdatedAt": time_text(self.updated),
            "ttlMs": int((lifetime + KEEP_SECONDS) * 1000),
            "pollIntervalMs": POLL_MS,
        }
        if self.status == WORKING:
            shape["statusMessage"] = f"running for {now - self.began:.0f} seconds"
        elif self.status == COMPLETED:
            shape["result"] = orjson.Fragment(self.outcome)
        elif self.status == FAILED:
            shape["statusMessage"] = "the call failed"
            shape["error"] = orjson.Fragment(self.outcome)
        return shape


class McpTasks:
    """The tasks of a process; thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._swept = self._clock.monotonic()
        # A result has its answer twice, once as a text in JSON with escapes.
        self._largest = 3 * BYTES_PER_TOKEN * runtime.config.mcp_max_answer_tokens + TASK_BYTES
        self._mutex = threading.Lock()
        self._tasks: dict[str, McpTask] = {}
        self._sizes = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def size(self) -> int:
        """The bytes that all tasks count for."""
        return self._sizes

    def begin(self, owner: TaskOwner, call: Call, *, writes: bool) -> McpTask | None:
        """Make a task of a running call, which goes on without its connection; None where there is
        no capacity. `writes` says that the tool changes what is stored.
        """
        last_purge = self._last_purge(owner)
        now = self._clock.monotonic()
        self._sweep(now)
        with self._mutex:
            own = sum(each.owner.whose == owner.whose for each in self._tasks.values())
            if self._closed or own >= MAX_TASKS or self._sizes + self._largest > MAX_BYTES:
                return None
            at = self._clock.now_ms()
            id = secrets.token_urlsafe(24)
            task = McpTask(id, owner, call, at, now, self._largest, writes, last_purge, updated=at)
            self._tasks[id] = task
            self._sizes += task.size
        call.detach()
        return task

    def finish(self, task: McpTask, answer: Json) -> None:
        """Keep the answer of a task: a JSON-RPC message with its result or error."""
        error, result = answer.get("error"), answer.get("result")
        if task.call.stopped is not None and (error is not None or (result or {}).get("isError")):
            status, outcome = CANCELLED, b""
        else:
            status = COMPLETED if error is None else FAILED
            outcome = written(result if error is None else error)
        last_purge = self._last_purge(task.owner)
        if not task.writes and last_purge != task.last_purge:
            problem = "the result may have text that was purged; call the tool again"
            status, outcome = FAILED, written({"code": INTERNAL_ERROR, "message": problem})
        with self._mutex:
            task.status, task.outcome, task.last_purge = status, outcome, last_purge
            task.ended, task.updated = self._clock.monotonic(), self._clock.now_ms()
            if task.id in self._tasks:
                self._sizes += len(outcome) + TASK_BYTES - task.size
                task.size = len(outcome) + TASK_BYTES
            listeners, task.listeners = task.listeners, []
        shape = self.shown(task)
        for tell in listeners:
            tell(shape)

    def find(self, id: str, owner: TaskOwner) -> McpTask:
        """Return a task; raises RpcFailure if it does not exist or is of another owner."""
        self._sweep(self._clock.monotonic())
        with self._mutex:
            task = self._tasks.get(id)
        if task is not None and task.owner == owner and self._is_purged(task):
            self._drop(task)
            task = None
        if task is None or task.owner != owner:
            raise RpcFailure(INVALID_PARAMS, "no such task; it may have expired")
        return task

    def shown(self, task: McpTask) -> Json:
        """Return a task as clients see it."""
        return task.shown(self._clock.monotonic())

    def listen(self, task: McpTask, tell: Callable[[Json], None]) -> Callable[[], None]:
        """Have `tell` called when a task ends, at once if it has; returns what stops that."""
        with self._mutex:
            runs = task.ended is None
            if runs:
                task.listeners.append(tell)
        if not runs:
            tell(self.shown(task))

        def leave() -> None:
            with self._mutex:
                if tell in task.listeners:
                    task.listeners.remove(tell)

        return leave

    def close(self) -> None:
        """Cancel all tasks when the server stops."""
        with self._mutex:
            self._closed = True
            running = [each for each in self._tasks.values() if each.ended is None]
        for task in running:
            task.call.stop(CallerLeft())

    def _last_purge(self, owner: TaskOwner) -> int | None:
        tenant = self._runtime.find_tenant(*owner.whose)
        return None if tenant is None else tenant.purges.last_seq()

    def _is_purged(self, task: McpTask) -> bool:
        """Return True for a finished task whose result may have text that was purged."""
        return task.ended is not None and task.last_purge != self._last_purge(task.owner)

    def _drop(self, task: McpTask) -> None:
        with self._mutex:
            if self._tasks.pop(task.id, None) is not None:
                self._sizes -= task.size

    def _sweep(self, now: float) -> None:
        """Drop finished tasks whose time is over, and cancel those that run for too long."""
        with self._mutex:
            if now < self._swept + SWEEP_SECONDS:
                return
            self._swept = now
            gone = [
                each
                for each in self._tasks.values()
                if each.ended is not None and now >= each.ended + KEEP_SECONDS
            ]
            for task in gone:
                del self._tasks[task.id]
                self._sizes -= task.size
            overdue = [
                each
                for each in self._tasks.values()
                if each.ended is None and now >= each.began + RUN_SECONDS
            ]
        for task in overdue:
            task.call.stop(CallerLeft())
