"""Sessions of clients of the first era: opened by `initialize`, ended by DELETE, by silence, or with the process.

A client whose session has ended gets 404 and opens a new one; sessions hold no state that matters.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from kbcore.clock import Clock
from kbcore.errors import CallerLeft, RateLimited
from kbserver.mcp.calls import Call
from kbserver.mcp.outbox import Outbox
from kbserver.mcp.resources.subscriptions import MOST_FOLLOWED, Subscriptions, Whose
from kbserver.mcp.rpc import INVALID_REQUEST, Failure, Id, Json, notification

IDLE_SECONDS = 3600.0
"""After so much silence a session that has no stream may be dropped."""

MOST_SESSIONS = 1000
"""Sessions of a tenant; one more takes the place of the one unused for longest that has no stream."""

MOST_CALLS = 64
"""Requests of one session that may be under way at a time."""


def updated(uri: str) -> Json:
    """The notification that a resource has changed."""
    return notification("notifications/resources/updated", {"uri": uri})


@dataclass(eq=False, slots=True)
class Session:
    """One client of the first era, of one tenant. `used` is monotonic, in seconds."""

    id: str
    whose: Whose
    used: float
    outbox: Outbox = field(default_factory=lambda: Outbox(updated))
    followed: set[str] = field(default_factory=set)
    calls: dict[Id, Call] = field(default_factory=dict)

    def begin(self, id: Id, call: Call) -> None:
        """Note a request under way, so that it can be cancelled; raises Failure for a second one of its id, or too many."""
        if id in self.calls:
            raise Failure(INVALID_REQUEST, "a request of this id is under way")
        if len(self.calls) >= MOST_CALLS:
            limit = {"limit": "calls", "value": MOST_CALLS}
            raise RateLimited(f"{MOST_CALLS} requests of this session are under way", 1.0, limit)
        self.calls[id] = call

    def end(self, id: Id) -> None:
        """Note that a request was answered."""
        self.calls.pop(id, None)

    def cancel(self, id: object) -> None:
        """Stop a request, if it is under way."""
        call = self.calls.get(id) if isinstance(id, str | int) else None
        if call is not None:
            call.stop(CallerLeft())


class Sessions:
    """The sessions there are. Safe between threads."""

    def __init__(self, clock: Clock, subscriptions: Subscriptions) -> None:
        self._clock = clock
        self._subscriptions = subscriptions
        self._mutex = threading.Lock()
        self._known: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def open(self, whose: Whose) -> Session:
        """Open a session; raises RateLimited where a tenant has as many as it may, all with streams."""
        now = self._clock.monotonic()
        session = Session(secrets.token_urlsafe(24), whose, now)
        with self._mutex:
            idle = [
                each for each in self._known.values() if not each.outbox.taken and not each.calls
            ]
            gone = [each for each in idle if now - each.used >= IDLE_SECONDS]
            own = [each for each in self._known.values() if each.whose == whose]
            if len(own) >= MOST_SESSIONS and not any(each.whose == whose for each in gone):
                own_idle = [each for each in idle if each.whose == whose]
                if not own_idle:
                    limit = {"limit": "sessions", "value": MOST_SESSIONS}
                    raise RateLimited(f"this tenant has {MOST_SESSIONS} sessions", 10.0, limit)
                gone.append(own_idle[0])
            for each in gone:
                del self._known[each.id]
            self._known[session.id] = session
        for each in gone:
            self._let_go(each)
        return session

    def find(self, id: str, whose: Whose) -> Session | None:
        """The session of an id, if it is of this tenant; it has been used now."""
        with self._mutex:
            session = self._known.get(id)
            if session is None or session.whose != whose:
                return None
            session.used = self._clock.monotonic()
            self._known.move_to_end(id)
            return session

    def close(self, session: Session) -> None:
        """End a session: its stream, its calls, what it follows."""
        with self._mutex:
            self._known.pop(session.id, None)
        self._let_go(session)

    def close_all(self) -> None:
        """End all of them."""
        for session in list(self._known.values()):
            self.close(session)

    def follow(self, session: Session, uri: str) -> bool:
        """Subscribe a session to a resource. Returns False if the URI cannot name a resource."""
        if len(session.followed) >= MOST_FOLLOWED and uri not in session.followed:
            limit = {"limit": "resources", "value": MOST_FOLLOWED}
            raise RateLimited(f"a session follows at most {MOST_FOLLOWED} resources", 1.0, limit)
        known = self._subscriptions.follow(session.whose, uri, session.outbox)
        if known:
            session.followed.add(uri)
        return known

    def leave(self, session: Session, uri: str) -> None:
        """Have it told no more."""
        session.followed.discard(uri)
        self._subscriptions.leave(session.whose, uri, session.outbox)

    def _let_go(self, session: Session) -> None:
        for uri in list(session.followed):
            self.leave(session, uri)
        for call in list(session.calls.values()):
            call.stop(CallerLeft())
        session.outbox.close()
