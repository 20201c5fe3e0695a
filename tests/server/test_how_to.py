"""`POST /explain` with `howTo`: members, forms, refusals, transactions, earlier knowledge."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, error_of


@pytest.fixture
def access(client: Client) -> Client:
    client.post(
        "/teach",
        {
            "text": "can_read(?u, ?d) :- member(?u, ?g), grant(?g, ?d), not suspended(?u).\n"
            "member(?u, all) :- staff(?u)."
        },
    )
    client.tell("grant", "eng", "plan")
    client.tell("member", "ann", "eng")
    client.tell("suspended", "bob")
    return client


def how_to(client: Client, text: str, **more: Any) -> dict[str, Any]:
    response = client.post("/explain", {"text": text, "howTo": True, **more})
    assert response.status_code == 200, response.get_json()
    result: dict[str, Any] = response.get_json()
    assert list(result) == ["goal", "make", "truth", "proposals", "truncated"]
    return result


def test_members(access: Client) -> None:
    result = how_to(access, "can_read(zed, plan)", changing=["member"])
    assert result == {
        "goal": "can_read(zed, plan)",
        "make": "true",
        "truth": "false",
        "proposals": [
            {"add": ["member(zed, eng)"], "remove": []},
            {"add": ["grant(all, plan)", "staff(zed)"], "remove": []},
        ],
        "truncated": False,
    }


def test_false(access: Client) -> None:
    result = how_to(access, "can_read(ann, plan)", make="false", limit=2)
    assert result["truth"] == "true"
    assert result["proposals"] == [
        {"add": [], "remove": ["grant(eng, plan)"]},
        {"add": ["suspended(ann)"], "remove": []},
    ]


def test_a_goal_that_has_the_value_needs_nothing(access: Client) -> None:
    result = how_to(access, "can_read(ann, plan)")
    assert (result["truth"], result["proposals"]) == ("true", [])


def test_the_text(access: Client) -> None:
    body = {"text": "can_read(ann, plan)", "howTo": True, "make": "false", "format": "text"}
    response = access.post("/explain", body)
    assert response.mimetype == "text/plain"
    assert response.text.splitlines()[:2] == [
        "can_read(ann, plan) would be false after one of these changes:",
        "1. remove grant(eng, plan)",
    ]


def test_nothing_is_stored(access: Client) -> None:
    before = access.get("/predicates").get_json()
    how_to(access, "can_read(zed, plan)", changing=["member"])
    assert access.get("/predicates").get_json() == before
    assert how_to(access, "can_read(zed, plan)")["truth"] == "false"


def test_a_scope_has_its_own_facts(access: Client) -> None:
    access.post("/tell", {"predicate": "grant", "args": ["ops", "plan"], "scope": "draft"})
    result = how_to(access, "can_read(zed, plan)", scope="draft", changing=["member"])
    assert result["proposals"][0] == {"add": ["member(zed, ops)"], "remove": []}


def test_a_transaction_is_refused(access: Client) -> None:
    headers = {"X-Transaction-ID": access.post("/tx/begin").text}
    body = {"text": "can_read(zed, plan)", "howTo": True}
    error = error_of(access.post("/explain", body, headers=headers), 400, "VALIDATION_ERROR")
    assert "howTo" in error["details"]["fields"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"plan": True}, "howTo"),
        ({"analyze": True}, "howTo"),
        ({"whyNot": True}, "howTo"),
        ({"make": "undefined"}, "make"),
        ({"changing": "member"}, "changing"),
        ({"changing": [7]}, "changing[0]"),
        ({"changing": ["mebmer"]}, "changing"),
        ({"limit": 101}, "limit"),
        ({"limit": 0}, "limit"),
        ({"offset": 1}, "offset"),
        ({"asOf": 1}, "asOf"),
        ({"minConfidence": 0.5}, "minConfidence"),
        ({"includeUndefined": True}, "includeUndefined"),
        ({"depth": 2}, "depth"),
        ({"scope": "*"}, "scope"),
        ({"howTo": False, "make": "false"}, "make"),
        ({"howTo": False, "changing": ["member"]}, "changing"),
        ({"howTo": "yes"}, "howTo"),
    ],
)
def test_refusals(access: Client, more: dict[str, Any], field: str) -> None:
    body = {"text": "can_read(zed, plan)", "howTo": True, **more}
    error = error_of(access.post("/explain", body), 400, "VALIDATION_ERROR")
    assert field in error["details"]["fields"]
