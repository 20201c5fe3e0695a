"""Episodes of a knowledge base, and corrections: replacing, undoing and purging."""

from __future__ import annotations

from collections.abc import Sequence

from kbcore import python_values
from kbcore.errors import InvalidInput
from kbcore.operations.episodes.correction import PurgeProgress, PurgeRemovals
from kbcore.operations.episodes.episodes import DEFAULT_LISTED, AddedEpisode
from kbcore.operations.history.fact_history import DEFAULT_EVENTS, FactPattern, HistoryPage
from kbcore.operations.history.undo import UndoneChange
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import instant, integer, moment, named, positive
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import MAX_SUBJECT_CHARS, PurgeTarget
from kbplanner.ir.terms import Atom
from kbtypes.episodes import CorrectOutcome, EpisodeFacts, EpisodePage, Evidences
from kbtypes.values import Arg, Instant


def pattern_of(text: str, args: Sequence[Arg] | None, scope: str | None) -> FactPattern:
    """Return the facts of a predicate, or those that match a pattern; raise InvalidInput."""
    python_values.text("predicate", text)
    if args is None and "(" not in text and not text.startswith("~"):
        name, terms, positive = python_values.atom(text, ())
        return FactPattern(name, None, positive, scope)
    name, terms, positive = python_values.atom(text, args)
    return FactPattern(name, tuple(terms), positive is not False, scope)


class PythonEpisodes(PythonHandle):
    """Episodes, and corrections of what a knowledge base holds."""

    def history(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int = DEFAULT_EVENTS,
        offset: int = 0,
        oldest_first: bool = False,
        timeout_ms: int | None = None,
    ) -> HistoryPage:
        """Return what asserted, replaced and removed facts, the newest event first.

        `history("likes")` is about all facts of a predicate, `history("likes(ann, ?x)")` and
        `history("likes", ["ann", "?x"])` about those that match. Each event has the rows before and
        after it, the time, and where known the request, the transaction and the API key. Raises
        InvalidInput if the storage keeps no history, and BudgetExceeded.
        """
        return self.kb.fact_history(
            pattern_of(predicate, args, scope),
            limit=positive("limit", limit) or DEFAULT_EVENTS,
            offset=integer("offset", offset) or 0,
            oldest_first=oldest_first,
            request_limits=request_limits(timeout_ms),
        )

    def add_episode(
        self,
        speaker: str,
        text: str,
        *,
        at: Instant | None = None,
        session: str | None = None,
        id: str | None = None,
    ) -> AddedEpisode:
        """Store a text that someone said; the same content is stored once.

        `at` has the forms of times in `tell`, by default now. `episode.id` of the result is what
        the evidence of facts names. Raises AlreadyExists if `id` belongs to another content.
        """
        with named(text="text", speaker="speaker"):
            return self.kb.add_episode(
                python_values.text("speaker", speaker),
                python_values.text("text", text),
                at=instant("at", at),
                session=session,
                id=id,
            )

    def episode(self, id: str, *, limit: int = DEFAULT_LISTED, offset: int = 0) -> EpisodeFacts:
        """Return an episode with the stored facts that it supports; raises NotFound."""
        return self.kb.episode(
            id, limit=integer("limit", limit) or 0, offset=integer("offset", offset) or 0
        )

    def episodes(
        self,
        *,
        session: str | None = None,
        speaker: str | None = None,
        limit: int = DEFAULT_LISTED,
        offset: int = 0,
    ) -> EpisodePage:
        """Return the episodes, of one session or speaker if given, in order of storing."""
        return self.kb.episodes(
            session=session,
            speaker=speaker,
            limit=integer("limit", limit) or 0,
            offset=integer("offset", offset) or 0,
        )

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
        with named(predicate="old", text="old"):
            name, args, positive = python_values.fact(old, None)
            before = Atom(name, args, positive)
        with named(predicate="new", text="new"):
            name, args, positive = python_values.fact(new, None)
        fact = Fact(
            name,
            args,
            positive,
            scope,
            confidence=python_values.fraction("confidence", confidence),
            evidence=python_values.evidence("evidence", evidence),
        )
        return self.kb.correct(before, fact, reason=python_values.text("reason", reason))

    def undo(
        self, seq: int | None = None, *, request: str | None = None, timeout_ms: int | None = None
    ) -> UndoneChange:
        """Undo one committed change, by its number or by the id of its request or transaction.

        Raises NotFound, and Conflict with the later changes in its details if they concern the same
        facts or rules, or if the change is no longer in the log.
        """
        integer("seq", seq)
        if request is not None:
            python_values.text("request", request)
        with named(commitSeq="seq", requestId="request"):
            return self.kb.undo(seq=seq, request=request, request_limits=request_limits(timeout_ms))

    def purge(
        self,
        *,
        subject: str | None = None,
        episode: str | None = None,
        speaker: str | None = None,
        before: Instant | None = None,
        drop_scopes: bool = False,
        dry_run: bool = False,
        limit: int = DEFAULT_LISTED,
    ) -> PurgeRemovals:
        """Remove facts and episodes for good: also from the log and the snapshots.

        Exactly one of `subject` (a name), `episode` (an id), `speaker` and `before` says which.
        With `drop_scopes`, scopes whose names mention the subject are dropped. With `dry_run`
        nothing changes. `similar` of the result lists names of which the subject is only a part.
        `erased` says if the text is gone from the storage; `purges()` says so later.
        """
        choices = {"subject": subject, "episode": episode, "speaker": speaker, "before": before}
        chosen = [name for name, value in choices.items() if value is not None]
        if len(chosen) != 1:
            raise InvalidInput.at(
                chosen[0] if chosen else "subject", f"give one of {', '.join(choices)}"
            )
        python_values.flag("drop_scopes", drop_scopes)
        python_values.flag("dry_run", dry_run)
        if drop_scopes and subject is None:
            raise InvalidInput.at("drop_scopes", "needs a subject")
        for name, value in (("subject", subject), ("episode", episode), ("speaker", speaker)):
            if (
                value is not None
                and not 1
                <= len(python_values.text(name, value).strip())
                <= len(value)
                <= MAX_SUBJECT_CHARS
            ):
                raise InvalidInput.at(name, f"must have 1 to {MAX_SUBJECT_CHARS} characters")
        at = None if before is None else moment("before", before)
        target = PurgeTarget(subject, episode, speaker, at, drop_scopes=drop_scopes)
        return self.kb.purge(target, dry_run=dry_run, limit=integer("limit", limit) or 0)

    def purges(self) -> list[PurgeProgress]:
        """Return the purges, oldest first, and whether their text is gone from the storage."""
        return self.kb.purges()
