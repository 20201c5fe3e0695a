"""Event streams of standing goals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from kbcore.errors import KBError, NotReady
from kbcore.node.runtime import Runtime
from kbcore.operations.subscriptions.replaying import GoalChange
from kbcore.operations.tenant_kb import TenantKB
from kbcore.tracing import spans
from kbcore.tracing.causes import cause_of
from kbserver.answers import written
from kbserver.errors import answer_of
from kbserver.events.streams import KEEP_ALIVE_SECONDS, RETRY_MS, EventHub
from kbserver.subscriptions.schemas import GoalChangeShown, subscribed

CHANGES_AT_ONCE = 100
"""Changes that a stream reads at a time."""


class GoalStream:
    """One stream as the body of a response: an iterator of bytes that waits for changes."""

    def __init__(
        self, streams: GoalStreams, open_kb: Callable[[], TenantKB], id: str, since: str | None
    ) -> None:
        self._streams = streams
        self._kb = open_kb
        self._id = id
        self._since = since
        self.woken = threading.Event()
        self._ended = False
        self._goal = open_kb().standing_goal(id)
        self._stop = self._goal.listen(self.woken.set)
        self._greeting = b"retry: %d\n: kbcore goal\n\n" % RETRY_MS

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._greeting:
            first, self._greeting = self._greeting, b""
            return first
        while not self._ended and not self._streams.closing:
            self.woken.clear()
            try:
                if text := self._news():
                    return text
                due = self._kb().next_due_seconds()
                seconds = KEEP_ALIVE_SECONDS if due is None else min(due, KEEP_ALIVE_SECONDS)
            except NotReady:
                break  # the tenant has moved: the goal goes on, and the client connects again
            except KBError as error:
                self._ended = True
                return _event("goal_ended", None, answer_of(error).shape())
            if not self.woken.wait(seconds) and seconds == KEEP_ALIVE_SECONDS:
                return b": keep-alive\n\n"
        raise StopIteration

    def _news(self) -> bytes:
        kb = self._kb()
        goal = kb.standing_goal(self._id)
        if goal is not self._goal:  # it has ended, and was subscribed again with its id
            self._stop()
            self._goal, self._stop = goal, goal.listen(self.woken.set)
        changes = None
        if self._since is not None:
            changes = kb.goal_changes(self._id, self._since, limit=CHANGES_AT_ONCE)
        if changes is None:
            outcome = kb.goal_answers(self._id)
            self._since = outcome.event_id
            return _event("answers", outcome.event_id, subscribed(outcome))
        if not changes:
            return b""
        self._since = changes[-1].event_id
        tracer = spans.tracer
        if tracer is None:
            return _written(changes)
        causes = [
            cause for change in changes for cause in cause_of(kb.database, kb.tenant, change.seq)
        ]
        with tracer.begin("event", spans.PRODUCER, causes=causes):
            return _written(changes)

    def close(self) -> None:
        """End the stream; repeated calls have no effect."""
        if not self._ended:
            self._ended = True
            self.woken.set()
        self._stop()
        self._streams.left(self)


class GoalStreams:
    """The streams of standing goals of a runtime, which count together with other event streams."""

    def __init__(self, runtime: Runtime, hub: EventHub) -> None:
        self.runtime = runtime
        self._hub = hub
        self._mutex = threading.Lock()
        self._streams: dict[GoalStream, tuple[str, str]] = {}

    @property
    def closing(self) -> bool:
        """True once the server stops."""
        return self._hub.closing

    def open(self, open_kb: Callable[[], TenantKB], id: str, since: str | None) -> GoalStream:
        """Open a stream of the changes of a goal since an event, or with all answers at first.

        Raises NotFound, and RateLimited beyond the number of streams.
        """
        kb = open_kb()
        tenant = kb.database, kb.tenant
        self._hub.open_streams.enter(tenant)
        try:
            stream = GoalStream(self, open_kb, id, since)
        except BaseException:
            self._hub.open_streams.leave(tenant)
            raise
        with self._mutex:
            self._streams[stream] = tenant
        return stream

    def left(self, stream: GoalStream) -> None:
        """Forget a stream."""
        with self._mutex:
            tenant = self._streams.pop(stream, None)
        if tenant is not None:
            self._hub.open_streams.leave(tenant)

    def close(self) -> None:
        """Wake all streams, which end because the server stops."""
        for stream in list(self._streams):
            stream.woken.set()


def _written(changes: Iterable[GoalChange]) -> bytes:
    return b"".join(
        _event("changed", change.event_id, GoalChangeShown.write(change)) for change in changes
    )


def _event(kind: str, id: str | None, shape: object) -> bytes:
    name = b"" if id is None else b"id: %b\n" % id.encode()
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), name, written(shape))
