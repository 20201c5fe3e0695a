"""The standing goals of one tenant: they are brought up to date after each change."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable
from typing import cast

from kbcore.errors import AlreadyExists, KBError, NotFound, RateLimited
from kbcore.reason.budget import Budget
from kbcore.retraction.rows import Rows
from kbcore.standing_goals.evaluation import Changed, FactChanges
from kbcore.standing_goals.goal import Evaluator, Moment, StandingGoal
from kbcore.standing_goals.history import AnswerChange
from kbcore.state.partition import PartitionKey, RowJournal, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.schema import RelationSchema

NewBudget = Callable[[], Budget]

_log = logging.getLogger("kbcore.standing_goals")


class StandingGoals:
    """The standing goals of a tenant, by id.

    The tenant calls `observe` after each change, under its write lock, so that the answers of each
    goal are those of the state after each commit. `new_budget` returns the budget for the work after
    one change. Readers hold the read lock.
    """

    def __init__(
        self, evaluator: Evaluator, max_goals: int, new_budget: NewBudget, now: Callable[[], int]
    ) -> None:
        self._tenant = evaluator.tenant
        self._evaluator = evaluator
        self._max_goals = max_goals
        self._new_budget = new_budget
        self._now = now
        self._goals: dict[str, StandingGoal] = {}
        self._watched: dict[tuple[PartitionKey, RelationSchema], StoredRelation] = {}
        self._mutex = threading.Lock()

    @classmethod
    def of(cls, tenant: Tenant) -> StandingGoals | None:
        """Return the standing goals of a tenant, None if it never had any."""
        return cast("StandingGoals | None", tenant.attached.get("standing_goals"))

    def close(self) -> None:
        """End all goals, because the tenant is dropped or emptied."""
        self._tenant.observer = None
        with self._mutex:
            goals, self._goals = list(self._goals.values()), {}
            for goal in goals:
                goal.end(NotFound("the tenant was emptied or dropped"))
            self._watch()
        self._evaluator.programs.clear()

    def add(self, goal: StandingGoal, budget: Budget) -> StandingGoal:
        """Compute the answers of a goal and keep them current; return the goal.

        If a goal of the same id, text and scope exists, it is renewed and returned; a goal that an
        error has ended is replaced. The caller holds the read lock. Raises RateLimited beyond the
        limit of goals, AlreadyExists for an id that another goal has, and what `StandingGoal.begin`
        raises.
        """
        with self._mutex:
            self._drop_expired()
            known = self._goals.get(goal.id)
            if known is not None and known.ended is not None:
                del self._goals[goal.id]
                known = None
            if known is not None:
                if (known.goal, known.scope) != (goal.goal, goal.scope):
                    raise AlreadyExists(f"another standing goal has the id {goal.id}")
                known.ttl_ms, known.expires_at = goal.ttl_ms, goal.expires_at
                return known
            if len(self._goals) >= self._max_goals:
                limit = {"limit": "TENANT_MAX_STANDING_GOALS", "value": self._max_goals}
                message = f"a tenant has at most {self._max_goals} standing goals"
                raise RateLimited(message, 1.0, limit)
            goal.begin(self._evaluator, self._moment(), budget)
            self._goals[goal.id] = goal
            self._watch()
            self._tenant.observer = self.observe
        return goal

    def get(self, id: str) -> StandingGoal | None:
        """Return a goal, None if it does not exist."""
        with self._mutex:
            self._drop_expired()
            return self._goals.get(id)

    def all(self) -> list[StandingGoal]:
        """Return all goals, in the order in which they were added."""
        with self._mutex:
            self._drop_expired()
            return list(self._goals.values())

    def remove(self, id: str) -> bool:
        """End a goal; return False if it does not exist."""
        with self._mutex:
            goal = self._goals.pop(id, None)
            if goal is None:
                return False
            goal.end(NotFound(f"the standing goal {id} was ended"))
            self._watch()
            return True

    def answers(self, goal: StandingGoal, budget: Budget) -> tuple[Rows, int, Moment]:
        """Return the current answers of a goal, the position of its latest change, and the state
        that both belong to.

        The caller holds the read lock. Raises the error that ended the goal, and BudgetExceeded.
        """
        with self._mutex:
            goal.catch_up(self._evaluator, self._moment(), budget)
            return goal.symbols(self._evaluator, budget), goal.history.position, goal.moment

    def changes(
        self, goal: StandingGoal, position: int, limit: int | None, budget: Budget
    ) -> list[AnswerChange] | None:
        """Return the changes of a goal's answers after a position, at most `limit`; None if they
        are not kept.

        The caller holds the read lock. Raises the error that ended the goal, and BudgetExceeded.
        """
        with self._mutex:
            goal.catch_up(self._evaluator, self._moment(), budget)
            return goal.history.after(position, limit)

    def forget_changes(self) -> None:
        """Forget the changes of all goals, which may show purged text; readers get all answers."""
        with self._mutex:
            for goal in self._goals.values():
                goal.history.clear()

    def observe(self) -> None:
        """Bring the goals to the present state; the caller holds the write lock.

        An error ends the goal that it occurs for.
        """
        # `get` and `remove` hold no lock of the tenant: without the mutex they could end a goal, and
        # free its answers, while it is updated here.
        with self._mutex:
            self._drop_expired()
            if not self._goals:
                self._watch()
                self._tenant.observer = None
                return
            moment = self._moment()
            changed = self._changed()
            budget = self._new_budget()
            try:
                for goal in list(self._goals.values()):
                    partition = self._tenant.partition(goal.scope)
                    facts = changed.get(partition.key, {}) if partition is not None else {}
                    self._update(goal, facts, moment, budget)
            finally:
                budget.release()
            self._watch()

    # -- inside ------------------------------------------------------------------------------------

    def _update(self, goal: StandingGoal, changed: Changed, moment: Moment, budget: Budget) -> None:
        try:
            goal.update(self._evaluator, changed, moment, budget)
        except Exception as error:  # noqa: BLE001 - the change itself is valid: it must not fail
            _log.exception("standing goal %s failed and is ended", goal.id)
            goal.end(error if isinstance(error, KBError) else KBError("the standing goal failed"))

    def _moment(self) -> Moment:
        return Moment(self._tenant.seq, self._tenant.at(self._tenant.created_at))

    def _drop_expired(self) -> None:
        now = self._now()
        for goal in [goal for goal in self._goals.values() if goal.expires_at <= now]:
            del self._goals[goal.id]
            goal.end(NotFound(f"the standing goal {goal.id} was not renewed and has ended"))

    def _watch(self) -> None:
        """Record the changes of exactly those relations that goals depend on."""
        needed: dict[tuple[PartitionKey, RelationSchema], StoredRelation] = {}
        for goal in self._goals.values():
            partition = self._tenant.partition(goal.scope)
            if goal.ended is None and partition is not None:
                for schema in goal.stored:
                    needed[partition.key, schema] = partition.need(schema)
        for key, stored in self._watched.items():
            if needed.get(key) is not stored:
                stored.journal = None
        for stored in needed.values():
            if stored.journal is None:
                stored.journal = RowJournal()
        self._watched = needed

    def _changed(self) -> dict[PartitionKey, dict[RelationSchema, FactChanges]]:
        """Return the facts that became visible or invisible since the last call, by partition."""
        changed: dict[PartitionKey, dict[RelationSchema, FactChanges]] = {}
        for (partition, schema), stored in self._watched.items():
            if stored.journal and not stored.gone:
                facts = _net_changes(stored)
                if facts.added or facts.removed:
                    changed.setdefault(partition, {})[schema] = facts
        return changed


def _net_changes(stored: StoredRelation) -> FactChanges:
    """Return the rows of a journal whose visibility differs from that before, and empty it."""
    rows = {} if stored.journal is None else stored.journal.take()
    relation, arity = stored.relation, stored.schema.arity
    ids = relation.locate(array("I", [symbol for row in rows for symbol in row]), len(rows))
    added, removed = [], []
    for (row, was_visible), id in zip(rows.items(), ids, strict=True):
        visible = id != NO_ROW
        if visible and row in stored.limited:
            visible = len(relation.match(list(row), limit=1)[1]) > 0 if arity else _shown(stored)
        if visible and not was_visible:
            added.append(row)
        elif was_visible and not visible:
            removed.append(row)
    return FactChanges(added, removed)


def _shown(stored: StoredRelation) -> bool:
    return stored.relation.counts().visible > 0
