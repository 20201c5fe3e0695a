"""`POST /explain` with `whyNot`: members, forms, refusals, transactions."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, error_of

KEYS = [
    "goal",
    "holds",
    "truth",
    "candidates",
    "deniedBy",
    "nearFacts",
    "unknownPredicates",
    "truncated",
]
CANDIDATE_KEYS = [
    "rule",
    "scope",
    "bindings",
    "satisfied",
    "missing",
    "blockedBy",
    "undefined",
    "because",
]


def why_not(client: Client, text: str, **more: Any) -> dict[str, Any]:
    response = client.post("/explain", {"text": text, "whyNot": True, **more})
    assert response.status_code == 200, response.get_json()
    result: dict[str, Any] = response.get_json()
    assert list(result) == KEYS
    return result


@pytest.fixture
def doors(client: Client) -> Client:
    client.post(
        "/teach", {"text": "open(?d, ?p) :- key(?p, ?d), age(?p, ?n), ?n >= 18, not sealed(?d)."}
    )
    client.tell("key", "ann", "front")
    client.tell("age", "ann", "17")
    client.tell("key", "bob", "back")
    client.tell("age", "bob", "40")
    client.tell("sealed", "back")
    return client


def test_members_of_a_candidate(doors: Client) -> None:
    result = why_not(doors, "open(front, ann)")
    assert (result["goal"], result["holds"], result["truth"]) == (
        "open(front, ann)",
        False,
        "false",
    )
    (candidate,) = result["candidates"]
    assert list(candidate) == CANDIDATE_KEYS
    (rule,) = doors.get("/rules").get_json()["rules"]
    assert candidate["rule"]["id"] == rule["id"]
    assert candidate["bindings"] == {"?d": "front", "?p": "ann", "?n": "17"}
    assert [premise["text"] for premise in candidate["satisfied"]] == [
        "key(ann, front)",
        "age(ann, 17)",
    ]
    assert candidate["missing"] == {
        "predicate": ">=",
        "args": ["17", "18"],
        "negated": False,
        "text": "17 >= 18",
    }
    assert candidate["blockedBy"] is None


def test_a_negated_premise_is_blocked_by_a_fact(doors: Client) -> None:
    (candidate,) = why_not(doors, "open(back, ?who)")["candidates"]
    assert candidate["missing"]["text"] == "not sealed(back)"
    assert candidate["blockedBy"] == {
        "predicate": "sealed",
        "args": ["back"],
        "negated": False,
        "text": "sealed(back)",
    }


def test_a_missing_premise_can_be_asked_for(doors: Client) -> None:
    (candidate,) = why_not(doors, "open(front, eve)")["candidates"]
    missing = candidate["missing"]
    literal = {key: value for key, value in missing.items() if key != "text"}
    asked = doors.post("/explain", {"body": [literal], "whyNot": True}).get_json()
    assert asked["goal"] == missing["text"]
    assert asked["nearFacts"][0]["text"] == "key(ann, front)"


def test_a_goal_that_holds(doors: Client) -> None:
    result = why_not(doors, "key(ann, front)")
    assert (result["holds"], result["truth"], result["candidates"]) == (True, "true", [])


def test_unknown_predicates_are_in_the_answer_and_the_header(doors: Client) -> None:
    response = doors.post("/explain", {"text": "opn(a, b)", "whyNot": True})
    assert response.get_json()["unknownPredicates"] == [
        {"name": "opn", "arity": 2, "didYouMean": "open/2"}
    ]
    assert response.headers["X-Unknown-Predicates"] == "opn/2 (did you mean open/2?)"


def test_the_text(doors: Client) -> None:
    body = {"predicate": "open", "args": ["front", "eve"], "whyNot": True, "format": "text"}
    response = doors.post("/explain", body)
    assert response.mimetype == "text/plain"
    lines = response.text.splitlines()
    assert lines[0] == "open(front, eve) does not hold."
    assert lines[2] == "   missing: key(eve, front)"


def test_a_transaction_sees_its_own_writes(doors: Client) -> None:
    begun = doors.post("/tx/begin").text
    headers = {"X-Transaction-ID": begun}
    doors.post("/tell", {"predicate": "key", "args": ["eve", "front"]}, headers=headers)
    goal = {"text": "open(front, eve)", "whyNot": True}
    inside = doors.post("/explain", goal, headers=headers).get_json()
    outside = doors.post("/explain", goal).get_json()
    assert inside["candidates"][0]["missing"]["text"] == "age(eve, ?n)"
    assert outside["candidates"][0]["missing"]["text"] == "key(eve, front)"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"plan": True}, "whyNot"),
        ({"analyze": True}, "whyNot"),
        ({"limit": 101}, "limit"),
        ({"depth": 0}, "depth"),
        ({"depth": 11}, "depth"),
        ({"offset": 1}, "offset"),
        ({"includeUndefined": True}, "includeUndefined"),
        ({"whyNot": False, "depth": 2}, "depth"),
        ({"whyNot": "yes"}, "whyNot"),
        ({"whyNot": False, "format": "json"}, "format"),
    ],
)
def test_refusals(doors: Client, more: dict[str, Any], field: str) -> None:
    body = {"text": "open(front, ann)", "whyNot": True, **more}
    error = error_of(doors.post("/explain", body), 400, "VALIDATION_ERROR")
    assert field in error["details"]["fields"]
