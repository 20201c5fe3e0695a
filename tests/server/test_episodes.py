"""Episodes and the evidence of facts, over HTTP."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from support.http import NOW, ROW_KEYS, Client, error_of

SAID = {"speaker": "ann", "text": "I like green tea. Bob likes it too.", "session": "chat-1"}


def add(client: Client, **more: Any) -> dict[str, Any]:
    response = client.post("/episodes", {**SAID, **more})
    assert response.status_code in (200, 201), response.get_json()
    episode: dict[str, Any] = response.get_json()
    return episode


def test_an_episode_is_stored_once_by_its_content(client: Client) -> None:
    first = client.post("/episodes", SAID)
    again = client.post("/episodes", SAID)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == again.get_json()
    assert first.get_json() == {
        **SAID,
        "id": first.get_json()["id"],
        "at": NOW,
        "sha256": hashlib.sha256(SAID["text"].encode()).hexdigest(),
        "length": len(SAID["text"]),
    }
    ids = {
        add(client, **more)["id"]
        for more in ({}, {"speaker": "bob"}, {"text": "x"}, {"session": "chat-2"}, {"at": NOW})
    }
    assert len(ids) == 5


def test_an_id_belongs_to_one_content(client: Client) -> None:
    assert add(client, id="m-1")["id"] == "m-1"
    assert client.post("/episodes", {**SAID, "id": "m-1"}).status_code == 200
    other = client.post("/episodes", {**SAID, "id": "m-1", "text": "something else"})
    assert error_of(other, 409, "CONFLICT")["details"] == {"episode": "m-1"}
    assert client.get("/episodes/m-1").get_json()["text"] == SAID["text"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"speaker": " "}, "speaker"),
        ({"speaker": "x" * 257}, "speaker"),
        ({"text": ""}, "text"),
        ({"text": 5}, "text"),
        ({"at": "yesterday"}, "at"),
        ({"session": "a b"}, "session"),
        ({"id": "a/b"}, "id"),
    ],
)
def test_wrong_episodes_are_refused(client: Client, more: dict[str, Any], field: str) -> None:
    error = error_of(client.post("/episodes", {**SAID, **more}), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]
    assert client.get("/episodes").get_json() == {"episodes": [], "total": 0}


def test_episodes_are_listed_by_session_and_speaker(client: Client) -> None:
    for session, speaker in (("a", "ann"), ("a", "bob"), ("b", "ann")):
        add(client, session=session, speaker=speaker)
    every = client.get("/episodes").get_json()
    assert [(e["session"], e["speaker"]) for e in every["episodes"]] == [
        ("a", "ann"),
        ("a", "bob"),
        ("b", "ann"),
    ]
    page = client.get("/episodes?session=a&limit=1&offset=1").get_json()
    assert ([e["speaker"] for e in page["episodes"]], page["total"]) == (["bob"], 2)
    assert client.get("/episodes?speaker=ann").get_json()["total"] == 2
    for query, field in (
        ("limit=0", "limit"),
        ("offset=-1", "offset"),
        ("session=a%20b", "session"),
    ):
        error = error_of(client.get(f"/episodes?{query}"), 400, "VALIDATION_ERROR")
        assert list((error["details"] or {})["fields"]) == [field]


def test_facts_show_their_evidence_and_episodes_their_facts(client: Client) -> None:
    id = add(client)["id"]
    client.tell("likes", "ann", "tea", evidence=[{"episode": id, "start": 0, "end": 17}])
    client.tell("likes", "bob", "tea", scope="s", evidence=[{"episode": id}])
    client.tell("likes", "cid", "tea")
    rows = client.post("/query", {"predicate": "likes", "args": ["?x", "tea"]}).get_json()
    assert rows[0]["evidence"] == [{"episode": id, "start": 0, "end": 17}]
    assert [key for key in rows[0] if key != "evidence"] == list(rows[1])
    assert "evidence" not in rows[1]
    found = client.get(f"/episodes/{id}").get_json()
    assert [(row["args"][0], row["scope"]) for row in found["facts"]] == [
        ("ann", None),
        ("bob", "s"),
    ]
    assert found["totalFacts"] == 2
    page = client.get(f"/episodes/{id}?limit=1&offset=1").get_json()
    assert [row["args"][0] for row in page["facts"]] == ["bob"]
    error_of(client.get("/episodes/unknown"), 404, "NOT_FOUND")


def test_asserting_a_fact_again_adds_evidence(client: Client) -> None:
    first, second = add(client)["id"], add(client, text="Tea, please.")["id"]
    client.tell("likes", "ann", "tea", evidence=[{"episode": first}], metadata={"a": 1})
    client.tell("likes", "ann", "tea")
    client.tell("likes", "ann", "tea", evidence=[{"episode": second}, {"episode": first}])
    (row,) = client.post("/query", {"predicate": "likes", "args": ["?x", "?y"]}).get_json()
    assert row["evidence"] == [{"episode": first}, {"episode": second}]
    assert row["metadata"] == {}


@pytest.mark.parametrize(
    ("span", "field"),
    [
        ("x", "evidence[0]"),
        ({}, "evidence[0].episode"),
        ({"episode": "unknown"}, "evidence[0].episode"),
        ({"episode": "m-1", "start": -1}, "evidence[0].start"),
        ({"episode": "m-1", "end": 999}, "evidence[0].end"),
        ({"episode": "m-1", "start": 5, "end": 5}, "evidence[0].start"),
        ({"episode": "m-1", "end": True}, "evidence[0].end"),
    ],
)
@pytest.mark.parametrize("path", ["/tell", "/assert/facts"])
def test_wrong_evidence_is_refused(client: Client, path: str, span: Any, field: str) -> None:
    add(client, id="m-1")
    fact = {"predicate": "likes", "args": ["ann", "tea"], "evidence": [span]}
    several = {"facts": [{"predicate": "p", "args": ["a"]}, fact]}
    response = client.post(path, fact if path == "/tell" else several)
    prefix = "" if path == "/tell" else "facts[1]."
    error = error_of(response, 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [prefix + field]
    assert client.get("/predicates").get_json()["totalFacts"] == 0


def test_metadata_cannot_pass_for_evidence(client: Client) -> None:
    body = {"predicate": "p", "args": ["a"], "metadata": {"\0evidence": [{"episode": "x"}]}}
    error_of(client.post("/tell", body), 400, "VALIDATION_ERROR")


def test_evidence_in_a_transaction(client: Client) -> None:
    headers = {"X-Transaction-ID": client.post("/tx/begin").get_data(as_text=True)}
    id = client.post("/episodes", SAID, headers=headers).get_json()["id"]
    body = {"predicate": "likes", "args": ["ann", "tea"], "evidence": [{"episode": id}]}
    assert client.post("/tell", body, headers=headers).status_code == 200
    assert client.get("/episodes").get_json()["total"] == 0
    assert client.post(f"/tx/commit/{headers['X-Transaction-ID']}").status_code == 200
    assert client.get(f"/episodes/{id}").get_json()["totalFacts"] == 1


def test_a_transaction_whose_episode_id_was_taken_is_refused(client: Client) -> None:
    headers = {"X-Transaction-ID": client.post("/tx/begin").get_data(as_text=True)}
    client.post("/episodes", {"speaker": "ann", "text": "I like tea", "id": "e"}, headers=headers)
    body = {"predicate": "likes", "args": ["ann", "tea"], "evidence": [{"episode": "e"}]}
    assert client.post("/tell", body, headers=headers).status_code < 300
    client.post("/episodes", {"speaker": "bob", "text": "no", "id": "e"})
    error = error_of(client.post(f"/tx/commit/{headers['X-Transaction-ID']}"), 409, "CONFLICT")
    assert (error["details"] or {})["changed"] == [{"episode": "e"}]
    assert client.post("/query", {"predicate": "likes", "args": ["?x", "?y"]}).get_json() == []


def test_a_transaction_may_store_an_episode_that_is_stored_meanwhile(client: Client) -> None:
    episode = {"speaker": "ann", "text": "I like tea", "id": "e"}
    headers = {"X-Transaction-ID": client.post("/tx/begin").get_data(as_text=True)}
    client.post("/episodes", episode, headers=headers)
    client.post("/episodes", episode)
    assert client.post(f"/tx/commit/{headers['X-Transaction-ID']}").status_code == 200


def test_other_tenants_have_other_episodes(client: Client) -> None:
    id = add(client)["id"]
    other = {"X-Tenant-ID": "other"}
    assert client.get("/episodes", other).get_json()["total"] == 0
    error_of(client.get(f"/episodes/{id}", other), 404, "NOT_FOUND")
    body = {"predicate": "p", "args": ["a"], "evidence": [{"episode": id}]}
    error_of(client.post("/tell", body, headers=other), 400, "VALIDATION_ERROR")


def test_rows_have_their_usual_keys_without_evidence(client: Client) -> None:
    client.tell("p", "a", metadata={"k": 1})
    (row,) = client.post("/ask", {"predicate": "p", "args": ["?x"]}).get_json()
    assert list(row) == ROW_KEYS
