"""Subscriptions to goals with the client and with commands, and their webhooks."""

from __future__ import annotations

import json

import pytest
from support.commands import kbcore
from support.receivers import SECRET, Receiver
from support.servers import Server

from kbcore_client import InvalidInput, connect


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def url(receiver, tmp_path):
    """The address of a server that may send to the receiver."""
    settings = {"WEBHOOK_URLS": receiver.url, "WEBHOOK_PRIVATE_ADDRESSES": "true"}
    with Server(tmp_path, **settings) as server:
        yield "http://{}:{}".format(*server.address)


def changes_of(receiver, count):
    """Return what appeared in the deliveries, once there are this many."""
    receiver.wait(lambda receiver: len(receiver.deliveries) >= count)
    return [[row["args"][0] for row in body["data"]["appeared"]] for _, body in receiver.deliveries]


def test_the_client_subscribes_with_a_webhook(url, receiver):
    with connect(url, tenant="t") as kb:
        kb.tell("p(1)")
        hook = f"{receiver.url}/client"
        subscription = kb.subscribe("p(?x)", id="mine", ttl_ms=60_000, webhook=hook, secret=SECRET)
        assert (
            subscription.id,
            subscription.count,
            subscription.webhook,
            subscription.durable,
        ) == ("mine", 1, hook, True)
        assert subscription.ttl_ms == 60_000
        kb.tell("p(2)")
        kb.tell("p(3)")
        assert changes_of(receiver, 2) == [["2"], ["3"]]
        assert receiver.unsigned == 0
        (listed,) = kb.subscriptions()
        assert (listed.id, listed.goal, listed.count) == ("mine", "p(?x)", 3)
        assert kb.unsubscribe("mine")
        assert not kb.unsubscribe("mine")
        assert kb.subscriptions() == []
        with pytest.raises(InvalidInput, match="webhook"):
            kb.subscribe("p(?x)", webhook="https://elsewhere.example.com/")
        with pytest.raises(InvalidInput, match="secret"):
            kb.subscribe("p(?x)", webhook=hook, secret="short")


def test_a_subscription_without_a_webhook(kb):
    subscription = kb.subscribe("p", ["?x"], scope="s")
    assert (subscription.goal, subscription.scope, subscription.webhook) == ("p(?x)", "s", None)
    assert [each.id for each in kb.subscriptions()] == [subscription.id]
    with pytest.raises(InvalidInput, match="is for a webhook"):
        kb.subscribe("p(?x)", secret=SECRET)
    with pytest.raises(InvalidInput, match="ttl_ms"):
        kb.subscribe("p(?x)", ttl_ms=1)


def test_commands_subscribe_with_a_webhook(url, receiver, monkeypatch):
    where = ("--url", url)
    monkeypatch.setenv("KBCORE_WEBHOOK_SECRET", SECRET)
    hook = f"{receiver.url}/command"
    options = ("--id", "mine", "--ttl", "60", "--webhook", hook)
    assert kbcore("goals", "subscribe", *where, "p(?x)", *options).stdout == "mine\n"
    kbcore("tell", *where, "p(1)")
    assert changes_of(receiver, 1) == [["1"]]
    assert receiver.unsigned == 0
    assert kbcore("goals", "list", *where).stdout == f"mine  p(?x): 1 answer, to {hook}\n"
    (row,) = json.loads(kbcore("goals", "list", *where, "--json").stdout)
    assert (row["id"], row["ttl"]) == ("mine", 60_000)
    assert SECRET not in json.dumps(row)
    refused = kbcore(
        "goals", "subscribe", *where, "q(?x)", "--webhook", "http://x.example/", expect=1
    )
    assert "webhook" in refused.stderr
    lone = kbcore("goals", "subscribe", *where, "q(?x)", "--secret", SECRET, expect=2)
    assert "--webhook" in lone.stderr
    kbcore("goals", "end", *where, "mine")
    assert "mine" in kbcore("goals", "end", *where, "mine", expect=1).stderr
    assert kbcore("goals", "list", *where).stdout == ""


def test_commands_need_a_server(tmp_path):
    where = ("--storage-dir", str(tmp_path))
    assert "running server" in kbcore("goals", "list", *where, expect=1).stderr


def test_a_subscription_with_a_view(url, receiver):
    hr, eng = {"team": ["hr"]}, {"team": ["eng"]}
    at = ("--url", url, "--tenant", "t")
    with connect(url, tenant="t") as kb:
        kb.teach("@groups team: hr, eng.")
        seen = kb.viewed(eng)
        seen.subscribe("p(?x)", id="client", webhook=f"{receiver.url}/client", secret=SECRET)
        view = ("--view", json.dumps(eng))
        kbcore("goals", "subscribe", "p(?x)", "--id", "command", *at, *view)
        followed = seen.follow("p(?x)")
        assert next(followed).appeared == []
        kb.viewed(labels=hr).tell("p(zebra)")
        kb.viewed(labels=eng).tell("p(1)")
        assert next(followed).appeared == [("1",)]
        followed.close()
        assert changes_of(receiver, 1) == [["1"]]
        assert [each.id for each in seen.subscriptions()][:2] == ["client", "command"]
        assert kb.subscriptions() == []
        listed = kbcore("goals", "list", *at, *view, "--json")
        assert "command" in listed.stdout
        assert not kb.unsubscribe("command")
        assert [each.event for each in seen.history("p").events] == ["asserted"]
        seen.context(session="s", fill="salience")
        kb.viewed(labels=hr).tell("p(zebra2)")
        assert seen.context_diff("s").added == ()
        kb.viewed(labels=eng).tell("p(2)")
        assert [each.args for each in seen.context_diff("s").added] == [("2",)]
