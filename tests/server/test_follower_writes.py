"""Writes on a follower: refused on every interface before any work is done."""

from __future__ import annotations

import json

import pytest
from support.links import Link, catch_up, following, node
from support.scripted import Scripted

from kbcore.errors import ReadOnlyFollower
from kbcore.llm.model import LanguageModel
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact
from kbserver.app import create_app
from kbserver.mcp.tools import all_tools
from kbserver.openapi.document import routes
from kbserver.operations import operation_at
from kbserver.security.permissions import WRITER

LEADER = "http://leader.test:9300"
TENANT = {"X-Tenant-ID": "t"}
ATOM = {"predicate": "p", "args": ["a"]}
PROSE = "Ann likes tea and Bob likes coffee."


@pytest.fixture
def model():
    return Scripted()


@pytest.fixture
def follower(tmp_path, model):
    """A follower with one fact, and a model that remembers what it is asked; nothing may be written
    to it.
    """
    with (
        node(tmp_path / "leader") as leader,
        following(tmp_path / "follower", Link(leader), mcp_tools="all") as made,
    ):
        leader.commit(ChangeSet("default", "t", (AssertFacts((Fact("p", ("a",)),)),)))
        catch_up(made)
        made.model = LanguageModel(model, made.config, made.clock, lambda usage: None)
        before = made.log_head(), made.system.committer.records
        yield made
        assert (made.log_head(), made.system.committer.records) == before
        assert sum(tenant.facts() for tenant in made.tenants()[1]) == 1


@pytest.fixture
def client(follower):
    return create_app(follower).test_client()


def refused(answer):
    assert (answer.status_code, answer.json["code"]) == (409, "FOLLOWER_READ_ONLY"), answer.text
    assert answer.json["details"] == {"leader": LEADER}


WRITING_TOOLS = {
    "tell": ATOM,
    "bulk_assert": {"facts": [ATOM]},
    "teach": {"text": "q(?x) :- p(?x)."},
    "forget": ATOM,
    "retract_pattern": {"predicate": "p", "args": [None]},
    "ingest": {"text": "p(b)."},
    "memory_add": {"messages": "I like tea."},
    "memory_update": {"fact": "p(b)", "replaces": "p(a)"},
    "memory_forget": {"about": "p(a)"},
    "compress": {},
    "cleanup": {},
    "fork_scope": {"targetScope": "s"},
    "merge_scope": {"sourceScope": "s"},
    "delete_scope": {"scope": "s"},
    "extract": {"text": PROSE, "assert": True},
    "remember_episode": {"speaker": "ann", "text": "hi"},
    "correct": {"old": "p(a)", "new": "p(b)", "reason": "r"},
    "undo": {"commitSeq": 1},
    "purge": {"subject": "a"},
    "deploy": {"name": "s", "text": "p(b)."},
    "rollback": {"name": "s"},
}


def test_no_writing_tool_is_left_out():
    assert {name for name, tool in all_tools().items() if tool.writes} == set(WRITING_TOOLS)


@pytest.mark.parametrize("tool", WRITING_TOOLS)
def test_tools(client, model, tool):
    asked = {"name": tool, "arguments": WRITING_TOOLS[tool]}
    answer = client.post(
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked},
        headers={**TENANT, "Accept": "application/json, text/event-stream"},
    )
    found = answer.json["result"]
    assert found["isError"] is True
    error = json.loads(found["content"][0]["text"])
    assert (error["code"], error["details"]) == ("FOLLOWER_READ_ONLY", {"leader": LEADER})
    assert model.asked == []


@pytest.mark.parametrize("op", WRITING_TOOLS)
def test_agents(client, model, op):
    parts = [{"data": {"op": op, **WRITING_TOOLS[op]}}]
    message = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}}
    answer = client.post(
        "/a2a",
        json={"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": message},
        headers=TENANT,
    )
    error = answer.json["result"]["message"]["parts"][0]["data"]["error"]
    assert (error["code"], error["details"]) == ("FOLLOWER_READ_ONLY", {"leader": LEADER})
    assert model.asked == []


def test_texts_of_agents(client):
    for text, key in (("p(b).", "error"), ("?- p(?x).", "result")):
        message = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}
        body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": message}
        assert (
            key
            in client.post("/a2a", json=body, headers=TENANT).json["result"]["message"]["parts"][0][
                "data"
            ]
        )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/extract", {"text": PROSE, "assert": True}),
        ("/extract", {"text": PROSE, "assert": True, "rules": True}),
        ("/context/ingest", {"text": PROSE}),
        ("/context/ingest", {"text": "p(b)."}),
        ("/context", {"turns": [PROSE]}),
        ("/execute", {"command": "p(b)."}),
        ("/execute", {"command": "q(?x) :- p(?x).\n?- q(?x)."}),
        ("/tx/begin", {}),
    ],
)
def test_routes_with_a_model_refuse_before_calling_it(client, model, path, body):
    refused(client.post(path, json=body, headers=TENANT))
    assert model.asked == []


def test_requests_that_store_nothing_succeed(client, model):
    assert client.post("/extract", json={"text": PROSE}, headers=TENANT).status_code == 200
    assert model.asked
    assert client.post("/execute", json={"command": "?- p(?x)."}, headers=TENANT).status_code == 200
    asked = {"query": "tea", "sessionId": "s"}
    assert client.post("/memory/context", json=asked, headers=TENANT).status_code == 200
    assert (
        client.post("/context/session/clear", json={"sessionId": "s"}, headers=TENANT).status_code
        == 200
    )
    assert client.post("/context/summary", json={}, headers=TENANT).status_code == 200


CLUSTER = {("POST", f"/admin/cluster/{change}") for change in ("move", "drain", "rebalance")}
ELSEWHERE = {("POST", "/admin/promote"), ("POST", "/execute"), ("POST", "/extract"), *CLUSTER}
"""Of the routes for writers and admins: what a follower is for, those that look into the body,
tried above, and those of a cluster, whose nodes do not follow.
"""


def test_every_route_for_writers_and_admins_refuses(follower):
    app = create_app(follower)
    client, tried = app.test_client(), 0
    for path, method, template in routes(app):
        declared = operation_at(method, template)
        if (
            method == "GET"
            or declared is None
            or declared.role not in (WRITER, "admin")
            or declared.dry_runs  # the body says whether it writes
            or (method, path) in ELSEWHERE
        ):
            continue
        assert 409 in declared.statuses(), (
            f"{method} {path} does not say that a follower refuses it"
        )
        path = path.replace("{name}", "x").replace("{id}", "x").replace("{tenant}", "x")
        refused(client.open(path, method=method, json={}, headers=TENANT))
        tried += 1
    assert tried >= 25


def test_programs(follower, model):
    kb = follower.knowledge_base("default", "t")
    for write in (
        lambda: kb.extract(PROSE, store=True),
        lambda: follower.begin("default", "t"),
        lambda: follower.admin().create_database("shop"),
        lambda: follower.admin().drop_tenant("default", "t"),
    ):
        with pytest.raises(ReadOnlyFollower, match=LEADER):
            write()
    assert model.asked == []
