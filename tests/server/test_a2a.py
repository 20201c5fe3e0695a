"""The A2A agent card and messages, without the SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.http import Client, error_of, serve_in_memory
from support.keys import ONE

from kbcore import __version__


def ask(client: Client, method: str, params: Any, **headers: str) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.flask.post("/a2a", json=body, headers=named)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.get_json()
    assert found["id"] == 7
    return found


def send(client: Client, *parts: Any, **more: Any) -> dict[str, Any]:
    """Send a message with these parts and return the answer."""
    found = ask(
        client,
        "SendMessage",
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": list(parts)}, **more},
    )
    message = found["result"]["message"]
    assert message["role"] == "ROLE_AGENT"
    assert message["messageId"]
    data: dict[str, Any] = message["parts"][0]["data"]
    return data


def test_the_card_is_the_same_at_both_paths_and_cacheable(client: Client) -> None:
    first, second = (
        client.flask.get(f"/.well-known/{name}") for name in ("agent.json", "agent-card.json")
    )
    assert first.data == second.data
    assert first.headers["Cache-Control"] == "public, max-age=300"
    tag = first.headers["ETag"]
    assert not tag.startswith("W/")
    again = client.flask.get("/.well-known/agent.json", headers={"If-None-Match": tag})
    assert (again.status_code, again.data) == (304, b"")
    card = first.get_json()
    assert card["version"] == __version__
    assert card["url"] == "http://localhost/a2a"
    assert [each["protocolVersion"] for each in card["supportedInterfaces"]] == ["1.0", "0.3"]
    assert {"assert", "infer", "query", "explain", "context-window", "context-diff"} == {
        skill["id"] for skill in card["skills"]
    }


def test_the_card_names_the_public_address() -> None:
    with serve_in_memory(public_url="https://kb.example/base") as served:
        card = served.client.flask.get("/.well-known/agent.json").get_json()
        assert card["url"] == "https://kb.example/base/a2a"


def test_no_cache_keeps_a_card_with_an_unknown_host() -> None:
    path = "/.well-known/agent-card.json"
    with serve_in_memory(api_key=ONE, allowed_hosts=("kb.example",)) as served:
        for host in ("evil.example", "127.0.0.1.evil.example", "kb.example:x", "a b"):
            foreign = served.client.flask.get(path, headers={"Host": host})
            assert foreign.headers["Cache-Control"] == "no-store"
            assert "ETag" not in foreign.headers
        own = served.client.flask.get(path, headers={"Host": "kb.example"})
        assert own.get_json()["url"] == "http://kb.example/a2a"
        assert own.headers["Cache-Control"] == "public, max-age=300"
        assert "Host" in own.vary
    with serve_in_memory(api_key=ONE, public_url="https://kb.example") as served:
        public = served.client.flask.get(path, headers={"Host": "evil.example"})
        assert "evil" not in public.text
        assert public.headers["Cache-Control"] == "public, max-age=300"
    with serve_in_memory() as served:
        error_of(served.client.flask.get(path, headers={"Host": "evil.example"}), 403, "FORBIDDEN")


def test_examples_of_skills_work(client: Client) -> None:
    skills = client.flask.get("/.well-known/agent.json").get_json()["skills"]
    for skill in skills:
        found = send(client, {"data": json.loads(skill["examples"][0])})
        assert "error" not in found, (skill["id"], found)


def test_data_and_text(client: Client) -> None:
    assert (
        send(client, {"data": {"op": "tell", "predicate": "p", "args": ["a"]}})["result"][
            "asserted"
        ]
        == 1
    )
    assert send(client, {"text": "q(?x) :- p(?x). p(b)."})["result"]["rules"] == ["q(?x) :- p(?x)."]
    for goal in ("q(?x)", "?- q(?x).", "?- not missing(a)."):
        found = send(client, {"text": goal})
        assert found["op"] == "ask"
        assert found["result"]["count"] == (1 if "not" in goal else 2)
    both = send(
        client, {"text": "p(c)"}, {"data": {"op": "query", "predicate": "p", "args": ["?x"]}}
    )
    assert [each["op"] for each in both["results"]] == ["ingest", "query"]
    assert both["results"][1]["result"]["count"] == 3
    stopped = send(
        client,
        {"data": {"op": "ask", "predicate": "p"}},
        {"data": {"op": "query", "predicate": "p"}},
    )
    assert [list(each) for each in stopped["results"]] == [["op", "error"]]


def test_tenants(client: Client) -> None:
    tell = {"data": {"op": "tell", "predicate": "p", "args": ["a"]}}
    send(client, tell, tenant="t")
    assert client.ask("p", "?x") == [["a"]]
    assert send(client, {"text": "p(?x)"})["result"]["count"] == 0
    assert (
        ask(client, "SendMessage", {"tenant": "a/b", "message": {"parts": [tell]}})["error"]["code"]
        == -32602
    )


def test_clients_of_version_0_3(client: Client) -> None:
    parts = [{"kind": "data", "data": {"op": "tell", "predicate": "p", "args": ["a"]}}]
    params = {
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": parts,
            "contextId": "c",
        }
    }
    found = ask(client, "message/send", params, A2A_Version="0.3")["result"]
    assert (found["kind"], found["role"], found["contextId"]) == ("message", "agent", "c")
    assert found["parts"][0]["kind"] == "data"


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [
        ("GetTask", -32001, "TASK_NOT_FOUND"),
        ("tasks/cancel", -32001, "TASK_NOT_FOUND"),
        ("SendStreamingMessage", -32004, "UNSUPPORTED_OPERATION"),
        ("message/stream", -32004, "UNSUPPORTED_OPERATION"),
        ("ListTasks", -32004, "UNSUPPORTED_OPERATION"),
        ("nothing", -32601, "METHOD_NOT_FOUND"),
    ],
)
def test_unsupported_methods(client: Client, method: str, code: int, reason: str) -> None:
    error = ask(client, method, {"id": "t"})["error"]
    assert error["code"] == code
    assert error["data"][0]["reason"] == reason


def test_versions(client: Client) -> None:
    assert ask(client, "SendMessage", {}, A2A_Version="2.0")["error"]["code"] == -32009
    assert ask(client, "GetTask", {}, A2A_Version="1.0.3")["error"]["code"] == -32001


@pytest.mark.parametrize(
    "message",
    [
        None,
        3,
        {},
        {"parts": []},
        {"parts": [3]},
        {"parts": [{}]},
        {"parts": [{"text": " "}]},
        {"parts": [{"data": {}}]},
        {"parts": [{"data": {"op": "nothing"}}]},
        {"parts": [{"data": {"op": []}}]},
        {"parts": [{"text": "?- p(?x"}]},
        {"parts": [{"text": "who is ann?"}]},
    ],
)
def test_messages_without_an_operation(client: Client, message: Any) -> None:
    assert ask(client, "SendMessage", {"message": message})["error"]["code"] == -32602


def test_malformed_messages(client: Client) -> None:
    for body, code in (
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "method": "GetTask"}', -32600),
    ):
        found = client.flask.post("/a2a", data=body, content_type="application/json").get_json()
        assert found["error"]["code"] == code
    error_of(client.flask.get("/a2a"), 405, "VALIDATION_ERROR")
