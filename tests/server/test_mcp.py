"""The tool protocol on the wire, without the SDK: eras, sessions, headers, errors, tools, resources, prompts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.http import Client, Served, error_of, serve_in_memory
from support.standin import StandIn
from werkzeug.test import TestResponse

from kbserver.mcp import outbox
from kbserver.mcp.eras import CAPABILITIES_KEY, LEGACY, SERVER_KEY, SUBSCRIPTION_KEY, SUPPORTED, VERSION_KEY
from kbserver.mcp.tools import READER, TOOLS, WRITER, tools_of

MODERN = "2026-07-28"
META = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}}
BOTH = "application/json, text/event-stream"


class Agent:
    """Speaks the protocol to an application."""

    def __init__(self, client: Client) -> None:
        self.flask = client.flask
        self.session: str | None = None

    def send(self, message: Any, path: str = "/mcp", **headers: str) -> TestResponse:
        found = {"Accept": BOTH, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.session is not None:
            found.setdefault("Mcp-Session-Id", self.session)
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.flask.post(path, data=body, content_type="application/json", headers=found)

    def legacy(self, method: str, params: Any = None, **headers: str) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params is not None else {})}
        response = self.send(message, **headers)
        assert response.content_type == "application/json", response.text
        found: dict[str, Any] = response.get_json()
        return found

    def modern(self, method: str, params: dict[str, Any] | None = None, **headers: str) -> TestResponse:
        name = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
        said = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method}
        if name is not None and params is not None:
            said["Mcp_Name"] = str(params.get(name))
        message = {"jsonrpc": "2.0", "id": "a", "method": method, "params": {**(params or {}), "_meta": META}}
        return self.send(message, **{**said, **headers})

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A call without a session; the result."""
        found = self.legacy("tools/call", {"name": name, "arguments": arguments})
        result: dict[str, Any] = found["result"]
        return result

    def open(self, version: str = LEGACY[0]) -> dict[str, Any]:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        response = self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.session = response.headers["Mcp-Session-Id"]
        found: dict[str, Any] = response.get_json()["result"]
        return found


@pytest.fixture
def agent(client: Client) -> Agent:
    return Agent(client)


def failed(response: TestResponse, status: int, code: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.get_json()
    assert found["error"]["code"] == code, found
    assert "result" not in found
    return found


def frames(response: TestResponse) -> Iterator[dict[str, Any]]:
    """The messages of a stream, as they come."""
    assert response.content_type.startswith("text/event-stream"), response.text
    for part in response.response:
        for line in part.decode().split("\n") if isinstance(part, bytes) else part.split("\n"):
            if line.startswith("data: {"):
                yield json.loads(line[6:])


# -- the era without sessions ------------------------------------------------------------------------------------------


def test_discover(agent: Agent) -> None:
    result = agent.modern("server/discover").get_json()["result"]
    assert result["supportedVersions"] == list(SUPPORTED)
    assert result["resultType"] == "complete"
    assert result["_meta"][SERVER_KEY]["name"] == "kbcore"
    assert result["ttlMs"] == 300_000
    assert result["cacheScope"] == "public"
    assert result["capabilities"]["resources"]["subscribe"] is True


def test_every_result_says_what_it_is_and_keeps_no_session(agent: Agent) -> None:
    for method, params in (
        *(("tools/list", {}), ("resources/list", {}), ("resources/templates/list", {}), ("prompts/list", {})),
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


def test_headers_must_say_what_the_body_says(agent: Agent) -> None:
    failed(agent.modern("tools/list", MCP_Protocol_Version="2025-11-25"), 400, -32020)
    failed(agent.modern("tools/list", Mcp_Method="tools/call"), 400, -32020)
    told = {"name": "predicates", "arguments": {}}
    failed(agent.modern("tools/call", told, Mcp_Name="ask"), 400, -32020)
    failed(agent.modern("tools/call", told, Mcp_Name="=?base64?%%?="), 400, -32020)
    encoded = base64.b64encode(b"predicates").decode()
    assert agent.modern("tools/call", told, Mcp_Name=f"=?base64?{encoded}?=").status_code == 200


def test_a_version_of_the_future(agent: Agent) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {**META, VERSION_KEY: "2099-01-01"}}}
    found = failed(agent.send(message, MCP_Protocol_Version="2099-01-01", Mcp_Method="tools/list"), 400, -32022)
    assert found["error"]["data"] == {"supported": list(SUPPORTED), "requested": "2099-01-01"}
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP_Protocol_Version="2099-01-01"), 400, -32022)


@pytest.mark.parametrize(
    "meta", [{VERSION_KEY: MODERN}, {VERSION_KEY: MODERN, CAPABILITIES_KEY: 3}, {VERSION_KEY: 3, CAPABILITIES_KEY: {}}]
)
def test_what_a_request_must_say(agent: Agent, meta: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    failed(agent.send(message, MCP_Protocol_Version=MODERN, Mcp_Method="tools/list"), 400, -32602)
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP_Protocol_Version=MODERN), 400, -32602)


def test_what_the_era_no_longer_has(agent: Agent) -> None:
    for method in ("ping", "logging/setLevel", "resources/subscribe", "nothing/known"):
        failed(agent.modern(method, {"uri": "kb://rules"}), 404, -32601)


# -- the era of sessions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
def test_every_version_is_agreed_on(agent: Agent, version: str) -> None:
    found = agent.open(version)
    assert found["protocolVersion"] == version
    assert found["serverInfo"]["name"] == "kbcore"
    assert agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert agent.legacy("ping", MCP_Protocol_Version=version)["result"] == {}


def test_an_unknown_version_is_answered_with_ours(agent: Agent) -> None:
    assert agent.open("1999-01-01")["protocolVersion"] == LEGACY[0]


def test_sessions_are_known_of_their_tenant_until_they_end(agent: Agent) -> None:
    agent.open()
    assert agent.legacy("ping", X_Tenant_ID="default")["result"] == {}
    assert agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, X_Tenant_ID="other").status_code == 404
    headers = {"Mcp-Session-Id": agent.session or ""}
    assert agent.flask.delete("/mcp", headers=headers).status_code == 204
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}), 404, -32600)
    assert agent.flask.delete("/mcp", headers=headers).status_code == 404
    error_of(agent.flask.delete("/mcp"), 400, "VALIDATION_ERROR")
    error_of(agent.flask.get("/mcp"), 400, "VALIDATION_ERROR")


def test_errors_of_sound_requests_go_with_200(agent: Agent) -> None:
    agent.open()
    failed(agent.send({"jsonrpc": "2.0", "id": 1, "method": "nothing"}), 200, -32601)
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "kb://nothing"}}
    failed(agent.send(read), 200, -32002)


def test_requests_without_a_session_are_served(agent: Agent) -> None:
    assert agent.call("tell", predicate="parent", args=["ann", "bob"])["structuredContent"]["asserted"] == 1
    found = agent.legacy("resources/subscribe", {"uri": "kb://rules"})
    assert found["error"]["code"] == -32600


def test_subscriptions_of_a_session(agent: Agent, served: Served) -> None:
    agent.open()
    for uri in ("kb://facts/p", "kb://rules"):
        assert agent.legacy("resources/subscribe", {"uri": uri})["result"] == {}
    assert agent.legacy("resources/subscribe", {"uri": "kb://nothing"})["error"]["code"] == -32002
    assert agent.legacy("resources/unsubscribe", {"uri": "kb://rules"})["result"] == {}
    agent.call("teach", text="q(?x) :- p(?x).")
    agent.call("tell", predicate="other", args=["a"])
    for number in range(3):
        agent.call("tell", predicate="p", args=[str(number)])
    stream = frames(agent.flask.get("/mcp", headers={"Mcp-Session-Id": agent.session or ""}))
    assert next(stream) == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "kb://facts/p"},
    }
    agent.flask.delete("/mcp", headers={"Mcp-Session-Id": agent.session or ""})
    assert list(stream) == []
    assert len(served.app.extensions["kbcore.mcp"].protocol.subscriptions) == 0


def test_a_second_stream_takes_over(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "KEEP_ALIVE_SECONDS", 0.05)  # the client of the tests waits for the first bytes
    agent.open()
    agent.legacy("resources/subscribe", {"uri": "kb://facts/p"})
    headers = {"Mcp-Session-Id": agent.session or ""}
    agent.call("tell", predicate="p", args=["a"])
    first = frames(agent.flask.get("/mcp", headers=headers))
    assert next(first)["params"]["uri"] == "kb://facts/p"
    second = frames(agent.flask.get("/mcp", headers=headers))
    agent.call("tell", predicate="p", args=["b"])
    assert next(second)["params"]["uri"] == "kb://facts/p"
    assert list(first) == []


# -- what changes is told ----------------------------------------------------------------------------------------------


def test_listen(agent: Agent, served: Served) -> None:
    wanted = {"resourceSubscriptions": ["kb://facts/p", "kb://nothing", "kb://scopes/s/facts/p"], "toolsListChanged": True}
    response = agent.modern("subscriptions/listen", {"notifications": wanted})
    assert response.headers["Cache-Control"] == "no-store"
    stream = frames(response)
    said = next(stream)
    assert said["method"] == "notifications/subscriptions/acknowledged"
    assert said["params"] == {
        "_meta": {SUBSCRIPTION_KEY: "a"},
        "notifications": {"resourceSubscriptions": ["kb://facts/p", "kb://scopes/s/facts/p"]},
    }
    agent.call("tell", predicate="q", args=["x"])
    agent.call("tell", predicate="p", args=["x"], scope="s")
    told = next(stream)["params"]
    assert told == {"uri": "kb://scopes/s/facts/p", "_meta": {SUBSCRIPTION_KEY: "a"}}
    served.app.extensions["kbcore.mcp"].close()
    (last,) = stream
    assert last["id"] == "a"
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][SUBSCRIPTION_KEY] == "a"
    assert len(served.app.extensions["kbcore.mcp"].protocol.subscriptions) == 0


def test_of_another_tenant_nothing_is_heard(agent: Agent, served: Served) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["kb://facts/p", "kb://predicates"]}}
    stream = frames(agent.modern("subscriptions/listen", wanted, X_Tenant_ID="mine"))
    next(stream)
    served.client.tell("p", "a")
    agent.legacy("tools/call", {"name": "tell", "arguments": {"predicate": "q", "args": ["a"]}}, X_Tenant_ID="mine")
    assert next(stream)["params"]["uri"] == "kb://predicates"
    served.app.extensions["kbcore.mcp"].close()
    assert [message for message in stream if "method" in message] == []


def test_listen_is_judged_first(agent: Agent) -> None:
    failed(agent.modern("subscriptions/listen", {"notifications": 3}), 400, -32602)
    failed(agent.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [3]}}), 400, -32602)
    many = {"notifications": {"resourceSubscriptions": [f"kb://facts/p{n}" for n in range(1001)]}}
    failed(agent.modern("subscriptions/listen", many), 400, -32602)
    failed(agent.modern("subscriptions/listen", {"notifications": {}}, Accept="application/json"), 406, -32600)


# -- messages ----------------------------------------------------------------------------------------------------------


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
def test_what_is_no_message(agent: Agent, body: bytes, code: int) -> None:
    failed(agent.send(body), 400, code)


def test_notifications_and_replies_get_no_answer(agent: Agent) -> None:
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}},
        {"jsonrpc": "2.0", "id": 4, "result": {}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": META}},
    ):
        response = agent.send(message)
        assert (response.status_code, response.data) == (202, b"")


def test_bodies_are_json_of_a_size(agent: Agent) -> None:
    error_of(agent.flask.post("/mcp", data=b"{}", content_type="text/plain"), 415, "VALIDATION_ERROR")
    error_of(agent.send(b" " * ((4 << 20) + 1)), 413, "PAYLOAD_TOO_LARGE")
    error_of(agent.flask.put("/mcp"), 405, "VALIDATION_ERROR")


# -- who may call ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Origin", "http://localhost:3000", 200),
        ("Origin", "https://127.0.0.1", 200),
        ("Origin", "http://[::1]:8080", 200),
        ("Origin", "https://evil.example", 403),
        ("Origin", "http://localhost.evil.example", 403),
        ("Origin", "null", 403),
        ("Host", "evil.example:9300", 403),
        ("Host", "127.0.0.1:9300", 200),
        ("Host", "[::1]:9300", 200),
    ],
)
def test_foreign_pages_are_refused(agent: Agent, header: str, value: str, status: int) -> None:
    for path in ("/mcp", "/a2a"):
        response = agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, path, **{header: value})
        assert response.status_code == status, response.text
        if status == 403:
            assert error_of(response, 403, "FORBIDDEN")["details"] == {"header": header}


def test_origins_that_are_allowed_by_name() -> None:
    with serve_in_memory(mcp_allowed_origins=("https://app.example",), public_url="https://kb.example/x") as served:
        agent, ping = Agent(served.client), {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert agent.send(ping, Origin="https://app.example").status_code == 200
        assert agent.send(ping, Host="kb.example").status_code == 200
        assert agent.send(ping, Origin="https://other.example").status_code == 403
    with serve_in_memory(mcp_allowed_origins=("*",)) as served:
        assert Agent(served.client).send(ping, Origin="https://other.example", Host="any").status_code == 200


# -- tools -------------------------------------------------------------------------------------------------------------


def test_the_usual_tools_in_few_bytes(agent: Agent) -> None:
    response = agent.modern("tools/list")
    assert len(response.data) < 8192
    tools = response.get_json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == [
        *("aggregate", "ask", "bulk_assert", "context", "context_diff", "explain"),
        *("forget", "ingest", "predicates", "query", "teach", "tell"),
    ]
    for tool in tools:
        assert len(tool["description"]) <= 300
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert tool["annotations"]["openWorldHint"] is False
    hints = {tool["name"]: tool["annotations"] for tool in tools}
    assert hints["ask"] == {"readOnlyHint": True, "openWorldHint": False}
    assert hints["tell"] == {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    assert hints["forget"]["destructiveHint"] is True


def test_all_tools_where_the_setting_says_so() -> None:
    with serve_in_memory(mcp_tools="all") as served:
        names = [tool["name"] for tool in Agent(served.client).legacy("tools/list")["result"]["tools"]]
        assert names == sorted(set(TOOLS) - {"extract", "synthesize"})
    assert set(tools_of("all", model=True)) == set(TOOLS)
    assert {
        *("extract", "synthesize"),
        *("retract_pattern", "recall", "compress", "cleanup", "fork_scope", "merge_scope", "diff_scope"),
        *("list_scopes", "delete_scope", "context_summary"),
    } == set(TOOLS) - set(tools_of("default"))


def test_roles_that_tools_need() -> None:
    readers = {name for name, tool in TOOLS.items() if tool.needs == READER}
    assert readers == {
        *("aggregate", "ask", "context", "context_diff", "context_summary", "diff_scope"),
        *("explain", "list_scopes", "predicates", "query", "recall", "synthesize"),
    }
    assert {TOOLS[name].needs for name in TOOLS.keys() - readers} == {WRITER}


CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("tell", {"predicate": "parent", "args": ["ann", "bob"]}, {"asserted": 0, "updated": 1}),
    ("bulk_assert", {"facts": [{"predicate": "n", "args": [1]}, {"predicate": "n", "args": [2]}]}, {"asserted": 2}),
    ("teach", {"text": "anc(?x, ?y) :- parent(?x, ?y)."}, {"rules": ["anc(?x, ?y) :- parent(?x, ?y)."]}),
    ("ask", {"predicate": "anc", "args": ["?x", "?y"]}, {"count": 1, "truncated": False}),
    ("ask", {"predicate": "anc", "args": ["?x", "?y"], "withProof": True}, {"count": 1}),
    ("query", {"predicate": "parent", "args": ["?x", "?y"]}, {"count": 1}),
    ("aggregate", {"predicate": "n", "op": "sum", "argIndex": 0}, {"result": 3}),
    ("explain", {"predicate": "anc", "args": ["ann", "bob"]}, {}),
    ("explain", {"text": "anc(ann, ?x)", "plan": True}, {}),
    ("predicates", {"prefix": "par"}, {"truncated": False, "totalPredicates": 3}),
    ("context", {"goals": [{"predicate": "anc", "args": ["ann", "?x"]}], "sessionId": "s"}, {"goalDriven": True}),
    ("context_diff", {"sessionId": "s"}, {"unchanged": 4}),
    ("ingest", {"text": "likes(ann, tea)"}, {"rules": []}),
    ("context_summary", {}, {"totalFacts": 4}),
    ("recall", {"predicate": "parent", "args": [None, "?x"], "timestamp": 1_700_000_000_000}, {"count": 1}),
    ("fork_scope", {"targetScope": "trial"}, {"targetScope": "trial"}),
    ("list_scopes", {}, {"scopes": ["trial"], "count": 1}),
    ("diff_scope", {"sourceScope": None, "targetScope": "trial"}, {"unchanged": 4, "added": []}),
    ("merge_scope", {"sourceScope": "trial"}, {"conflicts": 0}),
    ("delete_scope", {"scope": "trial"}, {"deleted": 4}),
    ("compress", {"minGroupSize": 2, "dryRun": True}, {"dryRun": True}),
    ("cleanup", {"threshold": 0.0, "dryRun": True}, {"evictedCount": 0}),
    ("forget", {"predicate": "parent", "args": ["ann", "bob"]}, {"retracted": 1, "cascaded": 1}),
    ("retract_pattern", {"predicate": "n", "args": ["?x"]}, {"retracted": 2}),
]


def test_every_tool_does_its_work_and_answers_as_it_says() -> None:
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    with serve_in_memory(mcp_tools="all") as served:
        agent = Agent(served.client)
        agent.call("tell", predicate="parent", args=["ann", "bob"])
        for name, arguments, expected in CALLS:
            result = agent.call(name, **arguments)
            assert result["isError"] is False, (name, result)
            found = result["structuredContent"]
            assert json.loads(result["content"][0]["text"]) == found
            assert found | expected == found, (name, found)
            shape = TOOLS[name].answer
            assert set(shape["required"]) <= set(found), (name, found)
            for key, value in found.items():
                kind = shape["properties"].get(key, {}).get("type")
                assert kind is None or isinstance(value, kinds[kind]), (name, key, value)
    assert {name for name, _, _ in CALLS} == set(tools_of("all"))


def test_a_failing_tool_is_no_failure_of_the_protocol(agent: Agent) -> None:
    response = agent.modern("tools/call", {"name": "ask", "arguments": {"predicate": "p", "args": 3}})
    assert response.status_code == 200
    result = response.get_json()["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    said = json.loads(result["content"][0]["text"])
    over_http = agent.flask.post("/ask", json={"predicate": "p", "args": 3}, headers={"X-Tenant-ID": "t"}).get_json()
    assert said == over_http


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("ask", {"predicate": "p"}, "args"),
        ("ask", {"predicate": "p", "args": [], "limit": 0}, "limit"),
        ("query", {"predicate": "p", "args": [], "limit": 10_001}, "limit"),
        ("tell", {"predicate": "p", "args": ["?x"]}, "args[0]"),
        ("bulk_assert", {"facts": [{"predicate": "p"}]}, "facts[0].args"),
        ("forget", {"predicate": "p", "args": ["?x"]}, "args[0]"),
        ("forget", {"predicate": "p", "args": ["a"], "dry_run": True}, "dry_run"),
        ("context", {"maxFacts": "many"}, "maxFacts"),
        ("context", {"transactionId": "x"}, "transactionId"),
        ("predicates", {"limit": 0}, "limit"),
        ("tell", {"predicate": "p", "args": ["a"], "transactionId": 3}, "transactionId"),
    ],
)
def test_arguments_are_judged_as_over_http(agent: Agent, name: str, arguments: dict[str, Any], field: str) -> None:
    result = agent.call(name, **arguments)
    assert result["isError"] is True, result
    said = json.loads(result["content"][0]["text"])
    assert said["code"] == "VALIDATION_ERROR"
    assert list(said["details"]["fields"]) == [field]
    assert agent.call("predicates")["structuredContent"]["totalFacts"] == 0


def test_calls_that_name_no_tool(agent: Agent) -> None:
    for params in ({"name": "nothing"}, {}, {"name": 3}, {"name": "ask", "arguments": []}, {"name": "cleanup"}):
        assert agent.legacy("tools/call", params)["error"]["code"] == -32602
    failed(agent.modern("tools/call", {"name": "nothing"}), 400, -32602)
    assert agent.legacy("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_long_answers_are_cut_and_say_so(agent: Agent) -> None:
    agent.call("bulk_assert", facts=[{"predicate": "p", "args": [n]} for n in range(150)])
    for name in ("ask", "query"):
        found = agent.call(name, predicate="p", args=["?x"])["structuredContent"]
        assert (found["count"], len(found["results"]), found["truncated"]) == (100, 100, True)
        found = agent.call(name, predicate="p", args=["?x"], limit=150)["structuredContent"]
        assert (found["count"], found["truncated"]) == (150, False)
    gone = agent.legacy("tools/call", {"name": "ask", "arguments": {"predicate": "p", "args": ["?x"], "offset": 100}})
    assert gone["result"]["structuredContent"]["count"] == 50


def test_tools_in_a_transaction(agent: Agent, served: Served) -> None:
    id = served.client.post("/tx/begin", headers={"X-Tenant-ID": "default"}).text
    agent.call("tell", predicate="p", args=["a"], transactionId=id)
    assert agent.call("query", predicate="p", args=["?x"], transactionId=id)["structuredContent"]["count"] == 1
    assert agent.call("query", predicate="p", args=["?x"])["structuredContent"]["count"] == 0
    served.client.post(f"/tx/commit/{id}", headers={"X-Tenant-ID": "default"})
    assert agent.call("query", predicate="p", args=["?x"])["structuredContent"]["count"] == 1
    said = agent.call("tell", predicate="p", args=["b"], transactionId=id)["content"][0]["text"]
    assert json.loads(said)["code"] == "CONFLICT"
    said = agent.call("tell", predicate="p", args=["b"], transactionId="none")["content"][0]["text"]
    assert json.loads(said)["code"] == "NOT_FOUND"


def test_tenants_and_databases(agent: Agent, served: Served) -> None:
    agent.call("tell", predicate="p", args=["a"])
    assert served.client.post("/ask", {"predicate": "p", "args": ["?x"]}, {"X-Tenant-ID": "default"}).get_json()
    params = {"name": "query", "arguments": {"predicate": "p", "args": ["?x"]}}
    assert agent.legacy("tools/call", params, X_Tenant_ID="t")["result"]["structuredContent"]["count"] == 0
    result = agent.legacy("tools/call", params, X_Database="none")["result"]
    assert json.loads(result["content"][0]["text"])["code"] == "NOT_FOUND"
    read = agent.legacy("resources/read", {"uri": "kb://facts"}, X_Database="none")
    assert read["error"]["code"] == -32002
    response = agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, X_Tenant_ID="a/b")
    error_of(response, 400, "VALIDATION_ERROR")


# -- resources and prompts ---------------------------------------------------------------------------------------------


def read(agent: Agent, uri: str) -> Any:
    (found,) = agent.legacy("resources/read", {"uri": uri})["result"]["contents"]
    assert found["uri"] == uri
    return json.loads(found["text"]) if found["mimeType"] == "application/json" else found["text"]


def test_resources(agent: Agent) -> None:
    agent.call("teach", text="anc(?x, ?y) :- parent(?x, ?y). parent(ann, bob). parent(bob, 'c/d e').".replace("'", '"'))
    agent.call("tell", predicate="parent", args=["x", "y"], scope="s")
    listed = [each["uri"] for each in agent.legacy("resources/list")["result"]["resources"]]
    assert listed == ["kb://predicates", "kb://rules", "kb://scopes", "kb://summary", "kb://facts"]
    assert read(agent, "kb://predicates")["totalFacts"] == 2
    assert read(agent, "kb://rules")["rules"][0]["text"] == "anc(?x, ?y) :- parent(?x, ?y)."
    assert read(agent, "kb://scopes") == {"scopes": ["s"], "count": 1}
    assert read(agent, "kb://summary")["totalFacts"] == 2
    assert [row["args"] for row in read(agent, "kb://facts")["facts"]] == [["ann", "bob"], ["bob", "c/d e"]]
    assert [row["args"] for row in read(agent, "kb://scopes/s/facts/parent")["facts"]] == [["x", "y"]]
    assert read(agent, "kb://facts/nothing") == {"facts": [], "count": 0, "next": None}
    assert read(agent, "kb://proof/anc/bob/c%2Fd%20e").startswith('anc(bob, "c/d e")  by anc')
    templates = agent.legacy("resources/templates/list")["result"]["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == [
        *("kb://facts/{predicate}", "kb://scopes/{scope}/facts/{predicate}"),
        *("kb://context/{sessionId}", "kb://proof/{predicate}{/args*}"),
    ]
    agent.call("context", sessionId="w", maxFacts=1)
    assert len(read(agent, "kb://context/w")["entries"]) == 1


def test_facts_come_a_page_at_a_time(agent: Agent) -> None:
    agent.call("bulk_assert", facts=[{"predicate": f"p{n % 3}", "args": [n]} for n in range(450)])
    found: list[str] = []
    uri: str | None = "kb://facts"
    pages = 0
    while uri is not None:
        page = read(agent, uri)
        found += [row["args"][0] for row in page["facts"]]
        uri, pages = page["next"], pages + 1
    assert pages == 3
    assert sorted(map(int, found)) == list(range(450))


@pytest.mark.parametrize(
    "uri",
    [
        *("kb://nothing", "http://facts", "kb://facts/", "kb://facts/a/b", "kb://rules?offset=3", "kb://facts?offset=-1"),
        *("kb://facts?page=3", "kb://scopes/./facts/p", "kb://context/a%2Fb", "kb://context/none", "kb://[", "kb://facts#a"),
    ],
)
def test_what_is_no_resource(agent: Agent, uri: str) -> None:
    found = failed(agent.modern("resources/read", {"uri": uri}), 400, -32602)
    assert found["error"]["data"] == {"uri": uri}


def test_prompts(agent: Agent) -> None:
    agent.call("tell", predicate="parent", args=["ann", "bob"])
    prompts = agent.legacy("prompts/list")["result"]["prompts"]
    assert {"reason-over-knowledge", "write-rules"} <= {prompt["name"] for prompt in prompts}
    for prompt in prompts:
        given = {argument["name"]: "the thing" for argument in prompt["arguments"] if argument["required"]}
        result = agent.legacy("prompts/get", {"name": prompt["name"], "arguments": given})["result"]
        (message,) = result["messages"]
        assert message["role"] == "user"
        assert all(value in message["content"]["text"] for value in given.values())
        for name in given:
            failed(agent.modern("prompts/get", {"name": prompt["name"], "arguments": {**given, name: 3}}), 400, -32602)
            assert agent.legacy("prompts/get", {"name": prompt["name"]})["error"]["code"] == -32602
    text = agent.legacy("prompts/get", {"name": "write-rules", "arguments": {"goal": "g"}})["result"]["messages"][0]
    assert "parent/2" in text["content"]["text"]
    assert agent.legacy("prompts/get", {"name": "nothing"})["error"]["code"] == -32602


def test_tools_of_a_language_model() -> None:
    with StandIn() as standin, serve_in_memory(**standin.settings(mcp_tools="all")) as served:
        agent = Agent(served.client)
        text = "Ann works at Acme. She probably likes tea. Bob doesn't like coffee."
        stored = agent.call("extract", text=text, **{"assert": True})
        assert stored["isError"] is False, stored
        assert stored["structuredContent"]["asserted"] == 3
        found = agent.call("synthesize", question="Where does Ann work?")["structuredContent"]
        assert found["answer"] == "Ann works at Acme."
        assert agent.call("synthesize")["isError"] is True
        hints = {tool["name"]: tool["annotations"] for tool in agent.legacy("tools/list")["result"]["tools"]}
        assert hints["synthesize"] == {"readOnlyHint": True, "openWorldHint": True}
