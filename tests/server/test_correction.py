"""Correcting, undoing and purging over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import Agent
from support.http import NOW, Client, error_of, serve_in_memory

from kbcore.node.runtime import Runtime

RULE = {"text": "drinks(?x, ?y) :- likes(?x, ?y)."}


def facts(client: Client, predicate: str, arity: int = 2) -> list[dict[str, Any]]:
    args = [f"?a{i}" for i in range(arity)]
    rows: list[dict[str, Any]] = client.post(
        "/query", {"predicate": predicate, "args": args, "scope": "*"}
    ).get_json()
    return rows


def episode(client: Client, text: str, **more: Any) -> str:
    body = {"speaker": "ann", "text": text, **more}
    id: str = client.post("/episodes", body).get_json()["id"]
    return id


def last_seq(client: Client) -> int:
    runtime: Runtime = client.flask.application.extensions["kbcore"]
    return runtime.log_head("default", "t")


# -- correct ---------------------------------------------------------------------------------------


def test_a_correction_moves_evidence_and_keeps_the_reason(client: Client) -> None:
    id = episode(client, "I like tea. I mean coffee.")
    client.tell("likes", "ann", "tea", scope="s", evidence=[{"episode": id, "start": 0, "end": 11}])
    body = {
        "old": "likes(ann, tea)",
        "new": {"predicate": "likes", "args": ["ann", "coffee"], "confidence": 0.9},
        "reason": "she corrected herself",
        "scope": "s",
    }
    done = client.post("/memory/correct", body).get_json()
    assert list(done) == ["old", "new", "reason", "commitSeq", "timestamp"]
    assert done["old"]["args"] == ["ann", "tea"]
    (row,) = facts(client, "likes")
    assert row == {**done["new"], "truthVal": True}
    assert (row["args"], row["scope"], row["confidence"]) == (["ann", "coffee"], "s", 0.9)
    assert row["evidence"] == [{"episode": id, "start": 0, "end": 11}]
    assert row["metadata"] == {
        "corrects": {"fact": "likes(ann, tea)", "reason": "she corrected herself"}
    }
    assert (done["commitSeq"], done["timestamp"]) == (last_seq(client), NOW)


def test_a_fact_that_is_not_stored_cannot_be_corrected(client: Client) -> None:
    client.tell("likes", "ann", "tea")
    body = {"old": "likes(ann, milk)", "new": "likes(ann, coffee)", "reason": "r"}
    error_of(client.post("/memory/correct", body), 404, "NOT_FOUND")
    error_of(client.post("/memory/correct", {**body, "scope": "s"}), 404, "NOT_FOUND")
    assert [row["args"] for row in facts(client, "likes")] == [["ann", "tea"]]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"old": 5}, "old"),
        ({"old": "likes(?x, tea)"}, "old.text"),
        ({"new": {"predicate": "likes"}}, "new.args"),
        ({"new": {"predicate": "likes", "args": ["a"], "ttl": 0}}, "new.ttl"),
        ({"new": "likes(ann, tea)"}, "new"),
        ({"reason": ""}, "reason"),
        ({"reason": None}, "reason"),
        ({"scope": "*"}, "scope"),
        ({"scope": "a", "new": {"predicate": "p", "args": [], "scope": "b"}}, "scope"),
    ],
)
def test_wrong_corrections_are_refused(client: Client, more: dict[str, Any], field: str) -> None:
    client.tell("likes", "ann", "tea")
    body = {"old": "likes(ann, tea)", "new": "likes(ann, coffee)", "reason": "r", **more}
    error = error_of(client.post("/memory/correct", body), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]
    assert [row["args"] for row in facts(client, "likes")] == [["ann", "tea"]]


def test_a_correction_in_a_transaction(client: Client) -> None:
    client.tell("likes", "ann", "tea")
    headers = {"X-Transaction-ID": client.post("/tx/begin").get_data(as_text=True)}
    body = {"old": "likes(ann, tea)", "new": "~likes(ann, tea)", "reason": "never"}
    assert client.post("/memory/correct", body, headers=headers).status_code == 200
    assert [row["negated"] for row in facts(client, "likes")] == [False]
    client.post(f"/tx/commit/{headers['X-Transaction-ID']}")
    assert [row["negated"] for row in facts(client, "likes")] == [True]


# -- undo ------------------------------------------------------------------------------------------


def test_a_correction_can_be_undone(client: Client) -> None:
    client.tell("likes", "ann", "tea", confidence=0.5, metadata={"k": 1})
    before = facts(client, "likes")
    body = {"old": "likes(ann, tea)", "new": "likes(ann, coffee)", "reason": "r"}
    seq = client.post("/memory/correct", body).get_json()["commitSeq"]
    done = client.post("/memory/undo", {"commitSeq": seq}).get_json()
    assert done == {
        "undoneSeq": seq,
        "commitSeq": seq + 1,
        "retracted": 1,
        "restored": 1,
        "rulesChanged": 0,
        "timestamp": NOW,
    }
    assert facts(client, "likes") == before


def test_undo_by_the_key_of_the_request(client: Client) -> None:
    headers = {"Idempotency-Key": "k-1"}
    many = [{"predicate": "p", "args": [str(i)]} for i in range(3)]
    assert client.post("/assert/facts", {"facts": many}, headers=headers).status_code == 200
    done = client.post("/memory/undo", {"requestId": "k-1"}).get_json()
    assert done["retracted"] == 3
    assert facts(client, "p", 1) == []
    error_of(client.post("/memory/undo", {"requestId": "k-2"}), 404, "NOT_FOUND")


def test_later_changes_of_the_same_facts_are_named(client: Client) -> None:
    client.tell("p", "a")
    first = last_seq(client)
    client.tell("q", "a")
    client.tell("p", "a", confidence=0.5)
    second = last_seq(client)
    error = error_of(client.post("/memory/undo", {"commitSeq": first}), 409, "CONFLICT")
    details = error["details"] or {}
    assert details["reason"] == "changed_later"
    assert [(each["commitSeq"], each["facts"]) for each in details["conflicts"]] == [
        (second, ["p(a)"])
    ]
    assert len(facts(client, "p", 1)) == 1
    client.post("/memory/undo", {"commitSeq": second})
    assert facts(client, "p", 1)[0]["confidence"] is None


def undo(client: Client, seq: int, status: int = 200) -> Any:
    answer = client.post("/memory/undo", {"commitSeq": seq})
    assert answer.status_code == status, answer.text
    return answer.get_json()


def test_a_change_that_was_undone_does_not_stand_in_the_way(client: Client) -> None:
    client.tell("p", "x")
    first = last_seq(client)
    client.tell("p", "x", confidence=0.5)
    second = last_seq(client)
    redone = undo(client, second)["commitSeq"]
    done = undo(client, first)
    assert done["retracted"] == 1
    assert facts(client, "p", 1) == []
    details = undo(client, first, 409)["details"]
    assert details == {"reason": "undone", "commitSeq": first, "undoneBy": done["commitSeq"]}
    assert undo(client, redone, 409)["details"]["reason"] == "changed_later"
    undo(client, done["commitSeq"])
    undo(client, redone)
    assert facts(client, "p", 1)[0]["confidence"] == 0.5
    [conflict] = undo(client, first, 409)["details"]["conflicts"]
    assert conflict["commitSeq"] == second, "what was undone is in force again"


def test_a_repetition_that_changed_nothing_does_not_stand_in_the_way(client: Client) -> None:
    client.tell("p", "x", confidence=0.5)
    first = last_seq(client)
    client.post("/assert/rule", RULE)
    taught = last_seq(client)
    client.tell("p", "x", confidence=0.5)
    client.post("/retract", {"predicate": "p", "args": ["x"], "negated": True})
    client.post("/assert/rule", RULE)
    undo(client, taught)
    undo(client, first)
    assert facts(client, "p", 1) == []


def test_a_repetition_in_a_new_scope_does_not_stand_in_the_way(client: Client) -> None:
    client.tell("p", "x")
    client.post("/scope/fork", {"targetScope": "draft"})
    forked = last_seq(client)
    client.tell("p", "x", scope="draft")
    client.tell("p", "y", scope="draft")
    [conflict] = undo(client, forked, 409)["details"]["conflicts"]
    assert conflict["scopes"] == ["draft"]
    undo(client, last_seq(client))
    undo(client, forked)
    assert client.get("/scopes").get_json()["scopes"] == []


def test_a_ttl_survives_an_undo(client: Client) -> None:
    client.tell("p", "x", ttl=60_000, confidence=0.5)
    [before] = facts(client, "p", 1)
    assert before["ttl"] == 60_000
    client.post("/retract", {"predicate": "p", "args": ["x"]})
    undo(client, last_seq(client))
    assert facts(client, "p", 1) == [before]


def test_a_priority_that_was_set_is_undone(client: Client) -> None:
    client.tell("p", "x")
    client.tell("p", "y")
    client.post("/memory/priority", {"predicate": "p", "args": ["x"], "priority": 0.9})
    undo(client, last_seq(client))
    rows = client.post("/memory/query/salient", {"predicate": "p", "args": ["?"]}).get_json()
    assert len(rows) == 2
    assert rows[0]["salience"] == rows[1]["salience"]


def test_undo_of_rules_and_scopes(client: Client) -> None:
    client.post("/assert/rule", RULE)
    seq = last_seq(client)
    client.post("/memory/undo", {"commitSeq": seq})
    assert client.get("/rules").get_json()["rules"] == []
    client.tell("p", "a")
    client.post("/scope/fork", {"targetScope": "draft"})
    client.post("/memory/undo", {"commitSeq": last_seq(client)})
    assert client.get("/scopes").get_json()["scopes"] == []
    client.post("/retract/pattern", {"predicate": "p"})
    assert facts(client, "p", 1) == []
    client.post("/memory/undo", {"commitSeq": last_seq(client)})
    assert len(facts(client, "p", 1)) == 1


@pytest.mark.parametrize("body", [{}, {"commitSeq": 1, "requestId": "x"}, {"commitSeq": 0}])
def test_undo_names_one_change(client: Client, body: dict[str, Any]) -> None:
    client.tell("p", "a")
    error_of(client.post("/memory/undo", body), 400, "VALIDATION_ERROR")


def test_undo_of_a_change_of_another_tenant_is_not_found(client: Client) -> None:
    client.tell("p", "a")
    client.post("/tell", {"predicate": "p", "args": ["b"]}, headers={"X-Tenant-ID": "other"})
    seq = last_seq(client)
    error_of(client.post("/memory/undo", {"commitSeq": seq}), 404, "NOT_FOUND")
    error_of(client.post("/memory/undo", {"commitSeq": seq + 1}), 404, "NOT_FOUND")


# -- purge -----------------------------------------------------------------------------------------


def about_zebulon(client: Client) -> str:
    id = episode(client, "Zebulon likes tea, and Bob knows him.")
    client.post("/assert/rule", RULE)
    client.post("/assert/rule", {"text": "known(?x) :- knows(?x, zebulon)."})
    client.tell("likes", "zebulon", "tea", evidence=[{"episode": id}])
    client.tell("knows", "bob", "zebulon", scope="s")
    client.tell("said", "bob", "I saw Zebulon today")
    client.tell("likes", "bob", "tea", evidence=[{"episode": id}])
    client.tell("likes", "cid", "tea", metadata={"from": ["a mail of ZEBULON"]})
    client.tell("likes", "zebulona", "tea")
    return id


def test_a_dry_run_lists_what_a_purge_removes(client: Client) -> None:
    id = about_zebulon(client)
    before = facts(client, "likes")
    done = client.post("/memory/purge", {"subject": "zebulon", "dryRun": True}).get_json()
    assert {(row["predicate"], *row["args"], row["why"]) for row in done["facts"]} == {
        ("likes", "zebulon", "tea", "argument"),
        ("knows", "bob", "zebulon", "argument"),
        ("said", "bob", "I saw Zebulon today", "argument"),
        ("likes", "cid", "tea", "metadata"),
    }
    assert done["factCount"] == 4
    assert {(each["text"], each["scope"]) for each in done["conclusions"]} == {
        ("drinks(zebulon, tea)", None),
        ("drinks(cid, tea)", None),
        ("known(bob)", "s"),
    }
    assert done["conclusionCount"] == 3
    assert [each["id"] for each in done["episodes"]] == [id]
    assert [each["text"] for each in done["rules"]] == ["known(?x) :- knows(?x, zebulon)."]
    assert (done["purgeId"], done["dryRun"], done["erased"]) == (None, True, False)
    assert facts(client, "likes") == before
    assert client.get("/memory/purges").get_json() == {"purges": []}


def test_a_purge_removes_what_the_dry_run_lists(client: Client) -> None:
    id = about_zebulon(client)
    dry = client.post("/memory/purge", {"subject": "zebulon", "dryRun": True}).get_json()
    done = client.post("/memory/purge", {"subject": "zebulon"}).get_json()
    changed = {"purgeId", "dryRun", "erased", "undoFrom"}
    assert {k: v for k, v in done.items() if k not in changed} == {
        k: v for k, v in dry.items() if k not in changed
    }
    left = {(row["args"][0], "evidence" in row) for row in facts(client, "likes")}
    assert left == {("bob", False), ("zebulona", False)}
    error_of(client.get(f"/episodes/{id}"), 404, "NOT_FOUND")
    (purge,) = client.get("/memory/purges").get_json()["purges"]
    assert purge == {
        "purgeId": done["purgeId"],
        "by": "subject",
        "at": NOW,
        "facts": 4,
        "episodes": 1,
        "erased": False,
        "waitsFor": "storage",
    }
    error = error_of(client.post("/memory/undo", {"commitSeq": last_seq(client)}), 409, "CONFLICT")
    assert (error["details"] or {})["reason"] == "purged"


def test_a_purge_of_an_episode_keeps_facts_with_other_evidence(client: Client) -> None:
    first, second = episode(client, "one"), episode(client, "two", speaker="bob")
    client.tell("p", "both", evidence=[{"episode": first}, {"episode": second}])
    client.tell("p", "first", evidence=[{"episode": first, "start": 0, "end": 1}])
    client.tell("p", "none")
    done = client.post("/memory/purge", {"episode": first}).get_json()
    assert [(row["args"], row["why"]) for row in done["facts"]] == [(["first"], "evidence")]
    rows = facts(client, "p", 1)
    assert [(row["args"], row.get("evidence")) for row in rows] == [
        (["both"], [{"episode": second}]),
        (["none"], None),
    ]
    assert client.post("/memory/purge", {"speaker": "bob"}).get_json()["factCount"] == 1
    assert [row["args"] for row in facts(client, "p", 1)] == [["none"]]


def test_a_purge_by_age(client: Client) -> None:
    episode(client, "old", at=NOW - 5)
    client.tell("p", "a")
    assert client.post("/memory/purge", {"before": NOW}).get_json()["episodeCount"] == 1
    assert len(facts(client, "p", 1)) == 1
    assert client.post("/memory/purge", {"before": NOW + 1}).get_json()["factCount"] == 1
    assert facts(client, "p", 1) == []


def test_a_purge_forgets_the_answers_of_requests(client: Client) -> None:
    headers = {"Idempotency-Key": "k-1"}
    body = {"predicate": "p", "args": ["zebulon"]}
    client.post("/tell", body, headers=headers)
    client.post("/memory/purge", {"subject": "zebulon"})
    again = client.post("/tell", body, headers=headers)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert facts(client, "p", 1) == []


def test_a_purge_forgets_windows(client: Client) -> None:
    client.tell("p", "zebulon")
    client.post("/memory/context", {"sessionId": "chat"})
    client.post("/memory/purge", {"subject": "zebulon"})
    answer = client.post("/context/diff", {"sessionId": "chat"})
    assert answer.get_json()["currentWindowId"] == "none"
    assert "zebulon" not in answer.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "subject"),
        ({"subject": "a", "episode": "b"}, "subject"),
        ({"subject": " "}, "subject"),
        ({"speaker": ""}, "speaker"),
        ({"episode": "a b"}, "episode"),
        ({"before": "soon"}, "before"),
        ({"subject": "a", "limit": 0}, "limit"),
        ({"subject": "a", "dryRun": "yes"}, "dryRun"),
        ({"subject": "a", "dryrun": True}, "dryrun"),
    ],
)
def test_wrong_purges_are_refused(client: Client, body: dict[str, Any], field: str) -> None:
    client.tell("p", "a")
    error = error_of(client.post("/memory/purge", body), 400, "VALIDATION_ERROR")
    assert list((error["details"] or {})["fields"]) == [field]
    assert len(facts(client, "p", 1)) == 1


def test_corrections_have_audit_lines(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.tell("likes", "zebulon", "tea")
    with caplog.at_level("INFO", logger="kbserver.audit"):
        body = {"old": "likes(zebulon, tea)", "new": "likes(zebulon, milk)", "reason": "r"}
        seq = client.post("/memory/correct", body).get_json()["commitSeq"]
        client.post("/memory/undo", {"commitSeq": seq})
        client.post("/memory/purge", {"subject": "zebulon"})
    lines = [record.__dict__["fields"] for record in caplog.records]
    assert [line["action"] for line in lines] == [
        "POST /memory/correct",
        "POST /memory/undo",
        "POST /memory/purge",
    ]
    assert (lines[1]["undone"], lines[2]["by"], lines[2]["facts"]) == (seq, "subject", 1)
    assert "zebulon" not in str(lines)


def test_calls_of_tools_have_audit_lines(caplog: pytest.LogCaptureFixture) -> None:
    with serve_in_memory(mcp_tools="all") as served:
        agent = Agent(served.client)
        with caplog.at_level("INFO", logger="kbserver.audit"):
            agent.call("purge", subject="zebulon", dryRun=True)
            agent.call("correct", old="p(zebulon)", new="p(a)", reason="r")
    lines = [record.__dict__["fields"] for record in caplog.records]
    assert [(line["action"], line["outcome"]) for line in lines] == [
        ("tool purge", "ok"),
        ("tool correct", "failed"),
    ]
    assert "zebulon" not in str(lines)


def test_a_purge_of_one_tenant_leaves_others(client: Client) -> None:
    other = {"X-Tenant-ID": "other"}
    client.post("/tell", {"predicate": "p", "args": ["zebulon"]}, headers=other)
    client.tell("p", "zebulon")
    assert client.post("/memory/purge", {"subject": "zebulon"}).get_json()["factCount"] == 1
    assert client.get("/predicates", other).get_json()["totalFacts"] == 1
