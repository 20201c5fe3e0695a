"""Standing goals over HTTP: answers, changes, event streams, limits, and the end of a goal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.http import Served, error_of, serve_in_memory

from kbcore.errors import RateLimited
from kbcore.events.events import Wanted

ANCESTORS = (
    "ancestor(?x, ?y) :- parent(?x, ?y). ancestor(?x, ?z) :- ancestor(?x, ?y), parent(?y, ?z)."
)


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(tenant_max_standing_goals=3, events_max_streams=2) as found:
        yield found
        found.app.extensions["kbcore.events"].close()


@pytest.fixture
def client(served: Served) -> Any:
    return served.client


def subscribe(client: Any, goal: str, **more: Any) -> dict[str, Any]:
    response = client.post("/goals/subscribe", {"goal": goal, **more})
    assert response.status_code == 200, response.text
    return dict(response.get_json())


def changes(client: Any, id: str, since: str, query: str = "") -> dict[str, Any]:
    response = client.get(f"/goals/{id}/changes?since={since}{query}")
    assert response.status_code == 200, response.text
    return dict(response.get_json())


def args(rows: list[dict[str, Any]]) -> list[list[str]]:
    return sorted(row["args"] for row in rows)


def test_each_commit_is_one_change(client: Any) -> None:
    client.post("/teach", {"text": ANCESTORS})
    client.tell("parent", "ann", "bob")
    first = subscribe(client, "ancestor(ann, ?who)", id="family")
    assert args(first["answers"]) == [["ann", "bob"]]
    client.tell("parent", "bob", "cid")
    client.tell("parent", "eve", "fay")
    client.post("/retract", {"text": "parent(ann, bob)"})
    answer = changes(client, "family", first["eventId"])
    one, two = answer["changes"]
    assert not answer["lost"]
    assert (args(one["appeared"]), one["disappeared"]) == ([["ann", "cid"]], [])
    assert (two["appeared"], args(two["disappeared"])) == ([], [["ann", "bob"], ["ann", "cid"]])
    assert one["commitSeq"] < two["previousCommitSeq"] + 1 <= two["commitSeq"]
    assert changes(client, "family", one["eventId"])["changes"] == [two]
    assert changes(client, "family", first["eventId"], "&limit=1")["changes"] == [one]
    now = client.get("/goals/family").get_json()
    assert (now["answers"], now["eventId"]) == ([], two["eventId"])


def test_a_goal_of_several_literals_has_bindings(client: Any) -> None:
    goal = subscribe(client, "likes(?who, ?what), not away(?who)")
    client.tell("likes", "ann", "tea")
    client.tell("away", "ann")
    one, two = changes(client, goal["id"], goal["eventId"])["changes"]
    assert one["appeared"] == two["disappeared"] == [{"bindings": {"?who": "ann", "?what": "tea"}}]


def test_facts_that_expire_are_changes(client: Any, served: Served) -> None:
    goal = subscribe(client, "here(?who)")
    client.post("/tell", {"text": "here(ann)", "ttl": 60})
    (one,) = changes(client, goal["id"], goal["eventId"])["changes"]
    clock = served.clock
    clock.advance(3_600_000 - 1)
    client.get(f"/goals/{goal['id']}")  # renews the goal
    clock.advance(120_000)
    (two,) = changes(client, goal["id"], one["eventId"])["changes"]
    assert args(two["disappeared"]) == [["ann"]]


def test_an_idle_goal_ends(client: Any, served: Served) -> None:
    goal = subscribe(client, "p(?x)", ttl=1000)
    served.clock.advance(1001)
    error_of(client.get(f"/goals/{goal['id']}"), 404, "NOT_FOUND")
    assert client.get("/goals").get_json() == {"goals": []}


def test_subscribing_again_renews_a_goal(client: Any) -> None:
    first = subscribe(client, "p(?x)", id="a")
    client.tell("p", "1")
    again = subscribe(client, "p(?x)", id="a")
    assert again["eventId"] != first["eventId"]
    assert args(again["answers"]) == [["1"]]
    assert len(client.get("/goals").get_json()["goals"]) == 1
    other = client.post("/goals/subscribe", {"goal": "q(?x)", "id": "a"})
    error_of(other, 409, "CONFLICT")


def test_renewing_a_goal_changes_its_time_to_live(client: Any, served: Served) -> None:
    subscribe(client, "p(?x)", id="a", ttl=1000)
    assert subscribe(client, "p(?x)", id="a", ttl=60_000)["ttl"] == 60_000
    client.get("/goals/a")
    served.clock.advance(59_000)
    assert client.get("/goals/a").status_code == 200


def test_a_goal_that_an_error_ended_can_be_subscribed_again(client: Any) -> None:
    subscribe(client, "p(?x)", id="a")
    rule = "p(?x) :- q(?x, ?t), before(?t, now())."
    assert client.post("/teach", {"text": rule}).status_code == 200
    error_of(client.get("/goals/a"), 400, "VALIDATION_ERROR")
    error_of(client.post("/goals/subscribe", {"goal": "p(?x)", "id": "a"}), 400, "VALIDATION_ERROR")
    (kept,) = client.get("/goals").get_json()["goals"]
    assert kept["behind"]
    (stored,) = client.get("/rules").get_json()["rules"]
    assert client.post("/retract/rule", {"id": stored["id"]}).status_code == 200
    client.tell("p", "1")
    assert args(client.get("/goals/a").get_json()["answers"]) == [["1"]]
    assert args(subscribe(client, "p(?x)", id="a")["answers"]) == [["1"]]


def end(client: Any, goal: dict[str, Any]) -> Any:
    headers = {"X-Tenant-ID": "t"}
    return client.flask.delete(f"/goals/{goal['id']}", headers=headers).get_json()


def test_goals_end(client: Any) -> None:
    goal = subscribe(client, "p(?x)")
    assert end(client, goal) == {"ended": True}
    assert end(client, goal) == {"ended": False}
    error_of(client.get(f"/goals/{goal['id']}/changes?since=a.1"), 404, "NOT_FOUND")


def test_changes_that_are_not_kept_are_lost(client: Any) -> None:
    goal = subscribe(client, "p(?x)")
    for since in ("0.0", "zz", goal["eventId"] + "9", goal["eventId"].partition(".")[0] + ".-1"):
        assert changes(client, goal["id"], since) == {"changes": [], "lost": True}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "goal"),
        ({"goal": "p(?x"}, "goal"),
        ({"goal": 5}, "goal"),
        ({"goal": "p(?x)", "ttl": 5}, "ttl"),
        ({"goal": "p(?x)", "scope": "*"}, "scope"),
        ({"goal": "p(?x)", "id": "a/b"}, "id"),
        ({"goal": "p(?x)", "id": "slow"}, "id"),
        ({"goal": "p(?x), before(?x, now())"}, "goal"),
    ],
)
def test_mistakes_name_the_field(client: Any, body: dict[str, Any], field: str) -> None:
    response = client.post("/goals/subscribe", body)
    error_of(response, 400, "VALIDATION_ERROR")
    assert field in response.get_json()["details"]["fields"]


@pytest.mark.parametrize("query", ["", "?since=a.1&limit=0", "?since=a.1&limit=x"])
def test_mistakes_in_the_query(client: Any, query: str) -> None:
    goal = subscribe(client, "p(?x)")
    error_of(client.get(f"/goals/{goal['id']}/changes{query}"), 400, "VALIDATION_ERROR")


def test_the_number_of_goals_is_limited(client: Any) -> None:
    for name in "abc":
        subscribe(client, "p(?x)", id=name)
    response = client.post("/goals/subscribe", {"goal": "p(?x)"})
    error_of(response, 429, "RATE_LIMITED")
    assert response.get_json()["details"]["limit"] == "TENANT_MAX_STANDING_GOALS"


def test_goals_belong_to_a_tenant(client: Any) -> None:
    goal = subscribe(client, "p(?x)")
    other = client.flask.get(f"/goals/{goal['id']}", headers={"X-Tenant-ID": "other"})
    error_of(other, 404, "NOT_FOUND")


def test_dropping_the_tenant_ends_its_goals(client: Any, served: Served) -> None:
    client.tell("p", "1")
    goal = subscribe(client, "p(?x)")
    stream = events(client, goal["id"])
    next(stream)
    assert served.client.post("/admin/databases/default/tenants/t/nuke", {}).status_code == 200
    assert next(stream)["event"] == "goal_ended"
    error_of(client.get(f"/goals/{goal['id']}"), 404, "NOT_FOUND")


def test_a_stream_hears_of_the_next_goal_with_its_id(client: Any, served: Served) -> None:
    streams = served.app.extensions["kbcore.goal_streams"]
    subscribe(client, "p(?x)", id="g")
    stream = streams.open(lambda: served.runtime.knowledge_base("default", "t"), "g", None)
    assert b"retry" in next(stream)
    assert b"event: answers" in next(stream)
    assert client.flask.delete("/goals/g", headers={"X-Tenant-ID": "t"}).status_code == 200
    subscribe(client, "p(?x)", id="g")
    client.tell("p", "1")
    assert b'"1"' in next(stream)
    stream.woken.clear()
    client.tell("p", "2")
    assert stream.woken.is_set()
    stream.close()


def test_a_stream_of_a_tenant_that_moves_ends_without_an_end_of_the_goal(
    client: Any, served: Served
) -> None:
    streams = served.app.extensions["kbcore.goal_streams"]
    subscribe(client, "p(?x)", id="g")
    stream = streams.open(lambda: served.runtime.knowledge_base("default", "t"), "g", None)
    assert b"retry" in next(stream)
    shard = served.runtime.shards.pop(0)
    try:
        assert list(stream) == []
        stream.close()
    finally:
        served.runtime.shards[0] = shard


def events(client: Any, id: str, since: str | None = None) -> Iterator[dict[str, Any]]:
    headers = {"X-Tenant-ID": "t", **({} if since is None else {"Last-Event-ID": since})}
    response = client.flask.get(f"/goals/{id}/events", headers=headers, buffered=False)
    assert response.status_code == 200, response.text
    try:
        for part in response.response:
            for message in part.decode().split("\n\n"):
                fields = dict(
                    line.split(": ", 1) for line in message.splitlines() if not line.startswith(":")
                )
                if "data" in fields:
                    yield {**fields, "data": json.loads(fields["data"])}
    finally:
        response.close()


def test_a_stream_begins_with_the_answers_and_goes_on_with_changes(client: Any) -> None:
    client.tell("p", "1")
    goal = subscribe(client, "p(?x)")
    stream = events(client, goal["id"])
    first = next(stream)
    assert (first["event"], args(first["data"]["answers"])) == ("answers", [["1"]])
    client.tell("p", "2")
    second = next(stream)
    assert (second["event"], args(second["data"]["appeared"])) == ("changed", [["2"]])
    stream.close()
    client.tell("p", "3")
    resumed = events(client, goal["id"], second["id"])
    third = next(resumed)
    assert (third["event"], args(third["data"]["appeared"])) == ("changed", [["3"]])
    resumed.close()
    lost = events(client, goal["id"], "0.5")
    assert next(lost)["event"] == "answers"
    lost.close()


def test_the_number_of_streams_is_limited(client: Any) -> None:
    goal = subscribe(client, "p(?x)")
    streams = [events(client, goal["id"]) for _ in range(2)]
    for stream in streams:
        next(stream)
    refused = client.flask.get(f"/goals/{goal['id']}/events", headers={"X-Tenant-ID": "t"})
    error_of(refused, 429, "RATE_LIMITED")
    for stream in streams:
        stream.close()
    next(events(client, goal["id"]))


def test_streams_of_goals_and_of_changes_count_together(client: Any, served: Served) -> None:
    goal = subscribe(client, "p(?x)")
    hub = served.app.extensions["kbcore.events"]
    changes = hub.open("default", "t", Wanted())
    stream = events(client, goal["id"])
    next(stream)
    assert len(hub) == 2
    refused = client.flask.get(f"/goals/{goal['id']}/events", headers={"X-Tenant-ID": "t"})
    error_of(refused, 429, "RATE_LIMITED")
    with pytest.raises(RateLimited):
        hub.open("default", "t", Wanted())
    changes.close()
    stream.close()
    assert len(hub) == 0


def test_a_goal_that_is_not_durable_is_not_in_the_log(client: Any, served: Served) -> None:
    head = served.runtime.log_head()
    assert not subscribe(client, "p(?x)", durable=False)["durable"]
    assert served.runtime.log_head() == head
    assert subscribe(client, "p(?x)")["durable"]
    assert served.runtime.log_head() == head + 1
