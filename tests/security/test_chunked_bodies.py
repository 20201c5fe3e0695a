"""Chunked bodies: others get their turn however a client sends one, and its framing has one
reading.

A client that sends without a pause never makes the server wait for it. What the server reads then
must be bounded, or interrupted by turns of others.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.http import serve_in_memory
from support.sockets import Running

from kbserver.http.request_body import CHUNKS_BETWEEN, BodyInput
from kbserver.http.request_head import MAX_HEAD, MAX_LINE, Head

CHUNKED = Head("POST", "/tell", headers={"TRANSFER_ENCODING": "chunked"})
START = (
    b"POST /auth/bootstrap HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def no_turn() -> None:
    """Let nothing else run."""


def body_of(wire: bytes, yield_now: Callable[[], None] = no_turn) -> BodyInput:
    reader = io.BufferedReader(io.BytesIO(wire))
    return BodyInput(reader, CHUNKED, None, len(wire), 30.0, yield_now)


class Endless(io.RawIOBase):
    """A client that repeats a text, and never pauses."""

    def __init__(self, start: bytes, text: bytes) -> None:
        self._start, self._text = start, text
        self.sent = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._start:
            data, self._start = self._start, b""
        else:
            data = (self._text * (len(buffer) // len(self._text) + 1))[: len(buffer)]
        buffer[: len(data)] = data
        self.sent += len(data)
        return len(data)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serve_in_memory() as served:
        server = Running(served.app)
        yield server
        server.stop()


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"0\r\n", b"a: b\r\n"),
        (b"0\r\na: ", b"b"),
        (b"0\r\n", b"a"),
        (b"1;", b"x"),
        (b"", b"0"),
        (b"1\r\nab", b"c"),
    ],
    ids=["trailers", "a trailer", "its name", "an extension", "a size", "the end of a chunk"],
)
def test_endless_framing_is_refused(start: bytes, text: bytes) -> None:
    client = Endless(start, text)
    body = BodyInput(io.BufferedReader(client), CHUNKED, None, 0, 30.0, no_turn)
    with pytest.raises(OSError, match=r"too long|no headers|no size"):
        body.read()
    assert client.sent <= MAX_HEAD + 2 * MAX_LINE + io.DEFAULT_BUFFER_SIZE
    assert body.broken
    assert body.abandoned


@pytest.mark.parametrize("length", [None, 1, 65_536])
def test_small_chunks_give_turns(length: int | None) -> None:
    turns: list[None] = []
    wire = b"1\r\nx\r\n" * 10 * CHUNKS_BETWEEN + b"0\r\n\r\n"
    body = body_of(wire, lambda: turns.append(None))
    whole = b"".join(iter(lambda: body.read(length), b""))
    assert whole == b"x" * 10 * CHUNKS_BETWEEN
    assert len(turns) == 10


@pytest.mark.parametrize("length", [None, 1, 3, 5, 100])
def test_parts_lines_trailers_and_extensions(length: int | None) -> None:
    wire = b'5\r\nab\ncd\r\n0002;a=b;c="d"\r\n\nf\r\n0;last\r\nSum: 1\r\nSize:2\r\n\r\n'
    for read in ("read", "readline"):
        body = body_of(wire + HIDDEN)
        call = getattr(body, read)
        parts: list[bytes] = []
        while not parts or parts[-1]:
            parts.append(call(length))
        assert b"".join(parts) == b"ab\ncd\nf"
        assert read == "read" or all(b"\n" not in part[:-1] for part in parts)
        assert body.rfile.read() == HIDDEN
        assert not body.abandoned


def test_a_chunk_of_any_size_is_read_in_parts() -> None:
    with pytest.raises(OSError, match="ended inside a chunk"):
        body_of(b"F" * 16 + b"\r\nabc").read()


@pytest.mark.parametrize(
    "framing",
    [
        b"2;\n{}\r\n0\r\n\r\n",
        b"2;a=\nb\r\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\n0\r\n\r\n",
        b"2\r\n{}\r\n0\n\r\n",
        b"2\r\n{}\r\n0\r\n\n",
        b"2\r\n{}\r\n0\r\nA: b\n\r\n",
        b"2\r\n{}\r\n0\r\nA : b\r\n\r\n",
        b"2\r\n{}\r\n0\r\n A: b\r\n\r\n",
        b"2\r\n{}\r\n0;\n\r\n\r\n",
        b" 2\r\n{}\r\n0\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"+2\r\n{}\r\n0\r\n\r\n",
        b"00000000000000002\r\n{}\r\n0\r\n\r\n",
        b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
        b"2;\x00\r\n{}\r\n0\r\n\r\n",
        b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_framing_that_others_read_differently_ends_the_connection(
    running: Running, framing: bytes
) -> None:
    answer = running.raw(START + framing + HIDDEN)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer
