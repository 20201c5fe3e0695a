"""Event streams of MCP: their limit, progress of long calls, notifications of changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from flask import Flask, Response

from kbcore.durable.request_key import API_KEY
from kbcore.errors import CallerLeft, RateLimited
from kbcore.events.events import EventView
from kbcore.operations.evaluated_goal import KEY_NAME
from kbcore.operations.slow_log import REQUEST
from kbcore.tracing.spans import CURRENT
from kbserver.mcp.calls import Call
from kbserver.mcp.outbox import COMMENT, KEEP_ALIVE_SECONDS, Outbox, frame
from kbserver.mcp.protocol import complete
from kbserver.mcp.resources.subscriptions import ResourceSubscriptions, Whose
from kbserver.mcp.rpc import Id, Json, notification, result
from kbserver.mcp.sessions import updated
from kbserver.mcp.tasks import McpTask, McpTasks
from kbserver.mcp.versions import SUBSCRIPTION_KEY

EVENTS = "text/event-stream"

MAX_STREAMS = 100
"""Maximum number of open streams per tenant."""

PROGRESS_SECONDS = 1.0
"""Interval of progress notifications of long calls."""

TASK_SECONDS = 10.0
"""Time for which a call reports its progress before it becomes a task."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def events(frames: Iterator[bytes]) -> Response:
    """Return a response that streams events."""
    return Response(frames, content_type=EVENTS, headers=_HEADERS)


class Streams:
    """Count of open streams by tenant; thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[Whose, int] = {}

    def __len__(self) -> int:
        with self._mutex:
            return sum(self._open.values())

    def counted(
        self, whose: Whose, frames: Iterator[bytes], then: Callable[[], None] | None = None
    ) -> Iterator[bytes]:
        """Count a stream until it is closed, then call `then`; raises RateLimited if the tenant has
        too many.
        """
        with self._mutex:
            if self._open.get(whose, 0) >= MAX_STREAMS:
                raise RateLimited(
                    f"this tenant has {MAX_STREAMS} streams open",
                    1.0,
                    {"limit": "streams", "value": MAX_STREAMS},
                )
            self._open[whose] = self._open.get(whose, 0) + 1
        return _CountedStream(frames, lambda: self._closed(whose, then))

    def _closed(self, whose: Whose, then: Callable[[], None] | None) -> None:
        with self._mutex:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]
        if then is not None:
            then()


class _CountedStream:
    """Frames with a function that is called once when they are closed.

    Unlike the `finally` of a generator, it is also called if no frame was read.
    """

    def __init__(self, frames: Iterator[bytes], closed: Callable[[], None]) -> None:
        self._frames = frames
        self._closed: Callable[[], None] | None = closed

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._frames)

    def close(self) -> None:
        """Close the frames; the server calls this however the response ended."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()
        with suppress(AttributeError):
            self._frames.close()  # type: ignore[attr-defined]


class BackgroundCall:
    """A call in its own thread (under the server, a greenlet).

    The logs name the key and the id of the request that began it. Until it is done, it may send
    messages on the stream of its request.
    """

    def __init__(self, app: Flask, work: Callable[[], Json]) -> None:
        self._app = app
        self._work = work
        self._key, self._key_name, self._id = API_KEY.get(), KEY_NAME.get(), REQUEST.get()
        self._span = CURRENT.get()
        self._news = threading.Condition()
        self._done = False
        self._messages: list[Json] = []
        self._then: Callable[[Json], None] | None = None
        self.answer: Json = {}

    def start(self) -> None:
        """Begin the call."""
        threading.Thread(target=self._run, name="kbcore-call", daemon=True).start()

    def wait(self, seconds: float | None) -> bool:
        """Wait up to `seconds` (None: without a limit) for the end of the call or a message of it.

        Returns True if the call is done, with its result in `answer`.
        """
        with self._news:
            self._news.wait_for(lambda: self._done or bool(self._messages), seconds)
            return self._done

    def then(self, finish: Callable[[Json], None]) -> None:
        """Have `finish` called with the answer, at once if the call is done."""
        with self._news:
            if not self._done:
                self._then = finish
                return
        finish(self.answer)

    def send(self, message: Json) -> None:
        """Send a message on the stream of the request."""
        with self._news:
            self._messages.append(message)
            self._news.notify_all()

    def messages(self) -> list[Json]:
        """Return the messages that were sent since the last call."""
        with self._news:
            messages, self._messages = self._messages, []
            return messages

    def _run(self) -> None:
        API_KEY.set(self._key)
        KEY_NAME.set(self._key_name)
        REQUEST.set(self._id)
        CURRENT.set(self._span)
        try:
            with self._app.app_context():
                self.answer = self._work()
        finally:
            with self._news:
                self._done = True
                self._news.notify_all()
            if self._then is not None:
                self._then(self.answer)


def progress(token: Any, seconds: float) -> Json:
    """Return the notification of the time in seconds that a call has run."""
    return notification(
        "notifications/progress",
        {"progressToken": token, "progress": round(seconds, 3), "message": "running"},
    )


def progress_frames(
    work: BackgroundCall,
    call: Call,
    token: Id | None,
    as_task: Callable[[], Json | None] | None = None,
) -> Iterator[bytes]:
    """Yield the messages of a call, its progress if there is a token for it, and then its answer;
    closing the iterator stops the call.

    A call that reports progress for TASK_SECONDS becomes a task: `as_task` returns the message for
    that, or None to go on.
    """
    began = time.monotonic()
    try:
        while not work.wait(KEEP_ALIVE_SECONDS if token is None else PROGRESS_SECONDS):
            if messages := work.messages():
                yield b"".join(map(frame, messages))
            elif token is None:
                yield COMMENT
            else:
                yield frame(progress(token, time.monotonic() - began))
            if as_task is not None and time.monotonic() - began >= TASK_SECONDS:
                task, as_task = as_task(), None
                if task is not None:
                    yield frame(task)
                    return
        if call.stopped is None:
            yield frame(work.answer)
    except GeneratorExit:
        call.stop(CallerLeft())
        raise


class Listening:
    """A stream of changes in protocol versions without sessions, marked with the id of its
    request.
    """

    def __init__(
        self,
        subscriptions: ResourceSubscriptions,
        whose: Whose,
        id: Id | None,
        tasks: McpTasks,
        view: EventView | None = None,
    ) -> None:
        self._subscriptions = subscriptions
        self._view = view
        self._whose = whose
        self._followed: list[str] = []
        self._tasks = tasks
        self._meta = {SUBSCRIPTION_KEY: id}
        self._last = result(id, complete({"_meta": self._meta}))
        self.outbox = Outbox(self._updated)

    def frames(self, uris: list[str], tasks: Sequence[McpTask] = ()) -> Iterator[bytes]:
        """Yield the stream: first the resources and tasks that it follows, then their changes."""
        leave: list[Callable[[], None]] = []
        try:
            for uri in dict.fromkeys(uris):
                if self._subscriptions.follow(self._whose, uri, self.outbox, self._view):
                    self._followed.append(uri)
            ids = [task.id for task in tasks]
            accepted = {
                **({"resourceSubscriptions": self._followed} if self._followed else {}),
                **({"taskIds": ids} if ids else {}),
            }
            params = {"_meta": self._meta, "notifications": accepted}
            yield frame(notification("notifications/subscriptions/acknowledged", params))
            leave += [self._tasks.listen(task, self._task_ended) for task in tasks]
            yield from self.outbox.frames()
        finally:
            for stop in leave:
                stop()
            for uri in self._followed:
                self._subscriptions.leave(self._whose, uri, self.outbox)

    def close(self) -> None:
        """End the stream with its final message."""
        self.outbox.close(self._last)

    def _task_ended(self, task: Json) -> None:
        self.outbox.put(notification("notifications/tasks", {**task, "_meta": self._meta}))

    def _updated(self, uri: str) -> Json:
        message = updated(uri)
        return {**message, "params": {**message["params"], "_meta": self._meta}}
