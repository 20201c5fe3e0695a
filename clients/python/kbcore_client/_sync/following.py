"""Goals that a program follows: their answers, and how they change."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from kbcore_client._sync.connection import RECONNECTED
from kbcore_client._sync.handle import Handle
from kbcore_client.errors import InvalidInput, NotFound, error_of
from kbcore_client.requests import Request, path_part
from kbcore_client.settings import Reconnection
from kbtypes.results import AnswersChanged, Subscription
from kbtypes.values import Arg, present, text_of, written_atom


class Following(Handle):
    """Goals whose answers the server keeps current."""

    def subscribe(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        id: str | None = None,
        ttl_ms: int | None = None,
        webhook: str | None = None,
        secret: str | None = None,
    ) -> Subscription:
        """Have the server keep the answers of a goal current, also across its restarts.

        With `webhook` it sends each change after now to this address, signed with `secret`:
        `whsec_` and 24 to 64 bytes in base64; without it, the secret of the server's settings
        signs. The server must allow the address. Subscribing again with the same `id` renews the
        goal, which ends `ttl_ms` milliseconds after its last use. `follow` with the same `id`
        yields the changes. Raises InvalidInput, AlreadyExists if another goal has the `id`, and
        Forbidden if it belongs to another key.
        """
        if secret is not None and webhook is None:
            raise InvalidInput.at("secret", "is for a webhook")
        text = text_of("goal", goal) if args is None else written_atom(goal, args)
        hook = None if webhook is None else present({"url": webhook, "secret": secret})
        fields = {"goal": text, "scope": scope, "id": id, "ttl": ttl_ms, "webhook": hook}
        names = {"ttl": "ttl_ms"}
        request = Request(
            "/goals/subscribe", present(fields), names=names, writes=True, keyed=False
        )
        return Subscription.of((self._send(request)).json())

    def subscriptions(self) -> list[Subscription]:
        """Return the goals that the server keeps current, in the order of their subscription."""
        reply = self._send(Request("/goals", method="GET"))
        return [Subscription.of(each) for each in reply.json()["goals"]]

    def unsubscribe(self, id: str) -> bool:
        """End the subscription to a goal, with its webhook; return False if there was none.

        Raises Forbidden if it belongs to another key.
        """
        path = f"/goals/{path_part('id', id)}"
        reply = self._send(Request(path, method="DELETE", writes=True))
        ended: bool = reply.json()["ended"]
        return ended

    def follow(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        id: str | None = None,
        ttl_ms: int | None = None,
    ) -> Iterator[AnswersChanged]:
        """Yield the answers of a goal, then each change of them, until the caller stops.

        In the first item all answers have appeared. Each commit that changes the answers is one
        item, exactly as a new evaluation after the commit would show. A lost connection is opened
        again, also after a restart of the server, and continues after the last item. If the log
        does not go back so far, the next item has the whole difference. The server keeps the goal
        for `ttl_ms` milliseconds after its last use; with an `id` also across restarts. Raises
        ConnectionFailed if there is no server at the beginning, and later after more failures in a
        row than `Retries.events` (without end by default), and errors of the server, such as
        InvalidInput for a goal that depends on `now()`.
        """
        text = text_of("goal", goal) if args is None else written_atom(goal, args)
        fields = {"goal": text, "scope": scope, "id": id, "ttl": ttl_ms, "durable": id is not None}
        known: set[tuple[str, ...]] = set()
        since: str | None = None
        reconnection = self._connection.reconnection()
        while True:
            request = Request("/goals/subscribe", present(fields), names={"ttl": "ttl_ms"})
            try:
                first = (self._send(request)).json()
            except RECONNECTED as error:
                if since is None:
                    raise
                self._connection.pause_or_raise(reconnection, error)
                continue
            reconnection.opened()
            reconnection.received()
            if since is None:
                since, known = first["eventId"], AnswersChanged.answers_of(first)
                yield AnswersChanged.between(set(), first)
            changes = self._changes(first["id"], since, known, reconnection)
            try:
                for event_id, change in changes:
                    known.difference_update(change.disappeared)
                    known.update(change.appeared)
                    since = event_id
                    if change.appeared or change.disappeared:
                        yield change
            except NotFound:  # the goal has ended, but its event ids name states of the log
                continue
            finally:  # now, and not when the garbage is collected: it holds a connection
                changes.close()

    def _changes(
        self, id: str, since: str, known: set[tuple[str, ...]], reconnection: Reconnection
    ) -> Generator[tuple[str, AnswersChanged], None]:
        """Yield the changes of a standing goal after an event, with their event ids; the caller
        applies them to `known`.
        """
        path = f"/goals/{path_part('id', id)}/events"
        messages = self._connection.messages(
            path, {"since": since}, self._destination, reconnection
        )
        try:
            for message in messages:
                body: dict[str, Any] = json.loads(message.data)
                if message.kind == "goal_ended":
                    raise error_of(404, body, request_id=None, retry_after=None)
                change = (
                    AnswersChanged.between(known, body)
                    if message.kind == "answers"
                    else AnswersChanged.of(body)
                )
                yield body["eventId"], change
        finally:
            messages.close()
