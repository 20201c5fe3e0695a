"""Memory routes: decay, consolidation, priorities, queries by salience and by time."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, ROW_KEYS, Client, Served, error_of

HOUR = 3_600_000


def test_decay(served: Served) -> None:
    client = served.client
    client.tell("p", "old")
    client.tell("p", "short", ttl=10)
    served.clock.advance(20 * HOUR)
    client.tell("p", "new")
    dry = client.post("/memory/decay", {"threshold": 0.2, "dryRun": True}).get_json()
    found = client.post("/memory/decay", {"threshold": 0.2}).get_json()
    assert list(found) == ["expiredCount", "evictedCount", "removedAtoms", "timestamp"]
    assert (found["expiredCount"], found["evictedCount"], found["timestamp"]) == (
        1,
        1,
        NOW + 20 * HOUR,
    )
    assert [list(row) for row in found["removedAtoms"]] == [ROW_KEYS, ROW_KEYS]
    assert [row["args"] for row in found["removedAtoms"]] == [["short"], ["old"]]
    assert dry["dryRun"] is True
    assert [row.pop("why")["reason"] for row in dry["removedAtoms"]] == ["expired", "faded"]
    assert dry["removedAtoms"] == found["removedAtoms"]
    assert client.ask("p", "?x") == [["new"]]


def test_decay_without_a_body_keeps_recent_facts(client: Client) -> None:
    client.tell("p", "a")
    found = client.post("/memory/decay").get_json()
    assert (found["expiredCount"], found["evictedCount"], found["removedAtoms"]) == (0, 0, [])


def test_decay_of_a_scope(served: Served) -> None:
    client = served.client
    client.tell("p", "a", ttl=10)
    client.tell("p", "a", ttl=10, scope="s")
    served.clock.advance(10)
    found = client.post("/memory/cleanup", {"scope": "s"}).get_json()
    assert [row["scope"] for row in found["removedAtoms"]] == ["s"]
    assert client.post("/memory/cleanup", {"scope": None}).get_json()["expiredCount"] == 1


@pytest.mark.parametrize("path", ["/memory/decay", "/memory/cleanup"])
@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", True, [0.5]])
def test_thresholds_are_checked(client: Client, path: str, threshold: Any) -> None:
    client.tell("p", "a")
    error = error_of(client.post(path, {"threshold": threshold}), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == ["threshold"]
    assert client.ask("p", "?x") == [["a"]]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/memory/decay", {"scope": "*"}, "scope"),
        ("/memory/decay", {"dryRun": "yes"}, "dryRun"),
        ("/memory/consolidate", {"scope": "*"}, "scope"),
        ("/memory/consolidate", {"minGroupSize": 1}, "minGroupSize"),
        ("/memory/consolidate", {"predicates": "p"}, "predicates"),
        ("/memory/consolidate", {"predicates": ["p", 5]}, "predicates[1]"),
        ("/memory/priority", {"predicate": "p", "args": ["a"]}, "priority"),
        ("/memory/priority", {"predicate": "p", "args": ["?x"], "priority": 1}, "args[0]"),
        ("/memory/priority", {"predicate": "p", "args": ["a"], "priority": 2}, "priority"),
        (
            "/memory/priority",
            {"predicate": "p", "args": ["a"], "priority": 1, "scope": "*"},
            "scope",
        ),
        ("/memory/query/salient", {"args": ["a"]}, "predicate"),
        ("/memory/query/salient", {"limit": 0}, "limit"),
        ("/memory/query/salient", {"minSalience": 7}, "minSalience"),
        ("/memory/recall", {"predicate": "p", "args": ["a"]}, "timestamp"),
        (
            "/memory/recall",
            {"predicate": "p", "args": ["a"], "timestamp": "yesterday"},
            "timestamp",
        ),
    ],
)
def test_bad_bodies(client: Client, path: str, body: dict[str, Any], field: str) -> None:
    error = error_of(client.post(path, body), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]


def test_unknown_keys_are_refused_in_strict_requests(client: Client) -> None:
    for path in ("/memory/decay", "/memory/consolidate", "/memory/query/salient"):
        assert client.post(path, {"treshold": 1}).status_code == 200
        error_of(
            client.post(path, {"treshold": 1}, {"Prefer": "handling=strict"}),
            400,
            "VALIDATION_ERROR",
        )


def test_consolidation(served: Served) -> None:
    client = served.client
    for place in range(5):
        client.tell("visited", "ann", place)
    dry = client.post("/memory/consolidate", {"dryRun": True}).get_json()
    assert client.ask("visited_consolidated", "?who", "?n") == []
    served.clock.advance(1)
    found = client.post("/memory/consolidate").get_json()
    assert found["factsConsolidated"] == dry["factsConsolidated"] == 5
    assert (found["timestamp"], dry["dryRun"]) == (NOW + 1, True)
    (row,) = found["newFacts"]
    assert list(row) == ROW_KEYS
    assert (row["predicate"], row["args"]) == ("visited_consolidated", ["ann", "5"])
    assert row["metadata"] == {"consolidated": True, "sources": 5, "from": NOW, "to": NOW}
    client.tell("visited", "ann", "6")
    again = client.post(
        "/memory/compress", {"predicates": ["visited"], "minGroupSize": 6}
    ).get_json()
    assert again["summariesRemoved"] == 1
    assert client.ask("visited_consolidated", "?who", "?n") == [["ann", "6"]]
    assert len(client.ask("visited", "ann", "?place")) == 6


@pytest.mark.parametrize("path", ["/memory/priority", "/memory/prioritize"])
def test_priority(client: Client, path: str) -> None:
    client.tell("p", "a", "b")
    client.tell("p", "a", "c")
    response = client.post(path, {"predicate": "p", "args": ["a", "b"], "priority": 0.25})
    assert (response.status_code, response.text) == (200, "Priority Set: p(a, b) = 0.25")
    ranked = client.post(
        "/memory/query/salient", {"predicate": "p", "args": ["a", "?x"]}
    ).get_json()
    assert [row["args"] for row in ranked] == [["a", "c"], ["a", "b"]]
    error_of(
        client.post(path, {"predicate": "p", "args": ["a", "x"], "priority": 1}), 404, "NOT_FOUND"
    )


def test_salient(served: Served) -> None:
    client = served.client
    client.tell("p", "a")
    served.clock.advance(HOUR)
    client.tell("p", "b")
    client.tell("q", "c", "d", negated=True)
    client.tell("q", "c", "e", scope="s")
    found = client.post(
        "/memory/query/salient", {"predicate": "p", "args": ["?x"], "limit": 1}
    ).get_json()
    assert [list(row) for row in found] == [[*ROW_KEYS, "salience"]]
    assert found[0]["args"] == ["b"]
    assert 0.64 < found[0]["salience"] < 0.65
    every = client.post("/memory/query/salient", {}).get_json()
    assert [(row["predicate"], row["negated"]) for row in every] == [
        ("p", False),
        ("q", True),
        ("p", False),
    ]
    assert (
        len(client.post("/memory/query/salient", {"scope": "*", "predicate": "q"}).get_json()) == 2
    )
    assert client.post("/memory/query/salient", {"minSalience": 0.99}).get_json() == []
    assert client.post("/memory/query/salient", {"predicate": "p", "args": [None]}).get_json() != []


@pytest.mark.parametrize("path", ["/memory/query/temporal", "/memory/recall"])
def test_recall(served: Served, path: str) -> None:
    client = served.client
    client.tell("at", "ann", "home", validUntil=NOW + 100)
    served.clock.advance(100)
    client.tell("at", "ann", "work")
    for moment, place in ((NOW, "home"), ("2023-11-14T22:13:20.050Z", "home"), (NOW + 100, "work")):
        found = client.post(
            path, {"predicate": "at", "args": ["ann", "?where"], "timestamp": moment}
        ).get_json()
        assert [row["args"] for row in found] == [["ann", place]]
        assert list(found[0]) == [*ROW_KEYS, "truthVal"]
    assert (
        client.post(
            path, {"predicate": "at", "args": [None, None], "timestamp": NOW - 1}
        ).get_json()
        == []
    )


def test_reads_of_a_transaction_see_its_writes(client: Client) -> None:
    inside = {"X-Transaction-ID": client.post("/tx/begin").text}
    client.post("/tell", {"predicate": "p", "args": ["a"]}, inside)
    assert len(client.post("/memory/query/salient", {}, inside).get_json()) == 1
    assert (
        len(
            client.post(
                "/memory/recall", {"predicate": "p", "args": [None], "timestamp": NOW}, inside
            ).get_json()
        )
        == 1
    )
    assert client.post("/memory/query/salient", {}).get_json() == []


def test_a_truncated_list_is_marked(tmp_path: Any) -> None:
    from support.http import serve_in_memory

    with serve_in_memory(query_max_answers=2) as served:
        for name in "abc":
            served.client.tell("p", name)
        found = served.client.post("/memory/decay", {"threshold": 1}).get_json()
        assert (found["evictedCount"], len(found["removedAtoms"]), found["truncated"]) == (
            3,
            2,
            True,
        )
