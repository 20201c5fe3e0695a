"""Goals of several literals in `POST /ask`: read-only, with the values of their variables."""

from __future__ import annotations

import pytest
from support.http import Served, error_of

FAMILY = "parent(ann, bob). parent(bob, cleo). parent(bob, dan). age(cleo, 7). age(dan, 20)."
GOAL = "parent(ann, ?x), parent(?x, ?y), age(?y, ?n), ?n >= 18"


@pytest.fixture
def family(served: Served) -> Served:
    served.client.post("/teach", {"text": FAMILY})
    return served


def test_answers_are_bindings(family: Served):
    answers = family.client.post("/ask", {"text": GOAL}).get_json()
    assert answers == [{"bindings": {"?x": "bob", "?y": "dan", "?n": "20"}}]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("parent(ann, bob), parent(bob, dan)", 1),
        ("parent(ann, bob), parent(ann, dan)", 0),
        ("parent(?x, _), not age(?x, _)", 2),
        ("?- parent(?x, ?y), ?x != ann.", 2),
    ],
)
def test_forms_of_goals(family: Served, text: str, count: int):
    assert len(family.client.post("/ask", {"text": text}).get_json()) == count


def test_limit_offset_and_pages(family: Served):
    goal = {"text": "parent(?x, ?y), parent(?y, ?z)"}
    everything = family.client.post("/ask", goal).get_json()
    assert len(everything) == 2
    assert (
        family.client.post("/ask", {**goal, "limit": 1, "offset": 1}).get_json() == everything[1:]
    )
    first = family.client.post("/ask?limit=1", goal)
    assert first.get_json() == everything[:1]
    following = first.headers["Link"].split(">")[0].removeprefix("<")
    second = family.client.post(following, goal)
    assert second.get_json() == everything[1:]
    assert "Link" not in second.headers


@pytest.mark.parametrize(
    ("field", "value"),
    [("withProof", True), ("minConfidence", 0.5), ("includeUndefined", True), ("negated", True)],
)
def test_what_needs_one_literal_is_refused(family: Served, field: str, value: object):
    details = error_of(
        family.client.post("/ask", {"text": GOAL, field: value}), 400, "VALIDATION_ERROR"
    )["details"]
    assert field in details["fields"]


def test_unknown_predicates_are_named(family: Served):
    response = family.client.post("/ask", {"text": "parent(?x, ?y), aged(?y, ?n)"})
    assert response.get_json() == []
    assert response.headers["X-Unknown-Predicates"].startswith("aged/2")


def test_an_unsafe_variable_is_refused(family: Served):
    error_of(
        family.client.post("/ask", {"text": "parent(?x, ?y), ?n >= 18"}), 400, "VALIDATION_ERROR"
    )
