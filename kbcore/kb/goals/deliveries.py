"""Delivery of the changes of standing goals to webhooks: in order, at least once.

A thread looks for subscriptions whose receivers lack changes. Each goal is delivered by one thread
at a time. What a receiver has acknowledged is recorded in the log after each batch, so that a
restart repeats at most one batch; a message has the same id each time.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson

from kbcore.clock import Clock
from kbcore.errors import KBError, NotFound
from kbcore.kb.tenant_kb import TenantKB
from kbcore.plug.webhooks import Message, Outcome, WebhookSender
from kbcore.standing_goals.goal import StandingGoal
from kbcore.state.goals.subscriptions import Moment, Webhook
from kbcore.state.tenant import Tenant

MAX_DELIVERING = 8
"""Goals that are delivered at a time."""

BATCH = 20
"""Changes that are delivered before the progress is recorded."""

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 1.0, 3600.0
"""Bounds of the wait after a failure, which doubles with each one in a row."""

MAX_IDLE_SECONDS = 30.0
"""Time after which subscriptions are looked for again without a change."""

_log = logging.getLogger("kbcore.webhooks")

Key = tuple[str, str, str]
"""Database, tenant and id of a goal."""


@dataclass(slots=True)
class Circuit:
    """The state of one address: it is open (no delivery) until a time after each failure, and then
    lets one delivery at a time through until one succeeds.
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
        delay *= random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries
        self.failures += 1
        self.open_until = now + min(MAX_DELAY_SECONDS, max(delay, retry_after or 0.0))


class Deliveries:
    """The deliveries of a node. `tenants` returns the tenants of this process, `open_kb` a knowledge
    base by database and tenant, `count` counts an outcome.
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
        self._circuits: dict[str, Circuit] = {}
        self._listening: dict[Key, tuple[StandingGoal, Callable[[], None]]] = {}
        self._working: dict[Key, threading.Thread] = {}
        self._again: set[Key] = set()
        self._mutex = threading.Lock()
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kbcore-webhooks", daemon=True)
        self._thread.start()

    @property
    def failing(self) -> int:
        """The number of addresses whose last delivery failed."""
        return sum(1 for circuit in list(self._circuits.values()) if circuit.failures)

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
        while not self._closing:
            self._woken.clear()
            wait = MAX_IDLE_SECONDS
            try:
                wait = self._look()
            except KBError as error:
                _log.warning("webhooks could not be delivered: %s", error)
            self._woken.wait(wait)

    def _look(self) -> float:
        """Begin the deliveries that are due; return the seconds until the next look."""
        wait = MAX_IDLE_SECONDS
        present: set[Key] = set()
        for tenant in list(self._tenants()):
            ids = [each.id for each in tenant.subscriptions if each.webhook is not None]
            if not ids:
                continue
            kb = self._open_kb(tenant.database, tenant.name)
            if not kb.keeps_goals():
                continue
            if (due := kb.next_due_seconds()) is not None:
                wait = min(wait, due)
            for id in ids:
                key = tenant.database, tenant.name, id
                present.add(key)
                wait = min(wait, self._begin(key, kb))
        for key in set(self._listening) - present:
            self._listening.pop(key)[1]()
        return max(wait, 0.01)

    def _begin(self, key: Key, kb: TenantKB) -> float:
        """Begin to deliver a goal if that is possible; return the seconds until it may be."""
        goal = kb.find_goal(key[2])
        webhook = None if goal is None or goal.subscription is None else goal.subscription.webhook
        if goal is None or webhook is None:
            return MAX_IDLE_SECONDS
        listening = self._listening.get(key)
        is_new = listening is None or listening[0] is not goal
        if is_new:
            if listening is not None:
                listening[1]()
            self._listening[key] = goal, goal.listen(lambda: self._changed(key))
        now = self._clock.monotonic()
        circuit = self._circuits.setdefault(webhook.url, Circuit())
        with self._mutex:
            if is_new:
                self._again.add(key)
            if key in self._working or len(self._working) >= MAX_DELIVERING:
                return MAX_IDLE_SECONDS  # the end of a delivery wakes this thread
            if not circuit.admits(now):
                return max(0.0, circuit.open_until - now) if not circuit.probing else 1.0
            self._again.discard(key)
            circuit.probing = True
            worker = threading.Thread(
                target=self._deliver, args=(key, circuit), name="kbcore-webhook", daemon=True
            )
            self._working[key] = worker
        worker.start()
        return MAX_IDLE_SECONDS

    def _changed(self, key: Key) -> None:
        with self._mutex:
            self._again.add(key)
        self._woken.set()

    def _deliver(self, key: Key, circuit: Circuit) -> None:
        """Deliver the changes of a goal, batch by batch, until there are none or one fails."""
        try:
            kb = self._open_kb(key[0], key[1])
            while not self._closing and self._batch(kb, key, circuit):
                pass
        except NotFound:
            pass  # the goal ended
        except KBError as error:
            circuit.failed(self._clock.monotonic(), None)
            _log.warning("goal %s could not be delivered: %s", key[2], error)
        finally:
            with self._mutex:
                circuit.probing = False
                del self._working[key]
                again = key in self._again or bool(circuit.failures)
            if again:
                self._woken.set()

    def _batch(self, kb: TenantKB, key: Key, circuit: Circuit) -> bool:
        """Deliver some changes and record that; return True if there may be more."""
        goal = kb.find_goal(key[2])
        subscription = None if goal is None else goal.subscription
        if goal is None or subscription is None:
            return False
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
        done: Moment | None = None
        is_well = True
        for moment, kind, data in messages:
            more = {"database": key[0], "tenant": key[1], "goalId": goal.id}
            data = {**more, "goal": goal.goal, "scope": goal.scope, **data}
            is_well = self._send(kb, webhook, circuit, _message(kind, data))
            if not is_well:
                break
            done = moment
        if done is not None and kb.find_goal(goal.id) is not None:
            kb.note_delivery(goal, done)
        return is_well and bool(messages)

    def _send(self, kb: TenantKB, webhook: Webhook, circuit: Circuit, message: Message) -> bool:
        """Deliver a message; return False after a failure. An address that is gone ends its goals."""
        if self._closing:
            return False
        sent = self.sender.send(webhook.url, webhook.secret, message)
        self._count(sent.outcome.value)
        if sent.outcome is Outcome.DELIVERED:
            circuit.failures = 0
            return True
        if sent.outcome is Outcome.GONE:
            _log.info("a webhook is gone, and its standing goals end")
            kb.end_goals_of(webhook.url)
            return False
        circuit.failed(self._clock.monotonic(), sent.retry_after)
        _log.warning("a webhook failed %d times in a row: %s", circuit.failures, sent.reason)
        return False


def _message(kind: str, data: dict[str, Any]) -> Message:
    """Return a message as the Standard Webhooks specification wants it; its id follows from the
    change, so that a repeated delivery has the same.
    """
    names = (data["database"], data["tenant"], data["goalId"], data["eventId"], kind)
    id = "msg_" + hashlib.blake2s("\0".join(names).encode(), digest_size=16).hexdigest()
    at = datetime.fromtimestamp(data["timestamp"] / 1000, timezone.utc)
    body = {"type": kind, "timestamp": at.isoformat(timespec="milliseconds"), "data": data}
    return Message(id, orjson.dumps(body))
