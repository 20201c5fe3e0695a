"""No rule set stops a node: others get their turn while one of any size is deployed, listed,
copied, dropped, or changed by hand.

Calls of functions between two turns are counted, not seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from support.http import Served, serve_in_memory
from support.turns import Relay, Turns

from kbcore.durable.records import decode_rule_set, encode_rule_set
from kbcore.scheduling import Scheduling

ITEMS = 4000
CALLS_BETWEEN = 10 * ITEMS
"""Calls of functions between two turns, at most: a step over all items takes more."""

TENANT = {"X-Tenant-ID": "t"}

FACTS = "".join(f"f(a{number}).\n" for number in range(ITEMS))
RULES = "".join(f"h{number}(?x) :- q(?x, a).\n" for number in range(ITEMS // 10))
PHRASES = "".join(f'@phrase p{number}/1 "{{0}} is p".\n' for number in range(ITEMS // 10))


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.fixture
def served(relay: Relay) -> Iterator[Served]:
    with serve_in_memory(scheduling=Scheduling(yield_now=relay)) as served:
        yield served


def deploy(served: Served, text: str, name: str = "a", scope: str | None = None) -> None:
    answer = served.client.flask.put(
        f"/rulesets/{name}", json={"text": text, "scope": scope}, headers=TENANT
    )
    assert answer.status_code == 200, answer.text


REQUESTS = {
    "deploy": ("PUT", "/rulesets/a", {"text": FACTS + "g(a).", "scope": "s"}),
    "deploy nothing": ("PUT", "/rulesets/a", {"text": "g(a).", "scope": "s"}),
    "list": ("GET", "/rulesets", None),
    "contents": ("GET", "/rulesets/a?scope=s", None),
    "versions": ("GET", "/rulesets/a/versions?scope=s", None),
    "fork": ("POST", "/scope/fork", {"sourceScope": "s", "targetScope": "u"}),
    "drop": ("DELETE", "/scope/s", None),
    "assert": (
        "POST",
        "/assert/facts",
        {
            "facts": [
                {"predicate": "f", "args": [f"a{number}"], "scope": "s"} for number in range(ITEMS)
            ]
        },
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_give_turns(name: str, served: Served, relay: Relay) -> None:
    deploy(served, FACTS + RULES, scope="s")
    method, path, body = REQUESTS[name]
    relay.turns = turns = Turns()
    with turns.counted():
        answer = served.client.flask.open(path, method=method, json=body, headers=TENANT)
    assert answer.status_code == 200, answer.text
    assert turns.count > 2
    assert turns.most_calls < CALLS_BETWEEN


def test_the_predicates_of_many_rules_are_collected_in_turns(served: Served) -> None:
    """`/check` and `/preview` of a rule need all of them."""
    rules = "".join(f"h{number}(?x) :- q(?x, a).\n" for number in range(ITEMS))
    text = f"f(a). ~n(a). @input i(x, y). {rules}"
    answer = served.client.flask.post("/teach", json={"text": text}, headers=TENANT)
    assert answer.status_code == 200, answer.text
    knowledge_base = served.runtime.knowledge_base("default", "t")
    turns = Turns()
    with turns.counted():
        known = knowledge_base.known_predicates(turns)
    listed = served.client.flask.get("/predicates?scope=*", headers=TENANT).get_json()["predicates"]
    assert len(listed) == len(known) == ITEMS + 3
    assert known == {row["predicate"]: {row["arity"]} for row in listed}
    assert turns.most_calls < ITEMS


def test_snapshots_give_turns(served: Served) -> None:
    deploy(served, FACTS + RULES)
    deploy(served, "g(a).")
    deploy(served, FACTS)
    (known,) = served.runtime.read_tenant("default", "t").rule_sets.all()
    turns = Turns()
    with turns.counted():
        body = encode_rule_set(known, turns)
    assert turns.most_calls < CALLS_BETWEEN
    again = decode_rule_set(orjson.loads(orjson.dumps(body)))
    assert again == known
    assert again.bytes == known.bytes


def test_small_files_give_turns_together(served: Served, relay: Relay) -> None:
    files = [{"path": f"{number}", "text": "/**/" * 900} for number in range(50)]
    files.append({"path": "z", "text": "p(a)."})
    relay.turns = turns = Turns()
    with turns.counted():
        answer = served.client.flask.put("/rulesets/a", json={"files": files}, headers=TENANT)
    assert answer.status_code == 200, answer.text
    assert turns.most_calls < CALLS_BETWEEN


def test_declarations_by_hand_cost_as_many_steps_as_they_are(served: Served, relay: Relay) -> None:
    """Each takes the place of one of a rule set, which is copied once for all of them."""
    deploy(served, PHRASES + FACTS)
    relay.turns = turns = Turns()
    with turns.counted():
        answer = served.client.flask.post(
            "/teach", json={"text": PHRASES.replace("is p", "was p")}, headers=TENANT
        )
    assert answer.status_code == 200, answer.text
    assert turns.most_calls < CALLS_BETWEEN
    assert turns.all_calls < len(PHRASES.split("\n")) * CALLS_OF_A_DECLARATION
    (rule_set,) = served.client.flask.get("/rulesets", headers=TENANT).get_json()["ruleSets"]
    assert (rule_set["declarations"], rule_set["facts"]) == (0, ITEMS)


CALLS_OF_A_DECLARATION = 1500
"""Calls of functions for one declaration that is taught, from the body to the answer."""
