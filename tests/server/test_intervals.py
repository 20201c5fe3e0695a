"""Intervals of facts: values that end, return and arrive late."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, Client, Served

HOUR = 3_600_000


@pytest.fixture
def cities(client: Client, served: Served) -> Client:
    client.post("/teach", {"text": "@key city(?who, _). lives(?who) :- city(?who, hamburg)."})
    return client


def told(client: Client, city: str, since: int | None, **more: Any) -> None:
    body = {"predicate": "city", "args": ["mia", city], "conflictStrategy": "NEWEST_WINS", **more}
    answer = client.post("/tell", body if since is None else {**body, "validFrom": since})
    assert answer.text == f"Fact Asserted: city(mia, {city})"


def at(client: Client, time: int) -> list[tuple[str, int, int | None]]:
    body = {"predicate": "city", "args": ["mia", "?where"], "asOf": time}
    asked = client.post("/ask", body).get_json()
    stored = client.post("/query", body).get_json()
    recalled = client.post(
        "/memory/recall", {"predicate": "city", "args": ["mia", "?"], "timestamp": time}
    ).get_json()
    rows = [(r["args"][1], r["validFrom"], r["validUntil"]) for r in recalled]
    for other in (asked, stored):
        assert [(r["args"][1], r["validFrom"], r["validUntil"]) for r in other] == rows
    return rows


def test_a_value_that_returns_begins_a_new_interval(cities: Client, served: Served) -> None:
    told(cities, "hamburg", NOW - 30 * HOUR, metadata={"from": "letter"}, confidence=0.9)
    told(cities, "berlin", NOW - 20 * HOUR)
    told(cities, "hamburg", NOW - 10 * HOUR)
    assert at(cities, NOW - 25 * HOUR) == [("hamburg", NOW - 30 * HOUR, NOW - 20 * HOUR)]
    assert at(cities, NOW - 15 * HOUR) == [("berlin", NOW - 20 * HOUR, NOW - 10 * HOUR)]
    assert at(cities, NOW) == [("hamburg", NOW - 10 * HOUR, None)]
    assert at(cities, NOW - 31 * HOUR) == []
    for time, known in ((-25, ["mia"]), (-15, []), (0, ["mia"])):
        body = {"predicate": "lives", "args": ["?who"], "asOf": NOW + time * HOUR}
        assert [row["args"][0] for row in cities.post("/ask", body).get_json()] == known
    body = {"predicate": "city", "args": ["mia", "hamburg"], "asOf": NOW - 25 * HOUR}
    [row] = cities.post("/ask", body).get_json()
    assert (row["metadata"], row["confidence"]) == ({"from": "letter"}, 0.9)


def test_the_order_of_arrival_does_not_matter(cities: Client) -> None:
    since = {"hamburg": NOW - 30 * HOUR, "koeln": NOW - 20 * HOUR, "berlin": NOW - 10 * HOUR}
    for city in ("berlin", "hamburg", "koeln"):
        told(cities, city, since[city])
    assert at(cities, NOW) == [("berlin", NOW - 10 * HOUR, None)]
    assert at(cities, NOW - 15 * HOUR) == [("koeln", NOW - 20 * HOUR, NOW - 10 * HOUR)]
    assert at(cities, NOW - 25 * HOUR) == [("hamburg", NOW - 30 * HOUR, NOW - 20 * HOUR)]
    told(cities, "berlin", NOW - 40 * HOUR)
    assert at(cities, NOW) == [("berlin", NOW - 10 * HOUR, None)]
    assert at(cities, NOW - 35 * HOUR) == [("berlin", NOW - 40 * HOUR, NOW - 30 * HOUR)]


def test_a_value_that_is_stated_again_keeps_its_beginning(cities: Client) -> None:
    told(cities, "berlin", NOW - 10 * HOUR)
    told(cities, "berlin", NOW - 5 * HOUR)
    told(cities, "berlin", None)
    assert at(cities, NOW) == [("berlin", NOW - 10 * HOUR, None)]
    told(cities, "berlin", NOW - 20 * HOUR)
    assert at(cities, NOW) == [("berlin", NOW - 20 * HOUR, None)]


def test_all_in_one_request(cities: Client) -> None:
    facts = [
        {"predicate": "city", "args": ["mia", city], "validFrom": NOW - hours * HOUR}
        for city, hours in (("hamburg", 30), ("berlin", 20), ("hamburg", 10))
    ]
    body = {"facts": facts, "conflictStrategy": "NEWEST_WINS"}
    answer = cities.post("/assert/facts", body).get_json()
    assert "discarded" not in answer
    assert at(cities, NOW - 25 * HOUR) == [("hamburg", NOW - 30 * HOUR, NOW - 20 * HOUR)]
    assert at(cities, NOW) == [("hamburg", NOW - 10 * HOUR, None)]


def test_ended_values_outlive_a_sweep(cities: Client, served: Served) -> None:
    told(cities, "hamburg", NOW - 30 * HOUR)
    told(cities, "berlin", NOW - 20 * HOUR)
    cities.tell("door", "open", ttl=1000)
    served.clock.advance(2000)
    assert served.runtime.sweeper.sweep() == 1
    assert at(cities, NOW - 25 * HOUR) == [("hamburg", NOW - 30 * HOUR, NOW - 20 * HOUR)]


def test_closing_leaves_the_beginning(client: Client, served: Served) -> None:
    client.tell("city", "mia", "berlin", validFrom=NOW - 10 * HOUR)
    client.tell("city", "mia", "berlin", validUntil=NOW - 5 * HOUR)
    assert at(client, NOW - 6 * HOUR) == [("berlin", NOW - 10 * HOUR, NOW - 5 * HOUR)]
    assert at(client, NOW) == []
    client.tell("city", "mia", "berlin")
    assert at(client, NOW - 6 * HOUR) == [("berlin", NOW - 10 * HOUR, NOW - 5 * HOUR)]
    assert at(client, NOW) == [("berlin", NOW, None)]


@pytest.mark.parametrize(
    "times",
    [
        {"validUntil": NOW},
        {"validUntil": NOW - HOUR},
        {"validFrom": NOW, "validUntil": NOW},
        {"validFrom": NOW + HOUR, "validUntil": NOW},
    ],
)
def test_an_empty_interval_is_an_error(client: Client, times: dict[str, int]) -> None:
    body = {"predicate": "city", "args": ["mia", "rome"], **times}
    for answer in (client.post("/tell", body), client.post("/assert/facts", {"facts": [body]})):
        assert answer.status_code == 400
        assert "validUntil" in answer.text
    past = {**body, "validFrom": NOW - 2 * HOUR, "validUntil": NOW - HOUR}
    assert client.post("/tell", past).status_code == 200


def test_intervals_survive_snapshots_forks_and_merges(cities: Client, served: Served) -> None:
    told(cities, "hamburg", NOW - 30 * HOUR)
    told(cities, "berlin", NOW - 20 * HOUR)
    told(cities, "hamburg", NOW - 10 * HOUR)
    cities.tell("other", "a", scope="third")
    for path, body in (
        ("/scope/fork", {"sourceScope": None, "targetScope": "copy"}),
        ("/scope/merge", {"sourceScope": "copy", "targetScope": "third"}),
    ):
        assert cities.post(path, body).status_code == 200
    for scope in ("copy", "third"):
        body = {"predicate": "city", "args": ["mia", "?"], "scope": scope, "asOf": NOW - 25 * HOUR}
        [row] = cities.post("/ask", body).get_json()
        assert (row["args"][1], row["validUntil"]) == ("hamburg", NOW - 20 * HOUR)


def test_undo_keeps_closed_intervals(cities: Client) -> None:
    told(cities, "hamburg", NOW - 30 * HOUR)
    told(cities, "berlin", NOW - 20 * HOUR)
    body = {"predicate": "city", "args": ["mia", "hamburg"], "validFrom": NOW - 10 * HOUR}
    answer = cities.post("/tell", {**body, "conflictStrategy": "NEWEST_WINS"})
    before = at(cities, NOW - 25 * HOUR)
    undo = cities.post("/memory/undo", {"commitSeq": int(answer.headers["X-Commit-Seq"])})
    assert undo.status_code == 200, undo.text
    assert at(cities, NOW) == [("berlin", NOW - 20 * HOUR, None)]
    assert at(cities, NOW - 25 * HOUR) == before


def test_a_correction_has_no_empty_interval(client: Client) -> None:
    client.tell("city", "mia", "oslo")
    body = {
        "old": {"predicate": "city", "args": ["mia", "oslo"]},
        "new": {"predicate": "city", "args": ["mia", "rome"], "validUntil": 1000},
        "reason": "a slip",
    }
    answer = client.post("/memory/correct", body)
    assert answer.status_code == 400
    assert "city(mia, rome)" in answer.get_json()["message"]
    assert client.ask("city", "mia", "?where") == [["mia", "oslo"]]
