"""Reports about predicates without facts and rules, on every interface."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import Agent
from support.http import serve_in_memory

HEADER = "X-Unknown-Predicates"
FAST, FLASK = {}, {"Prefer": "handling=lenient"}


@pytest.fixture(scope="module")
def client():
    with serve_in_memory() as served:
        client = served.client
        client.post("/assert/facts", {"facts": [{"predicate": "likes", "args": ["ann", "tea"]}]})
        client.post("/tell", {"predicate": "sunny", "args": ["mon"], "negated": True})
        client.post("/tell", {"predicate": "private", "args": ["x"], "scope": "s"})
        client.post("/teach", {"text": "fond(?x) :- likes(?x, tea)."})
        client.post("/tell", {"predicate": "was", "args": ["x"]})
        client.post("/forget", {"predicate": "was", "args": ["x"]})
        yield client


def unknown(
    client, path: str, name: str, args: list[str], headers: dict[str, str], **more: Any
) -> str | None:
    response = client.post(path, {"predicate": name, "args": args, **more}, headers)
    assert response.status_code == 200, response.text
    return response.headers.get(HEADER)


@pytest.mark.parametrize("headers", [FAST, FLASK], ids=["fast path", "flask"])
@pytest.mark.parametrize("path", ["/ask", "/infer", "/query", "/explain"])
def test_a_header_names_the_predicate_and_a_similar_one(client, path, headers):
    assert (
        unknown(client, path, "lykes", ["?x", "?y"], headers) == "lykes/2 (did you mean likes/2?)"
    )
    assert unknown(client, path, "likes", ["?x"], headers) == "likes/1 (did you mean likes/2?)"
    assert unknown(client, path, "Fond", ["ann"], headers) == "Fond/1 (did you mean fond/1?)"
    assert unknown(client, path, "quark", ["?x"], headers) == "quark/1"
    assert unknown(client, path, "qué, %", ["?x"], headers) == "qu%C3%A9%2C %25/1"
    assert (
        unknown(client, path, "was", ["?x"], headers) == "was/1"
    )  # no trace of facts that were retracted
    for name, args in (
        ("likes", ["zoe", "?y"]),
        ("fond", ["zoe"]),
        ("sunny", ["mon"]),
        ("private", ["?x"]),
    ):
        assert unknown(client, path, name, args, headers) is None
    if path != "/query":
        assert (
            unknown(client, path, "lykes", ["a", "b"], headers, negated=True)
            == "lykes/2 (did you mean likes/2?)"
        )
    assert (
        unknown(client, path, "lykes", ["?x"], headers, scope="*")
        == "lykes/1 (did you mean likes/2?)"
    )


def test_other_routes(client):
    body = {"predicate": "lykes", "op": "COUNT"}
    assert client.post("/aggregate", body).headers[HEADER] == "lykes (did you mean likes/2?)"
    assert HEADER not in client.post("/aggregate", {"predicate": "likes", "op": "COUNT"}).headers
    several = client.post(
        "/explain", {"text": "likes(?x, tea), lykes(?x, ?y), quark(?x)", "plan": True}
    )
    assert several.headers[HEADER] == "lykes/2 (did you mean likes/2?), quark/1"
    assert (
        client.post("/ask?limit=2", {"predicate": "lykes", "args": ["?x", "?y"]})
        .headers[HEADER]
        .startswith("lykes/2")
    )
    assert (
        client.post("/query?limit=2", {"predicate": "lykes", "args": ["?x", "?y"]})
        .headers[HEADER]
        .startswith("lykes/2")
    )
    proof = {"predicate": "lykes", "args": ["?x", "?y"], "withProof": True}
    assert client.post("/ask", proof).headers[HEADER].startswith("lykes/2")


def test_a_transaction_sees_its_own_predicates(client):
    id = client.post("/tx/begin", {}).text
    inside = {"X-Transaction-ID": id}
    client.post("/tell", {"predicate": "fresh", "args": ["x"]}, inside)
    assert unknown(client, "/ask", "fresh", ["y"], inside) is None
    assert unknown(client, "/ask", "frehs", ["y"], inside) == "frehs/1 (did you mean fresh/1?)"
    client.post(
        "/tell", {"predicate": "likes", "args": ["bob", "tea"]}
    )  # a candidate of the suggestion, not a read
    assert client.post(f"/tx/commit/{id}", {}).status_code == 200


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ask", {"predicate": "lykes", "args": ["?x", "?y"]}),
        ("query", {"predicate": "lykes", "args": ["?x", "?y"]}),
        ("explain", {"text": "lykes(?x, ?y)"}),
        ("aggregate", {"predicate": "lykes", "op": "COUNT", "args": ["?x", "?y"]}),
    ],
)
def test_tool_results_name_unknown_predicates(client, tool, arguments):
    agent = Agent(client)
    agent.call("tell", predicate="likes", args=["ann", "tea"])
    found = agent.call(tool, **arguments)["structuredContent"]
    assert found["unknownPredicates"] == [{"name": "lykes", "arity": 2, "didYouMean": "likes/2"}]
    known = agent.call(
        tool,
        **{
            key: value.replace("lykes", "likes") if key in ("predicate", "text") else value
            for key, value in arguments.items()
        },
    )
    assert "unknownPredicates" not in known["structuredContent"]
