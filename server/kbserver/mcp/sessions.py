"""Sessions of MCP clients of protocol versions through 2025-11-25.

`initialize` opens a session; it ends by DELETE, after a time without requests, or with the process.
A client whose session has ended gets 404 and opens a new one; no data is lost.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from kbcore.clock import Clock
from kbcore.errors import CallerLeft, RateLimited
from kbcore.events.events import EventView
from kbserver.mcp.calls import Call
from kbserver.mcp.elicitation import OpenQuestions
from kbserver.mcp.outbox import Outbox
from kbserver.mcp.resources.subscriptions import MAX_FOLLOWED, ResourceSubscriptions, Whose
from kbserver.mcp.rpc import INVALID_REQUEST, Id, Json, RpcFailure, notification

IDLE_SECONDS = 3600.0
"""Idle time after which a session without a stream may be dropped."""

MAX_SESSIONS = 1000
"""Maximum number of sessions per tenant; another one replaces the session idle for longest without
a stream."""

MAX_CALLS = 64
"""Maximum number of concurrent requests per session."""


def updated(uri: str) -> Json:
    """Return the notification that a resource has changed."""
    return notification("notifications/resources/updated", {"uri": uri})


@dataclass(eq=False, slots=True)
class McpSession:
    """Session of one client and tenant; `used` is the last use, in seconds of the monotonic
    clock. `caller` is whose key or token has opened it, None without authentication. `elicits` says
    that the client can ask the user.
    """

    id: str
    whose: Whose
    used: float
    caller: str | None = None
    outbox: Outbox = field(default_factory=lambda: Outbox(updated))
    followed: set[str] = field(default_factory=set)
    calls: dict[Id, Call] = field(default_factory=dict)
    elicits: bool = False
    questions: OpenQuestions = field(default_factory=OpenQuestions)

    def begin(self, id: Id, call: Call) -> None:
        """Register an active request, so that it can be cancelled.

        Raises Failure if the id is in use, and RateLimited if there are too many.
        """
        if id in self.calls:
            raise RpcFailure(INVALID_REQUEST, "a request with this id is active")
        if len(self.calls) >= MAX_CALLS:
            limit = {"limit": "calls", "value": MAX_CALLS}
            raise RateLimited(f"this session has {MAX_CALLS} active requests", 1.0, limit)
        self.calls[id] = call

    def end(self, id: Id) -> None:
        """Remove an answered request."""
        self.calls.pop(id, None)

    def cancel(self, id: object) -> None:
        """Stop a request if it is active."""
        call = self.calls.get(id) if isinstance(id, str | int) else None
        if call is not None:
            call.stop(CallerLeft())


class McpSessions:
    """The open sessions; thread-safe."""

    def __init__(self, clock: Clock, subscriptions: ResourceSubscriptions) -> None:
        self._clock = clock
        self._subscriptions = subscriptions
        self._mutex = threading.Lock()
        self._known: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def open(self, whose: Whose, caller: str | None = None, *, elicits: bool = False) -> McpSession:
        """Open a session; raises RateLimited if the tenant has too many, all with streams."""
        now = self._clock.monotonic()
        session = McpSession(secrets.token_urlsafe(24), whose, now, caller, elicits=elicits)
        with self._mutex:
            idle = [
                each for each in self._known.values() if not each.outbox.is_read and not each.calls
            ]
            gone = [each for each in idle if now - each.used >= IDLE_SECONDS]
            own = [each for each in self._known.values() if each.whose == whose]
            if len(own) >= MAX_SESSIONS and not any(each.whose == whose for each in gone):
                own_idle = [each for each in idle if each.whose == whose]
                if not own_idle:
                    limit = {"limit": "sessions", "value": MAX_SESSIONS}
                    raise RateLimited(f"this tenant has {MAX_SESSIONS} sessions", 10.0, limit)
                gone.append(own_idle[0])
            for each in gone:
                del self._known[each.id]
            self._known[session.id] = session
        for each in gone:
            self._release(each)
        return session

    def find(self, id: str, whose: Whose, caller: str | None = None) -> McpSession | None:
        """Return the session with this id if it belongs to the tenant and the caller, and mark it
        as used.
        """
        with self._mutex:
            session = self._known.get(id)
            if session is None or (session.whose, session.caller) != (whose, caller):
                return None
            session.used = self._clock.monotonic()
            self._known.move_to_end(id)
            return session

    def close(self, session: McpSession) -> None:
        """End a session with its stream, requests and subscriptions."""
        with self._mutex:
            self._known.pop(session.id, None)
        self._release(session)

    def close_all(self) -> None:
        """End all sessions."""
        for session in list(self._known.values()):
            self.close(session)

    def follow(self, session: McpSession, uri: str, view: EventView | None) -> bool:
        """Subscribe a session to a resource, as a view shows it. Returns False if the URI cannot
        name a resource.
        """
        if len(session.followed) >= MAX_FOLLOWED and uri not in session.followed:
            limit = {"limit": "resources", "value": MAX_FOLLOWED}
            raise RateLimited(f"a session follows at most {MAX_FOLLOWED} resources", 1.0, limit)
        known = self._subscriptions.follow(session.whose, uri, session.outbox, view)
        if known:
            session.followed.add(uri)
        return known

    def leave(self, session: McpSession, uri: str) -> None:
        """Unsubscribe a session from a resource."""
        session.followed.discard(uri)
        self._subscriptions.leave(session.whose, uri, session.outbox)

    def _release(self, session: McpSession) -> None:
        for uri in list(session.followed):
            self.leave(session, uri)
        for call in list(session.calls.values()):
            call.stop(CallerLeft())
        session.outbox.close()
