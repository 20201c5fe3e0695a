"""Proofs and explanations over HTTP: shapes, limits, scopes, points in time."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, ROW_KEYS, Client, Served, error_of

FAMILY = "anc(?x, ?y) :- parent(?x, ?y). anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)."


@pytest.fixture
def family(client: Client) -> Client:
    client.post("/teach", {"text": FAMILY})
    client.tell("parent", "ann", "bob")
    client.tell("parent", "bob", "cy")
    return client


def proofs(client: Client, predicate: str, *args: str, **more: Any) -> list[dict[str, Any]]:
    found = client.post(
        "/ask", {"predicate": predicate, "args": list(args), "withProof": True, **more}
    )
    assert found.status_code == 200, found.get_json()
    answers: list[dict[str, Any]] = found.get_json()
    return answers


def test_the_tree(family: Client) -> None:
    (one,) = proofs(family, "anc", "ann", "cy")
    assert list(one) == ["result", "proof"]
    top = one["proof"]
    assert list(top) == ["goal", "step", "substitution"]
    assert list(top["goal"]) == ROW_KEYS
    assert list(top["step"]) == ["type", "fact", "rule", "bodyProofs"]
    assert top["step"]["rule"] == "anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)."
    assert top["substitution"] == {"?x": "ann", "?y": "bob", "?z": "cy"}
    told, lemma = top["step"]["bodyProofs"]
    assert told["step"] == {
        "type": "fact_match",
        "fact": told["goal"],
        "rule": None,
        "bodyProofs": None,
    }
    assert told["substitution"] == {"?x": "ann", "?y": "bob"}
    assert lemma["step"]["rule"] == "anc(?x, ?y) :- parent(?x, ?y)."
    assert lemma["goal"]["args"] == ["bob", "cy"]


def test_the_graph(family: Client) -> None:
    (one,) = proofs(family, "anc", "ann", "cy", proofFormat="dag")
    assert [one["predicate"], one["args"], one["negated"], one["confidence"]] == [
        "anc",
        ["ann", "cy"],
        False,
        None,
    ]
    proof = one["proof"]
    assert (proof["root"], proof["truncated"]) == ("n1", False)
    assert [node["depth"] for node in proof["nodes"].values()] == [2, 0, 1, 0]
    root = proof["nodes"]["n1"]
    assert root["fact"] == {"predicate": "anc", "args": ["ann", "cy"]}
    assert root["rule"]["text"] == "anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)."
    assert root["premises"] == ["n2", "n3"]
    assert {node["kind"] for node in proof["nodes"].values()} == {"derived", "asserted"}


def test_asserted_and_derived_is_shown_as_asserted(family: Client) -> None:
    family.tell("anc", "ann", "cy")
    (one,) = proofs(family, "anc", "ann", "cy", proofFormat="dag")
    fact = {"predicate": "anc", "args": ["ann", "cy"]}
    asserted = {"fact": fact, "kind": "asserted", "depth": 0, "premises": [], "alternatives": 1}
    assert one["proof"]["nodes"] == {"n1": asserted}


def test_a_cut_node_can_be_requested(family: Client) -> None:
    (one,) = proofs(family, "anc", "ann", "cy", proofNodes=3)
    lemma = one["proof"]["step"]["bodyProofs"][1]
    assert lemma["step"] == {"type": "elided", "fact": None, "rule": None, "bodyProofs": None}
    (rest,) = proofs(family, lemma["goal"]["predicate"], *lemma["goal"]["args"])
    assert rest["proof"]["step"]["type"] == "rule_application"
    (flat,) = proofs(family, "anc", "ann", "cy", proofDepth=1)
    assert flat["proof"]["step"]["bodyProofs"][1]["step"]["type"] == "elided"
    (graph,) = proofs(family, "anc", "ann", "cy", proofDepth=1, proofFormat="dag")
    assert graph["proof"]["truncated"] is True


def test_tests_and_negation(client: Client) -> None:
    client.post(
        "/teach",
        {"text": "@adult: adult(?x) :- age(?x, ?n), ?n >= 18, not ward(?x), not banned(?x, _)."},
    )
    client.tell("age", "ann", "30")
    client.tell("ward", "ann", negated=True)
    client.tell("ward", "ann")
    (one,) = proofs(client, "adult", "?who")
    age, test, ward, banned = one["proof"]["step"]["bodyProofs"]
    assert age["step"]["type"] == "fact_match"
    assert (test["step"]["type"], test["step"]["text"]) == ("builtin", "30 >= 18")
    assert (ward["step"]["type"], ward["step"]["fact"]["negated"]) == ("explicit_negative", True)
    assert (banned["step"]["type"], banned["goal"]["args"]) == (
        "negation_as_failure",
        ["ann", "?_"],
    )
    assert banned["step"]["text"] == "not banned(ann, _)"


def test_ground_negated_goals(client: Client) -> None:
    client.post("/teach", {"text": "~p(?x) :- q(?x)."})
    client.tell("q", "a")
    (derived,) = proofs(client, "p", "a", negated=True)
    assert derived["proof"]["step"]["rule"] == "~p(?x) :- q(?x)."
    (absent,) = proofs(client, "p", "b", negated=True)
    assert absent["result"]["metadata"] == {"basis": "absence"}
    assert absent["proof"]["step"]["type"] == "negation_as_failure"
    assert proofs(client, "p", "b") == []


def test_scopes_and_points_in_time_are_separate(client: Client, served: Served) -> None:
    client.post("/teach", {"text": "r(?x) :- p(?x)."})
    client.tell("p", "a", scope="s1")
    client.tell("p", "a", scope="s2", validUntil=NOW + 1000)
    found = proofs(client, "r", "?x", scope="*")
    assert [one["result"]["scope"] for one in found] == ["s1", "s2"]
    assert [one["proof"]["step"]["bodyProofs"][0]["goal"]["scope"] for one in found] == ["s1", "s2"]
    served.clock.advance(5000)
    assert len(proofs(client, "r", "?x", scope="*")) == 1
    (then,) = proofs(client, "r", "?x", scope="s2", asOf=NOW + 500)
    assert then["proof"]["step"]["bodyProofs"][0]["goal"]["validUntil"] == NOW + 1000


def test_a_proof_of_ten_thousand_steps(client: Client) -> None:
    client.post("/teach", {"text": FAMILY})
    links = [{"predicate": "parent", "args": [n, n + 1]} for n in range(10_000)]
    assert client.post("/assert/facts", {"facts": links}).status_code == 200
    goal = {"predicate": "anc", "args": ["0", "10000"], "withProof": True, "proofNodes": 100_000}
    graph = client.post("/infer", {**goal, "proofFormat": "dag"}).get_json()[0]["proof"]
    assert len(graph["nodes"]) == 20_000
    assert graph["nodes"]["n1"]["depth"] == 10_000
    deep = client.post("/infer", {**goal, "proofDepth": 100_000})
    assert deep.data.count(b'"rule_application"') == 10_000
    (usual,) = client.post("/infer", {**goal, "proofNodes": 1000}).get_json()
    steps, node = 0, usual["proof"]
    while node["step"]["type"] == "rule_application":
        steps, node = steps + 1, node["step"]["bodyProofs"][-1]
    assert (steps, node["step"]["type"]) == (100, "elided")


def test_proofs_obey_the_budget(served: Served) -> None:
    client = served.client
    client.post("/teach", {"text": "pairs(?a, ?b, ?c) :- n(?a), n(?b), n(?c)."})
    client.post("/assert/facts", {"facts": [{"predicate": "n", "args": [n]} for n in range(300)]})
    goal = {"predicate": "pairs", "args": ["?a", "?b", "?c"], "withProof": True}
    error = error_of(client.post("/infer", goal), 422, "BUDGET_EXCEEDED")
    assert error["details"]["limit"] in ("derivedRows", "steps", "timeMs", "answers")


def test_explanations(family: Client) -> None:
    told = family.post("/explain", {"predicate": "anc", "args": ["ann", "?who"], "limit": 1})
    assert told.content_type == "text/plain; charset=utf-8"
    assert (
        told.data
        == b"anc(ann, bob)  by anc(?x, ?y) :- parent(?x, ?y).\n  parent(ann, bob)  stored\n"
    )
    several = [
        {"predicate": "anc", "args": ["?x", "?y"]},
        {"predicate": "!=", "args": ["?y", "bob"]},
    ]
    told = family.post("/explain", {"body": several, "limit": 1})
    assert told.data.splitlines()[0] == b"?x = ann, ?y = cy"
    assert told.data.splitlines()[-1] == b"  cy != bob  holds"
    assert family.post("/explain", {"text": "anc(?x, ?y), ?y != bob", "limit": 1}).data == told.data
    assert family.post("/explain", {"text": "?- anc(zoe, ?y)."}).data.startswith(b"No answer")
    plan = family.post(
        "/explain", {"predicate": "anc", "args": ["ann", "?who"], "plan": True}
    ).data.decode()
    assert "rule 2: anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)." in plan
    assert (
        "probe parent/2 full (=?x, ?y)  [mask bf; about 1.0 per look-up, 1.0 in total; size 2]"
        in plan
    )
    assert "answers" not in plan
    assert family.post("/explain", {"text": "parent(?x, ?y)", "plan": True}).data.endswith(
        b"2 rows; no rule derives it\n"
    )
    assert b"not run" in family.post("/explain", {"text": "anc(zoe, ?y)", "plan": True}).data


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"body": []},
        {"body": "p"},
        {"text": "p("},
        {"body": [{"predicate": "p"}]},
        {"text": "p(?x), not q(?y)"},
    ],
)
def test_refusals(client: Client, body: dict[str, Any]) -> None:
    error_of(client.post("/explain", body), 400, "VALIDATION_ERROR")


def test_rows_of_an_explanation_inherit_confidence_and_validity(client: Client) -> None:
    client.post("/teach", {"text": "r(?x) :- p(?x), not q(?x)."})
    client.tell("p", "a", confidence=0.5, validUntil=NOW + 1000)
    top = client.post("/explain", {"predicate": "r", "args": ["?x"]}).data.decode().splitlines()[0]
    assert top.endswith(
        "(confidence 0.5, until 2023-11-14T22:13:21.000+00:00, may be retracted by new facts)"
    )
