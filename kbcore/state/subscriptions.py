"""Subscriptions to standing goals that survive a restart.

The answers of a goal are not stored: they follow from facts and rules, like other conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from kbcore.state.episodes.text_sizes import entry_bytes
from kbcore.state.labels import NO_LABELS, Labels

_REST = "..."

_FIRST_SEGMENT = re.compile(r"/?[A-Za-z0-9._~-]*")
"""A segment up to a character that may separate it from parameters, or be an encoded slash."""


class StatePosition(NamedTuple):
    """A state of a tenant: the sequence number of its last commit, and its time in epoch
    milliseconds, at which facts are valid or not.
    """

    seq: int
    at: int

    def precedes(self, other: StatePosition) -> bool:
        """Return True if another state has later commits, or is that of a later time."""
        return other.seq > self.seq or other.at > self.at


@dataclass(frozen=True, slots=True)
class Webhook:
    """The address to which the changes of a goal are sent.

    `secret` signs the deliveries; "" stands for the secret of the settings. No answer and no log
    line shows it.
    """

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)

    @property
    def public_url(self) -> str:
        """The address without what may be a secret: scheme, host, port and first segment of the
        path.

        `...` stands for the rest, and for an address that cannot be split.
        """
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return _REST
        if not parts.scheme or host is None:
            return _REST
        name = f"[{host}]" if ":" in host else host
        origin = f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")
        visible = origin + _FIRST_SEGMENT.match(parts.path)[0]  # type: ignore[index]
        is_whole = self.url.lower().rstrip("/") == visible.lower().rstrip("/")
        return visible if is_whole else f"{visible.rstrip('/')}/{_REST}"


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription to the answers of a goal.

    `goal` is its text, `scope` the partition where it is asked, None for the base partition. It
    ends at `expires_at` (epoch milliseconds), `ttl` milliseconds after its last use. `owner` names
    the API key that subscribed, None if the server needs no key. `view` is what the goal sees of
    the tenant. `delivered` is the state up to which the receiver of the webhook has acknowledged
    the changes.
    """

    id: str
    goal: str
    scope: str | None
    ttl: int
    created_at: int
    expires_at: int
    owner: str | None = None
    webhook: Webhook | None = None
    delivered: StatePosition | None = None
    view: Labels = NO_LABELS

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        webhook = () if self.webhook is None else (self.webhook.url, self.webhook.secret)
        return entry_bytes(self.id, self.goal, self.scope, self.owner, *webhook)

    def is_same(self, other: StoredSubscription) -> bool:
        """Return True if another subscription differs only in its end and in what was delivered."""
        return self == replace(other, expires_at=self.expires_at, delivered=self.delivered)


class Subscriptions:
    """The subscriptions of a tenant by id, in the order in which they were made.

    `version` increases with each change. Readers need no lock.
    """

    def __init__(self) -> None:
        self._known: Mapping[str, StoredSubscription] = {}
        self.version = 0
        self.bytes = 0
        """Approximate size of all subscriptions in bytes."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[StoredSubscription]:
        return iter(list(self._known.values()))

    def get(self, id: str) -> StoredSubscription | None:
        """Return a subscription, None if it does not exist."""
        return self._known.get(id)

    def put(self, subscription: StoredSubscription, now: StatePosition) -> None:
        """Add or replace a subscription; `now` is the state from which its changes are delivered.

        One that renews a subscription to the same goal keeps its age and what was delivered.
        """
        before = self._known.get(subscription.id)
        delivered = None
        if before is not None and (before.goal, before.scope, before.view) == (
            subscription.goal,
            subscription.scope,
            subscription.view,
        ):
            subscription = replace(subscription, created_at=before.created_at)
            delivered = before.delivered
        if subscription.webhook is not None:
            subscription = replace(subscription, delivered=delivered or now)
        self._replace({**self._known, subscription.id: subscription})

    def note_delivery(self, id: str, delivered: StatePosition) -> None:
        """Record that the receiver of a webhook has the changes up to a state."""
        known = self._known.get(id)
        if known is not None and known.delivered is not None:
            self._replace({**self._known, id: replace(known, delivered=delivered)})

    def remove(self, ids: Iterable[str]) -> None:
        """Remove subscriptions; unknown ids change nothing."""
        gone = set(ids)
        self._replace({id: each for id, each in self._known.items() if id not in gone})

    def restore(self, known: Iterable[StoredSubscription]) -> None:
        """Replace all subscriptions with those of a snapshot."""
        self._replace({each.id: each for each in known})

    def _replace(self, known: Mapping[str, StoredSubscription]) -> None:
        self._known = known
        self.bytes = sum(each.bytes for each in known.values())
        self.version += 1
