"""`/context/ingest` without a model, the natural format, and summaries."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, Client, Served, error_of

HOUR = 3_600_000
ENTRY_KEYS = [
    *("predicate", "args", "negated", "scope", "salience", "category", "charCount"),
    *("provenance", "createdAt", "validFrom", "validUntil", "metadata", "contradicted"),
]
TEXT = """Here is what I know:
works_at(ann, acme)
not likes(ann, coffee)
likes(ann, tea) [confidence=0.8].
colleague_of(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y.
works_at(bob, acme)
"""


def test_ingest(client: Client) -> None:
    body = {
        "text": TEXT,
        "goals": [{"predicate": "colleague_of", "args": ["ann", "?who"]}],
        "sessionId": "s",
    }
    found = client.post("/context/ingest", body).get_json()
    assert list(found) == [
        *(
            "extracted",
            "rules",
            "extractionProvider",
            "extractionModel",
            "unreadLines",
            "rejected",
            "failures",
            "context",
        )
    ]
    assert [
        (one["predicate"], one["args"], one["negated"], one["confidence"])
        for one in found["extracted"]
    ] == [
        ("works_at", ["ann", "acme"], False, 1.0),
        ("likes", ["ann", "coffee"], True, 1.0),
        ("likes", ["ann", "tea"], False, 0.8),
        ("works_at", ["bob", "acme"], False, 1.0),
    ]
    assert (found["extractionProvider"], found["unreadLines"]) == ("predicate-syntax", [1])
    assert found["rules"] == [
        "colleague_of(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y."
    ]
    window = found["context"]
    assert {
        "windowId",
        "entries",
        "totalFactsAvailable",
        "totalFactsIncluded",
        "totalCharCount",
    } <= set(window)
    assert window["goalDriven"] is True
    assert (window["entries"][0]["predicate"], window["entries"][0]["args"]) == (
        "colleague_of",
        ["ann", "bob"],
    )
    again = client.post("/context/diff", {"sessionId": "s"}).get_json()
    assert (again["added"], again["removed"], again["previousWindowId"]) == (
        [],
        [],
        window["windowId"],
    )


@pytest.mark.parametrize("path", ["/context/ingest", "/context"])
def test_prose_needs_a_model_and_stores_nothing(client: Client, path: str) -> None:
    text = "Ann likes tea. She works at Acme."
    error_of(client.post(path, {"text": text, "turns": [text]}), 501, "LLM_NOT_CONFIGURED")
    assert client.get("/predicates").get_json()["predicates"] == []


def test_a_text_is_stored_whole_or_not_at_all(client: Client) -> None:
    text = "Hello\nlikes(ann, tea)\np(?x, ?y) :- likes(?x, tea)."
    error_of(client.post("/context/ingest", {"text": text}), 400, "VALIDATION_ERROR")
    assert client.ask("likes", "?x", "?y") == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/context/ingest", {}, "text"),
        ("/context/ingest", {"text": 3}, "text"),
        ("/context/ingest", {"text": "p(a)", "goals": {}}, "goals"),
        ("/context/ingest", {"text": "p(a)", "scope": "*"}, "scope"),
        ("/context/ingest", {"text": "p(a)", "maxFacts": 0}, "maxFacts"),
        ("/context/ingest", {"text": "p(a) [scope=s]."}, "text"),
        ("/context", {}, "turns"),
        ("/context", {"turns": "p(a)"}, "turns"),
        ("/context", {"turns": ["p(a)", 3]}, "turns[1]"),
        ("/context/summary", {"scope": 3}, "scope"),
    ],
)
def test_bodies_are_validated_before_anything_is_stored(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    error = error_of(client.post(path, body), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]
    assert client.get("/predicates").get_json()["predicates"] == []


def test_turns_of_a_conversation(client: Client) -> None:
    first = client.post(
        "/context", {"turns": ["Hi!", "likes(ann, tea)"], "sessionId": "s"}
    ).get_json()
    assert list(first) == [
        *("facts", "totalFactsInKB", "factsReturned", "contradictions", "newFactsExtracted"),
        *("sessionId", "warning", "briefingDelta"),
    ]
    (fact,) = first["facts"]
    assert (fact["predicate"], fact["args"], fact["provenance"]) == ("likes", ["ann", "tea"], None)
    assert (first["totalFactsInKB"], first["factsReturned"], first["newFactsExtracted"]) == (
        1,
        1,
        1,
    )
    assert (first["sessionId"], first["briefingDelta"]) == ("s", None)
    assert first["warning"] == "not read, for no language model is configured: 1 line of prose"
    second = client.post(
        "/context", {"turns": ["likes(ann, tea)", "works_at(bob, acme)"], "sessionId": "s"}
    ).get_json()
    assert (second["newFactsExtracted"], second["warning"]) == (1, None)
    assert second["briefingDelta"] == "New: bob works at acme."


def test_a_scope(client: Client) -> None:
    found = client.post(
        "/context/ingest", {"text": "p(a)\nq(?x) :- p(?x).", "scope": "s"}
    ).get_json()
    assert [entry["scope"] for entry in found["context"]["entries"]] == ["s"]
    assert client.ask("q", "?x", scope="s") == [["a"]]
    assert client.ask("q", "?x") == []


def test_natural_format(client: Client) -> None:
    client.tell("works_at", "ann", "acme", confidence=0.9)
    client.tell("likes", "ann", "tea")
    found = client.post("/memory/context", {"format": "natural", "maxFacts": 1}).get_json()
    assert found["formattedText"] == "ann likes tea."
    assert found["entries"]
    body = {
        "format": "natural",
        "goals": [{"predicate": "works_at", "args": ["ann", "?x"]}],
        "fill": "salience",
    }
    text = client.post("/memory/context", body).get_json()["formattedText"]
    assert text == "ann works at acme (confidence 0.9); likes tea."
    assert "formattedText" not in client.post("/memory/context", {}).get_json()


def test_summary(served: Served) -> None:
    client = served.client
    assert client.post("/context/summary", {}).get_json()["totalFacts"] == 0
    for n in range(12):
        client.tell(f"p{n}", "a")
    client.tell("p3", "b c", negated=True)
    client.tell("p3", "a", negated=True)
    client.tell("p4", "a", negated=True, ttl=10)
    client.tell("short", "x", ttl=HOUR)
    client.tell("long", "x", ttl=2 * HOUR)
    client.tell("ends", "x", validUntil=NOW + HOUR)
    client.tell("later", "x", validFrom=NOW + 5 * HOUR)
    client.tell("p0", "z", scope="s")
    before = client.post("/context/summary", {"scope": None}).get_json()
    assert list(before) == [
        *(
            "totalFacts",
            "predicateCount",
            "topPredicates",
            "factsWithTtl",
            "factsExpiringWithin1h",
            "contradictions",
        ),
        *("topSalientFacts", "totalCharCount", "knowledgeGeneration", "generatedAt"),
    ]
    assert (before["totalFacts"], before["predicateCount"], before["contradictions"]) == (18, 15, 2)
    assert (before["factsWithTtl"], before["factsExpiringWithin1h"]) == (3, 3)
    served.clock.advance(10)
    found = client.post("/context/summary", {}).get_json()
    assert (found["totalFacts"], found["contradictions"], found["generatedAt"]) == (17, 1, NOW + 10)
    assert (found["factsWithTtl"], found["factsExpiringWithin1h"]) == (2, 2)
    assert found["topPredicates"][:2] == [
        {"predicate": "p3", "count": 3},
        {"predicate": "ends", "count": 1},
    ]
    assert len(found["topPredicates"]) == 10
    assert [list(entry) for entry in found["topSalientFacts"]] == [ENTRY_KEYS] * 5
    every = client.post("/memory/context", {"autoResolveContradictions": False}).get_json()
    assert found["totalCharCount"] == every["totalCharCount"]
    assert client.post("/context/summary", {"scope": "s"}).get_json()["totalFacts"] == 1
    assert client.post("/context/summary", {"scope": "*"}).get_json()["totalFacts"] == 18


def test_reading_a_summary_is_not_an_access(served: Served) -> None:
    served.client.tell("p", "a")
    served.clock.advance(HOUR)
    salience = [
        served.client.post("/context/summary", {}).get_json()["topSalientFacts"][0]["salience"]
        for _ in range(2)
    ]
    assert salience[0] == salience[1] < 0.5
