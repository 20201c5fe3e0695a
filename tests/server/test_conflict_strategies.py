"""What a conflict strategy does with facts that lose: stored ones end, new ones are discarded."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, Client, Served

from kbcore.events.events import events_of


def rows(client: Client, predicate: str, *args: str) -> list[dict[str, Any]]:
    response = client.post("/query", {"predicate": predicate, "args": list(args)})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.get_json()
    return found


def last(client: Client, predicate: str, *args: str) -> list[str]:
    """The last arguments of the facts that hold now."""
    return [args[-1] for args in client.ask(predicate, *args)]


def history(client: Client, predicate: str, *args: str) -> list[tuple[str, Any, Any]]:
    """What is known of facts at the present: the last argument, and when each held."""
    at = {"timestamp": NOW, "predicate": predicate, "args": list(args)}
    return [
        (row["args"][-1], row["validFrom"], row["validUntil"])
        for row in client.post("/memory/recall", at).get_json()
    ]


def test_a_discarded_fact_is_not_acknowledged_as_stored(client: Client, served: Served) -> None:
    client.tell("p", "a", confidence=0.9)
    body = {"predicate": "p", "args": ["a"], "negated": True, "confidence": 0.5}
    for path in ("/tell", "/assert/fact"):
        answer = client.post(path, {**body, "conflictStrategy": "CONFIDENCE"})
        assert (answer.status_code, answer.text) == (200, "Fact Discarded: p(a)")
        assert answer.headers["X-Facts-Discarded"] == "1"
    other = {"predicate": "p", "args": ["b"]}
    bulk = {"facts": [body, other], "conflictStrategy": "CONFIDENCE"}
    answer = client.post("/assert/facts", bulk)
    assert answer.get_json() == {
        "asserted": 1,
        "updated": 0,
        "failed": 0,
        "errors": [],
        "discarded": 1,
        "timestamp": NOW,
    }
    assert answer.headers["X-Facts-Discarded"] == "1"
    assert [row["negated"] for row in rows(client, "p", "a")] == [False]
    stored = client.post("/tell", {**body, "confidence": 1, "conflictStrategy": "CONFIDENCE"})
    assert stored.text == "Fact Asserted: p(a)"
    assert "X-Facts-Discarded" not in stored.headers


def test_a_repeated_discarded_write_is_still_discarded(client: Client) -> None:
    client.tell("p", "a", confidence=0.9)
    body = {"predicate": "p", "args": ["a"], "negated": True, "confidence": 0.5}
    body["conflictStrategy"] = "CONFIDENCE"
    for path, key in (("/tell", "one"), ("/assert/facts", "many")):
        sent = body if path == "/tell" else {"facts": [body], "conflictStrategy": "CONFIDENCE"}
        first = client.post(path, sent, {"Idempotency-Key": key})
        again = client.post(path, sent, {"Idempotency-Key": key})
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.data == first.data
        assert again.headers["X-Facts-Discarded"] == first.headers["X-Facts-Discarded"] == "1"


@pytest.fixture
def cities(client: Client, served: Served) -> Client:
    client.post("/teach", {"text": "@key city(?who, _)."})
    client.tell("city", "ann", "oslo", confidence=0.6)
    client.tell("city", "bob", "rome")
    served.clock.advance(1000)
    return client


def test_the_newest_value_of_a_key_ends_the_older_one(cities: Client, served: Served) -> None:
    bern = {"predicate": "city", "args": ["ann", "bern"], "conflictStrategy": "NEWEST_WINS"}
    answer = cities.post("/tell", bern)
    assert answer.text == "Fact Asserted: city(ann, bern)"
    assert last(cities, "city", "?who", "?where") == ["bern", "rome"]
    assert history(cities, "city", "ann", "?") == [("oslo", NOW, NOW + 1000)]
    served.clock.advance(1000)
    cities.tell("city", "ann", "oslo", conflictStrategy="NEWEST_WINS")
    [row] = rows(cities, "city", "ann", "?")
    assert (row["args"][1], row["validUntil"]) == ("oslo", None)


def test_the_end_of_a_value_is_the_beginning_of_the_winner(cities: Client, served: Served) -> None:
    cities.tell("city", "ann", "bern", validFrom=NOW + 5000, conflictStrategy="NEWEST_WINS")
    assert last(cities, "city", "ann", "?") == ["oslo"]
    served.clock.advance(4000)
    assert last(cities, "city", "ann", "?") == ["bern"]
    assert history(cities, "city", "ann", "?") == [("oslo", NOW, NOW + 5000)]


def test_the_opposite_that_loses_stays_in_the_history(client: Client, served: Served) -> None:
    client.tell("p", "a", metadata={"k": 1})
    served.clock.advance(1000)
    client.tell("p", "a", negated=True, conflictStrategy="NEWEST_WINS")
    assert [row["negated"] for row in rows(client, "p", "a")] == [True]
    [before] = client.post(
        "/memory/recall", {"predicate": "p", "args": ["a"], "timestamp": NOW}
    ).get_json()
    assert (before["negated"], before["metadata"], before["validUntil"]) == (
        False,
        {"k": 1},
        NOW + 1000,
    )


def test_confidence_decides_between_the_values_of_a_key(cities: Client) -> None:
    lower = {"predicate": "city", "args": ["ann", "bern"], "confidence": 0.5}
    answer = cities.post("/tell", {**lower, "conflictStrategy": "CONFIDENCE"})
    assert answer.text == "Fact Discarded: city(ann, bern)"
    assert last(cities, "city", "ann", "?") == ["oslo"]
    cities.post("/tell", {**lower, "confidence": 0.7, "conflictStrategy": "CONFIDENCE"})
    assert last(cities, "city", "ann", "?") == ["bern"]


def test_values_of_a_key_in_one_request(cities: Client, served: Served) -> None:
    facts = [
        {"predicate": "city", "args": ["cid", "paris"]},
        {"predicate": "city", "args": ["cid", "lima"]},
        {"predicate": "city", "args": ["ann", "oslo"]},
        {"predicate": "city", "args": ["eve", "kyiv"], "validFrom": NOW - 5000},
        {"predicate": "city", "args": ["eve", "riga"], "validFrom": NOW - 2000},
    ]
    body = {"facts": facts, "conflictStrategy": "NEWEST_WINS"}
    answer = cities.post("/assert/facts", body).get_json()
    assert (answer["asserted"], answer["updated"], answer["discarded"]) == (3, 1, 1)
    assert last(cities, "city", "cid", "?") == ["lima"]
    assert last(cities, "city", "eve", "?") == ["riga"]
    recall = {"predicate": "city", "args": ["eve", "?"], "timestamp": NOW - 4000}
    [row] = cities.post("/memory/recall", recall).get_json()
    assert (row["args"][1], row["validUntil"]) == ("kyiv", NOW - 2000)


def test_conclusions_histories_and_events_follow_the_end(cities: Client, served: Served) -> None:
    cities.post("/teach", {"text": "lives(?who) :- city(?who, oslo)."})
    assert last(cities, "lives", "?who") == ["ann"]
    seen: list[Any] = []
    end = served.runtime.feed.subscribe(lambda each: seen.extend(events_of(each)))
    cities.tell("city", "ann", "bern", conflictStrategy="NEWEST_WINS")
    end()
    assert last(cities, "lives", "?who") == []
    assert [(each.kind, each.more.get("reason")) for each in seen] == [
        ("fact_retracted", "superseded"),
        ("fact_asserted", None),
    ]
    found = served.runtime.knowledge_base("default", "t").predicates()["predicates"]
    assert {each["predicate"]: each["factCount"] for each in found}["city"] == 2


def test_a_value_that_holds_again_is_not_superseded(cities: Client, served: Served) -> None:
    def tell(value: str, valid_from: int) -> list[tuple[str, Any, str]]:
        seen: list[Any] = []
        end = served.runtime.feed.subscribe(lambda each: seen.extend(events_of(each)))
        cities.tell("city", "eve", value, validFrom=valid_from, conflictStrategy="NEWEST_WINS")
        end()
        atoms = [(each.kind, each.more.get("reason"), each.more["atom"]) for each in seen]
        return [(kind, reason, atom["args"][1]) for kind, reason, atom in atoms]

    tell("oslo", NOW - 10_000)
    tell("oslo", NOW - 2000)
    assert tell("bern", NOW - 6000) == [("fact_asserted", None, "bern")]
    assert last(cities, "city", "eve", "?") == ["oslo"]
    assert history(cities, "city", "eve", "?") == [("oslo", NOW - 2000, None)]
    # the end of a time that is over already is about the past only
    assert tell("rome", NOW - 4000) == [("fact_asserted", None, "rome")]
    assert last(cities, "city", "eve", "?") == ["oslo"]
    assert tell("kyiv", NOW - 1000) == [
        ("fact_retracted", "superseded", "oslo"),
        ("fact_asserted", None, "kyiv"),
    ]
    assert last(cities, "city", "eve", "?") == ["kyiv"]


def test_keys_of_several_arguments_and_equal_numbers(client: Client) -> None:
    client.post("/teach", {"text": "@key size(?what, ?year, _, _)."})
    told = {"conflictStrategy": "NEWEST_WINS"}
    client.tell("size", "a", "2020", "3", "cm")
    client.tell("size", "a", "2021", "4", "cm", **told)
    client.tell("size", "a", "2020", "3.0", "cm", **told)
    assert len(last(client, "size", "a", "?y", "?n", "?u")) == 3, "3 and 3.0 are no violation"
    client.tell("size", "a", "2020", "5", "mm", **told)
    assert last(client, "size", "a", "2020", "?", "?") == ["mm"]
    assert last(client, "size", "a", "2021", "?", "?") == ["cm"]


def test_a_value_that_ended_in_a_transaction_and_an_undo(cities: Client, served: Served) -> None:
    id = cities.post("/tx/begin").text
    cities.post(
        "/tell",
        {"predicate": "city", "args": ["ann", "bern"], "conflictStrategy": "NEWEST_WINS"},
        {"X-Transaction-ID": id},
    )
    assert last(cities, "city", "ann", "?") == ["oslo"]
    committed = cities.post(f"/tx/commit/{id}")
    assert committed.status_code == 200
    assert last(cities, "city", "ann", "?") == ["bern"]
    cities.post("/memory/undo", {"commitSeq": int(committed.headers["X-Commit-Seq"])})
    [row] = rows(cities, "city", "ann", "?")
    assert (row["args"][1], row["confidence"], row["validUntil"]) == ("oslo", 0.6, None)
