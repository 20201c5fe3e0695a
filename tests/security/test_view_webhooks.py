"""Webhooks of goals under a view: they never show more than the key that made them may see."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.http import NOW

import kbcore
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import Forbidden
from kbcore.node.api_keys import KeyWanted
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations.base import Actor
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.webhooks import DeliveryOutcome, DeliveryResult, WebhookMessage
from kbcore.state.subscriptions import Webhook
from kbplanner.syntax.parser import parse_body

GOAL = parse_body("p(?x)")
HR, ENG = {"team": ["hr"]}, {"team": ["eng"]}
KEEP = DurableSubscription(Webhook("http://hooks.test/a", "secret"))


class Receiver(logging.Handler):
    """Collects the messages of a sender, and waits for them or for a webhook that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self._changed = threading.Condition()

    def check(self, url: str, secret: str) -> None:
        pass

    def send(self, url: str, secret: str, message: WebhookMessage) -> DeliveryResult:
        with self._changed:
            self.messages.append(json.loads(message.body)["data"])
            self._changed.notify_all()
        return DeliveryResult(DeliveryOutcome.DELIVERED)

    def close(self) -> None:
        pass

    def appeared(self) -> list[str]:
        return [row["args"][0] for each in self.messages for row in each["appeared"]]

    def wait(self, *expected: str) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: self.appeared() == list(expected), 20)
            assert in_time, self.messages

    def emit(self, record: logging.LogRecord) -> None:
        """Look again when a webhook that failed is logged."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_failures(self, node: Runtime, count: int) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: node.webhooks_failing == count, 20)
            assert in_time, node.webhooks_failing

    @hookimpl
    def kb_webhook_senders(self, config: Config) -> dict[str, Any]:
        return {"own": lambda config: self}


@pytest.fixture
def receiver_of_log() -> Iterator[Receiver]:
    receiver, log = Receiver(), logging.getLogger("kbcore.webhooks")
    log.addHandler(receiver)
    yield receiver
    log.removeHandler(receiver)


@contextmanager
def node_with(receiver: Receiver, path: Path | None = None) -> Iterator[Runtime]:
    place: dict[str, Any] = (
        {"storage_backend": "memory"} if path is None else {"storage_dir": str(path)}
    )
    config = Config(**place, webhook_urls=("http://hooks.test/",), webhook_sender="own")
    with open_runtime(config, plugins=[receiver], clock=ManualClock(NOW)) as node:
        yield node


def key_of(node: Runtime, view: dict[str, Any]) -> str:
    return node.keys().create(KeyWanted("mia", "reader", view=view)).key.id


def subscribe(kb: kbcore.KnowledgeBase, view: dict[str, Any], owner: str, id: str) -> None:
    seen = kb.viewed(view).kb
    seen.actor = Actor(owner, False)
    seen.subscribe_goal(GOAL, id=id, keep=KEEP)


def test_a_webhook_shows_what_its_view_admits_also_after_a_restart(tmp_path: Path) -> None:
    receiver = Receiver()
    with node_with(receiver, tmp_path) as node:
        kb = node.open()
        kb.teach("@groups team: hr, eng.")
        subscribe(kb, ENG, key_of(node, ENG), "g")
        kb.viewed(labels=HR).tell("p(zebra1)")
        kb.viewed(labels=ENG).tell("p(1)")
        receiver.wait("1")
        node.snapshot()
        kb.viewed(labels=HR).tell("p(zebra2)")
        kb.viewed(labels=ENG).tell("p(2)")
        receiver.wait("1", "2")
    with node_with(receiver, tmp_path) as node:
        kb = node.open()
        kb.viewed(labels=HR).tell("p(zebra3)")
        kb.viewed(labels=ENG).tell("p(3)")
        receiver.wait("1", "2", "3")


@pytest.mark.parametrize("deleted", [True, False])
def test_a_webhook_ends_with_the_right_of_its_key(deleted: bool, receiver_of_log: Receiver) -> None:
    receiver = receiver_of_log
    with node_with(receiver) as node:
        kb = node.open()
        kb.teach("@groups team: hr, eng.")
        mia, other = key_of(node, HR), key_of(node, ENG)
        subscribe(kb, HR, mia, "mia")
        subscribe(kb, ENG, other, "other")
        kb.viewed(labels=HR).tell("p(before)")
        receiver.wait("before")
        if deleted:
            node.keys().revoke(mia)
        else:  # no operation narrows a key today; its record in the log could
            ring = node.databases.keys
            known = ring.get(mia)
            assert known is not None
            ring.change([replace(known, view=(("team", ("eng",)),))], [])
        kb.viewed(labels=HR).tell("p(zebra)")
        kb.viewed(labels=ENG).tell("p(after)")
        receiver.wait("before", "after")
        with pytest.raises(Forbidden):
            kb.kb.check_owner(next(iter(node.read_tenant("default", "default").subscriptions)))
        receiver.wait_for_failures(node, 1)


def test_a_webhook_without_a_view_ends_with_its_key(receiver_of_log: Receiver) -> None:
    receiver = receiver_of_log
    with node_with(receiver) as node:
        kb = node.open()
        mia, other = key_of(node, {}), key_of(node, {})
        subscribe(kb, {}, mia, "mia")
        kb.tell("p(before)")
        receiver.wait("before")
        node.keys().revoke(mia)
        kb.tell("p(zebra)")
        receiver.wait_for_failures(node, 1)
        subscribe(kb, {}, other, "other")
        kb.tell("p(after)")
        receiver.wait("before", "after")


def test_a_lower_level_that_is_declared_later_is_not_delivered() -> None:
    receiver = Receiver()
    with node_with(receiver) as node:
        kb = node.open()
        kb.teach("@levels trust: tool < user.")
        subscribe(kb, {"trust": "tool"}, key_of(node, {"trust": "tool"}), "tool")
        kb.tell("p(1)")
        receiver.wait("1")
        kb.teach("@levels trust: web < tool < user.")
        subscribe(kb, {"trust": "user"}, key_of(node, {"trust": "user"}), "user")
        kb.tell("p(zebra) [trust=web]")
        kb.tell("p(2)")
        receiver.wait("1", "2")
        (first,) = [
            each
            for each in node.read_tenant("default", "default").subscriptions
            if each.id == "tool"
        ]
        with pytest.raises(Forbidden):
            kb.kb.check_owner(first)
