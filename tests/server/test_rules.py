"""Routes that store, list and retract rules."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, error_of

from kbserver.routes.knowledge.rules import in_a_header

GRAND = {
    "head": {"predicate": "grand", "args": ["?x", "?z"]},
    "body": [
        {"predicate": "parent", "args": ["?x", "?y"]},
        {"predicate": "parent", "args": ["?y", "?z"]},
    ],
}


@pytest.mark.parametrize("path", ["/assert/rule", "/teach"])
def test_a_rule_as_json(client: Client, path: str) -> None:
    response = client.post(path, GRAND)
    assert response.text == "Rule Asserted: grand(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    assert response.content_type == "text/plain; charset=utf-8"


def test_rules_as_text(client: Client) -> None:
    text = "adult(?x) :- age(?x, ?n), ?n >= 18, not ward(?x). % grown up\n p(a). q(?x) :- p(?x)."
    response = client.post("/teach", {"text": text})
    assert response.text.splitlines() == [
        "Rule Asserted: adult(?x) :- age(?x, ?n), ?n >= 18, not ward(?x).",
        "Rule Asserted: q(?x) :- p(?x).",
        "Fact Asserted: p(a)",
    ]
    assert client.ask("q", "?x") == [["a"]]


@pytest.mark.parametrize("spelling", ["negated", "naf"])
def test_negation_in_a_body(client: Client, spelling: str) -> None:
    body = [{"predicate": "p", "args": ["?x"]}, {"predicate": "q", "args": ["?x"], spelling: True}]
    response = client.post("/teach", {"head": {"predicate": "r", "args": ["?x"]}, "body": body})
    assert response.text == "Rule Asserted: r(?x) :- p(?x), not q(?x)."


def test_a_repeated_rule_is_stored_once(client: Client) -> None:
    for _ in range(2):
        assert client.post("/teach", GRAND).status_code == 200
    assert len(client.get("/rules").get_json()["rules"]) == 1


def test_scopes(client: Client) -> None:
    client.post("/teach", {**GRAND, "scope": "s"})
    client.post("/teach", {"text": "p(?x) :- q(?x). q(a).", "scope": "s"})
    assert [rule["scope"] for rule in client.get("/rules").get_json()["rules"]] == ["s", "s"]
    assert client.get("/rules?scope=other").get_json() == {"rules": []}
    assert client.ask("p", "?x", scope="s") == [["a"]]
    assert client.ask("p", "?x") == []
    error_of(client.post("/teach", {**GRAND, "scope": "*"}), 400, "VALIDATION_ERROR")


def test_listing(client: Client) -> None:
    client.post("/teach", GRAND)
    (rule,) = client.get("/rules").get_json()["rules"]
    assert list(rule) == ["id", "text", "head", "body", "scope"]
    assert rule["text"] == "grand(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    assert rule["head"] == {"predicate": "grand", "args": ["?x", "?z"], "negated": False}
    assert [atom["args"] for atom in rule["body"]] == [["?x", "?y"], ["?y", "?z"]]


def test_listed_rules_can_be_stored_again(client: Client) -> None:
    text = "~p(?x) :- q(?x, ?y, _), not ~r(?x), ~s(?x), ?y >= 3."
    assert client.post("/teach", {"text": text}).status_code == 200
    (rule,) = client.get("/rules").get_json()["rules"]
    again = client.post(
        "/teach", {"head": rule["head"], "body": rule["body"]}, {"X-Tenant-ID": "other"}
    )
    assert again.text == f"Rule Asserted: {rule['text']}"


def test_retract_rule(client: Client) -> None:
    client.post("/teach", GRAND)
    (rule,) = client.get("/rules").get_json()["rules"]
    response = client.post("/retract/rule", {"id": rule["id"]})
    assert response.text == "Rule Retracted: grand(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    error_of(client.post("/retract/rule", {"id": rule["id"]}), 404, "NOT_FOUND")
    client.post("/teach", GRAND)
    assert client.post("/retract/rule", GRAND).status_code == 200
    error_of(client.post("/retract/rule", GRAND), 404, "NOT_FOUND")


@pytest.mark.parametrize("body", [{}, {"id": "x", **GRAND}, {"id": 5}, {"head": GRAND["head"]}])
def test_retract_needs_an_id_or_a_rule(client: Client, body: dict[str, Any]) -> None:
    error_of(client.post("/retract/rule", body), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"head": GRAND["head"]},
        {"head": "p(?x)", "body": []},
        {"head": GRAND["head"], "body": {}},
        {"head": GRAND["head"], "body": ["p(?x)"]},
        {"text": ""},
        {"text": "% only words"},
        {"text": "p(?x) :- q(?x)", **GRAND},
        {"text": "p(?x) :- q(?x). ?- p(a)."},
        {"text": "p(?x) :- q(?y)."},
        {"text": "p(?x) :- q(?x"},
        {"text": 5},
        {"text": "p(a) [scope='a b']. q(?x) :- p(?x)."},
        {"text": "p(a) [validFrom='soon']."},
        {"head": {"predicate": "p", "args": ["?x"]}, "body": [{"predicate": "q", "args": ["?y"]}]},
    ],
)
def test_refused_rules_change_nothing(client: Client, body: dict[str, Any]) -> None:
    error_of(client.post("/teach", body), 400, "VALIDATION_ERROR")
    assert client.get("/rules").get_json() == {"rules": []}
    assert client.get("/predicates?scope=*").get_json()["totalFacts"] == 0


def test_suspicious_rules_are_reported_in_a_header(client: Client) -> None:
    client.post("/teach", {"text": "q(X). parent(ann, bob)."})
    as_json = {
        "head": {"predicate": "p", "args": ["X"]},
        "body": [{"predicate": "q", "args": ["X"]}],
    }
    for body in ({"text": "p(X) :- q(X)."}, as_json):
        response = client.post("/teach", body)
        assert response.text == "Rule Asserted: p(X) :- q(X)."
        assert response.headers["X-Rule-Warnings"] == '"X" is a constant here (did you mean ?X?)'
    assert "X-Rule-Warnings" not in client.post("/teach", GRAND).headers


def test_an_unsafe_rule_names_its_variable(client: Client) -> None:
    body = {
        "head": {"predicate": "p", "args": ["?x"]},
        "body": [{"predicate": "q", "args": ["?y"]}],
    }
    error = error_of(client.post("/teach", body), 400, "VALIDATION_ERROR")
    assert error["details"]["variable"] == "?x"
    error = error_of(
        client.post("/teach", {"text": "q(a).\np(?x) :- q(?y)."}), 400, "VALIDATION_ERROR"
    )
    assert [(found["line"], found["code"]) for found in error["details"]["errors"]] == [
        (2, "unsafe")
    ]


def test_warnings_fit_a_header() -> None:
    assert (
        in_a_header(["plain; 100%", "Zoë\r\nX-Evil: 1"])
        == "plain%3B 100%25; Zo%C3%AB%0D%0AX-Evil: 1"
    )
    assert len(in_a_header(["x" * 10_000])) == 4000
