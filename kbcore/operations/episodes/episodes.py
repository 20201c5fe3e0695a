"""Episodes of a knowledge base, and the check of evidence that facts name."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kbcore.errors import AlreadyExists, InvalidInput, NotFound, TooLarge
from kbcore.operations.base import TenantHandle
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.state.changes import EPISODES, AddEpisodes, Depends, EndedFact
from kbcore.state.episodes.episodes import MAX_SPEAKER_CHARS, NewEpisode, episode_id
from kbcore.state.episodes.evidence import MAX_EVIDENCE, Evidence, evidence_of
from kbcore.state.facts import Fact, Row
from kbcore.state.names import check_name
from kbcore.state.tenant import Tenant
from kbcore.upkeep.sources import supported
from kbplanner.ir.limits import text_problem
from kbplanner.pacing import STEPS_PER_YIELD, YieldNow, go_on, in_parts, paced
from kbtypes.episodes import Episode, EpisodeFacts, EpisodePage

DEFAULT_LISTED = 100
"""Default number of episodes, or of facts of an episode, in one answer."""

MAX_LISTED = 1000

FACTS_PER_YIELD = 100
"""Facts checked between two calls of `yield_now`: about a millisecond."""


@dataclass(frozen=True, slots=True)
class AddedEpisode:
    """A stored episode, and whether it is new."""

    episode: Episode
    is_new: bool


@dataclass(frozen=True, slots=True)
class Supports:
    """Episodes to store with facts, facts whose evidence is added if they are stored already, and
    stored facts that end. Nothing is stored if `check` raises on the state at the write.
    """

    episodes: tuple[NewEpisode, ...] = ()
    known: tuple[Fact, ...] = ()
    ended: tuple[EndedFact, ...] = ()
    check: Callable[[], None] | None = None


class EpisodeMethods(TenantHandle):
    """Episodes of a knowledge base.

    An episode belongs to the tenant, not to a scope: facts of every scope may name it.
    """

    def add_episode(
        self,
        speaker: str,
        text: str,
        *,
        at: int | None = None,
        session: str | None = None,
        id: str | None = None,
    ) -> AddedEpisode:
        """Store a text that someone said; `at` is in epoch milliseconds, by default now.

        The id is by default a prefix of the hash of the given content, so that the same content is
        stored once. Raises AlreadyExists if `id` belongs to an episode with other content.
        """
        new = self._new_episode(speaker, text, at, session, id)

        def check() -> None:
            refuse_other_content(new, self._read_tenant().episodes.get(new.id))

        check()
        if self._read_tenant().episodes.get(new.id) is not None:
            return AddedEpisode(self._episode(new.id), False)
        delta = self._commit((AddEpisodes((new,)),), check, _DEPENDS)
        return AddedEpisode(self._episode(new.id), bool(delta.details.get("episodes")))

    def episode(
        self,
        id: str,
        *,
        limit: int = DEFAULT_LISTED,
        offset: int = 0,
        request_limits: RequestLimits | None = None,
    ) -> EpisodeFacts:
        """Return an episode with the stored facts of every scope that it supports; raises NotFound.

        At most `limit` facts are returned, from number `offset`.
        """

        def evaluate(tenant: Tenant, budget: Budget) -> EpisodeFacts:
            episode = tenant.episodes.get(id)
            if episode is None:
                tenant.note_episodes(missing=id)
                raise _unknown(id)
            facts = list(supported(tenant, {id}, budget))
            rows: list[Row] = []
            for fact in facts[offset : offset + limit]:
                symbols = array("I", fact.row)
                ids = fact.stored.relation.locate(symbols, 1)
                rows += fact.stored.rows(tenant.engine, symbols, ids)
            return EpisodeFacts(episode, rows, len(facts))

        return self._evaluated(evaluate, request_limits)

    def episodes(
        self,
        *,
        session: str | None = None,
        speaker: str | None = None,
        limit: int = DEFAULT_LISTED,
        offset: int = 0,
        request_limits: RequestLimits | None = None,
    ) -> EpisodePage:
        """Return the episodes, of one session or speaker if that is given, in order of storing."""

        def evaluate(tenant: Tenant, budget: Budget) -> EpisodePage:
            tenant.note_episodes()
            matching = [
                episode
                for episode in budget.paced(tenant.episodes)
                if session in (None, episode.session) and speaker in (None, episode.speaker)
            ]
            return EpisodePage(matching[offset : offset + limit], len(matching))

        return self._evaluated(evaluate, request_limits)

    # -- inside ------------------------------------------------------------------------------------

    def _episode(self, id: str) -> Episode:
        episode = self._read_tenant().episodes.get(id)
        if episode is None:
            raise _unknown(id)
        return episode

    def _new_episode(
        self,
        speaker: str,
        text: str,
        at: int | None = None,
        session: str | None = None,
        id: str | None = None,
    ) -> NewEpisode:
        """Return a checked episode; raises InvalidInput and TooLarge."""
        if not speaker.strip() or len(speaker) > MAX_SPEAKER_CHARS:
            raise InvalidInput.at("speaker", f"must have 1 to {MAX_SPEAKER_CHARS} characters")
        if not text.strip():
            raise InvalidInput.at("text", "must not be empty")
        limit = self._services.config.episode_max_chars
        if len(text) > limit:
            raise TooLarge(
                f"an episode has at most {limit} characters, this one has {len(text)}",
                {"limit": "EPISODE_MAX_CHARS", "value": limit},
            )
        for name, value in (("speaker", speaker), ("text", text)):
            if problem := text_problem(value):
                raise InvalidInput.at(name, problem)
        if session is not None:
            check_name("session", session)
        if id is None:
            id = episode_id(speaker, text, at, session, labels=self.labels)
        else:
            check_name("id", id)
        return NewEpisode(id, speaker, text, at, session)

    def _with_evidence(
        self,
        facts: Sequence[Fact],
        episodes: Sequence[NewEpisode] = (),
        yield_now: YieldNow = go_on,
    ) -> Sequence[Fact]:
        """Return facts whose evidence is complete: with both offsets, or none for a whole episode.

        `episodes` are stored together with the facts. `yield_now` is called about once a
        millisecond. A fact that has all the evidence that a fact may have gets no more from them.
        Raises InvalidInput that names the span if an episode is unknown or too short, or if a fact
        would have too much evidence from others.
        """
        parts = in_parts(facts, yield_now, STEPS_PER_YIELD)
        if not any(True for part in parts for fact in part if fact.evidence):
            return facts
        tenant = self._read_tenant()
        lengths = {episode.id: len(episode.text) for episode in paced(episodes, yield_now)}
        checked = []
        with tenant.lock.read():
            for index, fact in enumerate(paced(facts, yield_now, FACTS_PER_YIELD)):
                if not fact.evidence:
                    checked.append(fact)
                    continue
                where = "evidence" if len(facts) == 1 else f"facts[{index}].evidence"
                is_recorded = all(span.episode in lengths for span in fact.evidence)
                if len(fact.evidence) > MAX_EVIDENCE and not is_recorded:
                    raise _too_many(where)
                spans = tuple(
                    _span(tenant, lengths, each, f"{where}[{number}]")
                    for number, each in enumerate(fact.evidence[:MAX_EVIDENCE])
                )
                excess = len(spans) + _evidence_count(tenant, fact) - MAX_EVIDENCE
                if excess > 0:
                    if not is_recorded:
                        raise _too_many(where)
                    spans = spans[: max(len(spans) - excess, 0)]
                checked.append(fact if spans == fact.evidence else replace(fact, evidence=spans))
        return checked


def refuse_other_content(new: NewEpisode, known: Episode | None) -> None:
    """Raise AlreadyExists if the stored episode of the id of a new one has another content."""
    if known is not None and not new.is_same(known):
        raise AlreadyExists(f"the episode '{new.id}' has another content", {"episode": new.id})


_DEPENDS = Depends(frozenset((EPISODES,)), frozenset(), False)


def _too_many(where: str) -> InvalidInput:
    return InvalidInput.at(where, f"a fact has at most {MAX_EVIDENCE} spans")


def _unknown(id: str) -> NotFound:
    return NotFound(f"no episode '{id}'", {"episode": id})


def _span(tenant: Tenant, lengths: dict[str, int], span: Evidence, where: str) -> Evidence:
    known = tenant.episodes.get(span.episode)
    length = lengths.get(span.episode) if known is None else known.length
    if length is None:
        raise InvalidInput.at(f"{where}.episode", f"no episode '{span.episode}'")
    if span.start is None and span.end is None:
        return span
    start, end = span.start or 0, length if span.end is None else span.end
    if end > length:
        raise InvalidInput.at(
            f"{where}.end", f"must be at most {length}, the length of the episode"
        )
    if start >= end:
        raise InvalidInput.at(f"{where}.start", f"must be less than the end, {end}")
    return Evidence(span.episode, start, end)


def _evidence_count(tenant: Tenant, fact: Fact) -> int:
    """Count the spans that a stored fact has already."""
    partition = tenant.partition(fact.scope)
    stored = None if partition is None else partition.get(fact.schema)
    if stored is None or not stored.metadata:
        return 0
    row = tuple(tenant.engine.find(arg) for arg in fact.args)
    known = {
        (span["episode"], span.get("start"), span.get("end"))
        for span in evidence_of(stored.metadata.get(row, {}))
    }
    return len(known - {(each.episode, each.start, each.end) for each in fact.evidence})
