"""Damaged requests over real sockets: valid responses, and the server keeps running."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import Served, serve_in_memory
from support.sockets import Running

SOUND = (
    (
        b"POST /ask HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: t\r\nContent-Type: application/json\r\n"
        b'Content-Length: 31\r\n\r\n{"predicate":"p","args":["?x"]}'
    ),
    (
        b"POST /query HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: t\r\nContent-Type: application/json\r\n"
        b'Transfer-Encoding: chunked\r\n\r\n1f\r\n{"predicate":"p","args":["?x"]}\r\n0\r\n\r\n'
    ),
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: mine\r\n\r\n",
)


@pytest.fixture(scope="module")
def hall() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


@pytest.fixture(scope="module")
def running(hall: Served) -> Iterator[Running]:
    found = Running(hall.app)
    yield found
    found.stop()


def answers(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Split what came back into statuses and bodies."""
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = int(lines[0].split(b" ")[1])
        if status == 100:
            continue
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        assert b"x-request-id" in headers
        length = int(headers[b"content-length"])
        yield status, raw[:length]
        raw = raw[length:]


@examples(80)
@given(
    sound=st.sampled_from(SOUND),
    cuts=st.lists(
        st.tuples(st.integers(0, 220), st.integers(0, 12), st.binary(max_size=12)),
        min_size=1,
        max_size=3,
    ),
)
def test_damaged_requests(
    running: Running, sound: bytes, cuts: list[tuple[int, int, bytes]]
) -> None:
    raw = sound
    for start, length, put in cuts:
        raw = raw[:start] + put + raw[start + length :]
    if raw[:5] == b"HEAD ":
        return
    for status, body in answers(running.raw(raw)):
        assert status < 500
        found = json.loads(body)
        assert status == 200 or list(found) == ["code", "message", "details"]
    assert [status for status, _ in answers(running.raw(SOUND[2]))] == [200]
