"""GET /facts/history: what happened to facts, when, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http import Client, error_of
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.node.api_keys import KeyWanted
from kbcore.node.runtime import Runtime
from kbserver import create_app

T0 = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def node(tmp_path: Path, clock: ManualClock) -> Iterator[Runtime]:
    node = runtime(tmp_path, clock=clock, sweep_interval_ms=0)
    yield node
    node.close()


@pytest.fixture
def client(node: Runtime) -> Client:
    return Client(create_app(node).test_client())


def history(client: Client, predicate: str, query: str = "") -> list[tuple[Any, ...]]:
    response = client.get(f"/facts/history?predicate={predicate}&order=oldest{query}")
    assert response.status_code == 200, response.text
    return [
        (
            event["event"],
            event["cause"],
            event["commitSeq"],
            None if event["before"] is None else event["before"]["confidence"],
            None if event["after"] is None else event["after"]["confidence"],
        )
        for event in response.get_json()["events"]
    ]


def test_what_happened_to_a_fact(client: Client) -> None:
    client.tell("likes", "ann", "tea", confidence=0.5)
    client.tell("likes", "ann", "tea", confidence=0.5)  # changes nothing
    client.tell("likes", "ann", "tea", confidence=0.9)
    client.post("/forget", {"predicate": "likes", "args": ["ann", "tea"]})
    client.tell("likes", "bob", "tea", confidence=0.1)
    client.post("/retract/pattern", {"predicate": "likes", "args": [None, "tea"]})
    expected = [
        ("asserted", "assert", 1, None, 0.5),
        ("replaced", "assert", 3, 0.5, 0.9),
        ("retracted", "retract", 4, 0.9, None),
        ("asserted", "assert", 5, None, 0.1),
        ("retracted", "retract", 6, 0.1, None),
    ]
    assert history(client, "likes") == expected
    assert history(client, "likes(bob, ?x)") == expected[3:]
    assert history(client, "likes(?x, ?x)") == []
    assert history(client, "likes", "&limit=2&offset=1") == expected[1:3]
    newest = client.get("/facts/history?predicate=likes&limit=1").get_json()
    assert newest["totalEvents"] == 5
    assert [event["commitSeq"] for event in newest["events"]] == [6]
    assert (newest["startSeq"], newest["startAt"]) == (0, T0)


def test_scopes_corrections_and_undoing_have_their_causes(client: Client) -> None:
    client.tell("likes", "ann", "tea")
    client.post("/scope/fork", {"sourceScope": None, "targetScope": "s"})
    body = {"old": "likes(ann, tea)", "reason": "she said so"}
    client.post("/memory/correct", {**body, "new": {"predicate": "likes", "args": ["ann", "milk"]}})
    client.post("/memory/undo", {"commitSeq": 3})
    client.flask.delete("/scope/s", headers={"X-Tenant-ID": "t"})
    events = [(event, cause) for event, cause, *_ in history(client, "likes", "&scope=*")]
    assert events == [
        ("asserted", "assert"),
        ("asserted", "fork"),
        ("asserted", "correct"),
        ("retracted", "correct"),
        ("retracted", "undo"),
        ("asserted", "undo"),
        ("retracted", "drop_scope"),
    ]


def test_a_correction_has_its_reason_and_an_undo_what_it_undid(client: Client) -> None:
    client.tell("likes", "ann", "tea")
    body = {"old": "likes(ann, tea)", "reason": "she said so"}
    client.post("/memory/correct", {**body, "new": {"predicate": "likes", "args": ["ann", "milk"]}})
    client.post("/memory/undo", {"commitSeq": 2})
    client.post("/memory/undo", {"commitSeq": 3})
    client.tell("likes", "bob", "tea")
    client.post("/memory/undo", {"commitSeq": 5})  # which only retracts
    events = client.get("/facts/history?predicate=likes&order=oldest").get_json()["events"]
    rows = [
        (
            event["commitSeq"],
            (event["after"] or event["before"])["args"][1],
            *(event[field] for field in ("event", "cause", "reason", "undoes")),
        )
        for event in events
    ]
    assert rows == [
        (1, "tea", "asserted", "assert", None, None),
        (2, "milk", "asserted", "correct", "she said so", None),
        (2, "tea", "retracted", "correct", "she said so", None),
        (3, "milk", "retracted", "undo", None, 2),
        (3, "tea", "asserted", "undo", None, 2),
        (4, "milk", "asserted", "undo", None, 3),
        (4, "tea", "retracted", "undo", None, 3),
        (5, "tea", "asserted", "assert", None, None),
        (6, "tea", "retracted", "undo", None, 5),
    ]


def test_the_reason_of_a_correction_is_not_that_of_other_facts_in_its_commit(
    client: Client,
) -> None:
    client.tell("likes", "ann", "tea")
    client.tell("likes", "bob", "tea")
    id = client.post("/tx/begin").text
    headers = {"X-Transaction-ID": id}
    for name in ("ann", "bob"):
        new = {"predicate": "likes", "args": [name, "milk"]}
        body = {"old": f"likes({name}, tea)", "new": new, "reason": f"{name} said so"}
        assert client.post("/memory/correct", body, headers=headers).status_code == 200
    client.post("/tell", {"predicate": "likes", "args": ["cid", "milk"]}, headers=headers)
    client.post(f"/tx/commit/{id}")
    events = client.get("/facts/history?predicate=likes&order=oldest").get_json()["events"]
    reasons = [
        ((event["after"] or event["before"])["args"], event["cause"], event["reason"])
        for event in events[2:]
    ]
    assert reasons == [
        (["ann", "milk"], "correct", "ann said so"),
        (["ann", "tea"], "correct", "ann said so"),
        (["bob", "milk"], "correct", "bob said so"),
        (["bob", "tea"], "correct", "bob said so"),
        (["cid", "milk"], "assert", None),
    ]


def test_events_name_their_request_and_transaction(client: Client) -> None:
    fact = {"predicate": "p", "args": ["a"]}
    client.post("/tell", fact, headers={"Idempotency-Key": "order-1"})
    id = client.post("/tx/begin").text
    client.post("/tell", {**fact, "args": ["b"]}, headers={"X-Transaction-ID": id})
    client.post(f"/tx/commit/{id}")
    second, first = client.get("/facts/history?predicate=p").get_json()["events"]
    assert (first["requestId"], first["transaction"], first["key"]) == ("order-1", None, None)
    assert (second["requestId"], second["transaction"]) == (None, id)


def test_events_name_the_key_that_made_them(tmp_path: Path) -> None:
    node = runtime(tmp_path, auth_enabled=True, api_key="a-root-key-of-32-characters-long")
    app = create_app(node)
    made = node.keys().create(KeyWanted("writer", "writer"))
    client = Client(app.test_client())
    headers = {"Authorization": f"Bearer {made.secret}"}
    client.post("/tell", {"predicate": "p", "args": ["a"]}, headers=headers)
    reply = client.get("/facts/history?predicate=p", headers=headers)
    (event,) = reply.get_json()["events"]
    assert event["key"] == made.key.id
    assert made.secret not in reply.text
    open_to_all = create_app(runtime(tmp_path / "open"))
    Client(open_to_all.test_client()).post("/tell", {"predicate": "p", "args": ["a"]})
    (event,) = (
        Client(open_to_all.test_client()).get("/facts/history?predicate=p").get_json()["events"]
    )
    assert event["key"] is None  # a request in the same thread, after one with a key
    node.close()


@pytest.mark.parametrize("meta", [{}, {"_meta": {"progressToken": 1}}])
def test_events_of_tools_name_the_key(tmp_path: Path, meta: dict[str, Any]) -> None:
    node = runtime(tmp_path, auth_enabled=True)
    made = node.keys().create(KeyWanted("writer", "writer"))
    client = Client(create_app(node).test_client())
    headers = {"Authorization": f"Bearer {made.secret}"}
    params = {"name": "tell", "arguments": {"predicate": "p", "args": ["a"]}, **meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = "application/json, text/event-stream"
    assert client.post("/mcp", message, headers={**headers, "Accept": accept}).status_code == 200
    reply = client.get("/facts/history?predicate=p", headers=headers)
    (event,) = reply.get_json()["events"]
    assert event["key"] == made.key.id
    node.close()


def test_expired_facts_and_purges(clock: ManualClock, client: Client) -> None:
    client.tell("likes", "ann", "tea", ttl=1000)
    client.tell("likes", "ann", "milk")
    clock.advance(2000)
    client.post("/memory/decay", {"threshold": 0})
    events = [(event, cause) for event, cause, *_ in history(client, "likes(ann, tea)")]
    assert events == [("asserted", "assert"), ("retracted", "expired")]
    client.post("/memory/purge", {"subject": "milk"})
    reply = client.get("/facts/history?predicate=likes&scope=*")
    (event,) = reply.get_json()["events"]
    assert (event["event"], event["count"], event["before"]) == ("purged", 1, None)
    assert "milk" not in reply.text


def test_a_fact_that_expired_is_asserted_anew(clock: ManualClock, client: Client) -> None:
    client.tell("p", "a", ttl=1000)
    client.tell("p", "b", ttl=1000)
    clock.advance(2000)
    client.tell("p", "a")
    client.post("/scope/fork", {"sourceScope": None, "targetScope": "s"})
    expected = [("asserted", "assert"), ("asserted", "assert")]
    assert [each[:2] for each in history(client, "p(a)")] == expected
    # The copy of a scope does not assert a fact that expired in it.
    assert [each[:2] for each in history(client, "p(b)")] == expected[:1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "predicate"),
        ("predicate=p&order=up", "order"),
        ("predicate=p&limit=0", "limit"),
        ("predicate=p&offset=x", "offset"),
        ("predicate=p&scope=a%20b", "scope"),
    ],
)
def test_mistakes_are_named(client: Client, query: str, field: str) -> None:
    error = error_of(client.get(f"/facts/history?{query}"), 400, "VALIDATION_ERROR")
    assert field in error["details"]["fields"]
