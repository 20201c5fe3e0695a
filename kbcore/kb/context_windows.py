"""Context windows: the facts for a prompt, within a budget, and what has changed since the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from kbcore.context.cache import Recent
from kbcore.context.diff import UNKNOWN, WindowDiff, diff
from kbcore.context.optimize import make_window
from kbcore.context.ranking import Supply
from kbcore.context.relevance.matches import at_least, matching_facts
from kbcore.context.relevance.vectors import Near, Vectors, blended, pool, text_of
from kbcore.context.removed import Reasons
from kbcore.context.request import FILLS, FORMATS, WindowRequest
from kbcore.context.salience import Scores
from kbcore.context.sessions import Sessions
from kbcore.context.summary import TOP_FACTS, Summary, summarize
from kbcore.context.window import Window
from kbcore.errors import InvalidInput
from kbcore.kb.base import TenantHandle
from kbcore.reason.budget import Budget, BudgetWanted
from kbcore.state.overlay import Overlay
from kbcore.state.tenant import Tenant


class Windowing(TenantHandle):
    """The part of a knowledge base that chooses what an agent reads."""

    def context(self, request: WindowRequest, *, wanted: BudgetWanted | None = None) -> Window:
        """Make the window for a request, kept where it names a session.

        Reading a window does not make facts more recent; it raises their access count once the knowledge has changed. The
        same request on the same state of the knowledge gives the same entries in the same order.

        Raises InvalidInput and BudgetExceeded.
        """
        check_request(request)
        near = self._near(request, wanted)
        with self._reads(wanted, kind="window") as (tenant, budget):
            return self._window(tenant, request, budget, near)[0]

    def context_with_changes(
        self, request: WindowRequest, *, wanted: BudgetWanted | None = None
    ) -> tuple[Window, WindowDiff | None]:
        """Make the window for a request, and say what has changed since the last one of its session, if there is one.

        Raises InvalidInput and BudgetExceeded.
        """
        check_request(request)
        near = self._near(request, wanted)
        with self._reads(wanted, kind="window") as (tenant, budget):
            return self._window(tenant, request, budget, near, compare=True)

    def context_diff(
        self, session: str, changes: dict[str, Any], *, wanted: BudgetWanted | None = None
    ) -> WindowDiff:
        """What has changed since the last window of a session, of which a new one is made and kept.

        What is asked is as for the last one but for `changes`, fields of WindowRequest. Each removed entry has the reason
        why it was removed, from what is known now. Of an unknown session there is nothing to say but that.

        Raises InvalidInput and BudgetExceeded.
        """
        near = self._near_again(session, changes, wanted)
        with self._reads(wanted, kind="window") as (tenant, budget):
            known = self._sessions(tenant).get(session)
            if known is None:
                return UNKNOWN
            request = replace(known.request, **changes)
            check_request(request)
            _, found = self._window(tenant, request, budget, near, compare=True)
        return found or UNKNOWN

    def last_window(self, session: str) -> Window | None:
        """The last window of a session, None where nothing is known of it."""
        with self._reads(None) as (tenant, _):
            known = self._sessions(tenant).get(session)
        return None if known is None else known.window

    def clear_session(self, session: str) -> None:
        """Forget a session, if there is one of this name."""
        with self._reads(None) as (tenant, _):
            self._sessions(tenant).clear(session)

    def context_summary(
        self, scope: str | None = None, *, wanted: BudgetWanted | None = None
    ) -> Summary:
        """A partition, or with "*" all of them, at a glance; looking is no access. Raises BudgetExceeded."""
        request = WindowRequest(TOP_FACTS, scope=scope, auto_resolve=False)
        with self._reads(wanted, kind="window") as (tenant, budget):
            scores = Scores(tenant, self._services.scorer, self._services.clock.now_ms(), budget)
            partitions = self._partitions(tenant, scope)
            made = make_window(
                self._services.reasoner(tenant), Supply(scores, partitions, 0.0), request, budget
            )
            return summarize(tenant, partitions, made.window.entries, scores.now, budget)

    def _near(self, request: WindowRequest, wanted: BudgetWanted | None) -> Near | None:
        """How near facts are to the query in meaning, where there is an embedder: it works when no lock is held."""
        embedding = self._services.embedding
        if embedding is None or request.query is None:
            return None
        with self._reads(wanted) as (tenant, budget):
            supply = self._supply(tenant, request, budget)
            texts = [text_of(fact.row) for fact in pool(supply, request.predicates)]
            vectors = Vectors.of(tenant, embedding.dimension)
        return vectors.near(embedding, request.query, texts)

    def _near_again(
        self, session: str, changes: dict[str, Any], wanted: BudgetWanted | None
    ) -> Near | None:
        """As `_near`, for what is asked of a session once more."""
        if self._services.embedding is None:
            return None
        with self._reads(None) as (tenant, _):
            known = self._sessions(tenant).get(session)
        if known is None:
            return None
        request = replace(known.request, **changes)
        check_request(request)
        return self._near(request, wanted)

    def _supply(self, tenant: Tenant, request: WindowRequest, budget: Budget) -> Supply:
        """The facts for a window, ranked as of the first window on the present state."""
        ranked = self._ranking(tenant, budget)
        present = Scores(tenant, self._services.scorer, self._services.clock.now_ms(), budget)
        partitions = self._partitions(tenant, request.scope)
        weight = self._services.config.query_salience_weight
        matches = matching_facts(tenant, partitions, request, weight, budget)
        return Supply(ranked, partitions, request.min_salience, matches, weight, present)

    def _window(
        self,
        tenant: Tenant,
        request: WindowRequest,
        budget: Budget,
        near: Near | None = None,
        *,
        compare: bool = False,
    ) -> tuple[Window, WindowDiff | None]:
        """Make a window and keep it in its session; with `compare`, say what has changed since the session's last one.

        Both are of the same state, and where BudgetExceeded is raised the session keeps its last window.
        """
        window = self._made(tenant, request, budget, near)
        changes = None
        if request.session is not None:
            sessions = self._sessions(tenant)
            known = sessions.get(request.session) if compare else None
            if known is not None:
                reasons = self._reasons(tenant, known.window, window, request, budget)
                changes = diff(known.window, window, reasons.of, request.format)
            sessions.keep(request.session, window, request)
        self._services.meters.window_facts(len(window.entries))
        return window, changes

    def _reasons(
        self, tenant: Tenant, before: Window, after: Window, request: WindowRequest, budget: Budget
    ) -> Reasons:
        scores = self._ranking(tenant, budget)
        now = self._services.clock.now_ms()
        return Reasons(self._services.reasoner(tenant), scores, before, after, request, now, budget)

    def _ranking(self, tenant: Tenant, budget: Budget) -> Scores:
        """The scores that facts are ranked by: as of the first window on the present state."""
        now = self._services.clock.now_ms()
        at = now if isinstance(tenant, Overlay) else self._recent(tenant).ranking_time(tenant, now)
        return Scores(tenant, self._services.scorer, at, budget)

    def _made(
        self, tenant: Tenant, request: WindowRequest, budget: Budget, near: Near | None
    ) -> Window:
        recent = self._recent(tenant)
        staged = isinstance(tenant, Overlay)  # a transaction's writes do not show in generations
        key = recent.key(tenant, request)
        made = None if staged else recent.get(key)
        if made is None:
            supply = self._supply(tenant, request, budget)
            lexical = supply.lexical
            if near is not None:
                lexical = blended(lexical, pool(supply, request.predicates), near)
            supply = replace(supply, lexical=at_least(lexical, request.min_relevance))
            reasoner, counter = self._services.reasoner(tenant), self._services.token_counter
            made = make_window(reasoner, supply, request, budget, counter)
            if not staged:
                recent.keep(key, made)
            supply.scores.show(made.shown)
        return made.window

    def _sessions(self, tenant: Tenant) -> Sessions:
        found = tenant.attached.get("sessions")
        if found is None:
            made = Sessions(self._services.clock, self._services.config.tenant_max_sessions)
            found = tenant.attached.setdefault("sessions", made)
        return cast(Sessions, found)

    def _recent(self, tenant: Tenant) -> Recent:
        found = tenant.attached.get("windows")
        if found is None:
            found = tenant.attached.setdefault("windows", Recent(self._services.clock))
        return cast(Recent, found)


def check_request(request: WindowRequest) -> None:
    """Refuse what no window can be made of; raises InvalidInput."""
    for name, value, least in (
        ("maxFacts", request.max_facts, 1),
        ("maxTokens", request.max_tokens, 1),
        ("maxFactsPerPredicate", request.max_per_predicate, 1),
    ):
        if value is not None and value < least:
            raise InvalidInput.at(name, f"must be at least {least}")
    for name, share in (
        ("minSalience", request.min_salience),
        ("minRelevance", request.min_relevance),
    ):
        if not 0 <= share <= 1:
            raise InvalidInput.at(name, "must be a number from 0 to 1")
    for name, chosen, choices in (
        ("format", request.format, FORMATS),
        ("fill", request.fill, FILLS),
    ):
        if chosen is not None and chosen not in choices:
            raise InvalidInput.at(name, f"must be one of {', '.join(choices)}")
