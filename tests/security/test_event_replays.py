"""Event streams that are read from the log: what they hold in memory is bounded for each tenant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.http import Served, serve_in_memory

from kbcore.errors import RateLimited
from kbcore.events.feed import Committed
from kbserver.events.ring import BLOCK

SECONDS = 0.2
"""The time of a request: a stream that waits for the log ends after it."""


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(events_buffer=5, query_timeout_ms=int(SECONDS * 1000)) as served:
        yield served
        served.app.extensions["kbcore.events"].close()


class Replays:
    """The reads of the log that are in progress, each with a rebuilt state."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hub = served.app.extensions["kbcore.events"]
        self.open = 0
        self._logged_changes = self.hub.logged_changes
        monkeypatch.setattr(self.hub, "logged_changes", self._counted)

    def _counted(self, *args: Any) -> Iterator[Committed]:
        self.open += 1
        try:
            yield from self._logged_changes(*args)
        finally:
            self.open -= 1


def opened(served: Served, place: str | None = None) -> Any:
    headers = {"X-Tenant-ID": "t", **({"Last-Event-ID": place} if place else {})}
    response = served.client.flask.get("/memory/events", headers=headers, buffered=False)
    assert response.status_code == 200, response.text
    return response


def last_id(text: bytes) -> str:
    return [line[4:] for line in text.decode().splitlines() if line.startswith("id: ")][-1]


def values(text: bytes) -> list[str]:
    lines = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line)["atom"]["args"][0] for line in lines]


def place_before(served: Served, *facts: int) -> str:
    """Store change sets that the memory does not hold, one of each number of `facts`; return the
    position before.
    """
    with opened(served) as response:
        place = last_id(next(iter(response.response)))
    for index, number in enumerate(facts):
        rows = [{"predicate": "p", "args": [f"{index}.{n}"]} for n in range(number)]
        served.client.post("/assert/facts", {"facts": rows})
    served.app.extensions["kbcore.events"].renew()
    return place


def test_streams_that_do_not_read_hold_one_rebuilt_state(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_before(served, *[1] * 20)
    replays = Replays(served, monkeypatch)
    first = opened(served, place)
    stream = iter(first.response)
    next(stream)
    assert values(next(stream)) == ["0.0"]
    for _ in range(3):
        with opened(served, place) as second:
            assert values(b"".join(second.response)) == []  # it ended, and its client comes again
        assert replays.open == 1
    first.close()
    assert replays.open == 0
    with opened(served, place) as again:
        stream, rows = iter(again.response), list[str]()
        while len(rows) < 20:
            rows += values(next(stream))
    assert rows == [f"{n}.0" for n in range(20)]


def test_a_slow_reader_gives_the_log_back_and_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_before(served, 3 * BLOCK, 1)
    replays = Replays(served, monkeypatch)
    seen: list[str] = []
    for _ in range(3):
        with opened(served, place) as response:
            stream = iter(response.response)
            next(stream)
            text = next(stream)
            served.clock.advance(int(SECONDS * 1000))
            assert next(stream, b"") == b""
            assert replays.open == 0
        seen += values(text)
        assert len(values(text)) == BLOCK
        place = last_id(text)
    assert seen == [f"0.{n}" for n in range(3 * BLOCK)]


def test_a_stream_that_is_ended_by_the_node_gives_the_log_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_before(served, *[1] * 20)
    replays = Replays(served, monkeypatch)
    with opened(served, place) as response:
        stream = iter(response.response)
        next(stream)
        next(stream)
        assert replays.open == 1
        replays.hub.renew()
        assert replays.open == 0
        assert next(stream, b"") == b""


def test_a_tenant_with_much_long_work_loses_no_events(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_before(served, 1)

    def refused(*args: Any) -> Iterator[Committed]:
        raise RateLimited("too many long goals", 1.0, {})
        yield

    with monkeypatch.context() as context:
        context.setattr(served.app.extensions["kbcore.events"], "logged_changes", refused)
        with opened(served, place) as response:
            assert b"events_lost" not in b"".join(response.response)
    with opened(served, place) as response:
        stream = iter(response.response)
        next(stream)
        assert values(next(stream)) == ["0.0"]
