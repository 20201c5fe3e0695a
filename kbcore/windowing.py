"""Context windows: the facts for a prompt, within a budget, and what has changed since the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from kbcore.context.diff import UNKNOWN, WindowDiff, diff
from kbcore.context.lexical import LexicalIndex
from kbcore.context.optimize import Made, make_window
from kbcore.context.recent import Recent
from kbcore.context.request import FORMATS, WindowRequest
from kbcore.context.salience import Ranked, Scores
from kbcore.context.sessions import Sessions
from kbcore.context.summary import TOP_FACTS, Summary, summarize
from kbcore.context.supply import Lexical, Supply
from kbcore.context.vectors import Near, Vectors, blended, pool, text_of
from kbcore.context.window import Window
from kbcore.errors import InvalidInput
from kbcore.reading import Reading
from kbcore.reason.budget import Budget, BudgetWanted
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant

LOOKED_AT = 4
"""Matches of a query that are looked at for each fact a window holds."""


class Windowing(Reading):
    """The part of a knowledge base that chooses what an agent reads."""

    def context(self, request: WindowRequest, *, wanted: BudgetWanted | None = None) -> Window:
        """The window for a request, kept where it names a session; the stored facts in it have been accessed then.

        Raises InvalidInput and BudgetExceeded.
        """
        check_request(request)
        near = self._near(request, wanted)
        with self._reads(wanted, kind="window") as (tenant, budget):
            return self._window(tenant, request, budget, near)

    def context_diff(self, session: str, changes: dict[str, Any], *, wanted: BudgetWanted | None = None) -> WindowDiff:
        """What has changed since the last window of a session, of which a new one is made and kept.

        What is asked is as for the last one but for `changes`, fields of WindowRequest. Of an unknown session there is
        nothing to say but that. Raises InvalidInput and BudgetExceeded.
        """
        near = self._near_again(session, changes, wanted)
        with self._reads(wanted, kind="window") as (tenant, budget):
            known = self._sessions(tenant).get(session)
            if known is None:
                return UNKNOWN
            request = replace(known.request, **changes)
            check_request(request)
            window = self._window(tenant, request, budget, near)
        return diff(known.window, window)

    def last_window(self, session: str) -> Window | None:
        """The last window of a session, None where nothing is known of it."""
        with self._reads(None) as (tenant, _):
            known = self._sessions(tenant).get(session)
        return None if known is None else known.window

    def clear_session(self, session: str) -> None:
        """Forget a session, if there is one of this name."""
        with self._reads(None) as (tenant, _):
            self._sessions(tenant).clear(session)

    def context_summary(self, scope: str | None = None, *, wanted: BudgetWanted | None = None) -> Summary:
        """A partition, or with "*" all of them, at a glance; looking is no access. Raises BudgetExceeded."""
        request = WindowRequest(TOP_FACTS, scope=scope, auto_resolve=False)
        with self._reads(wanted, kind="window") as (tenant, budget):
            scores = Scores(tenant, self._runtime.scorer, self._runtime.clock.now_ms(), budget)
            partitions = self._partitions(tenant, scope)
            made = make_window(self._runtime.reasoner(tenant), scores, partitions, request, budget)
            return summarize(tenant, partitions, made.window.entries, scores.now, budget)

    def _near(self, request: WindowRequest, wanted: BudgetWanted | None) -> Near | None:
        """How near facts are to the query in meaning, where there is an embedder: it works when no lock is held."""
        embedding = self._runtime.embedding
        if embedding is None or request.query is None:
            return None
        with self._reads(wanted) as (tenant, budget):
            supply = self._supply(tenant, request, budget)
            texts = [text_of(fact.row) for fact in pool(supply, request.predicates)]
            vectors = Vectors.of(tenant, embedding.dimension)
        return vectors.near(embedding, request.query, texts)

    def _near_again(self, session: str, changes: dict[str, Any], wanted: BudgetWanted | None) -> Near | None:
        """As `_near`, for what is asked of a session once more."""
        if self._runtime.embedding is None:
            return None
        with self._reads(None) as (tenant, _):
            known = self._sessions(tenant).get(session)
        if known is None:
            return None
        request = replace(known.request, **changes)
        check_request(request)
        return self._near(request, wanted)

    def _supply(self, tenant: Tenant, request: WindowRequest, budget: Budget) -> Supply:
        scores = Scores(tenant, self._runtime.scorer, self._runtime.clock.now_ms(), budget)
        partitions = self._partitions(tenant, request.scope)
        return Supply(scores, partitions, request.min_salience, _matches(tenant, partitions, request, budget))

    def _window(self, tenant: Tenant, request: WindowRequest, budget: Budget, near: Near | None = None) -> Window:
        recent = self._recent(tenant)
        scores = Scores(tenant, self._runtime.scorer, self._runtime.clock.now_ms(), budget)
        staged = isinstance(tenant, Overlay)  # a transaction's writes do not show in generations
        made = None if staged else recent.get(tenant, request)
        if made is None:
            partitions = self._partitions(tenant, request.scope)
            lexical = _matches(tenant, partitions, request, budget)
            if near is not None:
                supply = Supply(scores, partitions, request.min_salience, lexical)
                lexical = blended(lexical, pool(supply, request.predicates), near)
            reasoner, counter = self._runtime.reasoner(tenant), self._runtime.token_counter
            made = make_window(reasoner, scores, partitions, request, budget, lexical, counter)
            if not staged:
                recent.keep(tenant, request, made)
        scores.touch(self._accessed(tenant, request, made))
        self._runtime.meters.window_facts(len(made.window.entries))
        return made.window

    def _accessed(self, tenant: Tenant, request: WindowRequest, made: Made) -> list[Ranked]:
        """Keep the window of a session, and say which facts are accessed by it: none twice in a generation."""
        if request.session is None:
            return made.touched
        sessions = self._sessions(tenant)
        last = sessions.get(request.session)
        same = last is not None and last.window.generation == made.window.generation
        before = last.accessed if last is not None and same else frozenset()
        found = {(id(fact.stored), fact.place): fact for fact in made.touched}
        sessions.keep(request.session, made.window, request, before | found.keys())
        return [fact for where, fact in found.items() if where not in before]

    def _sessions(self, tenant: Tenant) -> Sessions:
        found = tenant.attached.get("sessions")
        if found is None:
            made = Sessions(self._runtime.clock, self._runtime.config.tenant_max_sessions)
            found = tenant.attached.setdefault("sessions", made)
        return cast(Sessions, found)

    def _recent(self, tenant: Tenant) -> Recent:
        found = tenant.attached.get("windows")
        if found is None:
            found = tenant.attached.setdefault("windows", Recent(self._runtime.clock))
        return cast(Recent, found)


def _matches(tenant: Tenant, partitions: Sequence[Partition], request: WindowRequest, budget: Budget) -> Lexical:
    """The facts that match the query best: more than the window holds, since some may not be wanted."""
    if request.query is None:
        return {}
    index, most = LexicalIndex.of(tenant), LOOKED_AT * request.max_facts
    return {
        (stored, place): score
        for partition in partitions
        for stored, place, score in index.search(partition, request.query, most, budget)
    }


def check_request(request: WindowRequest) -> None:
    """Refuse what no window can be made of; raises InvalidInput."""
    for name, value, least in (
        ("maxFacts", request.max_facts, 1),
        ("maxTokens", request.max_tokens, 1),
        ("maxFactsPerPredicate", request.max_per_predicate, 1),
    ):
        if value is not None and value < least:
            raise InvalidInput.at(name, f"must be at least {least}")
    if request.format not in FORMATS:
        raise InvalidInput.at("format", f"must be one of {', '.join(FORMATS)}")
    if not 0 <= request.min_salience <= 1:
        raise InvalidInput.at("minSalience", "must be a number from 0 to 1")
