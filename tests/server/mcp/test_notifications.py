"""Notifications of changed resources, with and without a session."""

from __future__ import annotations

import pytest
from support.agents import Agent, failed, frames
from support.http import Served

from kbserver.mcp import outbox
from kbserver.mcp.versions import SUBSCRIPTION_KEY


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
    monkeypatch.setattr(
        outbox, "KEEP_ALIVE_SECONDS", 0.05
    )  # the client of the tests waits for the first bytes
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


def test_listen(agent: Agent, served: Served) -> None:
    wanted = {
        "resourceSubscriptions": ["kb://facts/p", "kb://nothing", "kb://scopes/s/facts/p"],
        "toolsListChanged": True,
    }
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


def test_changes_of_other_tenants_are_not_sent(agent: Agent, served: Served) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["kb://facts/p", "kb://predicates"]}}
    stream = frames(agent.modern("subscriptions/listen", wanted, X_Tenant_ID="mine"))
    next(stream)
    served.client.tell("p", "a")
    agent.legacy(
        "tools/call",
        {"name": "tell", "arguments": {"predicate": "q", "args": ["a"]}},
        X_Tenant_ID="mine",
    )
    assert next(stream)["params"]["uri"] == "kb://predicates"
    served.app.extensions["kbcore.mcp"].close()
    assert [message for message in stream if "method" in message] == []


def test_listen_validates_its_parameters(agent: Agent) -> None:
    failed(agent.modern("subscriptions/listen", {"notifications": 3}), 400, -32602)
    failed(
        agent.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [3]}}),
        400,
        -32602,
    )
    many = {"notifications": {"resourceSubscriptions": [f"kb://facts/p{n}" for n in range(1001)]}}
    failed(agent.modern("subscriptions/listen", many), 400, -32602)
    failed(
        agent.modern("subscriptions/listen", {"notifications": {}}, Accept="application/json"),
        406,
        -32600,
    )
