"""Queue of a stream: messages in order, and URIs of changed resources, each once.

One connection at a time reads from an outbox. Adding never blocks: an outbox that is full is
closed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kbserver.answers import written

KEEP_ALIVE_SECONDS = 10.0
"""Idle time before a comment is sent, because only a write detects that the client has
disconnected."""

COALESCE_SECONDS = 0.25
"""Changes of one resource within this time are sent as one notification."""

MAX_PENDING = 1000

COMMENT = b": still here\n\n"

Json = dict[str, Any]


def frame(message: Json, event: str = "message") -> bytes:
    """Write a message as one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), written(message))


class Outbox:
    """A bounded queue of one stream, which another connection may resume.

    `updated` returns the notification that a resource has changed.
    """

    def __init__(self, updated: Callable[[str], Json]) -> None:
        self._updated = updated
        self._ready = threading.Condition()
        self._messages: deque[Json] = deque()
        self._changed: dict[str, None] = {}
        self._last: Json | None = None
        self._reader: object | None = None
        self.closed = False

    @property
    def is_read(self) -> bool:
        """True while a connection reads from the outbox."""
        return self._reader is not None

    def put(self, message: Json) -> None:
        """Add a message; a full outbox is closed instead."""
        with self._ready:
            if len(self._messages) >= MAX_PENDING:
                self.closed = True
            elif not self.closed:
                self._messages.append(message)
            self._ready.notify_all()

    def changed(self, uri: str) -> None:
        """Add the notification that a resource has changed."""
        with self._ready:
            if uri in self._changed or self.closed:
                return
            if len(self._changed) >= MAX_PENDING:
                self.closed = True
            else:
                self._changed[uri] = None
            self._ready.notify_all()

    def forget(self, uri: str) -> None:
        """Drop a pending change of a resource."""
        with self._ready:
            self._changed.pop(uri, None)

    def close(self, last: Json | None = None) -> None:
        """End the stream after the pending events, with an optional last message."""
        with self._ready:
            self._last = last if not self.closed else self._last
            self.closed = True
            self._ready.notify_all()

    def frames(self) -> Iterator[bytes]:
        """Yield server-sent events until the stream is closed or another connection takes over."""
        reader = object()
        with self._ready:
            self._reader = reader
            self._ready.notify_all()
        changes_sent_at = -COALESCE_SECONDS
        try:
            while True:
                parts, changes_sent_at, done = self._next(reader, changes_sent_at)
                if parts:
                    yield b"".join(parts)
                if done:
                    return
        finally:
            with self._ready:
                if self._reader is reader:
                    self._reader = None

    def _next(self, reader: object, changes_sent_at: float) -> tuple[list[bytes], float, bool]:
        """Wait for events. Returns the events, the time changes were last sent, and True at the end
        of the stream.
        """
        until = time.monotonic() + KEEP_ALIVE_SECONDS
        with self._ready:
            while True:
                now = time.monotonic()
                due = changes_sent_at + COALESCE_SECONDS
                if self._reader is not reader:
                    return [], changes_sent_at, True
                notify = bool(self._changed) and (now >= due or self.closed)
                if self._messages or notify or self.closed:
                    parts = [frame(message) for message in self._messages]
                    self._messages.clear()
                    if notify:
                        parts += [frame(self._updated(uri)) for uri in self._changed]
                        self._changed.clear()
                        changes_sent_at = now
                    if self.closed and self._last is not None:
                        parts.append(frame(self._last))
                    return parts, changes_sent_at, self.closed
                if now >= until:
                    return [COMMENT], changes_sent_at, False
                self._ready.wait(min(until, due if self._changed else until) - now)
