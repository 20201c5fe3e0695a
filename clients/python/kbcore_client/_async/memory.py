"""Memory and context windows of a knowledge base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbcore_client._async.handle import AsyncHandle
from kbcore_client.errors import InvalidInput
from kbcore_client.requests import Request, goal_form
from kbtypes.values import (
    Arg,
    Instant,
    Row,
    atom_of,
    check_constants,
    instant,
    messages_of,
    present,
    text_of,
)
from kbtypes.windows import (
    FIELDS,
    ContextDiff,
    DiffOptions,
    Ingested,
    IngestOptions,
    Window,
    WindowOptions,
    window_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WINDOW_NAMES = {field: option for option, field in FIELDS.items()}


class AsyncContext(AsyncHandle):
    """Context windows of a knowledge base."""

    async def context(
        self, *, timeout_ms: int | None = None, **options: Unpack[WindowOptions]
    ) -> Window:
        """Return a context window: the facts that a model should read, within a budget.

        `context(goals=["grandparent(ann, ?who)"], max_facts=5, session="s1")` has the text for a
        prompt in `text`, and its parts in `entries` and `rules`. The options are those of
        `WindowOptions`. Raises InvalidInput and BudgetExceeded.
        """
        body = {"format": "facts", "compat": False, **present(window_fields(options))}
        request = Request("/memory/context", body, names=_WINDOW_NAMES, timeout_ms=timeout_ms)
        return Window.of((await self._send(request)).json())

    async def context_diff(
        self, session: str, *, timeout_ms: int | None = None, **options: Unpack[DiffOptions]
    ) -> ContextDiff:
        """Make a new window of a session and return the changes since its last window.

        The options of `context` that are not given are those of the last window. `refresh` of the
        result is True if a whole window is better, as for an unknown session.
        """
        body = {"sessionId": text_of("session", session), **present(window_fields(options))}
        request = Request("/context/diff", body, names=_WINDOW_NAMES, timeout_ms=timeout_ms)
        return ContextDiff.of((await self._send(request)).json())

    async def ingest(
        self,
        text: str | Sequence[str | Mapping[str, Any]],
        *,
        hint: str | None = None,
        timeout_ms: int | None = None,
        speaker: str | None = None,
        at: Instant | None = None,
        conflict: str | None = None,
        **options: Unpack[IngestOptions],
    ) -> Ingested:
        """Store the facts and rules of a text or of messages, all or none.

        Lines in predicate syntax or the rule language are parsed; prose goes to the language model,
        with `hint`. The result has the `facts` and `rules`, the numbers of the `unread` lines, and
        a `window`. `episode_ids` are the ids of the episodes as which the text is stored.
        `conflict` is the conflict strategy of the facts, by default that of the server: a new value
        of a declared `@key` ends the older one.

        A message is a text or a chat message: a dict with `role`, `content` (a text, or a list of
        parts with text) and optionally `name`, `at` and `id`. `speaker` (the name of the user),
        `at` and `session` hold for everything made from the text: the episodes, what is said in
        them, and the facts, which are valid from `at` unless the text states another time. A
        message that was stored before, with the same `id` or as part of the conversation with
        which the session begins, is not stored again.

        Raises InvalidInput, Conflict, BudgetExceeded, ModelNotConfigured, ModelFailed.
        """
        body = {
            "text": text if isinstance(text, str) else messages_of(text),
            "contextHint": hint,
            "speaker": speaker,
            "at": instant(at),
            **({} if conflict is None else {"conflictStrategy": conflict}),
            **window_fields(options),
        }
        names = {**_WINDOW_NAMES, "contextHint": "hint", "conflictStrategy": "conflict"}
        request = Request("/context/ingest", body, writes=True, names=names, timeout_ms=timeout_ms)
        return Ingested.of((await self._send(request)).json())


class AsyncMemory(AsyncHandle):
    """Memory of a knowledge base. Transactions do not support these writes."""

    async def prioritize(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        priority: float | None = None,
        *,
        scope: str | None = None,
    ) -> None:
        """Set the priority of a stored fact, 0 to 1 (initially 0.5).

        The fact is `prioritize("allergy(ann, nuts)", priority=1.0)` or a predicate with arguments;
        without a sign, the facts of both signs are meant. Raises NotFound.
        """
        if priority is None:
            raise InvalidInput.at(
                "priority", "is required: write priority=..., a number from 0 to 1"
            )
        body = goal_form("predicate", predicate, args) | {"priority": priority, "scope": scope}
        await self._send(Request("/memory/priority", body, writes=True, names=_ATOM_NAMES))

    async def salient(
        self,
        predicate: str | None = None,
        args: Sequence[Arg] | None = None,
        *,
        limit: int = 50,
        minimum: float = 0.0,
        scope: str | None = None,
    ) -> list[Row]:
        """Return the stored facts with the highest salience, best first, with their `salience`.

        `predicate` is a name, a pattern as text, or a name with `args`; None means all predicates.
        The returned facts count as accessed.
        """
        body: dict[str, Any] = {"limit": limit, "minSalience": minimum, "scope": scope}
        if predicate is not None:
            body["predicate"] = predicate
            if args is not None or "(" in predicate:
                atom = atom_of("predicate", predicate, args)
                check_constants("predicate", atom)
                body |= {"predicate": atom.predicate, "args": list(atom.args)}
        names = {"minSalience": "minimum"}
        reply = await self._send(Request("/memory/query/salient", body, names=names))
        rows: list[Row] = reply.json()
        return rows

    async def recall(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        at: Instant | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
    ) -> list[Row]:
        """Return the matching facts that were valid at a point in time, as they are stored now.

        The pattern is that of `query`, with facts of both signs unless the text begins with `~`.
        """
        if at is None:
            raise InvalidInput.at("at", "is required: write at=..., a point in time")
        body = goal_form("predicate", predicate, args) | {
            "timestamp": instant(at),
            "scope": scope,
            "limit": limit,
        }
        names = {**_ATOM_NAMES, "timestamp": "at"}
        reply = await self._send(Request("/memory/recall", body, names=names))
        rows: list[Row] = reply.json()
        return rows


_ATOM_NAMES = {"text": "predicate"}
