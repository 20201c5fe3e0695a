"""Resource subscriptions: commits come in, outboxes get the URIs of the resources that changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kbcore.events.events import EventView
from kbcore.events.feed import CommitFeed, Committed, Feeds
from kbserver.mcp.outbox import Outbox
from kbserver.mcp.resources.uris import Topic, read_uri, topics

MAX_FOLLOWED = 1000
"""Maximum number of resources per stream or session, and so of its pending notifications."""

Whose = tuple[str, str]
"""A database and a tenant."""


@dataclass(slots=True)
class _Followed:
    """Subscriptions of one tenant, each with its view, and the function that ends its subscription
    to commits.
    """

    by_topic: dict[Topic, dict[str, dict[Outbox, EventView | None]]] = field(default_factory=dict)
    unsubscribe: Callable[[], None] | None = None


class ResourceSubscriptions:
    """The subscribed resources by tenant and topic; thread-safe.

    Commits of a tenant are observed only while it has subscriptions.
    """

    def __init__(self, feed: CommitFeed | Feeds) -> None:
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

    def follow(self, whose: Whose, uri: str, outbox: Outbox, view: EventView | None = None) -> bool:
        """Notify an outbox of changes of a resource, of those that a view shows. Returns False if
        the URI cannot name one.
        """
        address = read_uri(uri)
        if address is None:
            return False
        with self._mutex:
            followed = self._tenants.setdefault(whose, _Followed())
            followed.by_topic.setdefault(address.topic, {}).setdefault(uri, {})[outbox] = view
            if followed.unsubscribe is None:
                followed.unsubscribe = self._feed.subscribe(partial(self.committed, whose), *whose)
        return True

    def leave(self, whose: Whose, uri: str, outbox: Outbox) -> None:
        """End the notifications of an outbox about a resource."""
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
            uris[uri].pop(outbox, None)
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
        """Notify the outboxes of a tenant that a commit concerns; called by the writer, never
        blocks.
        """
        changed = topics(committed.changes.changes)
        concerned: list[tuple[Topic, str, Outbox, EventView | None]] = []
        with self._mutex:
            by_topic = self._tenants[whose].by_topic if whose in self._tenants else {}
            for topic in list(by_topic) if changed is None else changed & by_topic.keys():
                for uri, boxes in by_topic[topic].items():
                    concerned += [(topic, uri, box, view) for box, view in boxes.items()]
        shown: dict[EventView, set[Topic] | None] = {}
        for topic, uri, outbox, view in concerned:
            if view is not None:
                if view not in shown:
                    seen = view.changes(committed)
                    shown[view] = topics(seen) if seen else set()
                only = shown[view]
                if only is not None and topic not in only:
                    continue
            outbox.changed(uri)
