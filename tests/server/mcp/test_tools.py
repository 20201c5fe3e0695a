"""MCP tools: list, arguments, results and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agents import Agent, failed
from support.http import Served, error_of, serve_in_memory
from support.stand_in import StandIn

from kbcore.state.episodes.episodes import episode_id
from kbcore.state.keys import ADMIN, READER, WRITER
from kbserver.mcp.tools import all_tools, tools_of


def test_the_default_tool_list_is_small(agent: Agent) -> None:
    response = agent.modern("tools/list")
    assert len(response.data) < 8192
    tools = response.get_json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == [
        "aggregate",
        "ask",
        "bulk_assert",
        "context",
        "context_diff",
        "explain",
        "forget",
        "ingest",
        "predicates",
        "query",
        "teach",
        "tell",
    ]
    for tool in tools:
        assert len(tool["description"]) <= 300
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert tool["annotations"]["openWorldHint"] is False
    hints = {tool["name"]: tool["annotations"] for tool in tools}
    assert hints["ask"] == {"readOnlyHint": True, "openWorldHint": False}
    assert hints["tell"] == {
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert hints["forget"]["destructiveHint"] is True


def test_a_profile_has_the_tools_of_memory_alone():
    assert set(tools_of("memory")) == {
        "memory_add",
        "memory_search",
        "memory_update",
        "memory_forget",
        "memory_history",
        "memory_facts",
    }


def test_the_setting_can_list_all_tools() -> None:
    with serve_in_memory(mcp_tools="all") as served:
        names = [
            tool["name"] for tool in Agent(served.client).legacy("tools/list")["result"]["tools"]
        ]
        assert names == sorted(set(all_tools()) - {"extract", "synthesize"})
    assert set(tools_of("all", model=True)) == set(all_tools())
    assert {
        "extract",
        "synthesize",
        "retract_pattern",
        "recall",
        "compress",
        "cleanup",
        "fork_scope",
        "merge_scope",
        "diff_scope",
        "list_scopes",
        "delete_scope",
        "context_summary",
        "preview",
        "why_not",
        "how_to",
        "suggest_goals",
        "subscribe_goal",
        "goal_changes",
        "unsubscribe_goal",
        "remember_episode",
        "episode",
        "correct",
        "undo",
        "purge",
        "fact_history",
        "deploy",
        "rollback",
        "rule_sets",
        *tools_of("memory"),
    } == set(all_tools()) - set(tools_of("default"))


def test_roles_that_tools_need() -> None:
    readers = {name for name, tool in all_tools().items() if tool.needs == READER}
    assert readers == {
        "aggregate",
        "ask",
        "context",
        "context_diff",
        "context_summary",
        "diff_scope",
        "explain",
        "how_to",
        "list_scopes",
        "predicates",
        "preview",
        "query",
        "recall",
        "synthesize",
        "why_not",
        "subscribe_goal",
        "goal_changes",
        "unsubscribe_goal",
        "episode",
        "fact_history",
        "rule_sets",
        "memory_search",
        "memory_history",
        "memory_facts",
        "suggest_goals",
    }
    assert all_tools()["purge"].needs == ADMIN
    others = all_tools().keys() - readers - {"purge"}
    assert {all_tools()[name].needs for name in others} == {WRITER}


EPISODE = episode_id("ann", "Bob likes tea.", None, None)

RULE = "may(?x) :- m(?x)."

CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("tell", {"predicate": "parent", "args": ["ann", "bob"]}, {"asserted": 0, "updated": 1}),
    ("tell", {"text": "parent(ann, bob)"}, {"asserted": 0, "updated": 1}),
    (
        "bulk_assert",
        {"facts": [{"predicate": "n", "args": [1]}, {"predicate": "n", "args": [2]}]},
        {"asserted": 2},
    ),
    (
        "teach",
        {"text": "anc(?x, ?y) :- parent(?x, ?y)."},
        {"rules": ["anc(?x, ?y) :- parent(?x, ?y)."]},
    ),
    ("ask", {"predicate": "anc", "args": ["?x", "?y"]}, {"count": 1, "truncated": False}),
    ("ask", {"predicate": "anc", "args": ["?x", "?y"], "withProof": True}, {"count": 1}),
    ("query", {"predicate": "parent", "args": ["?x", "?y"]}, {"count": 1}),
    ("ask", {"text": "anc(ann, ?who)"}, {"count": 1}),
    ("query", {"text": "parent(?x, bob)"}, {"count": 1}),
    ("aggregate", {"predicate": "n", "op": "sum", "argIndex": 0}, {"result": 3}),
    ("explain", {"predicate": "anc", "args": ["ann", "bob"]}, {}),
    ("explain", {"text": "anc(ann, ?x)", "plan": True}, {}),
    (
        "explain",
        {"text": "anc(ann, zoe)", "whyNot": True, "limit": 1},
        {
            "text": "anc(ann, zoe) does not hold.\n"
            "1. Rule anc(?x, ?y) :- parent(?x, ?y).\n"
            "   missing: parent(ann, zoe)"
        },
    ),
    (
        "explain",
        {"text": "anc(ann, zoe)", "howTo": True},
        {
            "text": "anc(ann, zoe) would be true after one of these changes:\n1. add parent(ann, zoe)"
        },
    ),
    ("why_not", {"predicate": "anc", "args": ["ann", "bob"]}, {"holds": True, "candidates": []}),
    ("why_not", {"text": "anc(ann, zoe)", "depth": 2}, {"truth": "false", "truncated": False}),
    (
        "how_to",
        {"predicate": "anc", "args": ["ann", "zoe"], "changing": ["anc"], "limit": 1},
        {
            "make": "true",
            "truth": "false",
            "proposals": [{"add": ["anc(ann, zoe)"], "remove": []}],
        },
    ),
    (
        "how_to",
        {"text": "anc(ann, bob)", "make": "false"},
        {
            "make": "false",
            "truth": "true",
            "proposals": [{"add": [], "remove": ["parent(ann, bob)"]}],
            "truncated": False,
        },
    ),
    ("predicates", {"prefix": "par"}, {"truncated": False, "totalPredicates": 3}),
    (
        "context",
        {
            "goals": [{"predicate": "anc", "args": ["ann", "?x"]}],
            "sessionId": "s",
            "format": "structured",
        },
        {"goalDriven": True},
    ),
    (
        "context",
        {"goals": ["anc(ann, ?x)"], "sessionId": "s", "format": "structured"},
        {"goalDriven": True},
    ),
    ("context_diff", {"sessionId": "s"}, {"unchanged": 2}),
    ("ingest", {"text": "likes(ann, tea)"}, {"rules": []}),
    ("context_summary", {}, {"totalFacts": 4}),
    (
        "recall",
        {"predicate": "parent", "args": [None, "?x"], "timestamp": 1_700_000_000_000},
        {"count": 1},
    ),
    ("fork_scope", {"targetScope": "trial"}, {"targetScope": "trial"}),
    (
        "preview",
        {"forget": "parent(none, ?x)"},
        {
            "becomesFalse": [],
            "counts": {"becomesTrue": 0, "becomesFalse": 0, "becomesUndefined": 0},
        },
    ),
    ("list_scopes", {}, {"scopes": ["trial"], "count": 1}),
    ("subscribe_goal", {"goal": "anc(ann, ?who)", "id": "family"}, {"id": "family"}),
    ("goal_changes", {"id": "family", "since": "0.0"}, {"changes": [], "lost": True}),
    ("unsubscribe_goal", {"id": "family"}, {"ended": True}),
    ("diff_scope", {"sourceScope": None, "targetScope": "trial"}, {"unchanged": 4, "added": []}),
    ("merge_scope", {"sourceScope": "trial"}, {"conflicts": 0}),
    ("delete_scope", {"scope": "trial"}, {"deleted": 4}),
    (
        "remember_episode",
        {"speaker": "ann", "text": "Bob likes tea."},
        {"length": 14, "isNew": True},
    ),
    ("episode", {"id": EPISODE}, {"text": "Bob likes tea.", "totalFacts": 0}),
    ("correct", {"old": "likes(ann, tea)", "new": "likes(ann, milk)", "reason": "r"}, {}),
    ("undo", {"commitSeq": 13}, {"retracted": 1, "restored": 1}),
    ("fact_history", {"predicate": "likes(ann, tea)"}, {"totalEvents": 3}),
    ("purge", {"episode": EPISODE, "dryRun": True}, {"factCount": 0, "episodeCount": 1}),
    ("compress", {"minGroupSize": 2, "dryRun": True}, {"dryRun": True}),
    ("cleanup", {"threshold": 0.0, "dryRun": True}, {"evictedCount": 0}),
    ("recall", {"text": "parent(_, ?x)", "timestamp": 1_700_000_000_000}, {"count": 1}),
    ("forget", {"text": "parent(ann, zed)"}, {"retracted": 0}),
    ("forget", {"predicate": "parent", "args": ["ann", "bob"]}, {"retracted": 1, "cascaded": 1}),
    ("retract_pattern", {"text": "m(?x)"}, {"retracted": 0}),
    ("retract_pattern", {"predicate": "n", "args": ["?x"]}, {"retracted": 2}),
    ("deploy", {"name": "a", "text": RULE, "dryRun": True}, {"added": [RULE], "commit": None}),
    ("deploy", {"name": "a", "text": RULE, "message": "m"}, {"version": 1}),
    ("deploy", {"name": "a", "text": "w(a).", "expectedVersion": 1}, {"removed": [RULE]}),
    ("rule_sets", {}, {"count": 1}),
    ("rule_sets", {"name": "a"}, {"count": 2}),
    ("rollback", {"name": "a"}, {"version": 3, "added": [RULE]}),
    ("memory_add", {"messages": "I live in Berlin."}, {"facts": []}),
    ("memory_search", {"question": "who lives in Berlin?", "maxTokens": 50}, {}),
    ("memory_update", {"fact": "lives_in(user, Berlin)", "since": "2026-01-01"}, {"asserted": 1}),
    ("suggest_goals", {"question": "Who is Zed?"}, {"answers": [], "reason": "noConstant"}),
    ("memory_facts", {"limit": 1}, {}),
    ("memory_history", {"about": "lives_in"}, {"totalEvents": 1}),
    ("memory_forget", {"about": "lives_in(user, ?where)"}, {"dryRun": True, "factCount": 1}),
]


def test_every_tool_works_and_matches_its_output_schema() -> None:
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
            shape = all_tools()[name].shown["outputSchema"]
            assert set(shape["required"]) <= set(found), (name, found)
            for key, value in found.items():
                kind = shape["properties"].get(key, {}).get("type")
                assert kind is None or isinstance(value, kinds[kind]), (name, key, value)
    assert {name for name, _, _ in CALLS} == set(tools_of("all"))


def test_a_failing_tool_returns_an_error_result(agent: Agent) -> None:
    response = agent.modern(
        "tools/call", {"name": "ask", "arguments": {"predicate": "p", "args": 3}}
    )
    assert response.status_code == 200
    result = response.get_json()["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    said = json.loads(result["content"][0]["text"])
    over_http = agent.flask.post(
        "/ask", json={"predicate": "p", "args": 3}, headers={"X-Tenant-ID": "t"}
    ).get_json()
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
def test_arguments_are_validated_as_over_http(
    agent: Agent, name: str, arguments: dict[str, Any], field: str
) -> None:
    result = agent.call(name, **arguments)
    assert result["isError"] is True, result
    said = json.loads(result["content"][0]["text"])
    assert said["code"] == "VALIDATION_ERROR"
    assert list(said["details"]["fields"]) == [field]
    assert agent.call("predicates")["structuredContent"]["totalFacts"] == 0


def test_tools_by_their_old_names(agent: Agent) -> None:
    for old, arguments, key in (
        ("assert_fact", {"predicate": "p", "args": ["a"]}, "asserted"),
        ("infer", {"predicate": "p", "args": ["?x"]}, "count"),
        ("context_window", {"query": "p"}, "windowId"),
        ("retract", {"predicate": "p", "args": ["a"]}, "retracted"),
    ):
        result = agent.call(old, **arguments)
        assert result["isError"] is False, (old, result)
        assert result["structuredContent"][key], old
        listed = agent.modern("tools/list").get_json()["result"]["tools"]
        assert old not in {tool["name"] for tool in listed}


def test_unknown_tools(agent: Agent) -> None:
    for params in (
        {"name": "nothing"},
        {},
        {"name": 3},
        {"name": "ask", "arguments": []},
        {"name": "purge"},
    ):
        assert agent.legacy("tools/call", params)["error"]["code"] == -32602
    failed(agent.modern("tools/call", {"name": "nothing"}), 400, -32602)
    assert agent.legacy("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_long_answers_are_truncated_with_a_note(agent: Agent) -> None:
    agent.call("bulk_assert", facts=[{"predicate": "p", "args": [n]} for n in range(150)])
    for name in ("ask", "query"):
        found = agent.call(name, predicate="p", args=["?x"])["structuredContent"]
        assert (found["count"], len(found["results"]), found["truncated"]) == (100, 100, True)
        found = agent.call(name, predicate="p", args=["?x"], limit=150)["structuredContent"]
        assert (found["count"], found["truncated"]) == (150, False)
    gone = agent.legacy(
        "tools/call",
        {"name": "ask", "arguments": {"predicate": "p", "args": ["?x"], "offset": 100}},
    )
    assert gone["result"]["structuredContent"]["count"] == 50


def test_tools_in_a_transaction(agent: Agent, served: Served) -> None:
    id = served.client.post("/tx/begin", headers={"X-Tenant-ID": "default"}).text
    agent.call("tell", predicate="p", args=["a"], transactionId=id)
    assert (
        agent.call("query", predicate="p", args=["?x"], transactionId=id)["structuredContent"][
            "count"
        ]
        == 1
    )
    assert agent.call("query", predicate="p", args=["?x"])["structuredContent"]["count"] == 0
    served.client.post(f"/tx/commit/{id}", headers={"X-Tenant-ID": "default"})
    assert agent.call("query", predicate="p", args=["?x"])["structuredContent"]["count"] == 1
    said = agent.call("tell", predicate="p", args=["b"], transactionId=id)["content"][0]["text"]
    assert json.loads(said)["code"] == "CONFLICT"
    said = agent.call("tell", predicate="p", args=["b"], transactionId="none")["content"][0]["text"]
    assert json.loads(said)["code"] == "NOT_FOUND"


def test_tenants_and_databases(agent: Agent, served: Served) -> None:
    agent.call("tell", predicate="p", args=["a"])
    assert served.client.post(
        "/ask", {"predicate": "p", "args": ["?x"]}, {"X-Tenant-ID": "default"}
    ).get_json()
    params = {"name": "query", "arguments": {"predicate": "p", "args": ["?x"]}}
    assert (
        agent.legacy("tools/call", params, X_Tenant_ID="t")["result"]["structuredContent"]["count"]
        == 0
    )
    result = agent.legacy("tools/call", params, X_Database="none")["result"]
    assert json.loads(result["content"][0]["text"])["code"] == "NOT_FOUND"
    read = agent.legacy("resources/read", {"uri": "kb://facts"}, X_Database="none")
    assert read["error"]["code"] == -32002
    response = agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, X_Tenant_ID="a/b")
    error_of(response, 400, "VALIDATION_ERROR")


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
        hints = {
            tool["name"]: tool["annotations"]
            for tool in agent.legacy("tools/list")["result"]["tools"]
        }
        assert hints["synthesize"] == {"readOnlyHint": True, "openWorldHint": True}


def test_a_window_for_a_model_has_each_fact_once(agent: Agent) -> None:
    agent.call("tell", predicate="likes", args=["ann", "tea"])
    window = agent.call("context", format="structured")["structuredContent"]
    assert not {"facts", "rules", "totalAvailable", "windowSize"} & window.keys()
    (entry,) = window["entries"]
    assert not {"scope", "provenance", "validUntil"} & entry.keys()  # null, so left out
    ingested = agent.call("ingest", text="likes(bob, tea)")["structuredContent"]
    assert "facts" not in ingested["context"]
    assert "scope" not in ingested["context"]["entries"][0]
    for more in ({}, {"format": None}, {"format": "text"}):
        text = agent.call("context", **more)["structuredContent"]
        assert text.pop("windowId").startswith("ctx-")
        assert text == {"formattedText": "likes(ann, tea).\nlikes(bob, tea)."}


def test_a_search_of_a_memory_has_each_fact_once(agent: Agent) -> None:
    agent.call("memory_add", messages="I moved to Berlin.", at="2026-09-01")
    answer = agent.call("memory_search", question="Berlin?")["structuredContent"]
    assert set(answer) == {"text", "sources", "tokens"}
    assert answer["text"].endswith("I moved to Berlin. [1]")
    assert [each["number"] for each in answer["sources"]] == [1]


@pytest.mark.parametrize("name", ["memory_search", "context", "ask"])
def test_the_text_of_a_result_names_the_arguments_that_were_ignored(
    agent: Agent, name: str
) -> None:
    arguments = {"memory_search": {"question": "tea?"}, "context": {}, "ask": {"text": "p(?x)"}}
    result = agent.call(name, **arguments[name], sort="best", limitt=3)
    assert result["isError"] is False, result
    assert [part["text"] for part in result["content"]][1:] == ["Ignored arguments: sort, limitt"]


def test_a_result_names_the_arguments_that_were_ignored(agent: Agent) -> None:
    result = agent.call("tell", predicate="p", args=["a"], confidense=0.5)
    assert (result["isError"], result["_meta"]["ignoredFields"]) == (False, ["confidense"])
    facts = [{"predicate": "p", "args": ["b"], "scoep": "s"}]
    assert agent.call("bulk_assert", facts=facts)["_meta"]["ignoredFields"] == ["facts[0].scoep"]
    result = agent.call("ask", predicate="p", arguments=[])
    assert (result["isError"], result["_meta"]["ignoredFields"]) == (True, ["arguments"])
    assert "ignoredFields" not in agent.call("ask", predicate="p", args=["?x"]).get("_meta", {})


JSON_TEXTS = [
    ("tell", {"predicate": "p", "args": '["a", 1]'}, None),
    (
        "tell",
        {"predicate": "q", "args": ["1"], "confidence": "0.5", "metadata": '{"k": "v"}'},
        None,
    ),
    ("ask", {"predicate": "p", "args": '["?x", "?y"]', "limit": "5", "withProof": "true"}, None),
    ("bulk_assert", {"facts": '[{"predicate": "p", "args": ["b", "c"]}]'}, None),
    ("context", {"goals": '["p(?x, ?y)"]', "maxFacts": "3", "includeRules": "false"}, None),
    ("retract_pattern", {"predicate": "p", "args": '[null, "1"]'}, None),
    ("ask", {"predicate": "p", "args": "[a]"}, "args"),
    ("ask", {"predicate": "p", "args": '{"0": "a"}'}, "args"),
    ("ask", {"predicate": "p", "args": '["a"], "limit": 1'}, "args"),
    ("ask", {"text": "p(?x, ?y)", "limit": "five"}, "limit"),
    ("ask", {"text": "p(?x, ?y)", "limit": "true"}, "limit"),
    ("ask", {"text": "p(?x, ?y)", "withProof": "1"}, "withProof"),
    ("ask", {"predicate": "p", "args": "[" * 100_000}, "args"),
]


@pytest.mark.parametrize(("name", "arguments", "refused"), JSON_TEXTS)
def test_arguments_sent_as_json_texts_are_read_by_the_type_of_the_schema(
    agent: Agent, name: str, arguments: dict[str, Any], refused: str | None
) -> None:
    agent.call("tell", predicate="p", args=["a", "1"])
    result = agent.call(name, **arguments)
    assert result["isError"] is (refused is not None), result
    if refused is not None:
        assert list(result["structuredContent" if "structuredContent" in result else "content"])
        error = json.loads(result["content"][0]["text"])
        assert any(field.startswith(refused) for field in error["details"]["fields"])
        return
    plain = {
        key: value if key in ("predicate", "text") or type(value) is not str else json.loads(value)
        for key, value in arguments.items()
    }
    agent.call("tell", predicate="p", args=["a", "1"])
    shown = [
        {key: value for key, value in each.items() if key not in ("timestamp", "generatedAt")}
        for each in (result["structuredContent"], agent.call(name, **plain)["structuredContent"])
    ]
    if name not in ("tell", "bulk_assert", "context"):
        assert shown[0] == shown[1]


def test_texts_that_are_declared_as_texts_stay_texts(agent: Agent) -> None:
    agent.call("tell", predicate="p", args=["5", "true", "[1]"], scope="12")
    rows = agent.call("ask", predicate="p", args=["5", "true", "[1]"], scope="12")
    assert rows["structuredContent"]["count"] == 1
    assert agent.call("query", text="[1]")["isError"]


def test_tools_of_published_clients_are_accepted_in_every_profile(agent: Agent) -> None:
    listed = [tool["name"] for tool in agent.legacy("tools/list")["result"]["tools"]]
    for name in ("retract_pattern", "recall", "compress", "fork_scope", "list_scopes"):
        assert name not in listed
        arguments = {"retract_pattern": {"predicate": "p"}, "fork_scope": {"targetScope": "s"}}
        assert "result" in agent.legacy(
            "tools/call", {"name": name, "arguments": arguments.get(name, {})}
        )
    assert agent.legacy("tools/call", {"name": "purge", "arguments": {}})["error"]["code"] == -32602
