"""Resources and prompts of MCP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agents import Agent, failed


def read(agent: Agent, uri: str) -> Any:
    (found,) = agent.legacy("resources/read", {"uri": uri})["result"]["contents"]
    assert found["uri"] == uri
    return json.loads(found["text"]) if found["mimeType"] == "application/json" else found["text"]


def test_resources(agent: Agent) -> None:
    agent.call(
        "teach",
        text="anc(?x, ?y) :- parent(?x, ?y). parent(ann, bob). parent(bob, 'c/d e').".replace(
            "'", '"'
        ),
    )
    agent.call("tell", predicate="parent", args=["x", "y"], scope="s")
    listed = [each["uri"] for each in agent.legacy("resources/list")["result"]["resources"]]
    assert listed == ["kb://predicates", "kb://rules", "kb://scopes", "kb://summary", "kb://facts"]
    assert read(agent, "kb://predicates")["totalFacts"] == 2
    assert read(agent, "kb://rules")["rules"][0]["text"] == "anc(?x, ?y) :- parent(?x, ?y)."
    assert read(agent, "kb://scopes") == {"scopes": ["s"], "count": 1}
    assert read(agent, "kb://summary")["totalFacts"] == 2
    assert [row["args"] for row in read(agent, "kb://facts")["facts"]] == [
        ["ann", "bob"],
        ["bob", "c/d e"],
    ]
    assert [row["args"] for row in read(agent, "kb://scopes/s/facts/parent")["facts"]] == [
        ["x", "y"]
    ]
    assert read(agent, "kb://facts/nothing") == {"facts": [], "count": 0, "next": None}
    assert read(agent, "kb://proof/anc/bob/c%2Fd%20e").startswith('anc(bob, "c/d e")  by anc')
    templates = agent.legacy("resources/templates/list")["result"]["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == [
        "kb://facts/{predicate}",
        "kb://scopes/{scope}/facts/{predicate}",
        "kb://context/{sessionId}",
        "kb://proof/{predicate}{/args*}",
    ]
    agent.call("context", sessionId="w", maxFacts=1)
    assert len(read(agent, "kb://context/w")["entries"]) == 1


def test_facts_are_paged(agent: Agent) -> None:
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
        "kb://nothing",
        "http://facts",
        "kb://facts/",
        "kb://facts/a/b",
        "kb://rules?offset=3",
        "kb://facts?offset=-1",
        *(
            "kb://facts?page=3",
            "kb://scopes/./facts/p",
            "kb://context/a%2Fb",
            "kb://context/none",
            "kb://[",
            "kb://facts#a",
        ),
    ],
)
def test_unknown_resources(agent: Agent, uri: str) -> None:
    found = failed(agent.modern("resources/read", {"uri": uri}), 400, -32602)
    assert found["error"]["data"] == {"uri": uri}


def test_prompts(agent: Agent) -> None:
    agent.call("tell", predicate="parent", args=["ann", "bob"])
    agent.call("teach", text="@input stored(path: text, size).")
    prompts = agent.legacy("prompts/list")["result"]["prompts"]
    assert {"reason-over-knowledge", "write-rules"} <= {prompt["name"] for prompt in prompts}
    for prompt in prompts:
        given = {
            argument["name"]: "the thing"
            for argument in prompt["arguments"]
            if argument["required"]
        }
        result = agent.legacy("prompts/get", {"name": prompt["name"], "arguments": given})["result"]
        (message,) = result["messages"]
        assert message["role"] == "user"
        assert all(value in message["content"]["text"] for value in given.values())
        for name in given:
            failed(
                agent.modern(
                    "prompts/get", {"name": prompt["name"], "arguments": {**given, name: 3}}
                ),
                400,
                -32602,
            )
            assert agent.legacy("prompts/get", {"name": prompt["name"]})["error"]["code"] == -32602
    text = agent.legacy("prompts/get", {"name": "write-rules", "arguments": {"goal": "g"}})[
        "result"
    ]["messages"][0]
    assert "parent/2, stored/2 (path: text, size)." in text["content"]["text"]
    assert agent.legacy("prompts/get", {"name": "nothing"})["error"]["code"] == -32602
