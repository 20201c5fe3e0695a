"""`POST /check`: every error and warning of a text, beside what a tenant has stored."""

from __future__ import annotations

import pytest
from support.http import error_of, serve_in_memory

TEXT = """\
parent(ann, bob).
sister(?x, ?z) :- parent(?x, ?y), not brother(?w).
cousin(ann bob).
total(sum(?n)) :- part(?n), total(?n).
grandparent(?x, ?z) :- parent(?x, ?y), parnet(?y, ?z).
"""


@pytest.fixture(scope="module")
def client():
    with serve_in_memory() as served:
        served.client.post("/tell", {"predicate": "likes", "args": ["ann", "tea"]})
        served.client.post("/teach", {"text": "fond(?x) :- likes(?x, tea)."})
        served.client.post("/tell", {"predicate": "private", "args": ["x"], "scope": "s"})
        yield served.client


def checked(client, text: str, **more: str) -> list[dict[str, object]]:
    response = client.post("/check", {"text": text, **more})
    assert response.status_code == 200, response.text
    return response.json["diagnostics"]


def codes(client, text: str, **more: str) -> list[tuple[object, object, object]]:
    return [(each["line"], each["column"], each["name"]) for each in checked(client, text, **more)]


def test_all_kinds_of_errors_are_in_one_answer(client):
    assert [entry for entry in codes(client, TEXT) if entry[2] != "singleton"] == [
        (2, 12, "unsafe"),
        (2, 39, "unknown-predicate"),
        (2, 47, "unsafe"),
        (3, 12, "syntax"),
        (4, 1, "recursive-aggregate"),
        (4, 19, "unknown-predicate"),
        (5, 40, "unknown-predicate"),
    ]


def test_a_diagnostic_has_a_place_a_code_and_a_hint(client):
    (entry,) = checked(client, "likes(bob, tea).\nadult(?x) :- likes(?y, ?y).")
    assert entry == {
        "line": 2,
        "column": 7,
        "endLine": 2,
        "endColumn": 9,
        "severity": "error",
        "code": "K012",
        "name": "unsafe",
        "message": "the variable ?x of the head is not bound by a positive atom",
        "hint": "use ?x in a positive body atom",
    }


def test_what_is_stored_counts_as_defined_and_nothing_is_stored(client):
    assert codes(client, "visitor(?x) :- likes(?x, tea), fond(?x), private(?x).") == []
    assert codes(client, "visitor(?x) :- likes(?x, tea), friend(?x).") == [
        (1, 32, "unknown-predicate")
    ]
    assert client.get("/predicates").json["totalPredicates"] == 2
    other = client.post("/check", {"text": "b(c). a(?x) :- fond(?x)."}, {"X-Tenant-ID": "other"})
    assert [each["name"] for each in other.json["diagnostics"]] == ["unknown-predicate"]


def test_a_stored_rule_can_close_a_cycle_through_an_aggregate(client):
    client.post("/teach", {"text": "load(?x, sum(?n)) :- weight(?x, ?n)."})
    text = "weight(?x, ?n) :- load(?x, ?n)."
    assert codes(client, text) == [(1, 1, "recursive-aggregate")]
    refused = client.post("/teach", {"text": text})
    assert refused.status_code == 400


def test_a_goal_is_read_as_ask_reads_it(client):
    assert codes(client, "likes(ann, ?x)", kind="goal") == []
    assert codes(client, "likes(ann, ?x", kind="goal") == [(1, 6, "unclosed-bracket")]
    assert codes(client, "lykes(ann, ?x)", kind="goal") == [(1, 1, "unknown-predicate")]
    assert codes(client, "likes(ann, ?x), ?x != tea", kind="goal") == []
    for text in ("likes(ann, ?x), ?y < 3", "?x < 3", "", "likes(ann, ?x) :- fond(ann)"):
        diagnostics = checked(client, text, kind="goal")
        assert "error" in {each["severity"] for each in diagnostics}, text
        assert client.post("/ask", {"text": text}).status_code == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": 3}, "text"),
        ({"text": "p(a).", "kind": "fact"}, "kind"),
        ({"text": "p(a).", "scope": "*"}, "scope"),
    ],
)
def test_a_malformed_body_is_refused(client, body, field):
    response = client.post("/check", body)
    assert field in error_of(response, 400, "VALIDATION_ERROR")["details"]["fields"]
