"""Request bodies as they arrive: read with a timeout, and skipped when no route reads them.

The framing of a chunked body is read here and not by pywsgi, which takes it byte by byte and
without a turn for others: for as long as a client sends without a pause, no other client would be
served, and not even the timeout would end that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.pywsgi import Input

from kbcore.config.settings import Config
from kbserver.http.request_head import HEADER, MAX_HEAD, MAX_LINE, Head

_DISCARD = 64 * 1024
"""Most bytes of an unread body that are discarded, and of a read of a chunk of any size."""

CHUNKS_BETWEEN = 256
"""Chunks that are read between two turns of others, well under a millisecond if they are small."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
"""The size of a chunk, with extensions, which are ignored."""


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
    """The body of a request, read with a timeout; a short unread rest is discarded.

    `yield_now` is called between the chunks of a body, and lets other requests run.
    """

    chunk_length: int
    position: int

    def __init__(
        self,
        rfile: Any,
        head: Head,
        sock: Any,
        at_hand: int,
        seconds: float,
        yield_now: Callable[[], None],
    ) -> None:
        super().__init__(rfile, head.length, socket=sock, chunked_input=head.chunked)
        self.at_hand = at_hand
        self.chunks = 0
        self.yield_now = yield_now
        self.seconds = seconds
        self.broken = False
        self.deadline: float | None = None

    def read(self, length: int | None = None) -> bytes:
        """Read up to `length` bytes; raises OSError, which is TooSlow on a timeout."""
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

    def _chunked_read(self, length: int | None = None, use_readline: bool = False) -> bytes:
        """Read up to `length` bytes of a chunked body, or a line; raises OSError."""
        self._send_100_continue()
        parts: list[bytes] = []
        while self.chunk_length != 0 and length != 0:
            left = self.chunk_length - self.position
            if left <= 0:
                self._begin_chunk()
                continue
            size = min(left, _DISCARD if length is None else length)
            data = (self.rfile.readline if use_readline else self.rfile.read)(size)
            if not data:
                raise self._malformed("the body ended inside a chunk")
            parts.append(data)
            self.position += len(data)
            length = None if length is None else length - len(data)
            if self.position == self.chunk_length and self._line():
                raise self._malformed("a chunk is longer than its size")
            if use_readline and data.endswith(b"\n"):
                break
        return b"".join(parts)

    def _begin_chunk(self) -> None:
        """Read the size of the next chunk, and the trailers after the last one, which are
        ignored.
        """
        self.chunks += 1
        if self.chunks % CHUNKS_BETWEEN == 0:
            self.yield_now()
        match = _SIZE.fullmatch(self._line())
        if match is None:
            raise self._malformed("a chunk has no size")
        size, left = int(match[1], 16), MAX_HEAD
        while not size and (line := self._line()):
            left -= len(line)
            if left < 0 or not HEADER.fullmatch(line):
                raise self._malformed("the trailers are no headers, or too long")
        self.chunk_length, self.position = size, 0

    def _line(self) -> bytes:
        """Return a line of the framing without its end."""
        line: bytes = self.rfile.readline(MAX_LINE + 1)
        if not line.endswith(b"\r\n"):
            raise self._malformed("a line of a chunked body is too long or does not end in CR LF")
        return line[:-2]

    def _malformed(self, message: str) -> OSError:
        self.broken = True
        return OSError(message)

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
