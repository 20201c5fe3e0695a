"""The sender of webhooks, and deliveries with failures."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading

import httpx
import pytest
from support.receivers import SECRET, Receiver
from support.runtimes import runtime

from kbcore.clock import SystemClock
from kbcore.config import Config
from kbcore.errors import ConfigError, InvalidInput
from kbcore.node.opening import open_runtime
from kbcore.operations.subscriptions import deliveries
from kbcore.operations.subscriptions.deliveries import Circuit
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.plug.conformance import WebhookSenderConformance
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.manager import Plugins
from kbcore.plug.webhooks import DeliveryOutcome, DeliveryResult, WebhookMessage
from kbcore.state.facts import Fact
from kbcore.state.subscriptions import Webhook
from kbplanner.syntax.parser import parse_body
from kbplugins.webhooks.sender import Sender, signed

GOAL = parse_body("p(?x)")
MESSAGE = WebhookMessage("msg_1", b"{}")


def sender(urls="https://hooks.example.com/a/", answer=None, **more):
    transport = httpx.MockTransport(answer or (lambda request: httpx.Response(200)))
    settings = {"webhook_urls": tuple(urls.split(",")), "webhook_secret": SECRET, **more}
    return Sender(Config(**settings), transport)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/a",
        "https://hooks.example.com:443/a/b?c=d",
        "https://HOOKS.example.com/a/",
    ],
)
def test_addresses_below_a_prefix_are_allowed(url):
    sender().check(url, "")


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/a/",
        "https://hooks.example.com/ab",
        "https://hooks.example.com/a/../b",
        "https://hooks.example.com/a/%2e%2e/b",
        "https://hooks.example.com/a/%2e%2e%5cb",
        "https://hooks.example.com:8443/a/",
        "https://hooks.example.com@evil.example/a/",
        "https://evil.example/a/",
        "https://hooks.example.com\\@evil.example/a/",
        "https://hooks.example.com.evil.example/a/",
        "https://hooks.example.com/a/#x",
        "ftp://hooks.example.com/a/",
        "https://hooks.example.com:x/a/",
        "https:///a/",
        "x",
        "",
    ],
)
def test_other_addresses_are_refused(url):
    with pytest.raises(InvalidInput):
        sender().check(url, "")


@pytest.mark.parametrize("secret", ["x", "whsec_", base64.b64encode(b"x" * 23).decode(), "é" * 40])
def test_weak_secrets_are_refused(secret):
    with pytest.raises(InvalidInput):
        sender().check("https://hooks.example.com/a", secret)
    with pytest.raises(ConfigError):
        sender(webhook_secret=secret)


def test_without_any_secret_a_subscription_is_refused():
    with pytest.raises(InvalidInput, match="required"):
        sender(webhook_secret="").check("https://hooks.example.com/a", "")


class TestHttpSender(WebhookSenderConformance):
    @pytest.fixture(autouse=True)
    def public_host(self, monkeypatch):
        resolves_to(monkeypatch, "93.184.216.34")

    def make_sender(self):
        return sender()


def resolves_to(monkeypatch, *hosts):
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 443)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: entries)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "::1", "fe80::1%eth0",
     "::ffff:127.0.0.1", "fd00::1", "224.0.0.1", "100.64.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
     "::127.0.0.1", "2002:7f00:1::", "fec0::1", "::", "64:ff9b:1::a00:1", "::ffff:0:10.0.0.1"],
)  # fmt: skip
def test_private_addresses_are_refused(monkeypatch, host):
    resolves_to(monkeypatch, "93.184.216.34", host)
    sent = sender().send("https://hooks.example.com/a", "", MESSAGE)
    assert (sent.outcome, sent.reason) == (DeliveryOutcome.FAILED, "the host has a private address")


def test_the_checked_address_is_connected_to_under_the_name_of_the_host(monkeypatch):
    resolves_to(monkeypatch, "93.184.216.34")
    requests = []

    def answer(request):
        requests.append(request)
        return httpx.Response(204)

    sent = sender(answer=answer).send("https://hooks.example.com/a?x=1", "", MESSAGE)
    (request,) = requests
    assert sent.outcome is DeliveryOutcome.DELIVERED
    assert str(request.url) == "https://93.184.216.34/a?x=1"
    assert request.headers["host"] == "hooks.example.com"
    assert request.extensions["sni_hostname"] == "hooks.example.com"


def test_a_receiver_that_sends_a_byte_from_time_to_time_is_given_up():
    """Each byte comes in time, but the whole answer does not."""
    address = "http://127.0.0.1:{}/hooks"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hung_up = threading.Event()

        def trickle():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for _ in range(200):
                    connection.sendall(b"x")
                    connection.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        while connection.recv(1 << 16):
                            pass
                        hung_up.set()
                        return
                connection.sendall(b"\r\nContent-Length: 0\r\n\r\n")

        receiver = threading.Thread(target=trickle)
        receiver.start()
        url = address.format(port)
        config = Config(webhook_urls=(url,), webhook_private_addresses=True, webhook_timeout_ms=500)
        sent = Sender(config).send(url, SECRET, MESSAGE)
        receiver.join()
        assert sent.outcome is DeliveryOutcome.FAILED
        assert sent.reason == "TimeoutException"
        assert hung_up.is_set()


def test_the_signature_is_that_of_the_specification():
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message = WebhookMessage("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}')
    headers = signed(key, message, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_outcomes_follow_from_the_status(monkeypatch):
    resolves_to(monkeypatch, "93.184.216.34")
    location = {"Location": "https://evil.example/"}
    for status, outcome in (
        (302, DeliveryOutcome.FAILED),
        (410, DeliveryOutcome.GONE),
        (500, DeliveryOutcome.FAILED),
    ):
        answer = httpx.Response(status, headers={**location, "Retry-After": "7"})
        sent = sender(answer=lambda _, answer=answer: answer).send(
            "https://hooks.example.com/a", "", MESSAGE
        )
        assert sent.outcome is outcome
        if outcome is DeliveryOutcome.FAILED:
            assert sent.retry_after == 7


def test_a_circuit_waits_longer_after_each_failure_and_lets_one_probe_through():
    circuit = Circuit()
    assert circuit.admits(0)
    waits = []
    for _ in range(30):
        circuit.failed(0, None)
        waits.append(circuit.open_until)
        assert not circuit.admits(circuit.open_until - 0.001)
        assert circuit.admits(circuit.open_until)
    assert waits[0] <= 1
    assert waits[8] > waits[0] * 50
    assert max(waits) <= deliveries.MAX_DELAY_SECONDS
    circuit.probing = True
    assert not circuit.admits(1e9)
    circuit.failed(0, 50)
    assert circuit.open_until >= 50


def served(receiver, folder=None):
    return runtime(
        folder,
        clock=SystemClock(),
        webhook_urls=(receiver.url,),
        webhook_private_addresses=True,
        webhook_secret=SECRET,
    )


def test_changes_are_delivered_in_order_after_failures(monkeypatch):
    monkeypatch.setattr(deliveries, "MIN_DELAY_SECONDS", 0.02)
    with Receiver() as receiver, served(receiver) as node:
        receiver.location = receiver.url + "/other"
        receiver.statuses += [500, 302, 429]
        kb = node.knowledge_base()
        kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription(Webhook(receiver.url)))
        for number in range(5):
            kb.assert_facts([Fact("p", (str(number),))])
        receiver.wait(lambda r: len(r.deliveries) >= 5)
        rows = [message["data"]["appeared"][0]["args"][0] for _, message in receiver.deliveries]
        assert rows == ["0", "1", "2", "3", "4"]
        assert receiver.attempts >= 8
        assert receiver.unsigned == 0


def test_gone_ends_the_subscription(tmp_path):
    with Receiver() as receiver, served(receiver, tmp_path) as node:
        receiver.statuses += [410]
        kb = node.knowledge_base()
        goal = kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription(Webhook(receiver.url))).goal
        ended = threading_event(goal)
        kb.assert_facts([Fact("p", ("1",))])
        assert ended.wait(60)
        assert kb.standing_goals() == []
        assert receiver.deliveries == []


def threading_event(goal):

    ended = threading.Event()
    goal.listen(lambda: ended.set() if goal.ended is not None else None)
    return ended


def test_webhooks_are_off_by_default():
    with runtime() as node, pytest.raises(InvalidInput, match="WEBHOOK_URLS"):
        node.knowledge_base().subscribe_goal(
            GOAL, keep=DurableSubscription(Webhook("https://a/", SECRET))
        )


class _Plugin:
    """A plugin that offers a sender of its own."""

    @hookimpl
    def kb_webhook_senders(self, config):
        return {"mine": sender_of}


def sender_of(config):
    return Sender(config, httpx.MockTransport(lambda request: httpx.Response(200)))


def test_a_plugin_offers_a_sender():
    config = Config(webhook_urls=("https://hooks.example.com/",), webhook_sender="mine")
    assert isinstance(Plugins(config, [_Plugin()]).webhook_sender(), Sender)
    assert Plugins(Config(webhook_sender="mine"), [_Plugin()]).webhook_sender() is None
    with pytest.raises(ConfigError, match="WEBHOOK_SENDER"):
        Plugins(Config(webhook_urls=("https://a/",), webhook_sender="x")).webhook_sender()


class Gated:
    """A sender that delivers nothing: it waits at a gate where an address has one."""

    def __init__(self):
        self.sent = []
        self.gates = {}
        self.failing = False
        self._changed = threading.Condition()

    def check(self, url, secret):
        pass

    def send(self, url, secret, message):
        with self._changed:
            self.sent.append(url)
            self._changed.notify_all()
        if url in self.gates:
            assert self.gates[url].wait(60)
        outcome = DeliveryOutcome.FAILED if self.failing else DeliveryOutcome.DELIVERED
        return DeliveryResult(outcome)

    def close(self):
        pass

    def wait(self, condition, seconds=20):
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.sent), seconds)


class _GatedPlugin:
    def __init__(self, sender):
        self._sender = sender

    @hookimpl
    def kb_webhook_senders(self, config):
        return {"gated": lambda config: self._sender}


@contextlib.contextmanager
def gated(monkeypatch, **settings):
    monkeypatch.setattr(deliveries, "MAX_IDLE_SECONDS", 3600.0)
    sender = Gated()
    config = Config(
        storage_backend="memory", webhook_urls=("http://a/",), webhook_sender="gated", **settings
    )
    with open_runtime(config, plugins=[_GatedPlugin(sender)]) as node:
        try:
            yield node, sender
        finally:
            for gate in sender.gates.values():
                gate.set()


def subscribed(kb, *urls):
    for url in urls:
        kb.subscribe_goal(GOAL, id=url, keep=DurableSubscription(Webhook(url)))


def test_a_goal_that_waits_for_others_is_delivered_when_one_ends(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERING", 1)
    with gated(monkeypatch) as (node, sender):
        gate = threading.Event()
        sender.gates = {"a": gate, "b": gate}
        kb = node.knowledge_base()
        subscribed(kb, "a", "b")
        kb.assert_facts([Fact("p", ("1",))])
        assert sender.wait(len)
        gate.set()
        assert sender.wait(lambda sent: sorted(sent) == ["a", "b"])


def test_slow_receivers_of_a_tenant_do_not_hold_up_those_of_others(monkeypatch):
    with gated(monkeypatch) as (node, sender):
        names = [f"slow{n}" for n in range(2 * deliveries.MAX_DELIVERING)]
        sender.gates = {name: threading.Event() for name in names}
        slow, other = (node.knowledge_base(tenant=name) for name in ("a", "b"))
        subscribed(slow, *names)
        subscribed(other, "quick")
        slow.assert_facts([Fact("p", ("1",))])
        assert sender.wait(lambda sent: len(sent) == deliveries.MAX_OF_TENANT)
        other.assert_facts([Fact("p", ("1",))])
        assert sender.wait(lambda sent: "quick" in sent)
        for gate in sender.gates.values():
            gate.set()
        assert sender.wait(lambda sent: sorted(sent) == sorted([*names, "quick"]))


def test_a_receiver_that_always_gets_changes_pauses_for_others(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERING", 1)
    monkeypatch.setattr(deliveries, "BATCH", 1)
    with gated(monkeypatch) as (node, sender):
        gate = threading.Event()
        sender.gates = {"busy": gate}
        busy, other = (node.knowledge_base(tenant=name) for name in ("a", "b"))
        subscribed(busy, "busy")
        subscribed(other, "quick")
        for number in range(100):
            busy.assert_facts([Fact("p", (str(number),))])
        assert sender.wait(len)
        other.assert_facts([Fact("p", ("1",))])
        looked = when_looked(monkeypatch)
        node.wake_deliveries()
        assert looked.wait(20)
        gate.set()
        assert sender.wait(lambda sent: len(sent) == 101)
        assert sender.sent.index("quick") < 10


def when_looked(monkeypatch):
    """Return an event that is set after the next look for changes."""
    event, forget = threading.Event(), deliveries.Deliveries._forget_others

    def forget_others(self, *args):
        forget(self, *args)
        event.set()

    monkeypatch.setattr(deliveries.Deliveries, "_forget_others", forget_others)
    return event


def test_an_address_that_fails_is_forgotten_with_its_last_goal(monkeypatch):
    with gated(monkeypatch) as (node, sender):
        sender.failing = True
        kb = node.knowledge_base()
        subscribed(kb, "a")
        kb.assert_facts([Fact("p", ("1",))])
        assert sender.wait(lambda sent: len(sent) == 2)  # again after a failure
        assert node.webhooks_failing == 1
        kb.end_goal("a")
        looked = when_looked(monkeypatch)
        node.wake_deliveries()
        assert looked.wait(20)
        assert node.webhooks_failing == 0
