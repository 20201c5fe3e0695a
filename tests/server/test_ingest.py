"""`/context/ingest` without a model, the natural format, and summaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.http import NOW, Client, Served, error_of, serve_in_memory
from support.stand_in import StandIn

HOUR = 3_600_000
ENTRY_KEYS = [
    "predicate",
    "args",
    "negated",
    "scope",
    "salience",
    "category",
    "charCount",
    "provenance",
    "createdAt",
    "validFrom",
    "validUntil",
    "metadata",
    "contradicted",
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
        "extracted",
        "rules",
        "extractionProvider",
        "extractionModel",
        "unreadLines",
        "rejected",
        "failures",
        "context",
        "episodeIds",
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
        "facts",
        "totalFactsInKB",
        "factsReturned",
        "contradictions",
        "newFactsExtracted",
        "sessionId",
        "warning",
        "briefingDelta",
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
    assert second["briefingDelta"] == "% New\nworks_at(bob, acme)."


def test_a_scope(client: Client) -> None:
    found = client.post(
        "/context/ingest", {"text": "p(a)\nq(?x) :- p(?x).", "scope": "s"}
    ).get_json()
    assert [entry["scope"] for entry in found["context"]["entries"]] == ["s"]
    assert client.ask("q", "?x", scope="s") == [["a"]]
    assert client.ask("q", "?x") == []


def test_natural_format(client: Client) -> None:
    client.tell("works_at", "ann", "acme", confidence=0.7)
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
    assert text.splitlines() == [
        "Goal: ann works at ?x",
        "ann works at acme (confidence 0.7).",
        "Other facts:",
        "ann likes tea.",
    ]
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
        "totalFacts",
        "predicateCount",
        "topPredicates",
        "factsWithTtl",
        "factsExpiringWithin1h",
        "contradictions",
        "constraintViolations",
        "topViolations",
        "topSalientFacts",
        "totalCharCount",
        "knowledgeGeneration",
        "generatedAt",
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


WHEN = "2023-11-14T22:13:20.000Z"


@pytest.fixture
def remembering() -> Iterator[Client]:
    """A server that keeps prose as episodes."""
    with serve_in_memory(extraction_fallback="episode") as served:
        yield served.client


def said(client: Client, **more: Any) -> list[list[str]]:
    return client.ask("said", "?who", "?what", "?when", **more)


def test_prose_is_kept_as_episodes(remembering: Client) -> None:
    turns = [
        {"role": "user", "name": "ann", "content": "I moved to Oslo"},
        "That is\nfar away.",
        "likes(ann, tea)",
        "Yes.",
    ]
    answer = remembering.post("/context", {"turns": turns, "scope": "s"}).get_json()
    assert said(remembering, scope="s") == [
        ["ann", "I moved to Oslo", WHEN],
        ["user", "That is\nfar away.", WHEN],
        ["user", "Yes.", WHEN],
    ]
    assert remembering.ask("likes", "ann", "?x", scope="s") == [["ann", "tea"]]
    assert answer["newFactsExtracted"] == 4
    assert answer["warning"] == (
        "kept as episodes, for no language model is configured: 4 lines of prose"
    )
    asked = {"query": "Oslo", "scope": "s", "format": "text"}
    assert "I moved to Oslo" in remembering.post("/memory/context", asked).text


def test_paragraphs_and_speakers_of_a_text_are_episodes(remembering: Client) -> None:
    for speaker in ("Ann", "bob"):
        remembering.post("/episodes", {"speaker": speaker, "text": "hi"})
    text = "Ann: hello\n  and welcome\nbob: hi\n\nSee https://x.example: a page\nNo: 5:30"
    answer = remembering.post("/context/ingest", {"text": text}).get_json()
    assert said(remembering) == [
        ["Ann", "hello\nand welcome", WHEN],
        ["bob", "hi", WHEN],
        ["user", "See https://x.example: a page\nNo: 5:30", WHEN],
    ]
    assert [one["predicate"] for one in answer["extracted"]] == ["said"] * 3
    assert answer["unreadLines"] == [1, 2, 3, 5, 6]
    (row, *_) = remembering.post("/query", {"text": "said(bob, ?x, ?y)"}).get_json()
    assert row["metadata"] == {"episode": True}


def test_repeated_prose_of_a_request_is_one_fact(remembering: Client) -> None:
    answer = remembering.post("/context", {"turns": ["Yes.", "Yes."]}).get_json()
    assert (answer["newFactsExtracted"], len(said(remembering))) == (1, 1)


def test_a_language_model_is_preferred_to_episodes() -> None:
    with (
        StandIn() as standin,
        serve_in_memory(**standin.settings(extraction_fallback="episode")) as served,
    ):
        text = "Ann works at Acme. She probably likes tea. Bob doesn't like coffee."
        assert served.client.post("/context", {"turns": [text]}).status_code == 200
        assert said(served.client) == []
        assert served.client.ask("works_at", "?x", "?y")


def test_by_default_prose_alone_is_refused(client: Client) -> None:
    error = error_of(client.post("/context", {"turns": ["I moved."]}), 501, "LLM_NOT_CONFIGURED")
    assert "EXTRACTION_FALLBACK=episode" in error["message"]
    assert said(client) == []
