"""Streams of events: how many there may be, how long calls report from one, how changes are told on one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from flask import Flask, Response

from kbcore.errors import CallerLeft, RateLimited
from kbserver.mcp.calls import Call
from kbserver.mcp.outbox import Outbox, frame
from kbserver.mcp.protocol import complete
from kbserver.mcp.resources.subscriptions import Subscriptions, Whose
from kbserver.mcp.rpc import Id, Json, notification, result
from kbserver.mcp.sessions import updated
from kbserver.mcp.versions import SUBSCRIPTION_KEY

EVENTS = "text/event-stream"

MOST_STREAMS = 100
"""Streams of a tenant that are open at a time."""

PROGRESS_SECONDS = 1.0
"""Interval of progress notifications of long calls."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def events(frames: Iterator[bytes]) -> Response:
    """Answer with a stream of events."""
    return Response(frames, content_type=EVENTS, headers=_HEADERS)


class Streams:
    """The streams that are open, by tenant. Safe between threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[Whose, int] = {}

    def __len__(self) -> int:
        with self._mutex:
            return sum(self._open.values())

    def counted(
        self, whose: Whose, frames: Iterator[bytes], then: Callable[[], None] | None = None
    ) -> Iterator[bytes]:
        """Count a stream until it is closed, and call `then`; raises RateLimited where its tenant has too many."""
        with self._mutex:
            if self._open.get(whose, 0) >= MOST_STREAMS:
                raise RateLimited(
                    f"this tenant has {MOST_STREAMS} streams open",
                    1.0,
                    {"limit": "streams", "value": MOST_STREAMS},
                )
            self._open[whose] = self._open.get(whose, 0) + 1
        return _Counted(frames, lambda: self._closed(whose, then))

    def _closed(self, whose: Whose, then: Callable[[], None] | None) -> None:
        with self._mutex:
            self._open[whose] -= 1
            if not self._open[whose]:
                del self._open[whose]
        if then is not None:
            then()


class _Counted:
    """Frames, and what is done once when they are closed: whether they were begun or not, which a generator cannot tell."""

    def __init__(self, frames: Iterator[bytes], closed: Callable[[], None]) -> None:
        self._frames = frames
        self._closed: Callable[[], None] | None = closed

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._frames)

    def close(self) -> None:
        """Close the frames; the server calls it, however the answer ended."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()
        with suppress(AttributeError):
            self._frames.close()  # type: ignore[attr-defined]


class Beside:
    """Work done beside the request that wants it, in a thread, or under the server a greenlet, of its own."""

    def __init__(self, app: Flask, work: Callable[[], Json]) -> None:
        self._app = app
        self._work = work
        self._done = threading.Event()
        self.found: Json = {}
        threading.Thread(target=self._run, name="kbcore-call", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether it is done, and `found` what it came to."""
        return self._done.wait(seconds)

    def _run(self) -> None:
        try:
            with self._app.app_context():
                self.found = self._work()
        finally:
            self._done.set()


def progress(token: Any, seconds: float) -> Json:
    """Say for how many seconds a call has been worked on."""
    return notification(
        "notifications/progress",
        {"progressToken": token, "progress": round(seconds, 3), "message": "at work"},
    )


def followed_by(work: Beside, call: Call, token: Any) -> Iterator[bytes]:
    """The progress of a call, then its answer. Closed before that, it stops the call."""
    began = time.monotonic()
    try:
        while not work.wait(PROGRESS_SECONDS):
            yield frame(progress(token, time.monotonic() - began))
        yield frame(work.found)
    except GeneratorExit:
        call.stop(CallerLeft())
        raise


class Listening:
    """A stream of changes of the era without sessions, opened by the request `id` and marked with it."""

    def __init__(self, subscriptions: Subscriptions, whose: Whose, id: Id | None) -> None:
        self._subscriptions = subscriptions
        self._whose = whose
        self._followed: list[str] = []
        self._meta = {SUBSCRIPTION_KEY: id}
        self._last = result(id, complete({"_meta": self._meta}))
        self.outbox = Outbox(self._updated)

    def frames(self, uris: list[str]) -> Iterator[bytes]:
        """Yield the stream: first the subscribed resources, then their changes."""
        try:
            for uri in dict.fromkeys(uris):
                if self._subscriptions.follow(self._whose, uri, self.outbox):
                    self._followed.append(uri)
            taken = {"resourceSubscriptions": self._followed} if self._followed else {}
            params = {"_meta": self._meta, "notifications": taken}
            yield frame(notification("notifications/subscriptions/acknowledged", params))
            yield from self.outbox.frames()
        finally:
            for uri in self._followed:
                self._subscriptions.leave(self._whose, uri, self.outbox)

    def close(self) -> None:
        """End in good order."""
        self.outbox.close(self._last)

    def _updated(self, uri: str) -> Json:
        found = updated(uri)
        return {**found, "params": {**found["params"], "_meta": self._meta}}
