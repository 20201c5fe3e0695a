"""The standing goals of one tenant: they are brought up to date after each change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from kbcore.errors import AlreadyExists, Forbidden, KBError, NotFound, RateLimited
from kbcore.reason.budget import Budget
from kbcore.retraction.rows import RowSet
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.partition import PartitionKey
from kbcore.state.subscriptions import StatePosition, StoredSubscription
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.evaluation import Changed
from kbcore.subscriptions.goal import Evaluator, StandingGoal
from kbcore.subscriptions.history import AnswerChange
from kbcore.subscriptions.journals import ChangedFacts, Journals
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.parser import parse_body

GRACE_MS = 3_600_000
"""Time in milliseconds that a subscription has at least after a start, when no client could renew
it; its `ttl` if that is shorter."""

_log = logging.getLogger("kbcore.subscriptions")


class RegistryNode(NamedTuple):
    """The part of a node that standing goals use.

    `new_budget` returns the budget for the work after one change, `now` the time in epoch
    milliseconds. `leads` returns False on a follower, where subscriptions end with the log.
    """

    max_goals: int
    new_budget: Callable[[], Budget]
    now: Callable[[], int]
    leads: Callable[[], bool]


class StandingGoals:
    """The standing goals of a tenant, by id: those of its subscriptions, and those in memory only.

    For a view, `tenant` is its state, `home` the tenant with the subscriptions. `new_evaluator`
    returns the evaluator of a state.

    The tenant calls `observe` after each change, under its write lock, so that the answers of each
    goal are those of the state after each commit. Readers hold the read lock.
    """

    def __init__(
        self,
        tenant: Tenant,
        new_evaluator: Callable[[Tenant], Evaluator],
        node: RegistryNode,
        home: Tenant | None = None,
        view: Labels = NO_LABELS,
    ) -> None:
        self._tenant = tenant
        self._home = tenant if home is None else home
        self._view = view
        self._new_evaluator = new_evaluator
        self._evaluator = new_evaluator(tenant)
        self._node = node
        self._goals: dict[str, StandingGoal] = {}
        self._expired: set[str] = set()
        """Ids of subscriptions that have ended and are not removed from the log yet."""
        self._journals = Journals(tenant)
        self._watchers: dict[tuple[PartitionKey, RelationSchema], list[StandingGoal]] | None = None
        """The goals that read each relation; None if this has to be found out again."""
        self._views: dict[str | None, object] = {}
        """The rules and the partition with which the goals of each scope were evaluated."""
        self._first_end = 0
        """The time before which no goal ends."""
        self._seen = -1
        self._led = False
        self._mutex = threading.Lock()

    @classmethod
    def of(cls, tenant: Tenant) -> StandingGoals | None:
        """Return the standing goals of a tenant, None if they were never used since the start."""
        return tenant.attached.get(cls)

    @property
    def tenant(self) -> Tenant:
        """The tenant, or the state of the view, whose goals these are.

        While a lock of it is held, they stay its goals.
        """
        return self._tenant

    @property
    def view(self) -> Labels:
        """The view that the goals see, NO_LABELS for all of the tenant."""
        return self._view

    def move_to(self, tenant: Tenant) -> None:
        """Go on with a newer state of the view; the caller holds no lock of either state."""
        old = self._tenant
        with tenant.lock.write(), old.lock.write():
            if old is not self._tenant or tenant.serial <= old.serial:
                return  # others have moved the goals
            with self._mutex:
                for goal in self._goals.values():
                    goal.move(old.engine, tenant.engine)
                self._evaluator.programs.close()
                old.observer = None
                self._tenant = tenant
                self._evaluator = self._new_evaluator(tenant)
                self._journals = Journals(tenant)
                self._watchers = None
                self._views = {}
                tenant.observer = self.observe
            self.observe()

    def wake(self) -> None:
        """Wake those who follow the goals, because the state is behind."""
        for goal in list(self._goals.values()):
            goal.wake()

    def tenant_ended(self) -> None:
        """End all goals, because the tenant was dropped or emptied, or is no longer in this
        process.

        No lock is taken, because an evaluation that goes on may hold it for long: what the goals
        hold of the engine is freed with the engine, when no reader is left.
        """
        for goal in list(self._goals.values()):
            goal.abandon(NotFound("the tenant was emptied, dropped or moved"))

    def close(self) -> None:
        """End all goals, and release what they hold of the engine."""
        self._tenant.observer = None
        with self._mutex:
            goals, self._goals = list(self._goals.values()), {}
            self._journals.watch(())
        _end(goals, "the tenant was emptied or dropped")
        self._evaluator.programs.close()

    def add(self, goal: StandingGoal, budget: Budget, is_admin: bool) -> StandingGoal:
        """Compute the answers of a goal and keep them current; return the goal.

        If a goal of the same id, text and scope exists, it is renewed and returned; a goal that an
        error has ended is replaced. The caller holds the read lock, so the state does not change
        while a new goal is evaluated; other goals can be used at the same time. Raises RateLimited
        beyond the limit of goals, AlreadyExists for an id that another goal has, Forbidden for a
        goal of another owner unless `is_admin`, and what `StandingGoal.begin` raises.
        """
        with self._mutex:
            gone = self._renewed()
            known = self._known(goal, is_admin)
        _end(*gone)
        if known is not None:
            return known
        goal.begin(self._evaluator, self._moment(), budget)
        with self._mutex:
            try:
                known = self._known(goal, is_admin)  # added while this one was evaluated
            except KBError:
                goal.close()
                raise
            if known is not None:
                goal.close()
                return known
            self._expired.discard(goal.id)
            self._goals[goal.id] = goal
            self._first_end = 0
            self._watch()
            self._tenant.observer = self.observe
        return goal

    def get(self, id: str) -> StandingGoal | None:
        """Return a goal, None if it does not exist."""
        self.renew()
        with self._mutex:
            return self._goals.get(id)

    def all(self) -> list[StandingGoal]:
        """Return all goals, in the order in which they were added."""
        self.renew()
        with self._mutex:
            return list(self._goals.values())

    def maintained_bytes(self) -> tuple[int, int]:
        """Return the memory of the rows that goals follow from, with indexes and without."""
        with self._mutex:
            sizes = [goal.maintained_bytes for goal in self._goals.values()]
        return sum(size for size, _ in sizes), sum(rows for _, rows in sizes)

    def remove(self, id: str) -> bool:
        """End a goal; return False if it does not exist."""
        with self._mutex:
            goal = self._goals.pop(id, None)
            if goal is not None:
                if goal.subscription is not None:
                    self._expired.add(id)
                self._watch()
        if goal is None:
            return False
        _end([goal], f"the standing goal {id} was ended")
        return True

    def answers(self, goal: StandingGoal, budget: Budget) -> tuple[RowSet, StatePosition]:
        """Return the current answers of a goal, and the state that they belong to.

        The caller holds the read lock. Raises the error that ended the goal, and BudgetExceeded.
        """
        was_begun = goal.is_begun
        answers = goal.current(self._evaluator, self._moment(), budget)
        self._watch_begun(was_begun)
        return answers

    def changes(
        self, goal: StandingGoal, position: StatePosition, limit: int | None, budget: Budget
    ) -> list[AnswerChange] | StatePosition:
        """Return the changes of a goal's answers after a state, at most `limit`, or the state from
        which on they are kept.

        The caller holds the read lock. Raises the error that ended the goal, and BudgetExceeded.
        """
        was_begun = goal.is_begun
        goal.catch_up(self._evaluator, self._moment(), budget)
        self._watch_begun(was_begun)
        return goal.history.after(position, limit)

    def forget_changes(self) -> None:
        """Forget the changes of all goals, which may show purged text; readers get all answers."""
        with self._mutex:
            for goal in self._goals.values():
                goal.history.begin(goal.moment)

    def renew(self) -> None:
        """Add and end goals as the subscriptions and the time say."""
        with self._mutex:
            gone = self._renewed()
        _end(*gone)

    def expired(self) -> tuple[str, ...]:
        """Return the ids of subscriptions that have ended and are to be removed from the log."""
        self.renew()
        with self._mutex:
            known = {id: self._home.subscriptions.get(id) for id in self._expired}
            # another view may have subscribed with the id of a goal that was ended here
            self._expired = {id for id, each in known.items() if each and each.view == self._view}
            return tuple(sorted(self._expired))

    def to_renew(self) -> list[StoredSubscription]:
        """Return the subscriptions that were used, with their new ends, where the stored end is
        behind by half of the `ttl`.
        """
        with self._mutex:
            return [
                replace(known, expires_at=goal.expires_at)
                for goal in self._goals.values()
                if (known := goal.subscription) is not None
                and goal.expires_at - known.expires_at >= known.ttl // 2
            ]

    def observe(self) -> None:
        """Bring the goals to the present state; the caller holds the write lock.

        An error ends the goal that it occurs for.
        """
        # `get` and `remove` hold no lock of the tenant: without the mutex they could change the
        # goals during the loop. A goal is ended by another thread before or after its update.
        with self._mutex:
            gone = self._renewed()
            _end(*gone)
            if gone[0]:
                self._watchers = None
            if not self._goals:
                self._journals.watch(())
                self._tenant.observer = None
                return
            moment = self._moment()
            changed = self._journals.take()
            views = self._views_of(self._views or {goal.scope for goal in self._goals.values()})
            if views != self._views:  # other rules, or other partitions
                self._watchers = None
            affected = self._affected(changed, moment)
            if affected:
                self._update_all(affected, changed, moment)
            if self._watchers is None:
                self._watch()

    def _views_of(self, scopes: Iterable[str | None]) -> dict[str | None, object]:
        """Return what the goals of scopes are evaluated with: the rules and the partition."""
        views: dict[str | None, object] = {}
        for scope in scopes:
            partition = self._tenant.partition(scope)
            key = None if partition is None else partition.key
            views[scope] = self._tenant.rules.visible(scope), key
        return views

    def _affected(self, changed: ChangedFacts, moment: StatePosition) -> Collection[StandingGoal]:
        """Return the goals that a change may concern: all, if it is not known who reads what. The
        answers of the others are now those of this moment.
        """
        if self._watchers is None:
            return list(self._goals.values())
        readers = {
            goal.id
            for key, facts in changed.items()
            for schema in facts
            for goal in self._watchers.get((key, schema), ())
        }
        affected = []
        for goal in self._goals.values():
            if goal.is_behind or goal.id in readers:
                affected.append(goal)
            else:
                goal.moment = moment
        return affected

    def _update_all(
        self, goals: Iterable[StandingGoal], changed: ChangedFacts, moment: StatePosition
    ) -> None:
        budget = self._node.new_budget()
        try:
            for goal in goals:
                partition = self._tenant.partition(goal.scope)
                facts = changed.get(partition.key, {}) if partition is not None else {}
                self._update(goal, facts, moment, budget)
        finally:
            budget.release()

    def _watch(self) -> None:
        """Record the changes that goals depend on, and who reads which relations."""
        self._journals.watch(self._goals.values())
        watchers: dict[tuple[PartitionKey, RelationSchema], list[StandingGoal]] = {}
        for goal in self._goals.values():
            partition = self._tenant.partition(goal.scope)
            if goal.is_begun and partition is not None:
                for schema in goal.stored:
                    watchers.setdefault((partition.key, schema), []).append(goal)
        self._watchers = watchers
        self._views = self._views_of({goal.scope for goal in self._goals.values()})

    # -- inside ------------------------------------------------------------------------------------

    def _update(
        self, goal: StandingGoal, changed: Changed, moment: StatePosition, budget: Budget
    ) -> None:
        try:
            goal.update(self._evaluator, changed, moment, budget)
        except Exception as error:  # noqa: BLE001 - the change itself is valid: it must not fail
            _log.exception("standing goal %s failed and is ended", goal.id)
            goal.fail(error if isinstance(error, KBError) else KBError("the standing goal failed"))

    def _moment(self) -> StatePosition:
        return StatePosition(self._tenant.seq, self._tenant.at(self._tenant.created_at))

    def _watch_begun(self, was_begun: bool) -> None:
        """Record the changes that a goal depends on which was begun under the read lock."""
        if not was_begun:
            with self._mutex:
                self._watch()
                self._tenant.observer = self.observe

    def _known(self, goal: StandingGoal, is_admin: bool) -> StandingGoal | None:
        """Return the goal of the same id, renewed; None if there is room for a new one."""
        known = self._goals.get(goal.id)
        if known is not None and known.ended is not None:
            del self._goals[goal.id]
            known = None
        if known is not None:
            if (known.goal, known.scope) != (goal.goal, goal.scope):
                raise id_in_use(goal.id)
            if not is_admin and known.owner != goal.owner:
                raise Forbidden(f"the standing goal {goal.id} belongs to another key")
            known.ttl_ms, known.expires_at = goal.ttl_ms, goal.expires_at
            self._first_end = 0
            return known
        if len(self._goals) >= self._node.max_goals:
            limit = {"limit": "TENANT_MAX_STANDING_GOALS", "value": self._node.max_goals}
            message = f"a tenant has at most {self._node.max_goals} standing goals"
            raise RateLimited(message, 1.0, limit)
        return None

    def _renewed(self) -> tuple[list[StandingGoal], str]:
        """Take over the subscriptions, and drop goals that have ended; return those, and why."""
        now, leads = self._node.now(), self._node.leads()
        if leads and not self._led:
            for goal in self._goals.values():
                goal.expires_at = max(goal.expires_at, now + min(goal.ttl_ms, GRACE_MS))
            self._first_end = 0
        self._led = leads
        gone = self._synchronised(now)
        for goal in self._due(now):
            if goal.subscription is None or leads:
                if goal.subscription is not None:
                    self._expired.add(goal.id)
                gone.append(self._goals.pop(goal.id))
        return gone, "the standing goal was ended, or not renewed in time"

    def _due(self, now: int) -> list[StandingGoal]:
        """Return the goals that end now; they are looked at when the first of them may."""
        if now < self._first_end:
            return []
        due = [goal for goal in self._goals.values() if goal.expires_at <= now]
        self._first_end = min(
            (goal.expires_at for goal in self._goals.values() if goal.expires_at > now), default=0
        )
        return due

    def _synchronised(self, now: int) -> list[StandingGoal]:
        """Take over the subscriptions of the tenant; return the goals that have none any more."""
        stored = self._home.subscriptions
        if stored.version == self._seen:
            return []
        self._seen = stored.version
        gone: list[StandingGoal] = []
        for known in stored:
            if known.id in self._expired or known.view != self._view:
                continue
            goal = self._goals.get(known.id)
            if goal is not None and (goal.goal, goal.scope) != (known.goal, known.scope):
                gone.append(self._goals.pop(known.id))
                goal = None
            if goal is None:
                goal = self._goals[known.id] = self._restored(known, now)
                self._first_end = 0
            goal.subscription, goal.owner, goal.ttl_ms = known, known.owner, known.ttl
            goal.expires_at = max(goal.expires_at, known.expires_at)
        for goal in list(self._goals.values()):
            if goal.subscription is None:
                continue
            left = stored.get(goal.id)
            if left is None or left.view != self._view:
                gone.append(self._goals.pop(goal.id))
        if self._goals:
            self._tenant.observer = self.observe
        return gone

    def _restored(self, known: StoredSubscription, now: int) -> StandingGoal:
        """Return the goal of a subscription, which its first reader evaluates."""
        expires_at = max(known.expires_at, now + min(known.ttl, GRACE_MS))
        body = parse_body(known.goal)
        goal = StandingGoal(known.id, known.goal, body, known.scope, known.ttl, expires_at)
        goal.is_behind = True
        return goal


def id_in_use(id: str) -> AlreadyExists:
    """Return the error of a subscription with the id of another standing goal."""
    return AlreadyExists(f"another standing goal has the id {id}")


class ViewGoals:
    """The standing goals of the views of a tenant."""

    def __init__(self) -> None:
        self._known: dict[Labels, StandingGoals] = {}

    def get(self, view: Labels) -> StandingGoals | None:
        """Return the goals of a view, None if it never had any since the start."""
        return self._known.get(view)

    def need(self, view: Labels, make: Callable[[], StandingGoals]) -> StandingGoals:
        """Return the goals of a view, which `make` makes at the first call."""
        known = self._known.get(view)
        return self._known.setdefault(view, make()) if known is None else known

    def all(self) -> list[tuple[Labels, StandingGoals]]:
        """Return the goals of all views."""
        return list(self._known.items())

    def forget_unused(self, used: Collection[Labels]) -> None:
        """Forget views without goals, so that their states can be released, but the `used` ones."""
        for view, goals in self.all():
            lock = goals.tenant.lock
            if view in used or goals.all() or not lock.acquire_unless_read():
                continue
            try:
                if goals.tenant.lock is lock and not goals.all():
                    self._known.pop(view, None)
            finally:
                lock.release()

    def wake(self, view: Labels) -> None:
        """Wake those who follow the goals of a view, because its state is behind."""
        if (goals := self._known.get(view)) is not None:
            goals.wake()

    def tenant_ended(self) -> None:
        """End all goals; no lock is taken."""
        for goals in list(self._known.values()):
            goals.tenant_ended()

    def close(self) -> None:
        """End all goals, and release what they hold of the engines."""
        for goals in list(self._known.values()):
            goals.close()


def registries(tenant: Tenant) -> list[StandingGoals]:
    """Return the standing goals of a tenant, and of each of its views."""
    own, of_views = StandingGoals.of(tenant), tenant.attached.get(ViewGoals)
    others = () if of_views is None else (goals for _, goals in of_views.all())
    return [*(() if own is None else (own,)), *others]


def _end(goals: Iterable[StandingGoal], reason: str) -> None:
    for goal in goals:
        goal.end(NotFound(reason))
