"""Request bodies as they arrive: read with a timeout, and skipped when no route reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.pywsgi import Input

from kbcore.config.settings import Config
from kbserver.http.request_head import Head

_DISCARD = 64 * 1024


class TooSlow(OSError):
    """The client exceeded a time limit."""


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits in seconds for a connection: request head, request body, and idle time."""

    head: float
    body: float
    idle: float

    @classmethod
    def of(cls, config: Config) -> Times:
        """Return the configured limits."""
        return cls(
            config.header_timeout_ms / 1000,
            config.body_timeout_ms / 1000,
            config.idle_timeout_ms / 1000,
        )


class BodyInput(Input):  # type: ignore[misc]
    """The body of a request, read with a timeout; a short unread rest is discarded."""

    __slots__ = ("at_hand", "broken", "deadline", "seconds")

    def __init__(self, rfile: Any, head: Head, sock: Any, at_hand: int, seconds: float) -> None:
        super().__init__(rfile, head.length, socket=sock, chunked_input=head.chunked)
        self.at_hand = at_hand
        self.seconds = seconds
        self.broken = False
        self.deadline: float | None = None

    def read(self, length: int | None = None) -> bytes:
        """Read up to `length` bytes; raises TooSlow, an OSError, on a timeout."""
        if not self.chunked_input and (self.content_length or 0) <= self.at_hand:
            return bytes(super().read(length))
        now = time.monotonic()
        self.deadline = self.deadline or now + self.seconds
        try:
            with gevent.Timeout(
                max(0.001, self.deadline - now),
                TooSlow(f"the body took over {self.seconds:g} seconds"),
            ):
                return bytes(super().read(length))
        except OSError:
            self.broken = True
            raise
        except ValueError as error:  # raised by pywsgi for a chunk without a size
            self.broken = True
            raise OSError("a chunk has no size") from error

    @property
    def abandoned(self) -> bool:
        """Return True if too much of the body is unread for the connection to be reused."""
        if self.broken:
            return True
        if self.chunked_input:
            return bool(self.chunk_length != 0)
        left = (self.content_length or 0) - self.position
        return left > 0 and (left > _DISCARD or self.socket is not None)

    def _discard(self) -> None:
        if not self.abandoned:
            super()._discard()
