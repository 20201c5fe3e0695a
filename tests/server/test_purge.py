"""What a purge over HTTP reaches beyond facts and episodes, and what it lists as left."""

from __future__ import annotations

from typing import Any

from support.http import Client, error_of

SUBJECT = {"subject": "zebulon"}


def purge(client: Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/memory/purge", {**SUBJECT, **body})
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.get_json()
    return done


def scopes(client: Client) -> list[str]:
    names: list[str] = client.get("/scopes").get_json()["scopes"]
    return names


# -- names of scopes -------------------------------------------------------------------------------


def test_scopes_named_like_the_subject_are_listed_and_stay(client: Client) -> None:
    client.tell("p", "a", scope="zebulon")
    client.tell("p", "a", scope="about-zebulon")
    client.tell("p", "a", scope="zebulons")
    done = purge(client)
    assert done["scopes"] == [
        {"scope": "about-zebulon", "factCount": 1, "dropped": False},
        {"scope": "zebulon", "factCount": 1, "dropped": False},
    ]
    assert done["scopeCount"] == 2
    assert scopes(client) == ["about-zebulon", "zebulon", "zebulons"]


def test_scopes_named_like_the_subject_are_dropped_on_request(client: Client) -> None:
    client.tell("p", "a", scope="zebulon")
    client.post("/assert/rule", {"text": "q(?x) :- p(?x).", "scope": "zebulon"})
    client.tell("p", "a", scope="other")
    dry = purge(client, dropScopes=True, dryRun=True)
    assert dry["scopes"] == [{"scope": "zebulon", "factCount": 1, "dropped": True}]
    assert scopes(client) == ["other", "zebulon"]
    done = purge(client, dropScopes=True)
    assert done["scopes"] == dry["scopes"]
    assert scopes(client) == ["other"]
    assert client.get("/rules?scope=*").get_json()["rules"] == []


def test_only_a_subject_drops_scopes(client: Client) -> None:
    error = error_of(
        client.post("/memory/purge", {"speaker": "a", "dropScopes": True}), 400, "VALIDATION_ERROR"
    )
    assert list((error["details"] or {})["fields"]) == ["dropScopes"]


# -- names -----------------------------------------------------------------------------------------


def test_names_that_contain_the_subject_are_listed_and_stay(client: Client) -> None:
    for name in ("anna", "anna_k", "Joanna", "Anna-Lena", "she knows anna_maria well", "bob"):
        client.tell("known", name)
    done = client.post("/memory/purge", {"subject": "anna"}).get_json()
    assert {row["args"][0] for row in done["facts"]} == {"anna", "Anna-Lena"}
    assert done["similar"] == ["Joanna", "anna_k", "anna_maria"]
    rows = client.post("/query", {"predicate": "known", "args": ["?x"]}).get_json()
    assert len(rows) == 4


def test_spaces_and_underscores_of_a_subject_are_equal(client: Client) -> None:
    for name in ("anna_k", "Anna K", "I met Anna  K.", "anna-k", "anna_kurz"):
        client.tell("known", name)
    for subject in ("Anna K", "anna_k"):
        body = {"subject": subject, "dryRun": True}
        done = client.post("/memory/purge", body).get_json()
        assert {row["args"][0] for row in done["facts"]} == {"anna_k", "Anna K", "I met Anna  K."}
        assert done["similar"] == ["anna-k", "anna_kurz"]


def test_ids_and_sessions_of_episodes_name_the_subject(client: Client) -> None:
    said = {"speaker": "bob", "text": "hello"}
    client.post("/episodes", {**said, "session": "chat-with-zebulon"})
    client.post("/episodes", {**said, "id": "zebulon-1"})
    client.post("/episodes", {**said, "id": "other"})
    assert purge(client)["episodeCount"] == 2
    assert client.get("/episodes").get_json()["total"] == 1


def test_phrases_are_listed_like_rules(client: Client) -> None:
    client.post("/teach", {"text": '@phrase likes/1 "{0} is liked by Zebulon".'})
    done = purge(client)
    assert done["ruleCount"] == 1
    assert "Zebulon" in done["rules"][0]["text"]


# -- derived facts ---------------------------------------------------------------------------------


def test_summaries_of_purged_facts_go_with_them(client: Client) -> None:
    id = client.post("/episodes", {"speaker": "bob", "text": "hello"}).get_json()["id"]
    for number in range(5):
        client.tell("saw", "zebulon", f"day {number}", evidence=[{"episode": id}])
        client.tell("saw", "ann", f"day {number}")
    client.post("/memory/consolidate", {"minGroupSize": 5})
    done = client.post("/memory/purge", {"episode": id}).get_json()
    assert [row["args"] for row in done["facts"] if row["why"] == "summary"] == [["zebulon", "5"]]
    body = {"predicate": "saw_consolidated", "args": ["?x", "?n"]}
    assert [row["args"] for row in client.post("/query", body).get_json()] == [["ann", "5"]]


# -- undo ------------------------------------------------------------------------------------------


def test_a_purge_says_what_can_still_be_undone(client: Client) -> None:
    client.tell("p", "a")
    assert purge(client, dryRun=True)["undoFrom"] is None
    done = purge(client)
    assert done["undoFrom"] >= 3
    error = error_of(client.post("/memory/undo", {"commitSeq": 1}), 409, "CONFLICT")
    assert (error["details"] or {})["reason"] == "purged"


# -- transactions ----------------------------------------------------------------------------------


def begun(client: Client) -> dict[str, str]:
    return {"X-Transaction-ID": client.post("/tx/begin").get_data(as_text=True)}


def stage(client: Client, headers: dict[str, str], **more: Any) -> None:
    body = {"predicate": "p", "args": ["a"], **more}
    assert client.post("/tell", body, headers=headers).status_code == 200


def commit(client: Client, headers: dict[str, str]) -> Any:
    return client.post(f"/tx/commit/{headers['X-Transaction-ID']}")


def test_a_transaction_that_read_a_purged_episode_conflicts(client: Client) -> None:
    said = {"speaker": "zebulon", "text": "hello", "id": "e"}
    client.post("/episodes", said)
    headers = begun(client)
    assert client.get("/episodes/e", headers=headers).status_code == 200
    stage(client, headers)
    purge(client)
    error = error_of(commit(client, headers), 409, "CONFLICT")
    assert {"purge": True} in (error["details"] or {})["changed"]


def test_evidence_for_a_purged_episode_conflicts(client: Client) -> None:
    client.post("/episodes", {"speaker": "zebulon", "text": "hello", "id": "e"})
    headers = begun(client)
    stage(client, headers, evidence=[{"episode": "e"}])
    client.post("/memory/purge", {"episode": "e"})
    error_of(commit(client, headers), 409, "CONFLICT")
    assert client.post("/query", {"predicate": "p", "args": ["?x"]}).get_json() == []


def test_a_transaction_that_listed_episodes_conflicts_with_a_new_one(client: Client) -> None:
    for read in ("/episodes", "/episodes?speaker=ann"):
        headers = begun(client)
        client.get(read, headers=headers)
        stage(client, headers)
        client.post("/episodes", {"speaker": "ann", "text": f"new for {read}"})
        error = error_of(commit(client, headers), 409, "CONFLICT")
        assert {"episodes": True} in (error["details"] or {})["changed"]


def test_a_transaction_that_missed_an_episode_conflicts_if_it_is_stored(client: Client) -> None:
    headers = begun(client)
    error_of(client.get("/episodes/e", headers=headers), 404, "NOT_FOUND")
    stage(client, headers)
    client.post("/episodes", {"speaker": "ann", "text": "unrelated"})
    client.post("/episodes", {"speaker": "ann", "text": "hello", "id": "e"})
    error = error_of(commit(client, headers), 409, "CONFLICT")
    assert {"episode": "e"} in (error["details"] or {})["changed"]


def test_new_episodes_disturb_no_transaction_that_did_not_list_them(client: Client) -> None:
    client.post("/episodes", {"speaker": "ann", "text": "hello", "id": "e"})
    headers = begun(client)
    client.get("/episodes/e", headers=headers)
    stage(client, headers, evidence=[{"episode": "e"}])
    client.post("/episodes", {"speaker": "ann", "text": "more"})
    assert commit(client, headers).status_code == 200
