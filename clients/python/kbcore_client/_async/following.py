"""Goals that a program follows: their answers, and how they change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

from kbcore_client._async.handle import AsyncHandle
from kbcore_client.errors import NotFound, error_of
from kbcore_client.requests import Request
from kbcore_client.results import AnswersChanged
from kbcore_client.values import Arg, present, text_of, written_atom


class AsyncFollowing(AsyncHandle):
    """Goals whose answers the server keeps current."""

    async def follow(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        id: str | None = None,
        ttl_ms: int | None = None,
    ) -> AsyncIterator[AnswersChanged]:
        """Yield the answers of a goal, then each change of them, until the caller stops.

        In the first item all answers have appeared. Each commit that changes the answers is one
        item, exactly as a new evaluation after the commit would show. A lost connection is opened
        again; if the server has restarted, or does not keep all changes, the next item has
        the whole difference. The server keeps the goal for `ttl_ms` milliseconds after its last use,
        under `id` if it is given. Raises ConnectionFailed after too many failures in a row, and
        errors of the server, such as InvalidInput for a goal that depends on `now()`.
        """
        text = text_of("goal", goal) if args is None else written_atom(goal, args)
        fields = {"goal": text, "scope": scope, "id": id, "ttl": ttl_ms}
        known: set[tuple[str, ...]] = set()
        is_first = True
        while True:
            request = Request("/goals/subscribe", present(fields), names={"ttl": "ttl_ms"})
            first = (await self._send(request)).json()
            difference = AnswersChanged.between(known, first)
            if is_first or difference.appeared or difference.disappeared:
                yield difference
            is_first, known = False, AnswersChanged.answers_of(first)
            try:
                async for change in self._changes(first["id"], first["eventId"], known):
                    known.difference_update(change.disappeared)
                    known.update(change.appeared)
                    yield change
            except NotFound:  # the server has restarted: it does not know the goal any more
                continue

    async def _changes(
        self, id: str, since: str, known: set[tuple[str, ...]]
    ) -> AsyncIterator[AnswersChanged]:
        """Yield the changes of a standing goal after an event; the caller applies them to `known`."""
        path = f"/goals/{quote(id, safe='')}/events"
        async for message in self._connection.messages(path, {"since": since}, self._destination):
            body: dict[str, Any] = json.loads(message.data)
            if message.kind == "goal_ended":
                raise error_of(404, body, request_id=None, retry_after=None)
            change = (
                AnswersChanged.between(known, body)
                if message.kind == "answers"
                else AnswersChanged.of(body)
            )
            if change.appeared or change.disappeared:
                yield change
