"""Delivery of the changes of standing goals to webhooks: in order, at least once.

A thread looks for subscriptions whose receivers lack changes. Each goal is delivered by one thread
at a time; the one that waited longest begins next. What a receiver has acknowledged is recorded in
the log after each batch, so that a restart repeats at most one batch; a message has the same id
each time.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson

from kbcore.clock import Clock
from kbcore.errors import KBError, NotFound
from kbcore.operations.tenant_kb import TenantKB
from kbcore.plug.webhooks import DeliveryOutcome, WebhookMessage, WebhookSender
from kbcore.state.labels import Labels
from kbcore.state.subscriptions import StatePosition, StoredSubscription, Webhook
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.goal import StandingGoal
from kbcore.tracing import spans
from kbcore.tracing.causes import cause_of

MAX_DELIVERING = 8
"""Goals that are delivered at a time."""

MAX_OF_TENANT = 4
"""Goals of one tenant that are delivered at a time, so that its slow receivers leave some to
others.
"""

TURN_SECONDS = 2.0
"""Time after which a delivery pauses for others that wait."""

BATCH = 20
"""Changes that are delivered before the progress is recorded."""

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 1.0, 3600.0
"""Bounds of the wait after a failure, which doubles with each one in a row."""

MAX_IDLE_SECONDS = 30.0
"""Time after which subscriptions are looked for again without a change."""

_log = logging.getLogger("kbcore.webhooks")

Key = tuple[str, str, str]
"""Database, tenant and id of a goal."""

CircuitKey = tuple[str, str, str | None, Webhook]
"""Database, tenant, owner and webhook of goals that share a circuit.

An address alone does not say who fails: a subscription of another owner with a wrong secret must
not delay the deliveries of others to the same address.
"""


@dataclass(slots=True)
class Circuit:
    """The state of one address with one secret of one owner: it is open (no delivery) until a time
    after each failure, and then lets one delivery at a time through until one succeeds.
    """

    failures: int = 0
    open_until: float = 0.0
    probing: bool = False

    def admits(self, now: float) -> bool:
        """Return True if a delivery may begin."""
        return not self.failures or (now >= self.open_until and not self.probing)

    def failed(self, now: float, retry_after: float | None) -> None:
        """Open after a failure. The wait is exponential with jitter, bounded, and not shorter than
        the receiver asks for.
        """
        delay = min(MAX_DELAY_SECONDS, MIN_DELAY_SECONDS * 2.0 ** min(self.failures, 20))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311 - no secret  # nosec B311
        self.failures += 1
        self.open_until = now + min(MAX_DELAY_SECONDS, max(delay, retry_after or 0.0))


class Deliveries:
    """The deliveries of a node. `tenants` returns the tenants of this process, `open_kb` a
    knowledge base by database and tenant, `count` counts an outcome.
    """

    def __init__(
        self,
        sender: WebhookSender,
        clock: Clock,
        tenants: Callable[[], Iterable[Tenant]],
        open_kb: Callable[[str, str], TenantKB],
        count: Callable[[str], None],
    ) -> None:
        self.sender = sender
        self._clock = clock
        self._tenants = tenants
        self._open_kb = open_kb
        self._count = count
        self._circuits: dict[CircuitKey, Circuit] = {}
        self._listening: dict[Key, tuple[StandingGoal, Callable[[], None]]] = {}
        self._working: dict[Key, threading.Thread] = {}
        self._due: set[Key] = set()
        """Goals that have changes to deliver, or may have."""
        self._turns: dict[Key, int] = {}
        self._turn = 0
        self._is_waited_for = False
        """True if a goal is due and waits for the end of another delivery."""
        self._mutex = threading.Lock()
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kbcore-webhooks", daemon=True)
        self._thread.start()

    @property
    def failing(self) -> int:
        """The number of addresses to which the last delivery of some subscription failed."""
        return len({key[3].url for key, each in list(self._circuits.items()) if each.failures})

    def wake(self) -> None:
        """Look for changes to deliver now."""
        self._woken.set()

    def close(self) -> None:
        """Stop after the deliveries under way."""
        self._closing = True
        self._woken.set()
        self._thread.join()
        for worker in list(self._working.values()):
            worker.join()
        self.sender.close()

    def _run(self) -> None:
        was_idle = False
        while not self._closing:
            self._woken.clear()
            wait = MAX_IDLE_SECONDS
            try:
                wait = self._look(all_due=was_idle)
            except KBError as error:
                _log.warning("webhooks could not be delivered: %s", error)
            was_idle = not self._woken.wait(wait) and wait >= MAX_IDLE_SECONDS

    def _look(self, *, all_due: bool) -> float:
        """Begin the deliveries that are due, or with `all_due` one for each goal; return the
        seconds until the next look.
        """
        wait = MAX_IDLE_SECONDS
        present: dict[Key, TenantKB] = {}
        circuits: set[CircuitKey] = set()
        self._is_waited_for = False
        for tenant in list(self._tenants()):
            by_view: dict[Labels, list[str]] = {}
            for each in tenant.subscriptions:
                if each.webhook is not None:
                    circuits.add((tenant.database, tenant.name, each.owner, each.webhook))
                    by_view.setdefault(each.view, []).append(each.id)
            if not by_view:
                continue
            whole = self._open_kb(tenant.database, tenant.name)
            if not whole.keeps_goals():
                continue
            for view, ids in by_view.items():
                try:
                    kb = whole.of_view(view)
                    due = kb.next_due_seconds()
                except KBError as error:
                    if not view:
                        raise
                    _log.warning("the webhooks of a view could not be delivered: %s", error)
                    continue
                if due is not None:
                    wait = min(wait, due)
                present.update(((tenant.database, tenant.name, id), kb) for id in ids)
        if all_due:
            with self._mutex:
                self._due.update(present)
        for key in sorted(present, key=lambda key: self._turns.get(key, 0)):
            wait = min(wait, self._begin(key, present[key]))
        self._forget_others(present, circuits)
        return max(wait, 0.01)

    def _forget_others(self, present: Collection[Key], circuits: Collection[CircuitKey]) -> None:
        """Forget goals that have ended, and circuits that no goal has."""
        for key in set(self._listening).difference(present):
            self._listening.pop(key)[1]()
        with self._mutex:
            self._due.intersection_update(present)
            for key in set(self._turns).difference(present):
                del self._turns[key]
        for circuit in set(self._circuits).difference(circuits):
            del self._circuits[circuit]

    def _begin(self, key: Key, kb: TenantKB) -> float:
        """Begin to deliver a goal if that is possible; return the seconds until it may be."""
        goal = kb.find_goal(key[2])
        subscription = None if goal is None else goal.subscription
        if goal is None or subscription is None or subscription.webhook is None:
            return MAX_IDLE_SECONDS
        listening = self._listening.get(key)
        is_new = listening is None or listening[0] is not goal
        if is_new:
            if listening is not None:
                listening[1]()
            self._listening[key] = goal, goal.listen(lambda: self._changed(key))
        now = self._clock.monotonic()
        circuit = self._circuits.setdefault(
            (key[0], key[1], subscription.owner, subscription.webhook), Circuit()
        )
        with self._mutex:
            if is_new:
                self._due.add(key)
            if key in self._working or key not in self._due:
                return MAX_IDLE_SECONDS
            if not circuit.admits(now):
                return max(0.0, circuit.open_until - now) if not circuit.probing else 1.0
            of_tenant = sum(1 for other in self._working if other[:2] == key[:2])
            if len(self._working) >= MAX_DELIVERING or of_tenant >= MAX_OF_TENANT:
                self._is_waited_for = True  # the end of a delivery wakes this thread
                return MAX_IDLE_SECONDS
            self._due.discard(key)
            self._turn += 1
            self._turns[key] = self._turn
            circuit.probing = True
            worker = threading.Thread(
                target=self._deliver, args=(key, circuit), name="kbcore-webhook", daemon=True
            )
            self._working[key] = worker
        worker.start()
        return MAX_IDLE_SECONDS

    def _changed(self, key: Key) -> None:
        with self._mutex:
            self._due.add(key)
        self._woken.set()

    def _deliver(self, key: Key, circuit: Circuit) -> None:
        """Deliver the changes of a goal, batch by batch, until there are none, one fails, or other
        goals wait for their turn.
        """
        is_left = False
        try:
            kb = self._open_kb(key[0], key[1]).seeing_goal(key[2])
            while not self._closing and (is_left := self._batch(kb, key, circuit)):
                if self._is_waited_for:
                    break
        except NotFound:
            pass  # the goal ended
        except KBError as error:
            circuit.failed(self._clock.monotonic(), None)
            _log.warning("goal %s could not be delivered: %s", key[2], error)
        finally:
            with self._mutex:
                circuit.probing = False
                del self._working[key]
                if is_left or circuit.failures:
                    self._due.add(key)
                is_due = key in self._due or self._is_waited_for
            if is_due:
                self._woken.set()

    def _batch(self, kb: TenantKB, key: Key, circuit: Circuit) -> bool:
        """Deliver some changes and record that; return True if there may be more."""
        goal = kb.find_goal(key[2])
        subscription = None if goal is None else goal.subscription
        if goal is None or subscription is None:
            return False
        kb.check_owner(subscription)
        webhook, start = subscription.webhook, subscription.delivered
        if webhook is None or start is None:
            return False
        changes = kb.changes_to_deliver(goal, start, BATCH)
        if changes is None:
            outcome = kb.all_to_deliver(goal)
            messages = [
                (
                    outcome.moment,
                    "goal.answers",
                    {
                        "eventId": outcome.event_id,
                        "commitSeq": outcome.seq,
                        "timestamp": outcome.at,
                        "answers": outcome.answers,
                    },
                )
            ]
        else:
            messages = [
                (
                    change.moment,
                    "goal.changed",
                    {
                        "eventId": change.event_id,
                        "commitSeq": change.seq,
                        "previousCommitSeq": change.previous_seq,
                        "timestamp": change.at,
                        "appeared": change.appeared,
                        "disappeared": change.disappeared,
                    },
                )
                for change in changes
            ]
        done: StatePosition | None = None
        is_well = True
        begun = self._clock.monotonic()
        for moment, kind, data in messages:
            more = {"database": key[0], "tenant": key[1], "goalId": goal.id}
            data = {**more, "goal": goal.goal, "scope": goal.scope, **data}
            message = _message(kind, data)
            if spans.tracer is None:
                is_well = self._send(kb, subscription, circuit, message)
            else:
                causes = cause_of(key[0], key[1], moment.seq)
                with spans.tracer.begin("webhook", spans.CLIENT, causes=causes) as span:
                    is_well = self._send(kb, subscription, circuit, message)
                    if not is_well:
                        span.fail("delivery_failed")
            if not is_well:
                break
            done = moment
            if self._is_waited_for and self._clock.monotonic() - begun >= TURN_SECONDS:
                break
        if done is not None and kb.find_goal(goal.id) is not None:
            kb.note_delivery(goal, done)
        return is_well and bool(messages)

    def _send(
        self,
        kb: TenantKB,
        subscription: StoredSubscription,
        circuit: Circuit,
        message: WebhookMessage,
    ) -> bool:
        """Deliver a message; return False after a failure. An address that is gone ends the goals
        of its owner that have the same secret.
        """
        webhook = subscription.webhook
        if self._closing or webhook is None:
            return False
        sent = self.sender.send(webhook.url, webhook.secret, message)
        self._count(sent.outcome.value)
        if sent.outcome is DeliveryOutcome.DELIVERED:
            circuit.failures = 0
            return True
        if sent.outcome is DeliveryOutcome.GONE:
            _log.info("a webhook is gone, and its standing goals end")
            kb.end_goals_of(subscription.owner, webhook)
            return False
        circuit.failed(self._clock.monotonic(), sent.retry_after)
        reason = sent.reason.replace(webhook.url, webhook.public_url)
        _log.warning("a webhook failed %d times in a row: %s", circuit.failures, reason)
        return False


def _message(kind: str, data: dict[str, Any]) -> WebhookMessage:
    """Return a message as the Standard Webhooks specification wants it; its id follows from the
    change, so that a repeated delivery has the same.
    """
    names = (data["database"], data["tenant"], data["goalId"], data["eventId"], kind)
    id = "msg_" + hashlib.blake2s("\0".join(names).encode(), digest_size=16).hexdigest()
    at = datetime.fromtimestamp(data["timestamp"] / 1000, timezone.utc)
    body = {"type": kind, "timestamp": at.isoformat(timespec="milliseconds"), "data": data}
    return WebhookMessage(id, orjson.dumps(body))
