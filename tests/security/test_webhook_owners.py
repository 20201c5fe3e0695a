"""Webhooks: what a reader learns about those of others, and how far a failing one delays others."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.http import NOW
from support.keys import Keyed, keyed
from support.receivers import SECRET

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations.base import Actor
from kbcore.operations.subscriptions import deliveries
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.webhooks import DeliveryOutcome, DeliveryResult, WebhookMessage
from kbcore.state.facts import Fact
from kbcore.state.subscriptions import Webhook
from kbcore.subscriptions.goal import StandingGoal
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.syntax.parser import parse_body

GOAL = parse_body("p(?x)")
URL = "http://hooks.test/a/b"

# -- delays ----------------------------------------------------------------------------------------


class Receiver:
    """A sender whose receiver knows one secret; it answers `refusal` to any other."""

    def __init__(self) -> None:
        self.refusal = DeliveryOutcome.FAILED
        self.attempts: list[tuple[str, str]] = []
        self.delivered: list[str] = []
        self._changed = threading.Condition()

    def check(self, url: str, secret: str) -> None:
        pass

    def send(self, url: str, secret: str, message: WebhookMessage) -> DeliveryResult:
        is_right = secret == "right"
        with self._changed:
            tenant, goal = (json.loads(message.body)["data"][key] for key in ("tenant", "goalId"))
            self.attempts.append((tenant, goal))
            if is_right:
                self.delivered.append(tenant)
            self._changed.notify_all()
        return DeliveryResult(DeliveryOutcome.DELIVERED if is_right else self.refusal)

    def close(self) -> None:
        pass

    def wait(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), 20), self.attempts

    @hookimpl
    def kb_webhook_senders(self, config: Config) -> dict[str, Any]:
        return {"own": lambda config: self}


@contextlib.contextmanager
def node_and_receiver() -> Iterator[tuple[Runtime, Receiver]]:
    """Open a node whose clock stands still, so that no wait after a failure ever ends."""
    receiver = Receiver()
    config = Config(
        storage_backend="memory", webhook_urls=("http://hooks.test/",), webhook_sender="own"
    )
    with open_runtime(config, plugins=[receiver], clock=ManualClock(NOW)) as node:
        yield node, receiver


def subscribe(node: Runtime, tenant: str, owner: str, secret: str, id: str) -> None:
    kb = node.knowledge_base(tenant=tenant)
    kb.actor = Actor(owner, False)
    kb.subscribe_goal(GOAL, id=id, keep=DurableSubscription(Webhook(URL, secret)))


def change(node: Runtime, tenant: str, name: str) -> None:
    node.knowledge_base(tenant=tenant).assert_facts([Fact("p", (name,))])


@pytest.mark.parametrize(
    ("tenant", "owner"), [("b", "eve"), ("a", "eve"), ("a", "ann"), ("b", "ann")]
)
def test_a_wrong_secret_for_an_address_delays_nobody_else(tenant: str, owner: str) -> None:
    with node_and_receiver() as (node, receiver):
        subscribe(node, tenant, owner, "wrong", "wrong")
        change(node, tenant, "1")
        receiver.wait(lambda r: r.attempts and node.webhooks_failing == 1)
        subscribe(node, "a", "ann", "right", "right")
        change(node, "a", "2")
        receiver.wait(lambda r: "a" in r.delivered)
        assert node.webhooks_failing == 1


def test_goals_of_an_owner_with_the_same_secret_wait_for_the_same_address() -> None:
    with node_and_receiver() as (node, receiver):
        subscribe(node, "a", "ann", "wrong", "first")
        change(node, "a", "1")
        receiver.wait(lambda r: r.attempts and node.webhooks_failing == 1)
        subscribe(node, "a", "ann", "wrong", "second")
        subscribe(node, "b", "ann", "right", "third")
        change(node, "a", "2")
        change(node, "b", "2")
        receiver.wait(lambda r: r.delivered)
        assert receiver.attempts == [("a", "first"), ("b", "third")]


def event_of_end(goal: StandingGoal) -> threading.Event:
    """Return an event that is set when a goal has ended."""
    ended = threading.Event()
    goal.listen(lambda: ended.set() if goal.ended is not None else None)
    return ended


def test_an_address_that_is_gone_for_one_owner_ends_no_goal_of_others() -> None:
    with node_and_receiver() as (node, receiver):
        receiver.refusal = DeliveryOutcome.GONE
        kb = node.knowledge_base(tenant="a")
        subscribe(node, "a", "ann", "right", "right")
        subscribe(node, "a", "ann", "wrong", "other-secret")
        subscribe(node, "a", "eve", "wrong", "other-owner")
        ends = [event_of_end(goal) for goal in kb.standing_goals() if goal.id.startswith("other")]
        change(node, "a", "1")
        receiver.wait(lambda r: r.delivered)
        assert all(ended.wait(20) for ended in ends)
        assert [goal.id for goal in kb.standing_goals()] == ["right"]
        change(node, "a", "2")
        receiver.wait(lambda r: len(r.delivered) == 2)


def test_circuits_of_ended_goals_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    forget = deliveries.Deliveries._forget_others

    def forget_others(self: Any, *args: Any) -> None:
        forget(self, *args)
        looked.set()

    with node_and_receiver() as (node, receiver):
        subscribe(node, "a", "ann", "wrong", "g")
        change(node, "a", "1")
        receiver.wait(lambda r: r.attempts and node.webhooks_failing == 1)
        node.knowledge_base(tenant="a").end_goal("g")
        monkeypatch.setattr(deliveries.Deliveries, "_forget_others", forget_others)
        node.wake_deliveries()
        assert looked.wait(20)
        assert node.webhooks_failing == 0


# -- addresses -------------------------------------------------------------------------------------

TOKEN = "T0K3N-of-the-address"
PREFIX = "http://127.0.0.1:9/"
ADDRESS = f"{PREFIX}hooks/{TOKEN}/in?key={TOKEN}"
SHOWN = "http://127.0.0.1:9/hooks/..."


@pytest.fixture
def server() -> Iterator[Keyed]:
    with keyed(
        mcp_tools="all",
        webhook_urls=(PREFIX,),
        webhook_private_addresses=True,
        webhook_secret=SECRET,
    ) as served:
        yield served


def tool(server: Keyed, key: str, name: str, **arguments: Any) -> str:
    call = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return server.send("POST", "/mcp", key, message, Accept="application/json").text


def test_only_the_owner_and_administrators_see_an_address(
    server: Keyed, caplog: pytest.LogCaptureFixture
) -> None:
    owner, reader, writer, admin = (
        server.make(role).secret for role in ("reader", "reader", "writer", "admin")
    )
    body = {"goal": "p(?x)", "id": "g", "webhook": {"url": ADDRESS}}
    with caplog.at_level("DEBUG"):
        made = server.send("POST", "/goals/subscribe", owner, body)
        assert made.get_json()["webhook"] == ADDRESS
        for key, address in ((owner, ADDRESS), (admin, ADDRESS), (reader, SHOWN), (writer, SHOWN)):
            (listed,) = server.send("GET", "/goals", key).get_json()["goals"]
            assert listed["webhook"] == address
            assert server.send("GET", "/goals/g", key).get_json()["webhook"] == address
            stream = server.send("GET", "/goals/g/events", key)
            texts = iter(stream.response)
            text = b"".join(next(texts) for _ in range(2)).decode()
            stream.close()
            assert f'"webhook":"{address}"' in text
        assert TOKEN not in server.send("POST", "/goals/subscribe", reader, body).text
        assert TOKEN not in tool(server, reader, "subscribe_goal", **body)
        assert TOKEN not in tool(server, writer, "goal_changes", id="g", since="0")
        assert TOKEN not in server.send("DELETE", "/goals/g", writer).text
        for number in range(3):
            server.send("POST", "/tell", writer, {"predicate": "p", "args": [str(number)]})
        assert TOKEN not in server.send("GET", "/metrics", admin).text
    assert TOKEN not in caplog.text
    assert not any(TOKEN in str(vars(record)) for record in caplog.records)


def test_a_purge_shows_no_address_of_others(server: Keyed) -> None:
    owner, admin = (server.make(role).secret for role in ("reader", "admin"))
    body = {"goal": "p(?x)", "id": "g", "webhook": {"url": ADDRESS}}
    server.send("POST", "/goals/subscribe", owner, body)
    purge = {"subject": TOKEN, "dryRun": True}
    answer = server.send("POST", "/memory/purge", admin, purge).get_json()
    assert [goal["webhook"] for goal in answer["goals"]] == [ADDRESS]
    kb = server.served.runtime.knowledge_base(tenant="a")
    kb.actor = Actor("another", False)
    plan = kb.purge(PurgeTarget(subject=TOKEN), dry_run=True)
    assert [goal.webhook for goal in plan.goals] == [SHOWN]
    assert TOKEN not in repr(plan.goals)


def test_a_transaction_gives_no_rights_over_goals_of_others(server: Keyed) -> None:
    owner, writer = (server.make(role).secret for role in ("reader", "writer"))
    body = {"goal": "p(?x)", "id": "g", "webhook": {"url": ADDRESS}}
    server.send("POST", "/goals/subscribe", owner, body)
    id = server.send("POST", "/tx/begin", writer).text
    inside = {"X_Transaction_ID": id}
    assert TOKEN not in server.send("GET", "/goals", writer, **inside).text
    assert TOKEN not in server.send("GET", "/goals/g", writer, **inside).text
    server.send("DELETE", "/goals/g", writer, **inside)
    assert server.send("GET", "/goals/g", owner).status_code == 200


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com", "https://hooks.example.com"),
        ("https://hooks.example.com/", "https://hooks.example.com/"),
        ("https://hooks.example.com/services", "https://hooks.example.com/services"),
        ("https://hooks.example.com/services/", "https://hooks.example.com/services"),
        ("https://hooks.example.com/services/T0/B0/x", "https://hooks.example.com/services/..."),
        ("https://hooks.example.com?key=x", "https://hooks.example.com/..."),
        ("https://hooks.example.com/in?key=x", "https://hooks.example.com/in/..."),
        ("https://hooks.example.com/in;key=x", "https://hooks.example.com/in/..."),
        ("https://hooks.example.com/in%2Fx", "https://hooks.example.com/in/..."),
        ("https://hooks.example.com/in#x", "https://hooks.example.com/in/..."),
        ("https://hooks.example.com//x", "https://hooks.example.com/..."),
        ("https://u:p@hooks.example.com:8443/a", "https://hooks.example.com:8443/a/..."),
        ("http://[::1]:80/a/b", "http://[::1]:80/a/..."),
        ("https://hooks.example.com:port/x", "..."),
        ("http://[::1/x", "..."),
        ("x", "..."),
        ("", "..."),
    ],
)
def test_the_public_part_of_an_address(url: str, shown: str) -> None:
    webhook = Webhook(url, "secret")
    assert webhook.public_url == shown
    assert "secret" not in repr(webhook)
