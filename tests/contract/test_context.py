"""The interface document and decisions.md 4 and 5 about context windows, sentence by sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.http import NOW, Client, Served, error_of

ENTRY = {
    "predicate": str,
    "args": list,
    "negated": bool,
    "scope": (str, type(None)),
    "salience": float,
    "category": str,
    "charCount": int,
    "provenance": (dict, type(None)),
    "createdAt": int,
    "validFrom": (int, type(None)),
    "validUntil": (int, type(None)),
    "metadata": dict,
    "contradicted": bool,
}
WINDOW = {
    "windowId": str,
    "entries": list,
    "relevantRules": list,
    "totalFactsAvailable": int,
    "totalFactsIncluded": int,
    "deduplicationSavings": int,
    "contradictionsFound": int,
    "contradictionsResolved": int,
    "contradictions": list,
    "bucketStats": dict,
    "totalCharCount": int,
    "goalDriven": bool,
    "knowledgeGeneration": int,
    "generatedAt": int,
}
SUMMARY = {
    "totalFacts": int,
    "predicateCount": int,
    "topPredicates": list,
    "factsWithTtl": int,
    "factsExpiringWithin1h": int,
    "contradictions": int,
    "topSalientFacts": list,
    "totalCharCount": int,
    "knowledgeGeneration": int,
    "generatedAt": int,
}


def asked(client: Client, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.get_json()
    return found


def typed(found: dict[str, Any], fields: dict[str, Any]) -> None:
    for name, kind in fields.items():
        assert isinstance(found[name], kind), (name, found[name])


@pytest.mark.parametrize(
    "more",
    [
        {"goals": [{"predicate": "p", "args": ["?x"]}]},
        {"sessionId": "s"},
        {"relevanceBuckets": [{"name": "b", "predicates": ["p"], "weight": 1}]},
    ],
)
def test_a_context_window_has_every_field(client: Client, more: dict[str, Any]) -> None:
    """When `goals`, `sessionId` or `relevanceBuckets` is present the response is a Context window
    (all fields).
    """
    client.tell("p", "a")
    found = asked(client, "/memory/context", **more)
    typed(found, WINDOW)
    for entry in found["entries"]:
        typed(entry, ENTRY)
    assert found["totalCharCount"] == sum(entry["charCount"] for entry in found["entries"]) > 0
    assert re.fullmatch("ctx-[0-9a-f]{16}", found["windowId"])


def test_defaults(client: Client) -> None:
    """maxFacts 100; minSalience 0.0; autoResolveContradictions true; includeRules false; format
    structured.
    """
    client.post(
        "/assert/facts", {"facts": [{"predicate": "p", "args": [str(n)]} for n in range(120)]}
    )
    plain = asked(client, "/memory/context")
    assert (len(plain["entries"]), plain["totalFactsAvailable"], plain["relevantRules"]) == (
        100,
        120,
        [],
    )
    assert "formattedText" not in plain
    assert len(asked(client, "/context/optimize")["entries"]) == 100


@pytest.mark.parametrize("path", ["/memory/context", "/context/optimize"])
def test_restrictions(client: Client, path: str) -> None:
    """predicates: restrict to these predicate names; scope: restrict to this scope."""
    client.tell("p", "a")
    client.tell("q", "b")
    client.tell("p", "c", scope="s")
    assert [e["args"] for e in asked(client, path, predicates=["p"])["entries"]] == [["a"]]
    assert [(e["args"], e["scope"]) for e in asked(client, path, scope="s")["entries"]] == [
        (["c"], "s")
    ]
    assert len(asked(client, path, scope="*")["entries"]) == 3


def test_predicates_restrict_what_goals_bring_too(client: Client) -> None:
    """predicates: restrict to these predicate names. Proofs go on yielding on the others; they are
    not in the window.
    """
    for name in ("a", "b"):
        client.tell("p", name)
        client.tell("q", name)
    rule = {
        "head": {"predicate": "r", "args": ["?x"]},
        "body": [{"predicate": n, "args": ["?x"]} for n in ("p", "q")],
    }
    assert client.post("/teach", rule).status_code == 200
    goal = {"goals": [{"predicate": "r", "args": ["?x"]}]}
    for names in (["p"], ["r"], ["p", "r"], []):
        found = asked(client, "/memory/context", **goal, predicates=names)
        assert sorted(e["predicate"] for e in found["entries"]) == sorted(names * 2)
        assert {e["category"] for e in found["entries"]} <= {"goal_relevant"}
    unproved = {
        "goals": [{"predicate": "r", "args": ["?x"]}, {"predicate": "half", "args": ["?x"]}]
    }
    half = {
        "head": {"predicate": "half", "args": ["?x"]},
        "body": [{"predicate": n, "args": ["?x"]} for n in ("q", "none")],
    }
    assert client.post("/teach", half).status_code == 200
    found = asked(client, "/memory/context", **unproved, predicates=["p"])
    assert {e["predicate"] for e in found["entries"]} == {"p"}
    client.post("/memory/context", {**goal, "sessionId": "s", "predicates": ["p"]})
    client.tell("p", "c")
    client.tell("q", "c")
    assert [row["key"] for row in asked(client, "/context/diff", sessionId="s")["added"]] == ["p/c"]


@pytest.mark.parametrize("more", [{}, {"goals": [{"predicate": "r", "args": ["?x"]}]}])
def test_rules_are_included_where_that_is_asked_for(client: Client, more: dict[str, Any]) -> None:
    """includeRules: include relevant rules in the response. Where nothing is said those of goals
    are in a Context window.
    """
    client.tell("p", "a")
    rule = {
        "head": {"predicate": "r", "args": ["?x"]},
        "body": [{"predicate": "p", "args": ["?x"]}],
    }
    assert client.post("/teach", rule).status_code == 200
    text = "r(?x) :- p(?x)."
    for said, rules in (
        ({}, [text] if more else []),
        ({"includeRules": False}, []),
        ({"includeRules": True}, [text]),
    ):
        found = asked(client, "/memory/context", format="natural", **more, **said)
        assert (found["relevantRules"], found["rules"]) == (rules, rules)
        assert ("Rule: " in found["formattedText"]) == bool(rules)


@pytest.mark.parametrize("more", [{}, {"sessionId": "s"}])
def test_minimum_of_salience_on_both_paths(served: Served, more: dict[str, Any]) -> None:
    """minSalience: minimum salience."""
    served.client.tell("old", "a")
    served.clock.advance(10 * 3_600_000)
    served.client.tell("new", "b")
    found = asked(served.client, "/memory/context", minSalience=0.4, **more)
    assert [(e["predicate"], e["salience"] >= 0.4) for e in found["entries"]] == [("new", True)]


def test_salience_follows_the_formula(served: Served) -> None:
    """0.5 recency + 0.3 frequency + 0.2 priority, half-life an hour, accesses from 1, then times
    confidence.
    """
    served.client.tell("p", "a", confidence=0.5)
    served.clock.advance(3_600_000)
    (entry,) = asked(served.client, "/memory/context")["entries"]
    assert entry["salience"] == pytest.approx(
        0.5 * (0.5 * 0.5 + 0.3 * 0.150515 + 0.2 * 0.5), abs=1e-5
    )
    assert entry["createdAt"] == NOW


def test_categories_come_first_that_fits(served: Served) -> None:
    """goal_relevant, inferred, consolidated, ephemeral (has ttl), recent, asserted; overflow after
    buckets.
    """
    client = served.client
    client.tell("old", "a")
    served.clock.advance(300_000)
    client.tell("new", "b")
    client.tell("brief", "c", ttl=60_000)
    client.tell("goal", "d")
    found = asked(
        client, "/memory/context", goals=[{"predicate": "goal", "args": ["?x"]}], fill="salience"
    )
    assert {e["predicate"]: e["category"] for e in found["entries"]} == {
        "goal": "goal_relevant",
        "brief": "ephemeral",
        "new": "recent",
        "old": "asserted",
    }
    found = asked(
        client,
        "/memory/context",
        relevanceBuckets=[{"name": "mine", "predicates": ["old"], "weight": 1}],
    )
    assert {e["predicate"]: e["category"] for e in found["entries"]} == {
        "old": "mine",
        "new": "overflow",
        "brief": "overflow",
        "goal": "overflow",
    }


def test_allocations_of_buckets(client: Client) -> None:
    """allocation = max(1, floor(weight / sum * maxFacts)), in the given order; never over
    maxFacts.
    """
    for n in range(12):
        client.tell("p", str(n))
    buckets = [
        {"name": "little", "predicates": ["p"], "weight": 0.01},
        {"name": "much", "predicates": None, "weight": 0.99},
    ]
    found = asked(client, "/memory/context", maxFacts=10, relevanceBuckets=buckets)
    assert {name: one["maxAllocation"] for name, one in found["bucketStats"].items()} == {
        "little": 1,
        "much": 9,
    }
    assert len(found["entries"]) == 10


@pytest.mark.parametrize(
    ("first", "second", "stays"),
    [
        ({"confidence": 0.9}, {"negated": True, "confidence": 0.2}, False),
        ({"confidence": 0.2}, {"negated": True, "confidence": 0.9}, True),
        ({}, {"negated": True}, False),
    ],
)
def test_which_fact_of_a_contradiction_is_kept(
    client: Client, first: Any, second: Any, stays: bool
) -> None:
    """Higher salience stays, then higher confidence, then newer, then positive; both count as found
    and resolved.
    """
    client.tell("p", "a", **first)
    client.tell("p", "a", **second)
    found = asked(client, "/memory/context", sessionId="s")
    assert [entry["negated"] for entry in found["entries"]] == [stays]
    assert (found["contradictionsFound"], found["contradictionsResolved"]) == (1, 1)
    (one,) = found["contradictions"]
    typed(
        one, {"predicate": str, "args": list, "positiveSalience": float, "negativeSalience": float}
    )


def test_a_diff_uses_what_the_last_window_used(client: Client) -> None:
    """/context/diff uses the scope, goals and other parameters of the session's last window where
    the request omits them.
    """
    client.tell("p", "a", scope="s")
    client.tell("p", "b")
    first = asked(client, "/memory/context", sessionId="x", scope="s", predicates=["p"])
    same = asked(client, "/context/diff", sessionId="x")
    assert (same["previousWindowId"], same["currentWindowId"]) == (
        first["windowId"],
        first["windowId"],
    )
    assert (same["added"], same["removed"], same["unchanged"], same["fullRefreshRecommended"]) == (
        [],
        [],
        1,
        False,
    )
    assert same["reason"] is None
    client.tell("p", "c/d%", negated=True, scope="s")
    (added,) = asked(client, "/context/diff", sessionId="x")["added"]
    typed(
        added,
        {name: ENTRY[name] for name in ("predicate", "args", "salience", "category", "charCount")},
    )
    assert added["key"] == "not:p/c%2Fd%25@s"
    unsaid = asked(
        client, "/context/diff", sessionId="x", scope=None
    )  # clients send null for what they do not say
    assert (unsaid["removed"], unsaid["unchanged"]) == ([], 2)
    other = asked(client, "/context/diff", sessionId="x", scope="other")
    assert [row["scope"] for row in other["removed"]] == ["s", "s"]


def test_when_a_refresh_is_recommended(client: Client) -> None:
    """fullRefreshRecommended when (added + removed) / previous size > 0.5."""
    for n in range(4):
        client.tell("p", str(n))
    asked(client, "/memory/context", sessionId="x")
    client.tell("p", "4")
    client.tell("p", "5")
    found = asked(client, "/context/diff", sessionId="x")
    assert (len(found["added"]), found["fullRefreshRecommended"]) == (2, False)
    for n in range(4):
        client.tell("q", str(n))
    found = asked(client, "/context/diff", sessionId="x")
    assert (found["fullRefreshRecommended"], bool(found["reason"])) == (True, True)


def test_a_diff_needs_its_session(client: Client) -> None:
    """sessionId string (required)."""
    assert (
        "sessionId"
        in error_of(client.post("/context/diff", {}), 400, "VALIDATION_ERROR")["details"]["fields"]
    )


def test_summary_has_every_field(client: Client) -> None:
    """topPredicates at most 10, topSalientFacts at most 5 full context entries."""
    for n in range(12):
        client.tell(f"p{n}", "a")
    found = asked(client, "/context/summary")
    typed(found, SUMMARY)
    assert (len(found["topPredicates"]), len(found["topSalientFacts"])) == (10, 5)
    assert list(found["topPredicates"][0]) == ["predicate", "count"]
    for entry in found["topSalientFacts"]:
        typed(entry, ENTRY)
    assert asked(client, "/context/summary", scope="none")["totalFacts"] == 0


def test_generation_rises_with_each_change_set(client: Client) -> None:
    """knowledgeGeneration: +1 for each committed change set of the tenant."""
    before = asked(client, "/context/summary")["knowledgeGeneration"]
    client.post(
        "/assert/facts",
        {"facts": [{"predicate": "p", "args": ["a"]}, {"predicate": "p", "args": ["b"]}]},
    )
    assert asked(client, "/memory/context", sessionId="s")["knowledgeGeneration"] == before + 1


def test_ingest_answers_with_a_whole_window(client: Client) -> None:
    """`context` is a whole Context window; `extractionProvider` is "predicate-syntax" when no model
    was used.
    """
    found = asked(client, "/context/ingest", text="p(a)", maxFacts=5, sessionId="s")
    assert found["extractionProvider"] == "predicate-syntax"
    (one,) = found["extracted"]
    assert (one["predicate"], one["args"], one["confidence"]) == ("p", ["a"], 1.0)
    typed(found["context"], WINDOW)
