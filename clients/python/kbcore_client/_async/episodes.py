"""Episodes of a knowledge base, and corrections: replacing, undoing and purging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbcore_client._async.handle import AsyncHandle
from kbcore_client.requests import Request
from kbtypes.episodes import (
    CorrectOutcome,
    Episode,
    Evidences,
    FactHistory,
    spans_of,
)
from kbtypes.values import Arg, Instant, instant, present, text_of, written_atom


class AsyncEpisodes(AsyncHandle):
    """Episodes, and corrections of what a knowledge base holds."""

    async def add_episode(
        self,
        speaker: str,
        text: str,
        *,
        at: Instant | None = None,
        session: str | None = None,
        id: str | None = None,
    ) -> Episode:
        """Store a text that someone said; the same content is stored once.

        `at` has the forms of times in `tell`, by default now. The `id` of the result is what the
        evidence of facts names. Raises Conflict if `id` belongs to another content.
        """
        body = {
            "speaker": text_of("speaker", speaker),
            "text": text_of("text", text),
            "at": instant(at),
            "session": session,
            "id": id,
        }
        reply = await self._send(Request("/episodes", body, writes=True))
        return Episode.of(reply.json(), is_new=reply.status == 201)

    async def correct(
        self,
        old: str,
        new: str,
        *,
        reason: str,
        scope: str | None = None,
        confidence: float | None = None,
        evidence: Evidences = (),
    ) -> CorrectOutcome:
        """Replace a stored fact by another one: `correct("likes(ann, tea)", "likes(ann, coffee)",
        reason="...")`.

        The new fact gets the evidence of the old one, and the metadata `corrects` with the old fact
        and the reason. Raises NotFound if the old fact is not stored.
        """
        fact: dict[str, Any] = present({"text": text_of("new", new), "confidence": confidence})
        if evidence:
            fact["evidence"] = spans_of("evidence", evidence)
        body = {"old": text_of("old", old), "new": fact, "reason": reason, "scope": scope}
        return CorrectOutcome.of(
            (await self._send(Request("/memory/correct", body, writes=True))).json()
        )

    async def history(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int = 100,
        offset: int = 0,
        oldest_first: bool = False,
    ) -> FactHistory:
        """Return what asserted, replaced and removed facts, the newest event first.

        `history("likes")` is about all facts of a predicate, `history("likes(ann, ?x)")` and
        `history("likes", ["ann", "?x"])` about those that match.
        """
        pattern = predicate if args is None else written_atom(predicate, args)
        query = {"predicate": pattern, "limit": str(limit), "offset": str(offset)}
        query["order"] = "oldest" if oldest_first else "newest"
        if scope is not None:
            query["scope"] = scope
        reply = await self._send(Request("/facts/history", method="GET", query=query))
        return FactHistory.of(reply.json())
