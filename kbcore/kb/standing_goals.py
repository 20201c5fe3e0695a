"""Standing goals of a knowledge base: subscriptions to the answers of a goal."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from kbcore.clock import Clock
from kbcore.errors import InvalidInput, NotFound
from kbcore.kb.base import TenantHandle
from kbcore.reason.admission import Admission, Slots
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import Rows
from kbcore.standing_goals.goal import Evaluator, StandingGoal
from kbcore.standing_goals.history import AnswerChange
from kbcore.standing_goals.registry import StandingGoals
from kbcore.state.facts import Row
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Variable
from kbplanner.syntax.printer import print_item

DEFAULT_TTL_MS = 3_600_000
MAX_TTL_MS = 7 * 24 * 3_600_000
"""Time after which a standing goal ends unless it is renewed, in milliseconds."""

MAX_CHANGES = 100
"""Default number of changes that are returned together."""

_ID = re.compile(r"(?!slow$)[A-Za-z0-9._~-]{1,64}")


@dataclass(frozen=True, slots=True)
class GoalAnswers:
    """All answers of a standing goal in one state.

    `event_id` names the latest change of the goal, to read the next ones from.
    `seq` is the sequence number of the last commit, `at` the time of the state in epoch
    milliseconds.
    """

    goal: StandingGoal
    answers: list[Row]
    event_id: str
    seq: int
    at: int


@dataclass(frozen=True, slots=True)
class GoalChange:
    """The answers that appeared and disappeared with a commit, or when facts expired.

    `event_id` names the change, to read the next ones from. `seq` is the sequence number of
    the last commit of the new state, `previous_seq` that of the state before it: normally the commit
    before. `at` is the time of the new state in epoch milliseconds.
    """

    event_id: str
    seq: int
    previous_seq: int
    at: int
    appeared: list[Row]
    disappeared: list[Row]


class StandingGoalMethods(TenantHandle):
    """Standing goals of a knowledge base: their answers are kept current, change by change.

    They live in memory. After a restart a client subscribes again and compares the answers.
    """

    def subscribe_goal(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        ttl_ms: int = DEFAULT_TTL_MS,
        id: str | None = None,
        request_limits: RequestLimits | None = None,
    ) -> GoalAnswers:
        """Keep the answers of a goal current, and return them as they are now.

        The goal ends `ttl_ms` milliseconds after its last use unless it is renewed: by reading its
        changes, or by subscribing again with the same `id` and goal. Raises InvalidInput for a goal
        whose answers change without a commit, RateLimited beyond the number of goals per tenant,
        AlreadyExists if another goal has this id, and BudgetExceeded.
        """
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "a standing goal needs one scope, not '*'")
        self._check_scope(scope)
        if not 1000 <= ttl_ms <= MAX_TTL_MS:
            raise InvalidInput.at("ttl", f"must be between 1000 and {MAX_TTL_MS} milliseconds")
        if id is not None and not _ID.fullmatch(id):
            raise InvalidInput.at(
                "id",
                "must have 1 to 64 letters, digits and characters of '.', '_', '~', '-', and not be 'slow'",
            )
        text = ", ".join(map(print_item, body))
        expires_at = self._services.clock.now_ms() + ttl_ms
        goal_id = id or f"goal-{secrets.token_hex(8)}"
        goal = StandingGoal(goal_id, text, body, scope, ttl_ms, expires_at)
        self._services.need_tenant(self.database, self.tenant)
        with self._reads(request_limits, kind="ask", goal=body) as (tenant, budget):
            goals = self._standing_goals(tenant)
            goal = goals.add(goal, budget)
            return self._goal_answers(tenant, goals, goal, budget)

    def standing_goals(self) -> list[StandingGoal]:
        """Return the standing goals of the tenant, in the order in which they were added."""
        goals = StandingGoals.of(self._read_tenant())
        return [] if goals is None else goals.all()

    def standing_goal(self, id: str) -> StandingGoal:
        """Return a standing goal and renew it. Raises NotFound."""
        goals = StandingGoals.of(self._read_tenant())
        goal = None if goals is None else goals.get(id)
        if goal is None:
            raise NotFound(f"standing goal {id} does not exist; subscribe again")
        goal.expires_at = max(goal.expires_at, self._services.clock.now_ms() + goal.ttl_ms)
        return goal

    def goal_answers(self, id: str, *, request_limits: RequestLimits | None = None) -> GoalAnswers:
        """Return the current answers of a standing goal. Raises NotFound and BudgetExceeded."""
        goal = self.standing_goal(id)
        with self._reads(request_limits, kind="ask") as (tenant, budget):
            return self._goal_answers(tenant, self._standing_goals(tenant), goal, budget)

    def goal_changes(
        self,
        id: str,
        after: str,
        *,
        limit: int | None = MAX_CHANGES,
        request_limits: RequestLimits | None = None,
    ) -> list[GoalChange] | None:
        """Return the changes of a standing goal after an event, oldest first, at most `limit`.

        None if they are not kept, or the event id is not one of this goal since it began: then
        `goal_answers` has the state to continue from. Raises NotFound and BudgetExceeded.
        """
        goal = self.standing_goal(id)
        position = goal.position_of(after)
        if position is None:
            return None
        with self._reads(request_limits, kind="ask") as (tenant, budget):
            changes = self._standing_goals(tenant).changes(goal, position, limit, budget)
        if changes is None:
            return None
        return [self._shown_change(tenant, goal, change) for change in changes]

    def end_goal(self, id: str) -> bool:
        """End a standing goal; return False if it does not exist."""
        goals = StandingGoals.of(self._read_tenant())
        return goals is not None and goals.remove(id)

    @property
    def clock(self) -> Clock:
        """The clock of the node."""
        return self._services.clock

    def next_due_seconds(self) -> float | None:
        """Return the seconds until a fact of the tenant begins or ceases to be valid, None if no fact
        will.
        """
        due = self._read_tenant().next_due()
        if due is None:
            return None
        return max((due - self._services.clock.now_ms()) / 1000, 0.001)

    # -- inside ------------------------------------------------------------------------------------

    def _standing_goals(self, tenant: Tenant) -> StandingGoals:
        goals = StandingGoals.of(tenant)
        if goals is not None:
            return goals
        services = self._services
        external: frozenset[RelationSchema] = (
            frozenset() if services.predicates is None else frozenset(services.predicates.modes)
        )
        evaluator = Evaluator(
            tenant,
            services.reasoner(tenant),
            Programs(tenant),
            external,
            services.config.engine_verify,
        )
        new = StandingGoals(
            evaluator,
            services.config.tenant_max_standing_goals,
            self._new_upkeep_budget,
            services.clock.now_ms,
        )
        return cast(StandingGoals, tenant.attached.setdefault("standing_goals", new))

    def _new_upkeep_budget(self) -> Budget:
        """Return the budget for the work after a change.

        The work belongs to no client, so none can cancel it, and it holds the write lock, so it must
        not wait for the slot of a goal that waits for this lock.
        """
        limits = RequestLimits(timeout_ms=self._services.config.standing_goals_ms)
        admission = Admission(Slots(1), (self.database, self.tenant))
        return replace(self._new_budget(limits), admission=admission)

    def _goal_answers(
        self, tenant: Tenant, goals: StandingGoals, goal: StandingGoal, budget: Budget
    ) -> GoalAnswers:
        answers, position, moment = goals.answers(goal, budget)
        rows = self._shown_rows(tenant, goal, answers)
        return GoalAnswers(goal, rows, goal.event_id(position), moment.seq, moment.at)

    def _shown_change(self, tenant: Tenant, goal: StandingGoal, change: AnswerChange) -> GoalChange:
        arity = goal.head.arity
        appeared = Rows(change.appeared, change.appeared_count, arity)
        disappeared = Rows(change.disappeared, change.disappeared_count, arity)
        return GoalChange(
            goal.event_id(change.position),
            change.seq,
            change.previous_seq,
            change.at,
            self._shown_rows(tenant, goal, appeared),
            self._shown_rows(tenant, goal, disappeared),
        )

    def _shown_rows(self, tenant: Tenant, goal: StandingGoal, rows: Rows) -> list[Row]:
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
