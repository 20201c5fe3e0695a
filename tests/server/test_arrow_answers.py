"""Answers as an Arrow stream over HTTP."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

import pytest
from support.http import Client, error_of

ARROW = "application/vnd.apache.arrow.stream"
ROUTES = ("/ask", "/infer", "/query")

needs_arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="pyarrow is not installed",
)


@pytest.fixture
def filled(client: Client) -> Client:
    for name in ("bob", "cy", "ö"):
        client.tell("parent", "ann", name)
    client.post("/teach", {"text": "child(?y, ?x) :- parent(?x, ?y)."})
    return client


def arrow(client: Client, path: str, body: dict[str, Any], accept: str = ARROW) -> Any:
    return client.post(path, body, headers={"Accept": accept})


def rows(response: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    assert (response.status_code, response.content_type) == (200, ARROW)
    assert response.content_length == len(response.data)
    table = pa.ipc.open_stream(response.data).read_all()
    table.validate(full=True)
    listed: list[dict[str, Any]] = table.to_pylist()
    return listed


@pytest.mark.parametrize("path", ROUTES)
def test_the_client_chooses_the_form(filled: Client, path: str) -> None:
    goal = {"text": "parent(ann, ?who)"}
    for accept in ("*/*", "application/json", f"application/json, {ARROW};q=0.5", "text/html"):
        assert arrow(filled, path, goal, accept).content_type == "application/json"
    for accept in (ARROW, ARROW.upper(), f"{ARROW}, application/json;q=0.5"):
        response = arrow(filled, path, goal, accept)
        assert response.content_type == ARROW
        assert response.data.startswith(b"\xff" * 4)
        assert response.data.endswith(b"\xff" * 4 + bytes(4))
        for name in ("bob", "cy", "ö"):
            assert response.data.count(name.encode()) == 1


@needs_arrow
@pytest.mark.parametrize("path", ROUTES)
def test_columns_are_the_variables(filled: Client, path: str) -> None:
    goal = {"predicate": "parent", "args": ["?who", "?child"]}
    assert rows(arrow(filled, path, goal)) == [
        {"who": "ann", "child": name} for name in ("bob", "cy", "ö")
    ]
    assert rows(arrow(filled, path, {**goal, "limit": 1})) == [{"who": "ann", "child": "bob"}]
    assert rows(arrow(filled, path, {"text": "parent(ann, bob)"})) == [{"holds": True}]
    nothing = arrow(filled, path, {"text": "parents(ann, ?who)"})
    assert rows(nothing) == []
    assert "parent/2" in nothing.headers["X-Unknown-Predicates"]


@needs_arrow
def test_conclusions_and_offsets(filled: Client) -> None:
    goal = {"text": "child(?who, ann)", "limit": 1, "offset": 1}
    assert rows(arrow(filled, "/ask", goal)) == [{"who": "cy"}]
    filled.post("/teach", {"text": "single(?x) :- parent(_, ?x), not parent(?x, _)."})
    assert rows(arrow(filled, "/ask", {"text": "single(?x)", "limit": 1})) == [
        {"x": "bob", "metadata": '{"nonMonotonic":true}'}
    ]


@needs_arrow
@pytest.mark.parametrize("path", ROUTES)
def test_details_are_columns_where_there_are_some(filled: Client, path: str) -> None:
    filled.tell("parent", "ann", "di", confidence=0.25, metadata={"by": "hand"})
    found = rows(arrow(filled, path, {"text": "parent(ann, ?who)"}))
    assert [(row["who"], row["confidence"]) for row in found] == [
        ("bob", None),
        ("cy", None),
        ("di", 0.25),
        ("ö", None),
    ]
    assert json.loads(found[2]["metadata"]) == {"by": "hand"}
    assert found[0]["metadata"] is None


@needs_arrow
@pytest.mark.parametrize("path", ROUTES)
def test_all_scopes(filled: Client, path: str) -> None:
    filled.tell("parent", "ann", "eve", scope="draft")
    found = rows(arrow(filled, path, {"text": "parent(ann, ?who)", "scope": "*"}))
    assert [(row["who"], row["scope"]) for row in found][2:] == [("ö", None), ("eve", "draft")]


@needs_arrow
def test_facts_of_both_signs(filled: Client) -> None:
    filled.tell("parent", "ann", "fay", negated=True)
    goal = {"text": "parent(ann, ?who)"}
    found = rows(arrow(filled, "/query", goal))
    assert [(row["who"], row["negated"]) for row in found][2:] == [("ö", False), ("fay", True)]
    assert rows(arrow(filled, "/query", {**goal, "negated": True})) == [{"who": "fay"}]
    assert rows(arrow(filled, "/ask", {**goal, "negated": True})) == [{"who": "fay"}]


@needs_arrow
@pytest.mark.parametrize("path", ROUTES)
def test_pages(filled: Client, path: str) -> None:
    goal = {"text": "parent(ann, ?who)"}
    first = arrow(filled, f"{path}?limit=2", goal)
    assert rows(first) == [{"who": "bob"}, {"who": "cy"}]
    following = first.headers["Link"].split(">")[0][1:]
    second = arrow(filled, following, goal)
    assert rows(second) == [{"who": "ö"}]
    assert "Link" not in second.headers
    error_of(arrow(filled, f"{path}?limit=2", {**goal, "limit": 1}), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize("path", ["/ask?proof=true", "/ask", "/infer?limit=2"])
def test_proofs_are_json_only(filled: Client, path: str) -> None:
    goal = {"text": "parent(ann, ?who)", "withProof": True}
    error = error_of(arrow(filled, path, goal), 400, "VALIDATION_ERROR")
    assert "proofs are JSON only" in json.dumps(error)


def test_errors_are_json(filled: Client) -> None:
    error_of(arrow(filled, "/ask", {"text": "parent(ann"}), 400, "VALIDATION_ERROR")
    error_of(
        arrow(filled, "/ask", {"text": "parent(ann, ?x)", "maxAnswers": 0}), 400, "VALIDATION_ERROR"
    )


@needs_arrow
def test_a_goal_of_several_literals_has_a_column_for_each_variable(filled: Client) -> None:
    goal = {"text": "parent(?x, ?y), child(?y, ?z), ?y != cy"}
    response = arrow(filled, "/ask", goal)
    assert rows(response) == [
        {"x": "ann", "y": "bob", "z": "ann"},
        {"x": "ann", "y": "ö", "z": "ann"},
    ]
