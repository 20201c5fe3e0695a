"""Event streams of the client: cuts, retries, positions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kbcore_client import ConnectionFailed, Retries, Settings, connect, connect_async, http
from kbcore_client.event_stream import Message, MessageReader

GREETING = b"retry: 3000\n: kbcore events\n\n"


def event(number: int, name: str) -> bytes:
    shape = {"type": "fact_asserted", "eventId": f"l.{number}", "timestamp": 1, "scope": None}
    body = json.dumps({**shape, "atom": {"args": [name]}}, ensure_ascii=False)
    return f"event: fact_asserted\nid: l.{number}\ndata: {body}\n\n".encode()


class Streams:
    """A server whose streams send scripted bytes and are cut, or that refuses the connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.positions: list[str | None] = []
        self.pauses: list[float] = []

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        monkeypatch.setattr(http, "pause", self.pauses.append)
        monkeypatch.setattr(http, "pause_async", pause)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.positions.append(request.headers.get("Last-Event-ID"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, stream=Cut(answer))

    def names(self, count: int, retries: Retries | None = None) -> list[str]:
        """Return the facts of the first events of the synchronous client."""
        kb = connect("http://scripted", settings=Settings(retries=retries or Retries()))
        kb._connection._client = httpx.Client(transport=httpx.MockTransport(self.answer))
        stream = kb.events()
        values = [next(stream).data["atom"]["args"][0] for _ in range(count)]
        stream.close()
        return values

    async def names_async(self, count: int) -> list[str]:
        """Return those of the asynchronous client."""
        kb = connect_async("http://scripted")
        transport = httpx.MockTransport(self.answer)
        kb._connection._client = httpx.AsyncClient(transport=transport)
        stream = kb.events()
        values = [(await anext(stream)).data["atom"]["args"][0] for _ in range(count)]
        await stream.aclose()
        return values


class Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that ends with a lost connection."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        raise httpx.ReadError("reset")

    async def __aiter__(self) -> Any:
        for part in self:
            yield part


WHOLE = event(1, "a") + event(2, "b")
CUTS = sorted(
    {*range(len(event(1, "a")), len(WHOLE), 11), len(WHOLE) - 2, len(WHOLE) - 1, len(WHOLE)}
)


@pytest.mark.parametrize("client", ["sync", "async"])
def test_an_event_that_is_cut_anywhere_is_asked_for_again(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cut in CUTS:
        again = event(2, "b") if cut < len(WHOLE) else b""
        rest = GREETING + again + event(3, "c")
        streams = Streams(monkeypatch, GREETING + WHOLE[:cut], rest)
        names = streams.names(3) if client == "sync" else asyncio.run(streams.names_async(3))
        assert names == ["a", "b", "c"], WHOLE[:cut]
        assert streams.positions == [None, "l.1" if again else "l.2"]


def test_a_stream_that_was_open_is_opened_again_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = [httpx.ConnectError("refused")] * 2000
    streams = Streams(monkeypatch, GREETING + event(1, "a"), *refused, GREETING + event(2, "b"))
    assert streams.names(2) == ["a", "b"]
    assert len(streams.pauses) == 2001
    assert max(streams.pauses) <= 5
    assert max(streams.pauses[10:]) > 4


def test_failures_in_a_row_can_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [httpx.ConnectError("refused")] * 3
    answers = GREETING + event(1, "a"), *refused[1:], GREETING + event(2, "b"), *refused
    streams = Streams(monkeypatch, *answers)
    with pytest.raises(ConnectionFailed):
        streams.names(3, Retries(events=3))
    assert streams.answers == []


def test_an_address_without_a_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch, *[httpx.ConnectError("refused")] * 5)
    with pytest.raises(ConnectionFailed, match="is the server running"):
        streams.names(1)
    assert len(streams.positions) == 5


def test_a_server_that_closes_every_stream_at_once_is_not_asked_in_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = Streams(monkeypatch, *[GREETING] * 200, GREETING + event(1, "a"))
    assert streams.names(1) == ["a"]
    assert max(streams.pauses[10:]) > 4


def test_a_position_without_an_event_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_alive = b": keep-alive\nid: l.9\n\n"
    streams = Streams(monkeypatch, GREETING + keep_alive, GREETING + event(10, "a"))
    assert streams.names(1) == ["a"]
    assert streams.positions == [None, "l.9"]


@pytest.mark.parametrize("name", ["a\u2028b", "a\u0085b", "a\x0cb", "a\x1cb", "größe"])
def test_only_line_feeds_end_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Streams(monkeypatch, GREETING + event(1, name)).names(1) == [name]


def test_bytes_may_arrive_in_any_pieces() -> None:
    text = b": c\r\nid: 1\r\n\r\nevent: x\ndata: \xc3\xa4\ndata: 2\n\ndata: cut\n"
    expected = [Message("message", "", "1"), Message("x", "ä\n2", None)]
    for size in range(1, len(text) + 1):
        reader = MessageReader()
        pieces = (text[start : start + size] for start in range(0, len(text), size))
        assert [message for piece in pieces for message in reader.feed(piece)] == expected
