"""The stream of the older pair of paths: its session ends with it, even if it is never read."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Served, error_of

from kbcore.errors import RateLimited
from kbserver.errors import answer_of
from kbserver.mcp import sessions, streams
from kbserver.mcp.calls import Call
from kbserver.mcp.transport import Transport
from kbserver.routes.agents.mcp import EXTENSION


@pytest.fixture
def transport(served: Served) -> Transport:
    found: Transport = served.app.extensions[EXTENSION]
    return found


def counts(transport: Transport) -> tuple[int, int]:
    return len(transport.protocol.sessions), len(transport.streams)


def opened(served: Served) -> Any:
    return served.client.flask.get("/mcp/sse", buffered=False)


def test_a_session_ends_with_its_stream(served: Served, transport: Transport) -> None:
    response = opened(served)
    assert next(response.iter_encoded()).startswith(
        b"event: endpoint\ndata: /mcp/messages?sessionId="
    )
    assert counts(transport) == (1, 1)
    response.close()
    assert counts(transport) == (0, 0)


def test_a_stream_closed_before_its_first_read_leaves_no_session(
    served: Served, transport: Transport
) -> None:
    asked = served.client.flask.head("/mcp/sse")
    assert asked.status_code == 200
    asked.close()
    opened(served).close()
    assert counts(transport) == (0, 0)


def test_a_refused_stream_leaves_no_session(
    served: Served, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_STREAMS", 1)
    first = opened(served)
    error_of(opened(served), 429, "RATE_LIMITED")
    assert counts(transport) == (1, 1)
    first.close()
    assert counts(transport) == (0, 0)


def test_a_refusal_names_the_session_limit(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 1)
    whose = ("default", "default")
    transport.protocol.sessions.open(whose).calls[1] = Call()
    with pytest.raises(RateLimited) as caught:
        transport.protocol.sessions.open(whose)
    headers = answer_of(caught.value).headers
    assert headers["RateLimit-Policy"] == '"sessions";q=1'
    assert headers["RateLimit"] == '"sessions";r=0;t=10'
