"""Episodes of a knowledge base, and corrections: replacing, undoing and purging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from kbcore_client._sync.handle import Handle
from kbcore_client.requests import Request
from kbtypes.episodes import (
    CorrectOutcome,
    Episode,
    EpisodeFacts,
    EpisodePage,
    Evidences,
    FactHistory,
    PurgeOutcome,
    PurgeState,
    UndoOutcome,
    spans_of,
)
from kbtypes.values import Arg, Instant, instant, present, text_of, written_atom


class Episodes(Handle):
    """Episodes, and corrections of what a knowledge base holds."""

    def add_episode(
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
        reply = self._send(Request("/episodes", body, writes=True))
        return Episode.of(reply.json(), is_new=reply.status == 201)

    def episode(self, id: str, *, limit: int = 100, offset: int = 0) -> EpisodeFacts:
        """Return an episode with the stored facts that it supports; raises NotFound."""
        path = f"/episodes/{quote(text_of('id', id), safe='')}"
        query = {"limit": str(limit), "offset": str(offset)}
        return EpisodeFacts.of((self._send(Request(path, method="GET", query=query))).json())

    def episodes(
        self,
        *,
        session: str | None = None,
        speaker: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> EpisodePage:
        """Return the episodes, of one session or speaker if given, in order of storing."""
        query = {"limit": str(limit), "offset": str(offset)}
        query |= present({"session": session, "speaker": speaker})
        reply = self._send(Request("/episodes", method="GET", query=query))
        return EpisodePage.of(reply.json())

    def correct(
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
            (self._send(Request("/memory/correct", body, writes=True))).json()
        )

    def undo(
        self, seq: int | None = None, *, request: str | None = None, timeout_ms: int | None = None
    ) -> UndoOutcome:
        """Undo one committed change, by its number or by the id of its request or transaction.

        Raises NotFound, and Conflict with the later changes in its details if they concern the same
        facts or rules, or if the change is no longer in the log.
        """
        body = {"commitSeq": seq, "requestId": request}
        names = {"commitSeq": "seq", "requestId": "request"}
        sent = Request("/memory/undo", body, writes=True, names=names, timeout_ms=timeout_ms)
        return UndoOutcome.of((self._send(sent)).json())

    def purge(
        self,
        *,
        subject: str | None = None,
        episode: str | None = None,
        speaker: str | None = None,
        before: Instant | None = None,
        drop_scopes: bool = False,
        dry_run: bool = False,
        limit: int = 100,
    ) -> PurgeOutcome:
        """Remove facts and episodes for good: also from the log and the snapshots.

        Exactly one of `subject` (a name), `episode` (an id), `speaker` and `before` says which.
        With `drop_scopes`, scopes whose names mention the subject are dropped. With `dry_run`
        nothing changes. `similar` of the result lists names of which the subject is only a part.
        `erased` says if the text is gone from the storage; `purges()` says so later.
        """
        body = {
            "subject": subject,
            "episode": episode,
            "speaker": speaker,
            "before": instant(before),
            "dropScopes": drop_scopes,
            "dryRun": dry_run,
            "limit": limit,
        }
        sent = Request("/memory/purge", body, writes=True, keyed=False)
        return PurgeOutcome.of((self._send(sent)).json())

    def history(
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
        reply = self._send(Request("/facts/history", method="GET", query=query))
        return FactHistory.of(reply.json())

    def purges(self) -> list[PurgeState]:
        """Return the purges, oldest first, and whether their text is gone from the storage."""
        reply = self._send(Request("/memory/purges", method="GET"))
        return [PurgeState.of(each) for each in reply.json()["purges"]]
