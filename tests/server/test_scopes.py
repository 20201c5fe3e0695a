"""Scopes over HTTP."""

from __future__ import annotations

import pytest
from support.http import NOW, ROW_KEYS, Client, Served, error_of, serve_in_memory

FORK = "/scope/fork"
DIFF = "/scope/diff"
MERGE = "/scope/merge"


@pytest.fixture
def base(client: Client) -> Client:
    client.tell("p", "a", confidence=0.5)
    client.tell("p", "b")
    return client


@pytest.mark.parametrize(
    "body",
    [
        {"targetScope": "s"},
        {"source": "default", "target": "s"},
        {"sourceScope": None, "target": "s"},
        {"source": None, "scopeB": "s"},
    ],
)
def test_fork_the_base(base: Client, body: dict) -> None:
    response = base.post(FORK, body)
    assert response.status_code == 200
    assert response.get_json() == {"copied": 2, "sourceScope": None, "targetScope": "s"}
    assert base.ask("p", "?x", scope="s") == [["a"], ["b"]]


def test_fork_a_scope_with_its_rules(base: Client) -> None:
    base.tell("p", "c", scope="s")
    assert base.post("/teach", {"text": "q(?x) :- p(?x).", "scope": "s"}).status_code == 200
    assert base.post(FORK, {"source": "s", "target": "t"}).get_json() == {
        "copied": 1,
        "sourceScope": "s",
        "targetScope": "t",
    }
    assert base.ask("q", "?x", scope="t") == [["c"]]
    assert base.ask("q", "?x") == []


def test_fork_refusals(base: Client) -> None:
    base.tell("p", "c", scope="s")
    error = error_of(base.post(FORK, {"targetScope": "s"}), 409, "CONFLICT")
    assert error["details"] == {"scope": "s"}
    error_of(base.post(FORK, {"sourceScope": "none", "targetScope": "t"}), 404, "NOT_FOUND")
    for body in (
        {},
        {"sourceScope": "s"},
        {"sourceScope": "s", "targetScope": "s"},
        {"targetScope": "*"},
        {"sourceScope": "*", "targetScope": "t"},
        {"targetScope": "a b"},
        {"targetScope": 5},
        {"targetScope": "t", "overwrite": "yes"},
        {"targetScope": "t", "target": "u"},
    ):
        error = error_of(base.post(FORK, body), 400, "VALIDATION_ERROR")
        assert error["details"]["fields"]
    assert base.get("/scopes").get_json() == {"scopes": ["s"], "count": 1}
    assert base.ask("p", "?x", scope="s") == [["c"]]
    assert base.post(FORK, {"targetScope": "s", "overwrite": True}).get_json()["copied"] == 2
    assert base.ask("p", "?x", scope="s") == [["a"], ["b"]]
    error_of(
        base.post(FORK, {"target": "t", "odd": 1}, {"Prefer": "handling=strict"}),
        400,
        "VALIDATION_ERROR",
    )


@pytest.mark.parametrize(
    ("one", "other"), [("sourceScope", "targetScope"), ("scopeA", "scopeB"), ("source", "target")]
)
def test_diff(base: Client, one: str, other: str) -> None:
    base.post(FORK, {"target": "s"})
    base.tell("p", "a", confidence=0.9, scope="s")
    base.tell("q", "x", scope="s")
    base.post("/retract", {"predicate": "p", "args": ["b"], "scope": "s"})
    base.tell("same", "x")
    base.tell("same", "x", scope="s")
    found = base.post(DIFF, {one: None, other: "s"}).get_json()
    assert list(found) == [
        "added",
        "removed",
        "modified",
        "onlyInA",
        "onlyInB",
        "inBoth",
        "conflicts",
        "unchanged",
    ]
    assert [row["args"] for row in found["added"]] == [["x"]]
    assert [row["args"] for row in found["removed"]] == [["b"]]
    assert (found["onlyInA"], found["onlyInB"]) == (found["removed"], found["added"])
    (pair,) = found["modified"]
    assert list(pair) == ["before", "after"]
    assert (pair["before"]["confidence"], pair["after"]["confidence"]) == (0.5, 0.9)
    assert list(found["added"][0]) == list(pair["before"]) == ROW_KEYS
    assert (found["inBoth"], found["conflicts"], found["unchanged"]) == (2, 1, 1)


def test_diff_refusals(base: Client) -> None:
    for body in ({}, {"scopeA": None, "scopeB": None}, {"scopeA": "*", "scopeB": "s"}):
        error_of(base.post(DIFF, body), 400, "VALIDATION_ERROR")
    error_of(base.post(DIFF, {"scopeA": "none"}), 404, "NOT_FOUND")
    error_of(base.post(DIFF, {"scopeB": "none"}), 404, "NOT_FOUND")
    with serve_in_memory(query_max_answers=1) as small:
        small.client.tell("p", "a")
        small.client.tell("p", "b")
        small.client.tell("q", "b", scope="s")
        error = error_of(small.client.post(DIFF, {"target": "s"}), 422, "BUDGET_EXCEEDED")
        assert error["details"]["limit"] == "answers"


def test_a_long_diff_is_complete(client: Client) -> None:
    client.post("/assert/facts", {"facts": [{"predicate": "p", "args": [n]} for n in range(5000)]})
    client.tell("q", "a", scope="s")
    found = client.post(DIFF, {"source": None, "target": "s"}).get_json()
    assert [row["args"][0] for row in found["removed"]] == [str(n) for n in range(5000)]


def test_merge(base: Client) -> None:
    base.post(FORK, {"target": "s"})
    base.tell("p", "a", confidence=0.9, scope="s")
    base.tell("q", "x", scope="s")
    response = base.post(MERGE, {"sourceScope": "s", "targetScope": None})
    assert response.get_json() == {
        "merged": 2,
        "conflictsResolved": 1,
        "conflicts": 1,
        "strategy": "SOURCE_WINS",
        "timestamp": response.get_json()["timestamp"],
    }
    assert response.get_json()["timestamp"] >= NOW
    assert base.post("/query", {"predicate": "p", "args": ["a"]}).get_json()[0]["confidence"] == 0.9
    assert base.ask("q", "?x", scope="s") == base.ask("q", "?x") == [["x"]]


def test_the_scope_default_is_the_base(base: Client) -> None:
    base.tell("p", "c", scope="s")
    answer = base.post(DIFF, {"scopeA": "default", "scopeB": "s"}).get_json()
    assert [row["args"] for row in answer["added"]] == [["c"]]
    assert len(answer["removed"]) == 2
    merged = base.post(MERGE, {"sourceScope": "s", "targetScope": "default"})
    assert merged.get_json()["merged"] == 1
    assert base.ask("p", "?x") == [["a"], ["b"], ["c"]]
    for path in (FORK, MERGE, DIFF):
        refused = base.post(path, {"sourceScope": None, "targetScope": "default"})
        error_of(refused, 400, "VALIDATION_ERROR")


def test_merge_is_one_log_record_and_a_refused_one_none(served: Served) -> None:
    client = served.client
    client.tell("p", "a", confidence=0.5)
    client.tell("p", "a", scope="s")
    client.tell("q", "b", scope="s")
    before = len(served.store.records)
    error = error_of(client.post(MERGE, {"source": "s", "strategy": "REJECT"}), 409, "CONFLICT")
    assert error["details"]["count"] == 1
    assert error["details"]["conflicts"][0]["before"]["args"] == ["a"]
    assert client.ask("q", "?x") == []
    assert len(served.store.records) == before
    assert client.post(MERGE, {"source": "s", "strategy": "KEEP_BOTH"}).get_json()["conflicts"] == 1
    assert len(served.store.records) == before + 1


def test_merge_refusals(base: Client) -> None:
    base.tell("p", "c", scope="s")
    error = error_of(base.post(MERGE, {"source": "s", "strategy": "MINE"}), 400, "VALIDATION_ERROR")
    assert "KEEP_BOTH, REJECT, SOURCE_WINS, TARGET_WINS" in error["message"]
    for body in (
        {},
        {"source": "s", "target": "s"},
        {"source": "*"},
        {"source": "s", "strategy": 5},
    ):
        error_of(base.post(MERGE, body), 400, "VALIDATION_ERROR")
    error_of(base.post(MERGE, {"source": "none"}), 404, "NOT_FOUND")
    error_of(base.post(MERGE, {"source": "s", "target": "none"}), 404, "NOT_FOUND")
    assert base.ask("p", "?x") == [["a"], ["b"]]


def test_delete_and_list(base: Client) -> None:
    for name in ("b", "a.b", "a"):
        base.tell("p", "c", scope=name)
    assert base.get("/scopes").get_json() == {"scopes": ["a", "a.b", "b"], "count": 3}
    response = base.flask.delete("/scope/a.b", headers={"X-Tenant-ID": "t"})
    assert (response.status_code, response.get_json()) == (200, {"deleted": 1, "scope": "a.b"})
    error_of(base.flask.delete("/scope/a.b", headers={"X-Tenant-ID": "t"}), 404, "NOT_FOUND")
    error_of(base.flask.delete("/scope/*", headers={"X-Tenant-ID": "t"}), 400, "VALIDATION_ERROR")
    error_of(base.flask.delete("/scope/a b", headers={"X-Tenant-ID": "t"}), 400, "VALIDATION_ERROR")
    error_of(base.flask.delete("/scope/b", headers={"X-Tenant-ID": "other"}), 404, "NOT_FOUND")
    assert base.get("/scopes").get_json()["scopes"] == ["a", "b"]
    assert base.get("/scopes", {"X-Tenant-ID": "other"}).get_json() == {"scopes": [], "count": 0}
    assert base.ask("p", "?x", scope="*") == [["a"], ["b"], ["c"], ["c"]]


def test_an_empty_body_with_a_content_type_is_fine(base: Client) -> None:
    headers = {"X-Tenant-ID": "t", "Content-Type": "application/json"}
    base.tell("p", "c", scope="s")
    assert base.flask.get("/scopes", headers=headers).status_code == 200
    assert base.flask.delete("/scope/s", headers=headers, data=b"").status_code == 200


def test_scope_routes_refuse_transactions(base: Client) -> None:
    transaction = base.post("/tx/begin").text
    base.tell("p", "c", scope="s")
    header = {"X-Transaction-ID": transaction, "X-Tenant-ID": "t"}
    for call in (
        lambda: base.post(FORK, {"source": "s", "target": "u"}, header),
        lambda: base.post(DIFF, {"source": "s"}, header),
        lambda: base.post(MERGE, {"source": "s"}, header),
        lambda: base.flask.delete("/scope/s", headers=header),
        lambda: base.get("/scopes", header),
    ):
        error = error_of(call(), 400, "VALIDATION_ERROR")
        assert error["details"] == {"header": "X-Transaction-ID"}
    assert base.get("/scopes").get_json()["scopes"] == ["s"]
    assert base.post(f"/tx/commit/{transaction}").status_code == 200


def test_a_transaction_on_a_deleted_scope_conflicts(base: Client) -> None:
    base.tell("p", "c", scope="s")
    transaction = base.post("/tx/begin").text
    header = {"X-Transaction-ID": transaction}
    assert (
        base.post("/query", {"predicate": "p", "args": ["?x"], "scope": "s"}, header).status_code
        == 200
    )
    assert (
        base.post("/tell", {"predicate": "q", "args": ["x"], "scope": "s"}, header).status_code
        == 200
    )
    assert base.flask.delete("/scope/s", headers={"X-Tenant-ID": "t"}).status_code == 200
    error_of(base.post(f"/tx/commit/{transaction}"), 409, "CONFLICT")
    assert base.get("/scopes").get_json()["scopes"] == []
