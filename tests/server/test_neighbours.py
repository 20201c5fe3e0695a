"""`POST /neighbours`: the body of the request, its errors, and the answer."""

from __future__ import annotations

import pytest
from support.http import error_of, serve_in_memory


@pytest.fixture(scope="module")
def client():
    with serve_in_memory() as served:
        for parent, child in (("ann", "bob"), ("bob", "carl"), ("bob", "dora"), ("eve", "fred")):
            served.client.tell("parent", parent, child)
        served.client.tell("likes", "bob", "bob")
        served.client.tell("age", "bob", 7)
        yield served.client


def neighbours(client, **body):
    response = client.post("/neighbours", body)
    assert response.status_code == 200, response.get_json()
    return response.get_json()


def rows(answer):
    return sorted((row["predicate"], *row["args"]) for row in answer["facts"])


def test_facts_with_the_constant_and_the_counts_of_all(client):
    answer = neighbours(client, constant="bob")
    assert rows(answer) == [
        ("age", "bob", "7"),
        ("likes", "bob", "bob"),
        ("parent", "ann", "bob"),
        ("parent", "bob", "carl"),
        ("parent", "bob", "dora"),
    ]
    assert answer["totalFacts"] == 5
    counts = {row["predicate"]: (row["arity"], row["factCount"]) for row in answer["predicates"]}
    assert counts == {"age": (2, 1), "likes": (2, 1), "parent": (2, 3)}


def test_direction_and_predicates(client):
    inward = neighbours(client, constant="bob", direction="in", predicates=["parent"])
    assert rows(inward) == [("parent", "ann", "bob")]
    outward = neighbours(client, constant="bob", direction="out", predicates=["parent"])
    assert rows(outward) == [("parent", "bob", "carl"), ("parent", "bob", "dora")]


def test_pages_have_every_fact_once(client):
    pages = [neighbours(client, constant="bob", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [len(page["facts"]) for page in pages] == [2, 2, 1, 0]
    assert {page["totalFacts"] for page in pages} == {5}
    found = [row for page in pages for row in rows(page)]
    assert sorted(found) == rows(neighbours(client, constant="bob"))


def test_a_number_and_an_unknown_constant(client):
    assert rows(neighbours(client, constant=7)) == [("age", "bob", "7")]
    nothing = neighbours(client, constant="unknown")
    assert (nothing["facts"], nothing["predicates"], nothing["totalFacts"]) == ([], [], 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "constant"),
        ({"constant": "?x"}, "constant"),
        ({"constant": ["bob"]}, "constant"),
        ({"constant": "bob", "limit": 0}, "limit"),
        ({"constant": "bob", "limit": 1001}, "limit"),
        ({"constant": "bob", "offset": -1}, "offset"),
        ({"constant": "bob", "direction": "up"}, "direction"),
    ],
)
def test_errors_name_the_field(client, body, field):
    details = error_of(client.post("/neighbours", body), 400, "VALIDATION_ERROR")
    assert field in str(details)


def test_an_unknown_field_is_named_and_refused_on_request(client):
    body = {"constant": "bob", "direction": "in", "predicate": "parent"}
    response = client.post("/neighbours", body)
    assert (response.status_code, response.headers["X-Ignored-Fields"]) == (200, "predicate")
    refused = client.post("/neighbours", body, headers={"Prefer": "handling=strict"})
    assert error_of(refused, 400, "VALIDATION_ERROR")["details"] == {
        "fields": {"predicate": ["Unknown field."]}
    }
