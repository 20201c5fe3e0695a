"""Agents over `/a2a`: the same audit lines, rate limits and tools as over HTTP and MCP."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import Agent
from support.http import serve_in_memory
from support.keys import ONE, Keyed, keyed
from werkzeug.test import TestResponse

from kbserver.a2a.agent import MAX_PARTS


def send(
    node: Keyed, parts: list[Any], key: str | None = None, named: str | None = None, **more: Any
) -> TestResponse:
    """Send a message with parts; `named` is the tenant in its parameters."""
    params: dict[str, Any] = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}}
    if named is not None:
        params["tenant"] = named
    message = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return node.send("POST", "/a2a", key, message, **more)


def tell(number: int) -> dict[str, Any]:
    return {"data": {"op": "tell", "predicate": "p", "args": [f"a{number}"]}}


# -- audit lines -----------------------------------------------------------------------------------


def test_actions_of_administrators_have_the_audit_line_of_the_tool_protocol(
    caplog: pytest.LogCaptureFixture,
) -> None:
    purge = {"subject": "zebulon", "dryRun": True}
    with serve_in_memory(api_key=ONE, mcp_tools="all") as served:
        node = Keyed(served)
        with caplog.at_level("INFO", logger="kbserver.audit"):
            answer = send(node, [{"data": {"op": "purge", **purge}}], ONE, "t", address="192.0.2.7")
            assert "result" in answer.get_json()["result"]["message"]["parts"][0]["data"]
            served.client.flask.environ_base.update(
                {"HTTP_X_API_KEY": ONE, "REMOTE_ADDR": "192.0.2.7", "HTTP_X_TENANT_ID": "t"}
            )
            Agent(served.client).call("purge", **purge)
    first, second = [dict(record.__dict__["fields"]) for record in caplog.records]
    assert (first["action"], first["outcome"], first["who"], first["key"]) == (
        "tool purge",
        "ok",
        "API_KEY",
        "api-key",
    )
    assert (first["address"], first["database"], first["tenant"]) == ("192.0.2.7", "default", "t")
    for line in (first, second):
        assert line.pop("id")
    assert first == second
    assert "zebulon" not in str(first)


def test_refused_actions_have_an_audit_line_too(caplog: pytest.LogCaptureFixture) -> None:
    with keyed(mcp_tools="all") as node:
        reader = node.make("reader")
        with caplog.at_level("INFO", logger="kbserver.audit"):
            send(node, [{"data": {"op": "purge", "subject": "zebulon"}}], reader.secret)
    (line,) = [record.__dict__["fields"] for record in caplog.records]
    assert (line["action"], line["outcome"], line["key"]) == ("tool purge", "failed", reader.key.id)


# -- rate limits -----------------------------------------------------------------------------------


def test_each_part_counts_and_the_refusal_says_what_was_done() -> None:
    with serve_in_memory(api_key=ONE, rate_limit=(3, 60)) as served:
        node = Keyed(served)
        answer = send(node, [tell(number) for number in range(5)], ONE)
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "20"
        assert answer.headers["RateLimit-Policy"] == '"default";q=3;w=60'
        assert answer.headers["RateLimit"] == '"default";r=0;t=20'
        error = answer.get_json()["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "RATE_LIMITED")
        assert "3 of 5 parts were carried out" in error["message"]
        details = error["data"][1]["value"]
        assert [each["op"] for each in details["results"]] == ["tell"] * 3
        assert (details["limit"], details["retryAfterSeconds"]) == ("default", 20)
        facts = served.runtime.knowledge_base(tenant="a").predicates()["totalFacts"]
        assert facts == 3
        served.clock.advance(60_000)
        assert send(node, [tell(number) for number in range(3)], ONE).status_code == 200
        assert send(node, [tell(0)], ONE).status_code == 429


def test_parts_of_other_messages_do_not_count() -> None:
    with serve_in_memory(api_key=ONE, rate_limit=(3, 60)) as served:
        node = Keyed(served)
        for _ in range(3):  # one part is the request itself
            assert send(node, [tell(0)], ONE).status_code == 200
        served.clock.advance(60_000)
        wrong = {"data": {"op": "ask", "predicate": "p"}}
        answer = send(node, [wrong, tell(1), tell(2)], ONE)  # ends after the first part
        assert answer.headers["RateLimit"] == '"default";r=2;t=20'


@pytest.mark.parametrize("header", ["a", None])
def test_a_tenant_in_the_parameters_counts_against_its_own_limit(header: str | None) -> None:
    with serve_in_memory(api_key=ONE, rate_limit_tenant=(2, 60)) as served:
        node = Keyed(served)
        statuses = [
            send(node, [tell(number)], ONE, "t", tenant=header).status_code for number in range(3)
        ]
        assert statuses == ([200, 200, 429])
        assert served.runtime.knowledge_base(tenant="t").predicates()["totalFacts"] == 2


def test_a_message_without_a_tenant_counts_against_the_default_tenant() -> None:
    with serve_in_memory(api_key=ONE, rate_limit_tenant=(2, 60)) as served:
        node = Keyed(served)
        statuses = [send(node, [tell(0)], ONE, tenant=None).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert node.send("POST", "/mcp", ONE, {}, tenant=None).status_code == 429


def test_a_message_has_a_limited_number_of_parts() -> None:
    with serve_in_memory(api_key=ONE) as served:
        node = Keyed(served)
        error = send(node, [tell(number) for number in range(MAX_PARTS + 1)], ONE).get_json()[
            "error"
        ]
        assert error["code"] == -32602
        assert error["message"] == ("params.message.parts has 65 parts; a message has at most 64")
        assert not served.store.records
        assert send(node, [tell(number) for number in range(MAX_PARTS)], ONE).status_code == 200


# -- tools -----------------------------------------------------------------------------------------


def test_tools_that_are_left_out_are_not_offered() -> None:
    fork = {"data": {"op": "fork_scope", "targetScope": "s"}}
    for profile, is_offered in (("default", False), ("all", True)):
        with serve_in_memory(mcp_tools=profile) as served:
            card = served.client.flask.get("/.well-known/agent-card.json").get_json()
            assert ("scopes" in {skill["id"] for skill in card["skills"]}) is is_offered
            answer = send(Keyed(served), [fork]).get_json()
            if is_offered:
                assert "result" in answer["result"]["message"]["parts"][0]["data"]
            else:
                assert answer["error"]["code"] == -32602
                assert "fork_scope" not in answer["error"]["message"]


def test_skills_name_offered_tools_only() -> None:
    for profile in ("default", "all"):
        with serve_in_memory(mcp_tools=profile) as served:
            agent = Agent(served.client)
            tools = {tool["name"] for tool in agent.legacy("tools/list")["result"]["tools"]}
            card = served.client.flask.get("/.well-known/agent.json").get_json()
            wrong = {"data": {"op": "no_such_tool"}}
            message = send(Keyed(served), [wrong]).get_json()["error"]["message"]
            assert set(message.partition("one of ")[2].split(", ")) == tools
            assert card["skills"]
