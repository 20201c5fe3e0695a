"""Context windows: facts for a prompt within a budget, and changes since the last window."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from kbcore.context.cache import Recent
from kbcore.context.diff import UNKNOWN, WindowDiff, diff
from kbcore.context.optimize import make_window
from kbcore.context.proofs.violations import violations
from kbcore.context.ranking import Supply
from kbcore.context.relevance.matches import (
    Allowed,
    among,
    at_least,
    facts_said_in,
    matching_facts,
)
from kbcore.context.relevance.vectors import NEAR, blended, pause_of
from kbcore.context.removed import Reasons
from kbcore.context.request import (
    CITATIONS_TEXT,
    FILLS,
    FORMATS,
    MAX_BUCKETS,
    MAX_GOALS,
    MAX_QUERY_BYTES,
    TIMES,
    Goal,
    WindowRequest,
)
from kbcore.context.salience import Scores
from kbcore.context.sessions import SessionKey, Sessions
from kbcore.context.summary import TOP_FACTS, ScopeSummary, summarize
from kbcore.context.window_span import describe_window
from kbcore.errors import InvalidInput, PredicateFailed
from kbcore.operations.base import TenantHandle
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.embedder import BATCH_SIZE
from kbcore.search.vectors.index import VectorIndex
from kbcore.search.vectors.store import entry_of, query_of
from kbcore.state.labels import Labels
from kbcore.state.overlay import Overlay
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.vectors import Quantized
from kbplanner.ir.terms import Literal
from kbtypes.windows import Window, fact_key

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_MATCHES = 100
"""Facts that a search of a rule returns for a text."""

NEWEST_EMBEDDED = 8
"""Facts that get their vectors with a query while many others wait for theirs."""


class ContextWindows(TenantHandle):
    """Context windows of a knowledge base: the facts that an agent reads.

    `session_view` is the view that sessions belong to where it is not that of this handle.
    """

    session_view: Labels | None = None

    def context(
        self, request: WindowRequest, *, request_limits: RequestLimits | None = None
    ) -> Window:
        """Return the context window for a request, and store it if the request names a session.

        Reading a window does not make facts more recent. It raises their access count, which
        affects salience after the next change of the knowledge base. The same request on the same
        state gives the same entries in the same order.

        Raises InvalidInput and BudgetExceeded.
        """
        check_request(request)
        handle = self._at_levels_of(request.goals)
        if handle is not self:
            return handle.context(request, request_limits=request_limits)
        near = self._similarity(request, request_limits)

        def evaluate(tenant: Tenant, budget: Budget) -> Window:
            return self._window(tenant, request, budget, near)[0]

        return self._evaluated(evaluate, request_limits, kind="window")

    def context_with_changes(
        self, request: WindowRequest, *, request_limits: RequestLimits | None = None
    ) -> tuple[Window, WindowDiff | None]:
        """Return the window for a request, and its changes since the session's last window.

        The changes are None if the session has no earlier window. Raises InvalidInput and
        BudgetExceeded.
        """
        check_request(request)
        handle = self._at_levels_of(request.goals)
        if handle is not self:
            return handle.context_with_changes(request, request_limits=request_limits)
        near = self._similarity(request, request_limits)

        def evaluate(tenant: Tenant, budget: Budget) -> tuple[Window, WindowDiff | None]:
            return self._window(tenant, request, budget, near, compare=True)

        return self._evaluated(evaluate, request_limits, kind="window")

    def context_diff(
        self, session: str, changes: dict[str, Any], *, request_limits: RequestLimits | None = None
    ) -> WindowDiff:
        """Make and store a new window of a session, and return the changes since its last window.

        The request is the session's last one with `changes`, which are fields of WindowRequest.
        Each removed entry carries the reason for its removal, judged by the current state. An
        unknown session gives UNKNOWN.

        Raises InvalidInput and BudgetExceeded.
        """
        if (known := self._last_request(session)) is not None:
            handle = self._at_levels_of(replace(known, **changes).goals)
            if handle is not self:
                return handle.context_diff(session, changes, request_limits=request_limits)
        near = self._similarity_again(session, changes, request_limits)

        def evaluate(tenant: Tenant, budget: Budget) -> WindowDiff | None:
            last = self._sessions(tenant).get(self._session(session))
            if last is None:
                return None
            request = replace(last.request, **changes)
            check_request(request)
            return self._window(tenant, request, budget, near, compare=True)[1]

        return self._evaluated(evaluate, request_limits, kind="window") or UNKNOWN

    def last_window(self, session: str) -> Window | None:
        """Return the last window of a session, or None if the session is unknown."""
        with self._reads(None) as (tenant, _):
            last = self._sessions(tenant).get(self._session(session))
        return None if last is None else last.window

    def clear_session(self, session: str) -> None:
        """Delete a session if it exists."""
        with self._reads(None) as (tenant, _):
            self._sessions(tenant).clear(self._session(session))

    def context_summary(
        self, scope: str | None = None, *, request_limits: RequestLimits | None = None
    ) -> ScopeSummary:
        """Return a summary of a partition, or of all partitions if `scope` is "*".

        The summary does not count as an access. Raises BudgetExceeded.
        """
        request = WindowRequest(TOP_FACTS, scope=scope, auto_resolve=False)

        def evaluate(tenant: Tenant, budget: Budget) -> ScopeSummary:
            scores = Scores(tenant, self._services.scorer, self._services.clock.now_ms(), budget)
            partitions = self._partitions(tenant, scope)
            reasoner = self._services.reasoner(tenant)
            supply = Supply(scores, partitions, 0.0)
            selected = make_window(reasoner, supply, request, budget, shows_violations=False)
            violated = violations(reasoner, partitions, budget)
            entries = selected.window.entries
            return summarize(tenant, partitions, entries, violated, scores.now, budget)

        return self._evaluated(evaluate, request_limits, kind="window")

    def matching(self, text: str, scope: str | None, budget: Budget) -> list[tuple[str, float]]:
        """Return the keys of the facts of a scope that share words with a text, best first.

        With their scores, in (0, 1], at most MAX_MATCHES. Raises BudgetExceeded.
        """
        while True:
            tenant = self._read_tenant()
            with tenant.lock.read():
                (partition,) = self._partitions(tenant, scope)
                index = LexicalIndex.of(tenant)
                if index.fill([partition], budget) >= 1:
                    hits = index.search(partition, text, MAX_MATCHES, budget)
                    return [
                        (_key_of(tenant, stored, row, scope), score) for stored, row, score in hits
                    ]
            budget.check_time()  # without the lock, so that a write goes first

    def nearest(self, text: str, scope: str | None, budget: Budget) -> list[tuple[str, float]]:
        """Return the keys of the facts of a scope whose vectors are near that of a text, best
        first.

        With their cosines, at most MAX_MATCHES. Raises BudgetExceeded, and PredicateFailed if the
        embedder gives no vector.
        """
        query = self._query_vector(text, scope, None, None)
        if query is None:
            raise PredicateFailed("near/3", "the embedder gave no vector")
        tenant = self._read_tenant()
        with tenant.lock.read():
            (partition,) = self._partitions(tenant, scope)
            index = VectorIndex.of(tenant)
            facts = (
                []
                if index is None
                else index.search(
                    tenant, partition, query, MAX_MATCHES, lambda: pause_of(budget), least=NEAR
                )
            )
            return [(_key_of(tenant, stored, row, scope), score) for stored, row, score in facts]

    def _similarity(
        self, request: WindowRequest, request_limits: RequestLimits | None
    ) -> Quantized | None:
        """Return the vector of the query, or None if there is no embedder or it fails."""
        if request.query is None:
            return None
        return self._query_vector(request.query, request.scope, request.predicates, request_limits)

    def _query_vector(
        self,
        text: str,
        scope: str | None,
        predicates: Sequence[str] | None,
        request_limits: RequestLimits | None,
    ) -> Quantized | None:
        """Return the vector of a query; a few new facts of a scope get their vectors with it.

        The embedder is called without holding a lock.
        """
        vectors = self._services.vectors
        if vectors is None:
            return None
        with self._reads(request_limits) as (tenant, budget):
            partitions = self._partitions(tenant, scope)
            index = vectors.index(tenant)
            index.update(tenant, partitions, lambda: pause_of(budget))
            few = index.backlog(partitions) < BATCH_SIZE
            limit = BATCH_SIZE - 1 if few else NEWEST_EMBEDDED
            facts = index.missing(tenant, partitions, limit, newest=not few)
            if index.store.full:
                facts = []
        query = index.query(text)
        texts = [fact.text for fact in facts]
        new_vectors = vectors.embedding.vectors([text, *texts] if query is None else texts)
        if query is None:
            if not new_vectors:
                return None
            query = query_of(new_vectors.pop(0))
            index.keep_query(text, query)
        if new_vectors:
            entries = [
                entry_of(fact.text, vector)
                for fact, vector in zip(facts, new_vectors, strict=False)
            ]
            with self._reads(request_limits) as (tenant, _):
                index.add(tenant, self._partitions(tenant, scope), facts, entries)
        return query

    def _last_request(self, session: str) -> WindowRequest | None:
        """Return the last request of a session, None if the session is unknown."""
        with self._reads(None) as (tenant, _):
            last = self._sessions(tenant).get(self._session(session))
        return None if last is None else last.request

    def _at_levels_of(self, goals: Sequence[Goal]) -> Self:
        """Return the handle whose window has these goals: this one, or a view of the levels that
        their predicates require, with the sessions of this one.
        """
        if not goals or self._requires_nothing():
            return self
        bodies = ((goal,) if isinstance(goal, Literal) else goal.body for goal in goals)
        handle = self._answering(list(chain.from_iterable(bodies)))
        if handle is not self:
            handle.session_view = self.view
        return handle

    def _similarity_again(
        self, session: str, changes: dict[str, Any], request_limits: RequestLimits | None
    ) -> Quantized | None:
        """Return the vector of the query for a session's last request with `changes`."""
        if self._services.vectors is None:
            return None
        known = self._last_request(session)
        if known is None:
            return None
        request = replace(known, **changes)
        check_request(request)
        return self._similarity(request, request_limits)

    def _supply(
        self, tenant: Tenant, request: WindowRequest, budget: Budget, allowed: Allowed | None
    ) -> Supply:
        """Return candidate facts, ranked as of the first window on the current state."""
        ranked = self._ranking(tenant, budget)
        present = Scores(tenant, self._services.scorer, self._services.clock.now_ms(), budget)
        partitions = self._partitions(tenant, request.scope)
        weight = self._services.config.query_salience_weight
        indexed = 1.0
        if request.query is not None:
            indexed = LexicalIndex.of(tenant).fill(partitions, budget)
            self._services.word_indexes.asked(is_behind=indexed < 1)
        matches = matching_facts(tenant, partitions, request, weight, budget, ranked, allowed)
        return Supply(ranked, partitions, request.min_salience, matches, weight, present, indexed)

    def _window(
        self,
        tenant: Tenant,
        request: WindowRequest,
        budget: Budget,
        near: Quantized | None = None,
        *,
        compare: bool = False,
    ) -> tuple[Window, WindowDiff | None]:
        """Make a window and store it in its session.

        With `compare`, also return the changes since the session's last window, computed on the
        same state. If BudgetExceeded is raised, the session keeps its last window.
        """
        window = self._selected(tenant, request, budget, near)
        changes = None
        if request.session is not None:
            sessions = self._sessions(tenant)
            last = sessions.get(self._session(request.session)) if compare else None
            if last is not None:
                reasons = self._reasons(tenant, last.window, window, request, budget)
                changes = diff(last.window, window, reasons.of, request.format)
                named = {entry.scope for entry in (*last.window.entries, *window.entries)}
                # Read now: the changes are written as text after the lock is released.
                templates = {scope: tenant.rules.templates(scope) for scope in {None, *named}}
                changes = replace(changes, templates=templates.__getitem__, times=request.times)
            sessions.keep(self._session(request.session), window, request)
        self._services.meters.window_facts(len(window.entries))
        if budget.span is not None:
            describe_window(budget.span, request, window)
        return window, changes

    def _reasons(
        self, tenant: Tenant, before: Window, after: Window, request: WindowRequest, budget: Budget
    ) -> Reasons:
        scores = self._ranking(tenant, budget)
        now = self._services.clock.now_ms()
        return Reasons(self._services.reasoner(tenant), scores, before, after, request, now, budget)

    def _ranking(self, tenant: Tenant, budget: Budget) -> Scores:
        """Return the scores that rank facts, as of the first window on the current state."""
        now = self._services.clock.now_ms()
        at = now if isinstance(tenant, Overlay) else self._recent(tenant).ranking_time(tenant, now)
        return Scores(tenant, self._services.scorer, at, budget)

    def _selected(
        self, tenant: Tenant, request: WindowRequest, budget: Budget, near: Quantized | None
    ) -> Window:
        recent = self._recent(tenant)
        staged = isinstance(tenant, Overlay)  # staged writes do not change generations
        index = None if near is None else VectorIndex.of(tenant)
        key = recent.key(tenant, request, 0 if index is None else 1 + index.revision)
        selected = None if staged else recent.get(key)
        if selected is None:
            allowed = None
            for goal in request.goals:
                body = (goal,) if isinstance(goal, Literal) else goal.body
                self._refuse_required(body, tenant, "goals")
            if request.said_in is not None:
                partitions = self._partitions(tenant, request.scope)
                allowed = facts_said_in(tenant, partitions, request.said_in, budget)
            supply = self._supply(tenant, request, budget, allowed)
            lexical = supply.lexical
            if near is not None:
                partitions = self._partitions(tenant, request.scope)
                lexical = blended(lexical, tenant, partitions, request, near, budget)
            lexical = among(lexical, allowed, budget)
            lexical = at_least(lexical, request.min_relevance, budget)
            supply = replace(supply, lexical=lexical)
            reasoner, counter = self._services.reasoner(tenant), self._services.token_counter
            selected = make_window(reasoner, supply, request, budget, counter)
            if index is not None and (missing := index.backlog(supply.partitions)):
                window = replace(selected.window, vectors_missing=missing)
                selected = replace(selected, window=window)
            # Rows of plugins are those of one request, and so are the limits that leave premises
            # out. The index may have more facts for the next request.
            is_whole = supply.indexed >= 1 and not any(
                note.unproved for note in selected.window.notes
            )
            if not staged and is_whole and budget.external is None:
                recent.keep(key, selected)
            supply.scores.show(selected.facts)
        return selected.window

    def _sessions(self, tenant: Tenant) -> Sessions:
        """Return the sessions of what is read; those of views outlive the states of the views."""
        services = self._services
        home = self._stored_tenant() if self.view else tenant
        return home.attached.need(
            Sessions, lambda: Sessions(services.clock, services.config.tenant_max_sessions)
        )

    def _session(self, name: str) -> SessionKey:
        """Return the key of a session, which belongs to the view it was made with."""
        return self.view if self.session_view is None else self.session_view, name

    def _recent(self, tenant: Tenant) -> Recent:
        return tenant.attached.need(Recent, lambda: Recent(self._services.clock))


def _key_of(tenant: Tenant, stored: StoredRelation, row: int, scope: str | None) -> str:
    """Return the key of a stored fact, given by its row id."""
    args = tenant.engine.texts(stored.relation.rows(array("I", [row])))
    schema = stored.schema
    return fact_key(schema.predicate, args, negated=not schema.positive, scope=scope)


def check_request(request: WindowRequest) -> None:
    """Raise InvalidInput if no window can be made for a request."""
    for name, value, minimum in (
        ("maxFacts", request.max_facts, 1),
        ("maxTokens", request.max_tokens, 1),
        ("maxFactsPerPredicate", request.max_per_predicate, 1),
    ):
        if value is not None and value < minimum:
            raise InvalidInput.at(name, f"must be at least {minimum}")
    for name, count, most in (
        ("goals", len(request.goals), MAX_GOALS),
        ("relevanceBuckets", len(request.buckets), MAX_BUCKETS),
    ):
        if count > most:
            raise InvalidInput.at(name, f"has {count} elements; a window has at most {most}")
    for name, text in (("query", request.query), ("asker", request.asker)):
        if text is not None and len(text.encode("utf-8", "replace")) > MAX_QUERY_BYTES:
            raise InvalidInput.at(name, f"has at most {MAX_QUERY_BYTES} bytes")
    for name, share in (
        ("minSalience", request.min_salience),
        ("minRelevance", request.min_relevance),
        ("minCoverage", request.min_coverage),
    ):
        if not 0 <= share <= 1:
            raise InvalidInput.at(name, "must be a number from 0 to 1")
    if type(request.citations) is not bool and request.citations != CITATIONS_TEXT:
        raise InvalidInput.at("citations", f'must be true, false or "{CITATIONS_TEXT}"')
    for name, chosen, choices in (
        ("format", request.format, FORMATS),
        ("fill", request.fill, FILLS),
        ("times", request.times, TIMES),
    ):
        if chosen is not None and chosen not in choices:
            raise InvalidInput.at(name, f"must be one of {', '.join(choices)}")
