"""The routes of context windows."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import CONTEXT, NOW, Client, Served, error_of, serve_in_memory

SUNSET = 1_782_864_000_000

ENTRY = [
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
FAST = [
    "entries",
    "facts",
    "relevantRules",
    "rules",
    "totalFactsAvailable",
    "totalAvailable",
    "totalFactsIncluded",
    "windowSize",
    "predicateDistribution",
    "totalCharCount",
    "tokenEstimate",
    "generatedAt",
]
OPTIMIZED = [
    "windowId",
    "entries",
    "relevantRules",
    "totalFactsAvailable",
    "totalFactsIncluded",
    "deduplicationSavings",
    "contradictionsFound",
    "contradictionsResolved",
    "contradictions",
    "bucketStats",
    "totalCharCount",
    "goalDriven",
    "knowledgeGeneration",
    "generatedAt",
]
GOAL = {"predicate": "grandparent", "args": ["ann", "?z"]}
RULE = "grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."


@pytest.fixture
def family(client: Client) -> Client:
    client.tell("parent", "ann", "bob")
    client.tell("parent", "bob", "cy")
    assert client.post("/teach", {"text": RULE}).status_code == 200
    return client


def window(client: Client, body: Any = None) -> dict[str, Any]:
    response = client.post("/memory/context", body or {})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.get_json()
    return found


def test_the_fast_path(family: Client) -> None:
    found = window(family, {"maxFacts": 1})
    assert set(FAST) <= set(found)
    (entry,) = found["entries"]
    assert list(entry) == ENTRY
    assert (entry["predicate"], entry["createdAt"], entry["validUntil"], entry["provenance"]) == (
        "parent",
        NOW,
        None,
        None,
    )
    assert found["facts"] == found["entries"]
    assert (found["totalFactsAvailable"], found["totalFactsIncluded"], found["totalCharCount"]) == (
        2,
        1,
        16,
    )
    assert (found["tokenEstimate"], found["predicateDistribution"], found["rules"]) == (
        5,
        {"parent": 1},
        [],
    )
    assert window(family, {"includeRules": True})["relevantRules"] == [RULE]


def test_the_optimizing_path(family: Client) -> None:
    found = window(
        family,
        {
            "goals": [GOAL],
            "sessionId": "s",
            "relevanceBuckets": [{"name": "b", "predicates": ["q"]}],
        },
    )
    assert {*OPTIMIZED, *FAST} <= set(found)
    assert [entry["category"] for entry in found["entries"]] == ["goal_relevant"] * 3
    assert found["entries"][0]["provenance"] == {
        "rule": RULE,
        "premises": ["parent(ann, bob)", "parent(bob, cy)"],
    }
    assert found["bucketStats"] == {
        "b": {"factsIncluded": 0, "maxAllocation": 100, "minSalience": 0, "maxSalience": 0}
    }
    assert (found["goalDriven"], found["relevantRules"], found["knowledgeGeneration"]) == (
        True,
        [RULE],
        3,
    )
    assert found["windowId"].startswith("ctx-")
    assert len(found["windowId"]) == 20
    assert int(found["windowId"][4:], 16) >= 0


def test_explanations(family: Client) -> None:
    found = window(family, {"goals": [GOAL], "explain": True, "maxFacts": 2, "fill": "salience"})
    assert found["cut"]["goals"][0]["cut"] == {"maxFacts": 1}
    assert found["entries"][1]["why"]["salience"] > 0


def test_diffs(family: Client) -> None:
    unknown = family.post("/context/diff", {"sessionId": "s"}).get_json()
    assert unknown.pop("reason")
    assert unknown == {
        "previousWindowId": None,
        "currentWindowId": "none",
        "added": [],
        "removed": [],
        "unchanged": 0,
        "fullRefreshRecommended": True,
    }
    first = window(family, {"sessionId": "s"})
    family.tell("likes", "ann", "a/b")
    family.post("/retract", {"predicate": "parent", "args": ["bob", "cy"]})
    found = family.post("/context/diff", {"sessionId": "s"}).get_json()
    assert found["previousWindowId"] == first["windowId"] != found["currentWindowId"]
    assert {"predicate", "args", "salience", "category", "charCount"} <= set(found["added"][0])
    assert [row["key"] for row in found["added"]] == ["likes/ann/a%2Fb"]
    assert found["removed"] == [
        {
            "key": "parent/bob/cy",
            "predicate": "parent",
            "args": ["bob", "cy"],
            "negated": False,
            "scope": None,
            "reason": "retracted",
        }
    ]
    assert "formattedText" not in found
    assert (found["unchanged"], found["fullRefreshRecommended"]) == (1, True)
    cleared = family.post("/context/session/clear", {"sessionId": "s"})
    assert (cleared.text, cleared.content_type) == (
        "Session 's' cleared",
        "text/plain; charset=utf-8",
    )
    assert family.post("/context/diff", {"sessionId": "s"}).get_json()["previousWindowId"] is None


def test_changes_as_text(client: Client) -> None:
    client.tell("likes", "ann", "tea")
    client.tell("likes", "ann", "milk")
    window(client, {"sessionId": "s"})
    client.post("/retract", {"predicate": "likes", "args": ["ann", "tea"]})
    client.tell("other", "a")
    found = client.post(
        "/context/diff", {"sessionId": "s", "format": "natural", "predicates": ["other"]}
    ).get_json()
    assert {row["key"]: row["reason"] for row in found["removed"]} == {
        "likes/ann/tea": "retracted",
        "likes/ann/milk": "not_selected",
    }
    assert found["formattedText"] == "New: a · other\nNo longer true: ann likes tea (retracted)."
    client.post("/retract", {"predicate": "other", "args": ["a"]})
    found = client.post("/context/diff", {"sessionId": "s", "format": "facts"}).get_json()
    assert found["formattedText"] == "% No longer true: other(a).  % retracted"
    assert client.post("/context/diff", {"sessionId": "s", "format": "poem"}).status_code == 400


def test_the_old_route_works_before_its_sunset(family: Client) -> None:
    response = family.post("/context/optimize", {"maxFacts": 1})
    assert set(OPTIMIZED) <= set(response.get_json())
    deprecated(response)
    bad = family.post("/context/optimize", {"maxFacts": 0})
    error_of(bad, 400, "VALIDATION_ERROR")
    deprecated(bad)


def test_the_old_route_is_gone_after_its_sunset(served: Served) -> None:
    served.clock.advance(SUNSET - NOW - 1)
    assert served.client.post("/context/optimize", {}).status_code == 200
    served.clock.advance(1)
    response = served.client.post("/context/optimize", {})
    error = error_of(response, 410, "NOT_FOUND")
    assert "/memory/context" in error["message"]
    assert error["details"] == {"removedAfter": "2026-07-01", "successor": "/memory/context"}
    deprecated(response)
    with serve_in_memory(context_optimize_enabled=True) as kept:
        kept.clock.advance(SUNSET - NOW)
        response = kept.client.post("/context/optimize", {})
        assert response.status_code == 200
        deprecated(response)


def deprecated(response: Any) -> None:
    assert response.headers["Deprecation"] == "true"
    assert response.headers["Sunset"] == "Wed, 01 Jul 2026 00:00:00 GMT"
    assert response.headers["Link"] == '</memory/context>; rel="successor-version"'


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"maxFacts": 0}, "maxFacts"),
        ({"maxFacts": "many"}, "maxFacts"),
        ({"maxTokens": 0}, "maxTokens"),
        ({"minSalience": 2}, "minSalience"),
        ({"predicates": "p"}, "predicates"),
        ({"predicates": ["p", ""]}, "predicates[1]"),
        ({"format": "poem"}, "format"),
        ({"goals": {}}, "goals"),
        ({"goals": [GOAL, "1 < 2, 2 < 3"]}, "goals[1]"),
        ({"goals": [{"text": "1 < 2, 2 < 3"}]}, "goals[0].text"),
        ({"goals": [GOAL, {"predicate": "p"}]}, "goals[1].args"),
        ({"goals": [{"predicate": "?p", "args": ["1", "2"]}]}, "goals[0].predicate"),
        ({"sessionId": ""}, "sessionId"),
        ({"sessionId": "a b"}, "sessionId"),
        ({"relevanceBuckets": [{"weight": 1}]}, "relevanceBuckets[0].name"),
        ({"relevanceBuckets": [{"name": "a"}, {"name": "a"}]}, "relevanceBuckets[1].name"),
        ({"relevanceBuckets": [{"name": "a", "weight": -1}]}, "relevanceBuckets[0].weight"),
        (
            {"relevanceBuckets": [{"name": "a", "predicates": [1]}]},
            "relevanceBuckets[0].predicates[0]",
        ),
        ({"relevanceBuckets": ["a"]}, "relevanceBuckets[0]"),
    ],
)
def test_requests_are_checked(client: Client, body: Any, field: str) -> None:
    error = error_of(client.post("/memory/context", body), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]


@pytest.mark.parametrize("path", ["/context/diff", "/context/session/clear"])
def test_a_session_is_required(client: Client, path: str) -> None:
    error = error_of(client.post(path, {}), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == ["sessionId"]


@pytest.mark.parametrize("path", CONTEXT)
def test_transactions_are_refused(client: Client, path: str) -> None:
    id = client.post("/tx/begin").text
    error_of(
        client.post(path, {"sessionId": "s"}, {"X-Transaction-ID": id}), 400, "VALIDATION_ERROR"
    )
    assert client.post(f"/tx/rollback/{id}").status_code == 200


@pytest.mark.parametrize("path", CONTEXT)
def test_unknown_keys_are_refused_only_if_asked(client: Client, path: str) -> None:
    body = {"sessionId": "s", "unheard": 1}
    assert client.post(path, body).status_code == 200
    error_of(client.post(path, body, {"Prefer": "handling=strict"}), 400, "VALIDATION_ERROR")


def test_a_window_for_a_query_holds_its_matches(client: Client) -> None:
    client.tell("prefers", "ann", "green tea")
    client.tell("prefers", "bob", "coffee")
    client.tell("noise", "x")
    asked = {"query": "what do I prefer", "asker": "bob"}
    assert [entry["args"][0] for entry in window(client, asked)["entries"]] == ["bob", "ann"]
    assert [
        entry["args"][0] for entry in window(client, {**asked, "minRelevance": 1})["entries"]
    ] == ["bob"]
    assert len(window(client, {**asked, "fill": "salience"})["entries"]) == 3
    unknown = window(client, {"query": "who has allergies", "minCoverage": 0.5, "format": "facts"})
    assert unknown["entries"] == []
    assert unknown["formattedText"] == "% Nothing relevant to the query is known"
    wrong = (("fill", "more"), ("minRelevance", 2), ("minCoverage", -1), ("asker", 7))
    for name, value in wrong:
        error = error_of(
            client.post("/memory/context", {**asked, name: value}), 400, "VALIDATION_ERROR"
        )
        assert name in error["details"]["fields"]


ALIASES = {"facts", "rules", "totalAvailable", "windowSize"}
MINIMAL = {"X-Tenant-ID": "t", "Prefer": "return=minimal"}
AS_TEXT = {"X-Tenant-ID": "t", "Accept": "text/plain"}


def test_without_compat_a_window_has_each_fact_once(family: Client) -> None:
    full, once = (
        window(family, {"goals": [GOAL]}),
        window(family, {"goals": [GOAL], "compat": False}),
    )
    assert full["facts"] == full["entries"] == once["entries"]
    assert full.keys() - once.keys() == ALIASES
    assert once["relevantRules"] == [RULE]
    response = family.post("/context/ingest", {"text": "p(a)", "compat": False})
    assert not ALIASES & response.get_json()["context"].keys()
    assert family.post("/memory/context", {"compat": "no"}).status_code == 400


def test_a_setting_decides_the_default_of_compat() -> None:
    with serve_in_memory(context_compat=False) as served:
        served.client.tell("p", "a")
        assert not ALIASES & window(served.client).keys()
        assert window(served.client, {"compat": True}).keys() >= ALIASES
        answer = served.client.post("/context/ingest", {"text": "p(b)"}).get_json()["context"]
        assert not ALIASES & answer.keys()


def test_a_minimal_answer_has_no_nulls(client: Client) -> None:
    fact = {"predicate": "p", "args": ["a"], "metadata": {"source": None}}
    assert client.post("/tell", fact).status_code == 200
    response = client.post("/memory/context", {"sessionId": "s"}, MINIMAL)
    assert response.headers["Preference-Applied"] == "return=minimal"
    (entry,) = response.get_json()["entries"]
    assert set(ENTRY) - entry.keys() == {"scope", "provenance", "validUntil"}
    assert entry["metadata"] == {"source": None}  # what the client stored stays as it is
    client.tell("p", "b")
    changes = client.post("/context/diff", {"sessionId": "s"}, MINIMAL)
    assert changes.headers["Preference-Applied"] == "return=minimal"
    assert None not in changes.get_json()["added"][0].values()
    assert "reason" not in client.post("/context/diff", {"sessionId": "s"}, MINIMAL).get_json()
    read = client.post("/context/ingest", {"text": "p(c)"}, MINIMAL).get_json()
    assert "extractionModel" not in read
    assert None not in read["context"]["entries"][0].values()
    turns = client.post("/context", {"turns": ["p(d)"]}, MINIMAL).get_json()
    assert not {"sessionId", "warning", "briefingDelta"} & turns.keys()
    assert "provenance" not in turns["facts"][0]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"format": "text"}, None),
        ({}, AS_TEXT),
        ({"format": "facts"}, {**AS_TEXT, "Accept": "text/plain, application/json;q=0.5"}),
    ],
)
def test_a_window_as_text_is_the_prompt(client: Client, body: Any, headers: Any) -> None:
    client.tell("likes", "ann", "tea")
    response = client.post("/memory/context", body, headers)
    assert response.content_type == "text/plain; charset=utf-8"
    assert response.text == "likes(ann, tea)."


def test_the_text_of_other_windows(family: Client) -> None:
    natural = family.post("/memory/context", {"goals": [GOAL], "format": "natural"}, AS_TEXT)
    assert natural.text.startswith(
        "ann · grandparent: cy because ann · parent: bob and bob · parent: cy"
    )
    assert natural.text.endswith("Rule: X · grandparent: Z if X · parent: Y and Y · parent: Z.")
    read = family.post(
        "/context/ingest", {"text": "likes(ann, tea)", "goals": ["likes(ann, ?x)"]}, AS_TEXT
    )
    assert read.text == "% Goal: likes(ann, ?x)\nlikes(ann, tea)."
    turns = family.post("/context", {"turns": ["likes(ann, milk)"]}, AS_TEXT)
    assert "likes(ann, milk)." in turns.text.splitlines()
    refused = family.post("/memory/context", {"maxFacts": 0}, AS_TEXT)
    assert error_of(refused, 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json, text/plain, */*", "text/html", "application/json"]
)
def test_clients_that_accept_json_get_json(client: Client, accept: str) -> None:
    response = client.post("/memory/context", {}, {"X-Tenant-ID": "t", "Accept": accept})
    assert response.content_type == "application/json"


def test_the_size_of_a_window(client: Client) -> None:
    """Each form of a window is smaller than the one before; the text is little more than its
    facts.
    """
    for number in range(12):
        client.tell("likes", f"person{number}", f"thing{number:03}")
    content = window(client)["totalCharCount"]
    sizes = [
        len(client.post("/memory/context", body, headers).data)
        for body, headers in (
            ({}, None),
            ({"compat": False}, None),
            ({"compat": False}, MINIMAL),
            ({"format": "text"}, None),
        )
    ]
    assert sizes[1] < 0.53 * sizes[0]
    assert sizes[2] < 0.85 * sizes[1]
    assert sizes[3] == content + 12 + 11  # a full stop for each fact, and the line breaks


def test_goals_of_several_literals(family):
    found = window(family, {"goals": ["parent(?x, ?y), parent(?y, ?z), ?x != ?z"]})
    assert found["goalDriven"] is True
    assert all(entry["predicate"] == "parent" for entry in found["entries"])
    assert found == window(
        family, {"goals": [{"text": "parent(?x, ?y), parent(?y, ?z), ?x != ?z"}]}
    )
