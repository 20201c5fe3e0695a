"""Limits a request sets for itself, over HTTP: in the body and in `Prefer: wait`."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, Served, error_of, serve_in_memory

from kbcore.reason.admission import Admission

RULES = """
pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _).
tick(0) :- edge(_, _).
tick(?n) :- tick(?m), ?n = ?m + 1.
"""
BOMB = {"predicate": "pairs", "args": ["?a", "?b", "?c"]}
EDGE = {"predicate": "edge", "args": ["?a", "?b"]}
ROUTES = (
    ("/infer", BOMB),
    ("/ask", BOMB),
    ("/explain", BOMB),
    ("/query", EDGE),
    ("/aggregate", {**EDGE, "op": "COUNT"}),
)
REASONING = ROUTES[:3]


@pytest.fixture
def taught(client: Client) -> Client:
    client.post(
        "/assert/facts",
        {"facts": [{"predicate": "edge", "args": [str(n), "x"]} for n in range(300)]},
    )
    assert client.post("/teach", {"text": RULES}).status_code == 200
    return client


@pytest.mark.parametrize(("path", "body"), REASONING)
@pytest.mark.parametrize(
    ("field", "limit", "value"),
    [
        ("maxRows", "derivedRows", 1000),
        ("maxSteps", "steps", 5000),
        ("maxBytes", "memoryBytes", 100_000),
    ],
)
def test_fields_of_the_body_lower_limits(
    taught: Client, path: str, body: dict[str, Any], field: str, limit: str, value: int
) -> None:
    found = error_of(taught.post(path, {**body, field: value}), 422, "BUDGET_EXCEEDED")
    assert found["details"] == {"limit": limit, "value": value, "rule": RULES.splitlines()[1]}


@pytest.mark.parametrize(("path", "body"), [*REASONING, ROUTES[3]])
def test_answers_are_limited_where_they_are_listed(
    taught: Client, path: str, body: dict[str, Any]
) -> None:
    asked = {"predicate": "edge", "args": ["?a", "?b"], "maxAnswers": 10}
    found = error_of(taught.post(path, asked), 422, "BUDGET_EXCEEDED")
    assert found["details"]["limit"] == "answers"
    assert taught.post(path, {**asked, "limit": 10}).status_code == 200


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize("field", ["timeoutMs", "maxRows", "maxSteps", "maxBytes", "maxAnswers"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True])
def test_a_bad_limit_is_refused_by_name(
    taught: Client, path: str, body: dict[str, Any], field: str, value: object
) -> None:
    found = error_of(taught.post(path, {**body, field: value}), 400, "VALIDATION_ERROR")
    assert list(found["details"]["fields"]) == [field]


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize("text", ["1.5", "-1", "soon", "", "1e3", "\u0663"])
def test_a_bad_wait_is_refused_and_names_the_header(
    taught: Client, path: str, body: dict[str, Any], text: str
) -> None:
    response = taught.post(
        path, body, environ_overrides={"HTTP_PREFER": f"wait={text}".encode().decode("latin-1")}
    )
    found = error_of(response, 400, "VALIDATION_ERROR")
    assert found["details"] == {"header": "Prefer"}
    assert "Preference-Applied" not in response.headers


@pytest.mark.parametrize("wait", ["20", "0020", "99999999999999999999", '"20"'])
def test_a_wait_is_confirmed(taught: Client, wait: str) -> None:
    response = taught.post(
        "/ask",
        {"predicate": "edge", "args": ["1", "?x"]},
        {"Prefer": f"respond-async, wait={wait}"},
    )
    assert (response.status_code, response.headers["Preference-Applied"]) == (
        200,
        f"wait={wait.strip(chr(34))}",
    )
    assert (
        "Preference-Applied"
        not in taught.post("/ask", {"predicate": "edge", "args": ["1", "?x"]}).headers
    )


def test_the_shorter_of_wait_and_timeout_counts(served: Served, taught: Client) -> None:
    """The clock of the application stands still, so that only a deadline that is met at once is
    met.
    """
    asked = {"predicate": "tick", "args": ["?n"], "maxRows": 200_000}
    response = taught.post("/ask", {**asked, "timeoutMs": 9000}, {"Prefer": "wait=0"})
    found = error_of(response, 422, "BUDGET_EXCEEDED")
    assert found["details"] == {"limit": "timeMs", "value": 0, "rule": RULES.splitlines()[3]}
    assert response.headers["Preference-Applied"] == "wait=0"
    found = error_of(taught.post("/ask", asked, {"Prefer": "wait=1"}), 422, "BUDGET_EXCEEDED")
    assert found["details"]["limit"] == "derivedRows"


def test_a_wait_of_zero_returns_available_answers(taught: Client) -> None:
    response = taught.post("/ask", {"predicate": "edge", "args": ["1", "?x"]}, {"Prefer": "wait=0"})
    assert response.status_code == 200
    assert len(response.get_json()) == 1


def test_a_wait_of_zero_compiles_a_goal(taught: Client) -> None:
    rules = "".join(f"w{i}(?x) :- edge(?x, ?y), not w{i + 1}(?x).\n" for i in range(50))
    assert taught.post("/teach", {"text": rules}).status_code == 200
    response = taught.post("/ask", {"predicate": "w49", "args": ["?x"]}, {"Prefer": "wait=0"})
    assert response.status_code == 200, response.text


def test_several_preferences_are_honoured_at_once(taught: Client) -> None:
    prefer = {"Prefer": "return=representation, wait=5"}
    response = taught.post("/retract", {"predicate": "edge", "args": ["1", "x"]}, prefer)
    assert response.headers["Preference-Applied"] == "wait=5, return=representation"
    assert response.get_json()["retracted"] == 1


def test_a_retraction_succeeds_when_its_cascade_count_is_cut_short(taught: Client) -> None:
    cut = {"predicate": "edge", "args": ["1", "x"], "maxRows": 5}
    response = taught.post("/retract", cut, {"Prefer": "return=representation"})
    assert response.status_code == 200
    assert (response.get_json()["retracted"], response.get_json()["truncated"]) == (1, True)
    found = taught.post(
        "/retract/pattern", {"predicate": "edge", "args": ["2", None], "maxRows": 5}
    )
    assert (found.get_json()["retracted"], found.get_json()["truncated"]) == (1, True)
    assert taught.ask("edge", "1", "?x") == []


def test_without_a_free_slot_the_client_must_retry() -> None:
    with serve_in_memory(tenant_max_inferences=1, query_timeout_ms=1) as served:
        client = served.client
        client.post(
            "/assert/facts",
            {"facts": [{"predicate": "edge", "args": [str(n), "x"]} for n in range(300)]},
        )
        client.post("/teach", {"text": RULES})
        busy = Admission(served.runtime.slots, ("default", "t"))
        busy.request(0)
        response = client.post("/ask", BOMB)
        found = error_of(response, 429, "RATE_LIMITED")
        assert found["details"] == {
            "retryAfterSeconds": 1.0,
            "limit": "TENANT_MAX_INFERENCES",
            "value": 1,
        }
        assert response.headers["Retry-After"] == "1"
        assert client.ask("edge", "1", "?x") == [["1", "x"]]  # short goals need no slot
        other = client.post("/ask", {**BOMB, "maxRows": 10}, {"X-Tenant-ID": "u"})
        assert other.get_json() == []
        busy.release()
        error_of(client.post("/ask", {**BOMB, "maxRows": 1_000_000}), 422, "BUDGET_EXCEEDED")
