"""Protocol versions of MCP with and without sessions: headers and errors."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.agents import META, MODERN, Agent, failed
from support.http import error_of

from kbserver.mcp.versions import CAPABILITIES_KEY, LEGACY, SERVER_KEY, SUPPORTED, VERSION_KEY

# -- the era without sessions ----------------------------------------------------------------------


def test_discover(agent: Agent) -> None:
    result = agent.modern("server/discover").get_json()["result"]
    assert result["supportedVersions"] == list(SUPPORTED)
    assert result["resultType"] == "complete"
    assert result["_meta"][SERVER_KEY]["name"] == "kbcore"
    assert result["ttlMs"] == 300_000
    assert result["cacheScope"] == "public"
    assert result["capabilities"]["resources"]["subscribe"] is True


def test_results_without_sessions_carry_type_and_server_info(agent: Agent) -> None:
    for method, params in (
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
        ("resources/read", {"uri": "kb://rules"}),
    ):
        response = agent.modern(method, params)
        assert response.status_code == 200
        assert "Mcp-Session-Id" not in response.headers
        result = response.get_json()["result"]
        assert result["resultType"] == "complete"
        assert result["ttlMs"] == (0 if method == "resources/read" else 300_000)
        assert result["cacheScope"] == ("private" if method == "resources/read" else "public")
        assert response.get_json()["id"] == "a"


def test_headers_must_agree_with_the_body(agent: Agent) -> None:
    failed(agent.modern("tools/list", MCP_Protocol_Version="2025-11-25"), 400, -32020)
    failed(agent.modern("tools/list", Mcp_Method="tools/call"), 400, -32020)
    told = {"name": "predicates", "arguments": {}}
    failed(agent.modern("tools/call", told, Mcp_Name="ask"), 400, -32020)
    failed(agent.modern("tools/call", told, Mcp_Name="=?base64?%%?="), 400, -32020)
    encoded = base64.b64encode(b"predicates").decode()
    assert agent.modern("tools/call", told, Mcp_Name=f"=?base64?{encoded}?=").status_code == 200


def test_an_unknown_future_version_is_refused(agent: Agent) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"_meta": {**META, VERSION_KEY: "2099-01-01"}},
    }
    found = failed(
        agent.send(message, MCP_Protocol_Version="2099-01-01", Mcp_Method="tools/list"), 400, -32022
    )
    assert found["error"]["data"] == {"supported": list(SUPPORTED), "requested": "2099-01-01"}
    failed(
        agent.send(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP_Protocol_Version="2099-01-01"
        ),
        400,
        -32022,
    )


@pytest.mark.parametrize(
    "meta",
    [
        {VERSION_KEY: MODERN},
        {VERSION_KEY: MODERN, CAPABILITIES_KEY: 3},
        {VERSION_KEY: 3, CAPABILITIES_KEY: {}},
    ],
)
def test_required_metadata_of_a_request(agent: Agent, meta: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    failed(agent.send(message, MCP_Protocol_Version=MODERN, Mcp_Method="tools/list"), 400, -32602)
    failed(
        agent.send(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP_Protocol_Version=MODERN
        ),
        400,
        -32602,
    )


def test_methods_that_need_a_session_do_not_exist(agent: Agent) -> None:
    for method in ("ping", "logging/setLevel", "resources/subscribe", "nothing/known"):
        failed(agent.modern(method, {"uri": "kb://rules"}), 404, -32601)


# -- the era of sessions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
def test_every_version_with_sessions_is_negotiated(agent: Agent, version: str) -> None:
    found = agent.open(version)
    assert found["protocolVersion"] == version
    assert found["serverInfo"]["name"] == "kbcore"
    assert agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert agent.legacy("ping", MCP_Protocol_Version=version)["result"] == {}


def test_an_unknown_version_is_answered_with_the_newest(agent: Agent) -> None:
    assert agent.open("1999-01-01")["protocolVersion"] == LEGACY[0]


def test_sessions_belong_to_their_tenant_until_they_end(agent: Agent) -> None:
    agent.open()
    assert agent.legacy("ping", X_Tenant_ID="default")["result"] == {}
    assert (
        agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, X_Tenant_ID="other").status_code
        == 404
    )
    headers = {"Mcp-Session-Id": agent.session or ""}
    assert agent.flask.delete("/mcp", headers=headers).status_code == 204
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}), 404, -32600)
    assert agent.flask.delete("/mcp", headers=headers).status_code == 404
    error_of(agent.flask.delete("/mcp"), 400, "VALIDATION_ERROR")
    error_of(agent.flask.get("/mcp"), 400, "VALIDATION_ERROR")


def test_errors_of_valid_requests_have_status_200(agent: Agent) -> None:
    agent.open()
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "nothing"}), 200, -32601)
    read = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/read",
        "params": {"uri": "kb://nothing"},
    }
    failed(agent.send(read), 200, -32002)


def test_requests_without_a_session_are_served(agent: Agent) -> None:
    assert (
        agent.call("tell", predicate="parent", args=["ann", "bob"])["structuredContent"]["asserted"]
        == 1
    )
    found = agent.legacy("resources/subscribe", {"uri": "kb://rules"})
    assert found["error"]["code"] == -32600
