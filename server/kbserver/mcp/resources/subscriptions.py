"""Resource subscriptions: commits come in, outboxes get the URIs of the resources that changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kbcore.events.feed import CommitFeed, Committed
from kbserver.mcp.outbox import Outbox
from kbserver.mcp.resources.uris import Topic, read_uri, topics

MOST_FOLLOWED = 1000
"""Resources one stream or session may follow; no more notifications than that can wait at a time."""

Whose = tuple[str, str]
"""A database and a tenant."""


@dataclass(slots=True)
class _Followed:
    """Subscriptions of one tenant, and the function that ends its subscription to commits."""

    by_topic: dict[Topic, dict[str, set[Outbox]]] = field(default_factory=dict)
    unsubscribe: Callable[[], None] | None = None


class Subscriptions:
    """The subscribed resources by tenant and topic; thread-safe.

    Commits of a tenant are observed only while it has subscriptions.
    """

    def __init__(self, feed: CommitFeed) -> None:
        self._feed = feed
        self._mutex = threading.Lock()
        self._tenants: dict[Whose, _Followed] = {}

    def __len__(self) -> int:
        return sum(
            len(boxes)
            for each in self._tenants.values()
            for uris in each.by_topic.values()
            for boxes in uris.values()
        )

    def follow(self, whose: Whose, uri: str, outbox: Outbox) -> bool:
        """Tell an outbox when a resource changes; whether there can be such a resource."""
        address = read_uri(uri)
        if address is None:
            return False
        with self._mutex:
            followed = self._tenants.setdefault(whose, _Followed())
            followed.by_topic.setdefault(address.topic, {}).setdefault(uri, set()).add(outbox)
            if followed.unsubscribe is None:
                followed.unsubscribe = self._feed.subscribe(partial(self.committed, whose), *whose)
        return True

    def leave(self, whose: Whose, uri: str, outbox: Outbox) -> None:
        """Tell it no more of that."""
        address = read_uri(uri)
        with self._mutex:
            followed = self._tenants.get(whose)
            uris = (
                None
                if followed is None or address is None
                else followed.by_topic.get(address.topic)
            )
            if followed is None or address is None or uris is None or uri not in uris:
                return
            uris[uri].discard(outbox)
            if not uris[uri]:
                del uris[uri]
            if not uris:
                del followed.by_topic[address.topic]
            if not followed.by_topic:
                del self._tenants[whose]
                if followed.unsubscribe is not None:
                    followed.unsubscribe()
        outbox.forget(uri)

    def committed(self, whose: Whose, committed: Committed) -> None:
        """Tell those of a tenant whom a commit concerns. Called by the writer: nothing is waited for here."""
        concerned = topics(committed.changes.changes)
        found: list[tuple[Outbox, str]] = []
        with self._mutex:
            by_topic = self._tenants[whose].by_topic if whose in self._tenants else {}
            for topic in list(by_topic) if concerned is None else concerned & by_topic.keys():
                found += [(box, uri) for uri, boxes in by_topic[topic].items() for box in boxes]
        for outbox, uri in found:
            outbox.changed(uri)
