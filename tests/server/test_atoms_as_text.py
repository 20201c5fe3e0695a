"""Atoms given as text, and predicates that look like atoms."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, error_of, serve_in_memory

import kbcore
from kbcore.errors import InvalidInput, RuleSyntaxError
from kbcore.state.facts import Fact

MISNAMED = ("likes(zed, tea)", "likes(zed", "likes)", "?likes", "?")

NOW_MS = 1_700_000_000_000


def args_of(client: Client, path: str, body: dict[str, Any]) -> list[list[str]]:
    response = client.post(path, body)
    assert response.status_code == 200, response.text
    return [row["args"] for row in response.get_json()]


def test_facts_and_goals_as_text(client: Client) -> None:
    assert (
        client.post("/tell", {"text": "likes(ann, 'green tea')"}).text
        == "Fact Asserted: likes(ann, green tea)"
    )
    assert client.post("/tell", {"text": "~likes(bob, tea)."}).status_code == 200
    assert (
        client.post(
            "/assert/fact", {"text": "likes(cid, tea)", "confidence": 0.5, "scope": None}
        ).status_code
        == 200
    )
    assert (
        client.post("/assert/facts", {"facts": [{"text": "likes(dan, tea)"}]}).get_json()[
            "asserted"
        ]
        == 1
    )
    for path in ("/ask", "/infer"):
        assert args_of(client, path, {"text": "likes(?who, tea)"}) == [
            ["cid", "tea"],
            ["dan", "tea"],
        ]
        assert args_of(client, path, {"text": "~likes(?who, tea)"}) == [["bob", "tea"]]
        assert args_of(client, path, {"text": "not likes(bob, tea)"}) == [["bob", "tea"]]
        assert args_of(client, path, {"text": "~likes(eve, tea)"}) == []
        assert args_of(client, path, {"text": "not likes(eve, tea)"}) == [["eve", "tea"]]
        assert args_of(client, path, {"text": "likes(eve, tea)", "negated": True}) == [
            ["eve", "tea"]
        ]
        assert args_of(client, path, {"text": "likes(?x, tea)", "polarity": "negative"}) == [
            ["bob", "tea"]
        ]
    assert len(args_of(client, "/query", {"text": "likes(?who, _)"})) == 4
    assert args_of(client, "/query", {"text": "~likes(?who, _)"}) == [["bob", "tea"]]
    assert (
        len(args_of(client, "/memory/recall", {"text": "likes(?who, _)", "timestamp": NOW_MS})) == 4
    )
    assert (
        client.post("/memory/priority", {"text": "likes(cid, tea)", "priority": 1}).status_code
        == 200
    )
    assert "likes(cid, tea)" in client.post("/explain", {"text": "likes(cid, ?x)"}).text


def test_retractions_as_text(client: Client) -> None:
    for text in ("p(a)", "~p(a)", "p(b)", "~p(b)", "q(a)", "q(b)"):
        client.post("/tell", {"text": text})
    assert client.post("/forget", {"text": "p(a)"}).headers["X-Retracted-Count"] == "2"
    assert client.post("/retract", {"text": "~p(b)"}).headers["X-Retracted-Count"] == "1"
    assert args_of(client, "/query", {"text": "p(?x)"}) == [["b"]]
    assert client.post("/retract/pattern", {"text": "q(?x)"}).get_json()["retracted"] == 2
    error = error_of(client.post("/forget", {"text": "p(?x)"}), 400, "VALIDATION_ERROR")
    assert "/retract/pattern" in error["details"]["fields"]["text"][0]


def test_goals_of_windows_as_text(client: Client) -> None:
    client.post("/tell", {"text": "colleague(ann, bob)"})
    for goals in (["colleague(ann, ?who)"], [{"text": "colleague(ann, ?who)"}]):
        window = client.post("/memory/context", {"goals": goals}).get_json()
        assert [entry["args"] for entry in window["entries"]] == [["ann", "bob"]]
        assert window["goalDriven"] is True
    for wrong in ("colleague(ann,, ?who)", {"text": "colleague(ann,, ?who)"}):
        error = error_of(
            client.post("/memory/context", {"goals": ["p(?x)", wrong]}), 400, "VALIDATION_ERROR"
        )
        assert [(one["line"], one["column"]) for one in error["details"]["errors"]] == [(1, 15)]
        assert next(iter(error["details"]["fields"])).startswith("goals[1]")
    unknown = {"goals": ["p(?x)", {"text": "p(?x)", "colour": 1}]}
    strict = client.post("/memory/context", unknown, {"Prefer": "handling=strict"})
    assert "goals[1].colour" in error_of(strict, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_bodies_of_rules_take_text(client: Client) -> None:
    head = {"predicate": "adult", "args": ["?x"]}
    rule = {
        "head": head,
        "body": ["age(?x, ?n)", {"text": "?n >= 18"}, {"predicate": "person", "args": ["?x"]}],
    }
    assert (
        client.post("/teach", rule).text
        == "Rule Asserted: adult(?x) :- age(?x, ?n), ?n >= 18, person(?x)."
    )


PATHS = ("/tell", "/ask", "/infer", "/query", "/forget", "/retract", "/retract/pattern", "/explain")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fast", [True, False])
def test_a_syntax_error_has_its_line_and_column(client: Client, path: str, fast: bool) -> None:
    more = {} if fast else {"Prefer": "handling=lenient"}
    error = error_of(client.post(path, {"text": "p(a,\n  b c)"}, more), 400, "VALIDATION_ERROR")
    assert [(one["line"], one["column"]) for one in error["details"]["errors"]] == [(2, 5)]
    assert "line 2, column 5" in error["message"]


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path not in ("/ask", "/infer", "/explain")]
)
def test_a_text_of_several_atoms_is_refused_where_one_is_needed(client: Client, path: str) -> None:
    error = error_of(client.post(path, {"text": "p(a), q(a)"}), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == ["text"]


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/explain"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "predicate"),
        ({"predicate": "p"}, "args"),
        ({"args": ["a"]}, "predicate"),
        ({"text": None, "predicate": "p"}, "args"),
        ({"text": 5}, "text"),
        ({"text": ""}, "text"),
        ({"text": "p(a)", "predicate": "p", "args": ["a"]}, "predicate"),
        ({"text": "p(a)", "args": ["a"]}, "args"),
    ],
)
def test_values_that_are_neither_text_nor_atom(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    if path == "/retract/pattern" and field == "args" and "args" not in body:
        assert client.post(path, body).status_code == 200  # every fact of the predicate
        return
    error = error_of(client.post(path, body), 400, "VALIDATION_ERROR")
    assert field in error["details"]["fields"], error


@pytest.mark.parametrize("predicate", MISNAMED)
def test_a_predicate_that_looks_like_an_atom_is_refused(client: Client, predicate: str) -> None:
    atom = {"predicate": predicate, "args": []}
    rule = {
        "head": {"predicate": "p", "args": ["?x"]},
        "body": [{"predicate": "q", "args": ["?x"]}, atom],
    }
    headed = {
        "head": {"predicate": predicate, "args": ["?x"]},
        "body": [{"predicate": "q", "args": ["?x"]}],
    }
    bodies = [
        *((path, atom, "predicate") for path in PATHS),
        ("/assert/facts", {"facts": [atom]}, "facts[0].predicate"),
        ("/assert/facts", {"facts": [{**atom, "args": ["a"]}] * 2}, "facts[0].predicate"),
        ("/teach", rule, "body[1].predicate"),
        ("/teach", headed, "head.predicate"),
        ("/memory/context", {"goals": [atom]}, "goals[0].predicate"),
        ("/tell", {"text": f"'{predicate}'"}, "text"),
    ]
    for path, body, field in bodies:
        error = error_of(client.post(path, body), 400, "VALIDATION_ERROR")
        assert '"text"' in error["details"]["fields"][field][0], (path, error)
    error_of(client.post("/teach", {"text": f"'{predicate}'(a)."}), 400, "VALIDATION_ERROR")
    assert (
        client.flask.get("/predicates", headers={"X-Tenant-ID": "t"}).get_json()["totalPredicates"]
        == 0
    )


def test_facts_of_earlier_versions_can_be_read_and_removed() -> None:
    with serve_in_memory() as served:
        kb = served.runtime.knowledge_base("default", "t")
        kb.assert_facts([Fact("likes(zed, tea)", ())])
        assert args_of(served.client, "/ask", {"text": "'likes(zed, tea)'"}) == [[]]
        assert args_of(served.client, "/query", {"text": "'likes(zed, tea)'"}) == [[]]
        assert (
            served.client.post("/forget", {"text": "'likes(zed, tea)'"}).headers[
                "X-Retracted-Count"
            ]
            == "1"
        )


def test_embedded() -> None:
    with kbcore.open_kb() as kb:
        assert kb.tell("parent(ann, bob)").asserted == 1
        kb.tell("~parent(ann, cid)")
        kb.tell("parent(ann, dan)", negated=True)
        kb.tell("said(ann, '?x')", confidence=0.5)
        assert kb.ask("parent(ann, ?who)") == [("ann", "bob")]
        assert kb.ask("~parent(ann, ?who)") == [("ann", "cid"), ("ann", "dan")]
        assert kb.query("parent(?x, bob)") == [("ann", "bob")]
        assert kb.query("~parent(?x, cid)") == [("ann", "cid")]
        assert kb.query("said", ["ann", "?what"]) == [("ann", "?x")]
        assert kb.retract("parent(ann, bob)").retracted == 1
        assert kb.retract("~parent(?x, ?y)").retracted == 2
        with pytest.raises(RuleSyntaxError) as wrong:
            kb.tell("parent(ann,, bob)")
        assert (wrong.value.errors[0]["line"], wrong.value.errors[0]["column"]) == (1, 12)
        with pytest.raises(InvalidInput, match="variable"):
            kb.tell("parent(ann, ?who)")
        for predicate in MISNAMED:
            for call in (kb.tell, kb.query, kb.retract, kb.ask):
                with pytest.raises(InvalidInput, match="parentheses"):
                    call(predicate, ["a"])
            with pytest.raises(InvalidInput, match="parentheses"):
                kb.tell_many(predicate, [["a"], ["b"]])
            with pytest.raises(InvalidInput, match="parentheses"):
                kb.load(f"'{predicate}'(a).")
