"""Standing goals of a knowledge base: subscriptions to the answers of a goal."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbcore.clock import Clock
from kbcore.durable.earlier_states import EarlierStates
from kbcore.durable.records import read_body
from kbcore.errors import Forbidden, InvalidInput, KBError, LogTruncated, NotFound, RateLimited
from kbcore.events.events import mark_of
from kbcore.operations.base import TenantHandle
from kbcore.operations.subscriptions.replaying import (
    GoalChange,
    GoalReplay,
    Replayed,
    ReplayedChanges,
)
from kbcore.reason.admission import Admission, Slots
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import RowSet
from kbcore.state.changes import EndSubscriptions, NoteDelivery, Outdated, PutSubscription
from kbcore.state.facts import Row
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.subscriptions import StatePosition, StoredSubscription, Webhook
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbcore.state.views import MAX_OBSERVED, ViewStates
from kbcore.subscriptions.goal import Evaluator, StandingGoal
from kbcore.subscriptions.history import AnswerChange
from kbcore.subscriptions.registry import (
    RegistryNode,
    StandingGoals,
    ViewGoals,
    id_in_use,
    registries,
)
from kbcore.upkeep.purge import PurgedGoal
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Variable
from kbplanner.syntax.parser import parse_body
from kbplanner.syntax.printer import print_item

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_TTL_MS = 3_600_000
MAX_TTL_MS = 7 * 24 * 3_600_000
"""Time after which a standing goal ends unless it is renewed, in milliseconds."""

MAX_CHANGES = 100
"""Default number of changes that are returned together."""

_EVENT_ID = re.compile(r"([0-9a-f]{8})\.([0-9]{1,18})\.([0-9]{1,18})")

_ID = re.compile(r"(?!slow$)[A-Za-z0-9._~-]{1,64}")


@dataclass(frozen=True, slots=True)
class GoalAnswers:
    """All answers of a standing goal in one state.

    `event_id` names the latest change of the goal, to read the next ones from.
    `seq` is the sequence number of the last commit, `at` the time of the state in epoch
    milliseconds. `webhook` is the address of the webhook as the caller may see it.
    """

    goal: StandingGoal
    webhook: str | None
    answers: list[Row]
    event_id: str
    seq: int
    at: int

    @property
    def moment(self) -> StatePosition:
        """The state that the answers belong to."""
        return StatePosition(self.seq, self.at)


@dataclass(frozen=True, slots=True)
class DurableSubscription:
    """Makes a subscription survive a restart; changes are sent to `webhook` if it is given."""

    webhook: Webhook | None = None


class StandingGoalMethods(TenantHandle):
    """Standing goals of a knowledge base: their answers are kept current, change by change.

    Subscriptions with `DurableSubscription` are part of the state of the tenant and survive a
    restart; others live in memory.
    """

    def subscribe_goal(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        keep: DurableSubscription | None = None,
        request_limits: RequestLimits | None = None,
    ) -> GoalAnswers:
        """Keep the answers of a goal current, and return them as they are now.

        The goal ends `ttl_ms` milliseconds after its last use unless it is renewed: by reading its
        changes, or by subscribing again with the same `id` and goal. Raises InvalidInput for a goal
        whose answers change without a commit, RateLimited beyond the number of goals per tenant,
        AlreadyExists if another goal has this id, Forbidden if it belongs to another key, and
        BudgetExceeded.
        """
        self.require_present()
        handle = self._answering(body)
        if handle is not self:
            return handle.subscribe_goal(
                body, scope=scope, ttl_ms=ttl_ms, id=id, keep=keep, request_limits=request_limits
            )
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "a standing goal needs one scope, not '*'")
        self._check_scope(scope)
        if ttl_ms is None:
            ttl_ms = DEFAULT_TTL_MS if keep is None or keep.webhook is None else MAX_TTL_MS
        if not 1000 <= ttl_ms <= MAX_TTL_MS:
            raise InvalidInput.at("ttl", f"must be between 1000 and {MAX_TTL_MS} milliseconds")
        if id is not None and not _ID.fullmatch(id):
            raise InvalidInput.at(
                "id",
                "must have 1 to 64 letters, digits and characters of '.', '_', '~', '-', and not be 'slow'",
            )
        if keep is not None:
            self._services.refuse_on_follower()
            self._check_webhook(keep.webhook)
        text = ", ".join(map(print_item, body))
        expires_at = self._services.clock.now_ms() + ttl_ms
        goal_id = id or f"goal-{secrets.token_hex(8)}"
        new = StandingGoal(goal_id, text, body, scope, ttl_ms, expires_at)
        new.owner = None if self.actor is None else self.actor.name
        self._services.need_tenant(self.database, self.tenant)
        with self._reads_goals(request_limits, body) as (goals, tenant, budget):
            self._refuse_required(body, tenant, "goal")
            goal = goals.add(new, budget, self._is_admin)
        try:
            if goal is new:
                self._check_observed()
            if keep is not None:
                self._keep(goal, keep)
        except KBError:
            if goal is new:
                goals.remove(goal.id)
            raise
        with self._reads_goals(request_limits) as (goals, tenant, budget):
            return self._goal_answers(tenant, goals, goal, budget)

    def _check_observed(self) -> None:
        """Raise RateLimited if the views with standing goals are too many, or take too much."""
        if not self.view:
            return
        tenant = self._stored_tenant()
        states = tenant.attached.get(ViewStates)
        views = {each.view for each in tenant.subscriptions if each.view}
        if (of_views := tenant.attached.get(ViewGoals)) is not None:
            of_views.forget_unused(views)
        observed = views if states is None else views | states.observed()
        if len(observed) > MAX_OBSERVED:
            limit = {"limit": "viewsWithGoals", "value": MAX_OBSERVED}
            message = f"a tenant has standing goals of at most {MAX_OBSERVED} different views"
            raise RateLimited(message, 1.0, limit)
        if states is not None and self.view not in views and states.is_full:
            megabytes = self._services.config.history_cache_mb
            limit = {"limit": "HISTORY_CACHE_MB", "value": megabytes}
            message = (
                f"the views with standing goals take more memory than HISTORY_CACHE_MB={megabytes}"
            )
            raise RateLimited(message, 1.0, limit)

    def _keep(self, goal: StandingGoal, keep: DurableSubscription) -> None:
        """Store the subscription of a goal, unless it is stored like this."""
        known = goal.subscription
        webhook = keep.webhook or (None if known is None else known.webhook)
        if known is not None and (known.ttl, known.webhook) == (goal.ttl_ms, webhook):
            return
        now = self._services.clock.now_ms()
        subscription = StoredSubscription(
            goal.id,
            goal.goal,
            goal.scope,
            goal.ttl_ms,
            now,
            goal.expires_at,
            goal.owner,
            webhook,
            view=self.view,
        )

        def check() -> None:
            other = self._stored_tenant().subscriptions.get(goal.id)
            if other is not None and other.view != self.view:
                raise id_in_use(goal.id)

        self._commit((PutSubscription(subscription),), check)
        if webhook is not None:
            self._services.wake_deliveries()

    def _check_webhook(self, webhook: Webhook | None) -> None:
        """Raise InvalidInput for a webhook that is not allowed."""
        if webhook is None:
            return
        if self._services.webhooks is None:
            raise InvalidInput.at("webhook", "webhooks are off: WEBHOOK_URLS allows no address")
        self._services.webhooks.check(webhook.url, webhook.secret)

    # -- deliveries --------------------------------------------------------------------------------

    def keeps_goals(self) -> bool:
        """Return False on a follower, whose leader does the upkeep of subscriptions."""
        return self._leads()

    def find_goal(self, id: str) -> StandingGoal | None:
        """Return a standing goal without renewing it, None if it does not exist."""
        goals = self._known_goals(self._read_tenant())
        return None if goals is None else goals.get(id)

    def changes_to_deliver(
        self, goal: StandingGoal, after: StatePosition, limit: int
    ) -> list[GoalChange] | None:
        """Do what `goal_changes` does, after a state, without renewing the goal."""
        return self._changes_after(goal, after, limit, None)

    def all_to_deliver(self, goal: StandingGoal) -> GoalAnswers:
        """Do what `goal_answers` does, without renewing the goal."""
        with self._reads_goals(None) as (goals, tenant, budget):
            return self._goal_answers(tenant, goals, goal, budget)

    def note_delivery(self, goal: StandingGoal, delivered: StatePosition) -> None:
        """Record up to which state the receiver of a goal's webhook has the changes; this renews
        the goal. One that has ended in the meantime stays as it is.
        """
        goal.expires_at = max(goal.expires_at, self._services.clock.now_ms() + goal.ttl_ms)
        if goal.subscription is not None:
            with suppress(Outdated):
                self._commit(
                    (NoteDelivery(goal.id, delivered),), self._still_subscribed([goal.subscription])
                )

    def end_goals_of(self, owner: str | None, webhook: Webhook) -> None:
        """End the standing goals of an owner that have a webhook: the same address and secret."""
        ids = tuple(
            each.id
            for each in self._stored_tenant().subscriptions
            if (each.owner, each.webhook, each.view) == (owner, webhook, self.view)
        )
        if ids:
            self._commit((EndSubscriptions(ids),))

    # -- readers -----------------------------------------------------------------------------------

    def standing_goals(self) -> list[StandingGoal]:
        """Return the standing goals of the tenant, in the order in which they were added; last
        those at a level that a predicate requires.
        """
        goals = self._known_goals(self._read_tenant())
        own = [] if goals is None else goals.all()
        for handle, ids in self._at_levels():
            own += (goal for goal in handle.standing_goals() if goal.id in ids)
        return own

    def standing_goal(self, id: str) -> StandingGoal:
        """Return a standing goal and renew it. Raises NotFound."""
        holder = self._holding(id)
        if holder is not self:
            return holder.standing_goal(id)
        goals = self._known_goals(self._read_tenant())
        goal = None if goals is None else goals.get(id)
        if goal is None:
            raise NotFound(f"standing goal {id} does not exist; subscribe again")
        goal.expires_at = max(goal.expires_at, self._services.clock.now_ms() + goal.ttl_ms)
        return goal

    def shown_webhook(self, goal: StandingGoal | StoredSubscription) -> str | None:
        """Return the address of the webhook of a goal as the caller may see it, None without one.

        Its owner and administrators see all of it. Others do not see the parts that may be secret.
        """
        if goal.webhook is None:
            return None
        return goal.webhook.url if self._owns(goal) else goal.webhook.public_url

    def goal_answers(self, id: str, *, request_limits: RequestLimits | None = None) -> GoalAnswers:
        """Return the current answers of a standing goal. Raises NotFound and BudgetExceeded."""
        holder = self._holding(id)
        if holder is not self:
            return holder.goal_answers(id, request_limits=request_limits)
        goal = self.standing_goal(id)
        with self._reads_goals(request_limits) as (goals, tenant, budget):
            return self._goal_answers(tenant, goals, goal, budget)

    def goal_changes(
        self,
        id: str,
        after: str,
        *,
        limit: int | None = MAX_CHANGES,
        request_limits: RequestLimits | None = None,
    ) -> list[GoalChange] | None:
        """Return the changes of a standing goal after an event, oldest first, at most `limit`.

        `after` is an event id of any goal of the tenant, or the number of a commit. Changes that
        are not in memory are computed from the log. None if the log does not go back so far: then
        `goal_answers` has the state to continue from. Raises NotFound and BudgetExceeded.
        """
        holder = self._holding(id)
        if holder is not self:
            return holder.goal_changes(id, after, limit=limit, request_limits=request_limits)
        goal = self.standing_goal(id)
        position = self._position(after)
        if position is None:
            return None
        return self._changes_after(goal, position, limit, request_limits)

    def _changes_after(
        self,
        goal: StandingGoal,
        position: StatePosition,
        limit: int | None,
        request_limits: RequestLimits | None,
    ) -> list[GoalChange] | None:
        earlier: list[GoalChange] = []
        while True:
            with self._reads_goals(request_limits) as (goals, tenant, budget):
                left = None if limit is None else limit - len(earlier)
                changes = goals.changes(goal, position, left, budget)
                if not isinstance(changes, StatePosition):
                    later = [self._shown_change(tenant, goal, change) for change in changes]
                    return earlier + later
            purged = self._stored_tenant().purges.last_seq()
            if position.seq < purged:  # the log may still have the purged text
                return earlier or None
            replayed = self._replayed(tenant, goal, position, changes)
            if replayed is None:
                return earlier or None
            earlier += replayed.after(position)
            if limit is not None and len(earlier) >= limit:
                return earlier[:limit]
            position = replayed.end

    def end_goal(self, id: str) -> bool:
        """End a standing goal; return False if it does not exist.

        Raises Forbidden for a goal of another key, unless an administrator ends it.
        """
        holder = self._holding(id)
        if holder is not self:
            return holder.end_goal(id)
        goals = self._known_goals(self._read_tenant())
        goal = None if goals is None else goals.get(id)
        if goals is None or goal is None:
            return False
        if not self._owns(goal):
            raise Forbidden(f"the standing goal {id} belongs to another key")
        if goal.subscription is None:
            return goals.remove(id)
        self._services.refuse_on_follower()
        was_there = goals.remove(id)
        self._commit((EndSubscriptions((id,)),))
        return was_there

    def _holding(self, id: str) -> Self:
        """Return the handle that has a standing goal: this one, or a view of the levels that the
        predicates of the goal require.
        """
        return next((handle for handle, ids in self._at_levels(id) if id in ids), self)

    def _at_levels(self, id: str | None = None) -> Iterator[tuple[Self, set[str]]]:
        """Yield handles on views that goals of this one require, each with the ids of such goals,
        only the one with `id` if that is given.
        """
        if self._requires_nothing():
            return
        tenant = self._stored_tenant()
        goals = [
            (each.view, each.id, parse_body(each.goal)) for each in self._subscribed(tenant, id)
        ]
        for known in registries(tenant):
            of_view = known.all() if id is None else filter(None, (known.get(id),))
            goals += [(known.view, goal.id, goal.body) for goal in of_view]
        views: dict[Labels, set[str]] = {}
        for view, own, body in goals:
            if view != self.view and self._required_view(body) == view:
                views.setdefault(view, set()).add(own)
        for view, ids in views.items():
            yield self._through_levels(view), ids

    @staticmethod
    def _subscribed(tenant: Tenant, id: str | None) -> list[StoredSubscription]:
        if id is None:
            return list(tenant.subscriptions)
        known = tenant.subscriptions.get(id)
        return [] if known is None else [known]

    def _required_view(self, goal: Sequence[BodyItem]) -> Labels:
        """Return the view of this handle, narrowed to the levels that a goal requires."""
        return self.view

    def _through_levels(self, view: Labels) -> Self:
        """Return a handle like this one on a view that is narrower by levels."""
        return self

    def _standing_bodies(self) -> list[tuple[Labels, Sequence[BodyItem]]]:
        tenant = self._stored_tenant()
        bodies: list[tuple[Labels, Sequence[BodyItem]]] = [
            (each.view, parse_body(each.goal)) for each in tenant.subscriptions
        ]
        for goals in registries(tenant):
            bodies += [(goals.view, goal.body) for goal in goals.all() if not goal.is_durable]
        return bodies

    def _goals_to_purge(self) -> list[PurgedGoal]:
        """Return the standing goals of the tenant and of all its views."""
        tenant = self._stored_tenant()
        in_memory = [each.all() for each in registries(tenant)]
        goals: list[StandingGoal | StoredSubscription] = [
            *tenant.subscriptions,
            *(goal for part in in_memory for goal in part if not goal.is_durable),
        ]
        return [
            PurgedGoal(
                goal.id,
                goal.goal,
                self.shown_webhook(goal),
                "" if goal.webhook is None else goal.webhook.url,
            )
            for goal in goals
        ]

    def _end_goals(self, ids: Iterable[str]) -> None:
        ended = set(ids)
        for goals in registries(self._stored_tenant()):
            for id in ended:
                goals.remove(id)

    def keep_goals(self) -> None:
        """Do the upkeep of subscriptions: evaluate goals after a start, so that later changes are
        in memory, and record which ended and which were used.
        """
        if not self._leads():
            return
        goals = self._known_goals(self._read_tenant())
        if goals is not None:
            self._keep_all(goals)

    def views_with_goals(self) -> list[Labels]:
        """Return the views that have standing goals, the tenant as a whole among them."""
        tenant = self._stored_tenant()
        views = {each.view for each in tenant.subscriptions}
        if StandingGoals.of(tenant) is not None:
            views.add(NO_LABELS)
        if (of_views := tenant.attached.get(ViewGoals)) is not None:
            of_views.forget_unused(views)
            views.update(view for view, _ in of_views.all())
        return sorted(views)

    def _keep_all(self, goals: StandingGoals) -> None:
        for goal in goals.all():
            if not goal.is_begun and not goal.was_tried:
                goal.was_tried = True
                with suppress(KBError), self._reads_goals(None) as (current, _, budget):
                    current.answers(goal, budget)
        if ended := goals.expired():
            with suppress(Outdated):
                self._commit((EndSubscriptions(ended),), self._still_expired(goals, ended))
        if used := goals.to_renew():
            with suppress(Outdated):
                self._commit(tuple(map(PutSubscription, used)), self._still_subscribed(used))

    @property
    def clock(self) -> Clock:
        """The clock of the node."""
        return self._services.clock

    def next_due_seconds(self) -> float | None:
        """Return the seconds until a fact of the tenant begins or ceases to be valid, None if no
        fact will.
        """
        due = self._read_tenant().next_due()
        if due is None:
            return None
        return max((due - self._services.clock.now_ms()) / 1000, 0.001)

    # -- inside ------------------------------------------------------------------------------------

    @staticmethod
    def _still_expired(goals: StandingGoals, ids: tuple[str, ...]) -> Callable[[], None]:
        def check() -> None:
            if not set(ids) <= set(goals.expired()):
                raise Outdated("a standing goal was subscribed again")

        return check

    def _still_subscribed(self, subscriptions: Iterable[StoredSubscription]) -> Callable[[], None]:
        """Return a check that raises Outdated if one of the subscriptions has ended or was changed
        by its owner. The tenant may be gone too, and the commit would create it again.
        """

        def check() -> None:
            stored = self._stored_tenant().subscriptions
            for each in subscriptions:
                known = stored.get(each.id)
                if known is None or not known.is_same(each):
                    raise Outdated("a standing goal was ended or changed")

        return check

    @property
    def _is_admin(self) -> bool:
        return self.actor is None or self.actor.is_admin

    def _owns(self, goal: StandingGoal | StoredSubscription) -> bool:
        return self.actor is None or self.actor.is_admin or goal.owner == self.actor.name

    def _known_goals(self, tenant: Tenant) -> StandingGoals | None:
        """Return the standing goals of a tenant, None if it has none."""
        home = self._stored_tenant() if self.view else tenant
        known = self._goals_at(home)
        if home.gone:
            return None
        if known is None and any(each.view == self.view for each in home.subscriptions):
            return self._standing_goals(tenant)
        return known

    def _goals_at(self, home: Tenant) -> StandingGoals | None:
        """Return the standing goals of the view of a tenant, None if it never had any."""
        if not self.view:
            return StandingGoals.of(home)
        of_views = home.attached.get(ViewGoals)
        return None if of_views is None else of_views.get(self.view)

    @contextmanager
    def _reads_goals(
        self, request_limits: RequestLimits | None, goal: Sequence[BodyItem] | None = None
    ) -> Iterator[tuple[StandingGoals, Tenant, Budget]]:
        """Do what `_reads` does, and yield the standing goals, which stay with its tenant."""
        while True:
            with self._reads(request_limits, kind="ask", goal=goal) as (tenant, budget):
                goals = self._standing_goals(tenant)
                if goals.tenant is tenant:  # else it was copied again
                    yield goals, tenant, budget
                    return

    def _standing_goals(self, tenant: Tenant) -> StandingGoals:
        home = self._stored_tenant() if self.view else tenant
        goals = self._goals_at(home)
        if goals is not None:
            return goals
        services = self._services
        node = RegistryNode(
            services.config.tenant_max_standing_goals,
            self._new_upkeep_budget,
            services.clock.now_ms,
            self._leads,
        )
        if not self.view:
            return tenant.attached.need(
                StandingGoals, lambda: StandingGoals(tenant, self._evaluator, node)
            )
        return home.attached.need(ViewGoals, ViewGoals).need(
            self.view,
            lambda: StandingGoals(tenant, self._evaluator, node, home, self.view),
        )

    def _leads(self) -> bool:
        try:
            self._services.refuse_on_follower()
        except KBError:
            return False
        return True

    def _evaluator(self, tenant: Tenant) -> Evaluator:
        services = self._services
        external: frozenset[RelationSchema] = (
            frozenset() if services.predicates is None else frozenset(services.predicates.modes)
        )
        return Evaluator(
            tenant,
            services.reasoner(tenant),
            Programs(tenant),
            external,
            services.config.engine_verify,
        )

    def _position(self, text: str) -> StatePosition | None:
        """Return the state that an event id or the number of a commit names, None for any other
        text.
        """
        log = self._whole_services().log(self.database, self.tenant)
        status = log.status()
        if re.fullmatch("[0-9]{1,18}", text):
            seq = int(text)
            if seq > status.head:
                return None
            try:
                record = next(iter(log.read(seq - 1)), None) if seq else None
            except LogTruncated:
                return None
            body = (
                {"at": 0}
                if record is None
                else read_body(record.type, record.version, record.payload)
            )
            return StatePosition(seq, body["at"])
        match = _EVENT_ID.fullmatch(text)
        if match is None or match[1] != mark_of(status.log_id):
            return None
        moment = StatePosition(int(match[2]), int(match[3]))
        now = self._read_tenant().at(self._services.clock.now_ms())
        return (
            None
            if moment.precedes(StatePosition(0, 0))
            or StatePosition(status.head, now).precedes(moment)
            else moment
        )

    def _event_id(self, moment: StatePosition) -> str:
        log_id = self._whole_services().log(self.database, self.tenant).status().log_id
        return f"{mark_of(log_id)}.{moment.seq}.{moment.at}"

    def _replayed(
        self, tenant: Tenant, goal: StandingGoal, since: StatePosition, until: StatePosition
    ) -> Replayed | None:
        """Return changes of a goal between two states, computed from the log; the caller holds no
        lock.
        """
        known = tenant.attached.need(ReplayedChanges, ReplayedChanges)
        services = self._whole_services()
        milliseconds = services.config.standing_goals_replay_ms
        with self._budget() as budget:
            budget.timeout_ms = milliseconds
            budget.deadline = services.clock.monotonic() + milliseconds / 1000
            with known.replaying:
                if (replayed := known.get(goal, since)) is not None:
                    return replayed
                owner = self.database, self.tenant
                states = EarlierStates(services.log(*owner), services.scratch(), owner, budget)
                replay = GoalReplay(
                    states, goal, self._evaluator, self._shown_change, budget, self._seen_in
                )
                replayed = replay.run(since, until)
                if replayed is not None:
                    known.put(goal, replayed)
                return replayed

    def _new_upkeep_budget(self) -> Budget:
        """Return the budget for the work after a change.

        The work belongs to no client, so none can cancel it, and it holds the write lock, so it
        must not wait for the slot of a goal that waits for this lock.
        """
        limits = RequestLimits(timeout_ms=self._services.config.standing_goals_ms)
        admission = Admission(Slots(1), (self.database, self.tenant))
        return replace(self._new_budget(limits), admission=admission)

    def _goal_answers(
        self, tenant: Tenant, goals: StandingGoals, goal: StandingGoal, budget: Budget
    ) -> GoalAnswers:
        answers, moment = goals.answers(goal, budget)
        rows = self._shown_rows(tenant, goal, answers)
        webhook = self.shown_webhook(goal)
        return GoalAnswers(goal, webhook, rows, self._event_id(moment), moment.seq, moment.at)

    def _shown_change(self, tenant: Tenant, goal: StandingGoal, change: AnswerChange) -> GoalChange:
        arity = goal.head.arity
        appeared = RowSet(change.appeared, change.appeared_count, arity)
        disappeared = RowSet(change.disappeared, change.disappeared_count, arity)
        return GoalChange(
            self._event_id(change.moment),
            change.moment.seq,
            change.previous.seq,
            change.moment.at,
            self._shown_rows(tenant, goal, appeared),
            self._shown_rows(tenant, goal, disappeared),
        )

    def _shown_rows(self, tenant: Tenant, goal: StandingGoal, rows: RowSet) -> list[Row]:
        """Return the answers of an atom with its predicate, those of other goals as bindings."""
        texts, arity = tenant.engine.texts(rows.symbols), rows.arity
        parts = [texts[at * arity : (at + 1) * arity] for at in range(rows.count)]
        if goal.is_atom:
            atom = goal.head
            common = {
                "predicate": atom.predicate,
                "negated": not atom.positive,
                "scope": goal.scope,
            }
            return [{**common, "args": part} for part in parts]
        names = [f"?{arg.name}" for arg in _variables(goal.head)]
        return [{"bindings": dict(zip(names, part, strict=True))} for part in parts]


def _variables(head: Atom) -> list[Variable]:
    return [arg for arg in head.args if isinstance(arg, Variable)]
