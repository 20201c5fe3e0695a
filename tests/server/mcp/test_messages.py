"""Parsing of MCP messages, and the check of their origin."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import META, Agent, failed
from support.http import Client, error_of, serve_in_memory
from support.keys import ONE

from kbserver.mcp.calls import Call
from kbserver.mcp.tools import McpTool

# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b"3", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
    ],
)
def test_malformed_messages_are_refused(agent: Agent, body: bytes, code: int) -> None:
    failed(agent.send(body), 400, code)


def test_notifications_and_replies_get_no_response(agent: Agent) -> None:
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}},
        {"jsonrpc": "2.0", "id": 4, "result": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": META}},
    ):
        response = agent.send(message)
        assert (response.status_code, response.data) == (202, b"")


def test_bodies_are_json_within_the_size_limit(agent: Agent) -> None:
    error_of(
        agent.flask.post("/mcp", data=b"{}", content_type="text/plain"), 415, "VALIDATION_ERROR"
    )
    error_of(agent.send(b" " * ((4 << 20) + 1)), 413, "PAYLOAD_TOO_LARGE")
    error_of(agent.flask.put("/mcp"), 405, "VALIDATION_ERROR")


# -- who may call ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Origin", "http://localhost", 200),
        ("Origin", "http://localhost:3000", 403),
        ("Origin", "https://127.0.0.1", 403),
        ("Origin", "http://[::1]:8080", 403),
        ("Origin", "https://evil.example", 403),
        ("Origin", "http://localhost.evil.example", 403),
        ("Origin", "null", 403),
        ("Host", "evil.example:9300", 403),
        ("Host", "127.0.0.1:9300", 200),
        ("Host", "[::1]:9300", 200),
    ],
)
def test_other_origins_and_hosts_are_refused(
    agent: Agent, header: str, value: str, status: int
) -> None:
    for path in ("/mcp", "/a2a"):
        response = agent.send(
            {"jsonrpc": "2.0", "id": 1, "method": "ping"}, path, **{header: value}
        )
        assert response.status_code == status, response.text
        if status == 403:
            assert error_of(response, 403, "FORBIDDEN")["details"] == {"header": header}


def test_allowed_origins() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with serve_in_memory(
        mcp_allowed_origins=("https://app.example",), public_url="https://kb.example/x"
    ) as served:
        agent = Agent(served.client)
        assert agent.send(ping, Origin="https://app.example").status_code == 200
        assert agent.send(ping, Host="kb.example").status_code == 200
        assert agent.send(ping, Origin="https://kb.example").status_code == 200
        assert agent.send(ping, Host="app.example").status_code == 403
        assert agent.send(ping, Origin="https://other.example").status_code == 403
        # The setting is about MCP, and opens no other route.
        assert agent.send({}, "/tell", Origin="https://app.example").status_code == 403
    with serve_in_memory(mcp_allowed_origins=("*",)) as served:
        agent = Agent(served.client)
        assert agent.send(ping, Origin="https://other.example").status_code == 200
        assert agent.send(ping, Origin="https://other.example", Host="any").status_code == 403


@pytest.mark.parametrize("path", ["/mcp", "/a2a"])
def test_the_origin_is_checked_with_keys_too(path: str) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    settings = {"api_key": ONE, "public_url": "https://kb.example/x"}
    with serve_in_memory(**settings) as served:
        agent = Agent(served.client)

        def status(**headers: str) -> int:
            return agent.send(ping, path, X_API_Key=ONE, **headers).status_code

        assert status(Host="any.example") == 200
        for origin in ("http://localhost:3000", "https://127.0.0.1", "https://kb.example"):
            assert status(Origin=origin) == 200
        for origin in ("https://evil.example", "null", "", "http://localhost.evil.example"):
            assert status(Origin=origin) == 403


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
def test_a_cancelled_call_is_not_answered(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    agent.open()
    toolbox = agent.flask.application.extensions["kbcore.mcp"].protocol.toolbox

    def cancelled(tool: McpTool, arguments: Any, who: Any, call: Call) -> dict[str, Any]:
        other = Agent(Client(agent.flask))
        other.session = agent.session
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        assert other.send({**notice, "params": {"requestId": 7}}).status_code == 202
        assert call.stopped is not None
        return {"isError": False}

    monkeypatch.setattr(toolbox, "call", cancelled)
    for meta in ({}, {"_meta": {"progressToken": 1}}):
        params = {"name": "ask", "arguments": {"text": "p(?x)"}, **meta}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        response = agent.send(message, Accept=accept)
        assert response.data == b""
        assert response.status_code == (200 if "event-stream" in accept else 204)
