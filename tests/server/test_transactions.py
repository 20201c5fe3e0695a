"""Transactions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import READS, WRITES, Client, Served, error_of

GOAL = {"predicate": "p", "args": ["?x"]}


def begin(client: Client) -> dict[str, str]:
    """Open a transaction; the header that names it."""
    response = client.post("/tx/begin")
    assert response.status_code == 200
    assert response.content_type == "text/plain; charset=utf-8"
    return {"X-Transaction-ID": response.text}


def tell(client: Client, arg: str, inside: dict[str, str]) -> None:
    response = client.post("/tell", {"predicate": "p", "args": [arg]}, inside)
    assert response.text == f"Fact Asserted: p({arg})"


def asked(client: Client, inside: dict[str, str] | None = None) -> list[str]:
    return [row["args"][0] for row in client.post("/ask", GOAL, inside).get_json()]


def end(
    client: Client, how: str, inside: dict[str, str], headers: dict[str, str] | None = None
) -> Any:
    return client.post(f"/tx/{how}/{inside['X-Transaction-ID']}", None, headers)


def test_a_committed_transaction(client: Client) -> None:
    inside = begin(client)
    tell(client, "a", inside)
    bulk = client.post(
        "/assert/facts", {"facts": [{"predicate": "p", "args": ["b"]}] * 2}, inside
    ).get_json()
    assert (bulk["asserted"], bulk["updated"]) == (1, 1)
    assert (
        client.post("/teach", {"text": "q(?x) :- p(?x)."}, inside).text
        == "Rule Asserted: q(?x) :- p(?x)."
    )
    goal = {"predicate": "q", "args": ["?x"]}
    assert [row["args"] for row in client.post("/ask", goal, inside).get_json()] == [["a"], ["b"]]
    retracted = client.post("/retract", {"predicate": "p", "args": ["b"]}, inside)
    assert (retracted.headers["X-Retracted-Count"], retracted.headers["X-Cascaded-Count"]) == (
        "1",
        "1",
    )
    assert asked(client, inside) == ["a"]
    assert client.get("/predicates", inside).get_json()["totalFacts"] == 1
    assert client.get("/rules", inside).get_json()["rules"][0]["text"] == "q(?x) :- p(?x)."
    assert (
        client.post("/aggregate", {"predicate": "p", "op": "COUNT"}, inside).get_json()["result"]
        == 1
    )
    assert client.post("/query", GOAL, inside).get_json()[0]["args"] == ["a"]
    assert "p(a)" in client.post("/explain", goal, inside).text
    assert asked(client) == []
    response = end(client, "commit", inside)
    assert response.text == f"Committed {inside['X-Transaction-ID']}"
    assert asked(client) == ["a"]


def test_a_rollback(client: Client) -> None:
    inside = begin(client)
    tell(client, "a", inside)
    response = end(client, "rollback", inside)
    assert response.text == f"Rolled back {inside['X-Transaction-ID']}"
    assert asked(client) == []


@pytest.mark.parametrize(("first", "state"), [("commit", "committed"), ("rollback", "rolled_back")])
@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_a_finished_transaction(client: Client, first: str, state: str, then: str) -> None:
    inside = begin(client)
    end(client, first, inside)
    error = error_of(end(client, then, inside), 409, "CONFLICT")
    assert error["details"] == {"transaction": inside["X-Transaction-ID"], "state": state}
    for path in (*WRITES, *READS):
        assert (
            error_of(client.post(path, GOAL, inside), 409, "CONFLICT")["details"]["state"] == state
        )


def test_an_expired_transaction(served: Served) -> None:
    inside = begin(served.client)
    tell(served.client, "a", inside)
    served.clock.advance(61_000)
    assert (
        error_of(end(served.client, "commit", inside), 409, "CONFLICT")["details"]["state"]
        == "expired"
    )
    assert asked(served.client) == []


def test_a_conflict(client: Client) -> None:
    inside = begin(client)
    assert asked(client, inside) == []
    tell(client, "a", inside)
    client.tell("p", "b")
    error = error_of(end(client, "commit", inside), 409, "CONFLICT")
    assert error["details"]["state"] == "rolled_back"
    assert error["details"]["changed"] == [{"predicate": "p", "arity": 1, "scope": None}]
    assert asked(client) == ["b"]


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_unknown_ids_and_ids_of_other_tenants(client: Client, how: str) -> None:
    inside = begin(client)
    error_of(client.post(f"/tx/{how}/nope"), 404, "NOT_FOUND")
    error_of(client.post(f"/tx/{how}/{'x' * 4000}"), 404, "NOT_FOUND")
    error_of(end(client, how, inside, {"X-Tenant-ID": "other"}), 404, "NOT_FOUND")
    error_of(
        client.post("/tell", {"predicate": "p", "args": ["a"]}, {**inside, "X-Tenant-ID": "u"}),
        404,
        "NOT_FOUND",
    )
    assert end(client, how, inside).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tell", {"predicate": "p", "args": ["?x"]}),
        ("/tell", {"predicate": "p"}),
        ("/assert/facts", {"facts": [{"predicate": "p", "args": [{}]}]}),
        ("/teach", {"text": "p(?x) :- not q(?x)."}),
        ("/teach", {"text": "p(?x) :- "}),
        ("/retract", {"predicate": "p", "args": ["?x"]}),
        ("/retract/rule", {"id": "none"}),
    ],
)
def test_a_failed_write_ends_the_transaction(client: Client, path: str, body: Any) -> None:
    inside = begin(client)
    tell(client, "a", inside)
    assert client.post(path, body, inside).status_code in (400, 404)
    assert (
        error_of(end(client, "commit", inside), 409, "CONFLICT")["details"]["state"]
        == "rolled_back"
    )
    assert asked(client) == []


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_an_invalid_body_ends_the_transaction(client: Client, body: bytes) -> None:
    inside = begin(client)
    client.flask.post(
        "/tell",
        data=body,
        headers={"X-Tenant-ID": "t", "Content-Type": "application/json", **inside},
    )
    assert (
        error_of(end(client, "commit", inside), 409, "CONFLICT")["details"]["state"]
        == "rolled_back"
    )


def test_a_failed_read_does_not_end_the_transaction(client: Client) -> None:
    inside = begin(client)
    tell(client, "a", inside)
    error_of(client.post("/ask", {"predicate": "p"}, inside), 400, "VALIDATION_ERROR")
    assert end(client, "commit", inside).status_code == 200
    assert asked(client) == ["a"]


@pytest.mark.parametrize("path", ["/tx/begin", "/tx/commit/x", "/tx/rollback/x"])
def test_transactions_do_not_nest(client: Client, path: str) -> None:
    inside = begin(client)
    error = error_of(client.post(path, None, inside), 400, "VALIDATION_ERROR")
    assert error["details"] == {"header": "X-Transaction-ID"}
    assert end(client, "commit", inside).status_code == 200


def test_request_bodies(client: Client) -> None:
    assert client.post("/tx/begin", {}).status_code == 200
    assert client.post("/tx/begin", {"more": 1}).status_code == 200
    error_of(
        client.post("/tx/begin", {"more": 1}, {"Prefer": "handling=strict"}),
        400,
        "VALIDATION_ERROR",
    )
    assert client.post("/tx/begin", None, {"Accept": "application/json"}).content_type.startswith(
        "text/plain"
    )
    error_of(client.flask.post("/tx/begin"), 400, "VALIDATION_ERROR")
    error_of(client.post("/tx/begin", None, {"X-Database": "none"}), 404, "NOT_FOUND")
    error_of(client.get("/tx/begin"), 405, "VALIDATION_ERROR")


def test_too_many_open_transactions(client: Client) -> None:
    for _ in range(100):
        begin(client)
    response = client.post("/tx/begin")
    assert error_of(response, 429, "RATE_LIMITED")["details"]["open"] == 100
    assert int(response.headers["Retry-After"]) >= 1
    assert response.headers["RateLimit-Policy"] == '"TX_MAX_OPEN";q=100'
    assert response.headers["RateLimit"] == '"TX_MAX_OPEN";r=0;t=1'
    assert client.post("/tx/begin", None, {"X-Tenant-ID": "other"}).status_code == 200
