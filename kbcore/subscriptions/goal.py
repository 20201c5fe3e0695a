"""A standing goal: its current answers, and the changes that led to them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbcore.errors import BudgetExceeded, EngineFault, KBError
from kbcore.reason.ask import GOAL, Reasoner
from kbcore.reason.budget import Budget
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.partition import Partition, PartitionKey
from kbcore.state.subscriptions import StatePosition, StoredSubscription, Webhook
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.evaluation import (
    Changed,
    FactChanges,
    GoalRules,
    KeptGoal,
    all_answers,
    evaluated,
    followed,
    goal_rules,
)
from kbcore.subscriptions.history import AnswerChange, History
from kbplanner.engine.backend import NO_ROW, Engine, Relation
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem
from kbplanner.pacing import go_on


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The objects that evaluate the goals of one tenant; they are used under a lock of the
    tenant.
    """

    tenant: Tenant
    reasoner: Reasoner
    programs: Programs
    external: frozenset[RelationSchema]
    verify: bool = False


class StandingGoal:
    """A goal whose answers are kept current.

    `goal` is its text, `scope` the partition where it is asked, None for the base partition. The
    goal ends at `expires_at` (epoch milliseconds), `ttl_ms` milliseconds after its last use.
    `moment` is the state that the current answers belong to. `is_behind` is True after a change
    whose effect could not be computed within the budget of a write, and before the first
    evaluation: the next reader computes it. `ended` is the error that ended the goal, None while it
    is kept current. `subscription` is that of a goal that survives a restart, None for one that
    lives in memory. `owner` names the API key that subscribed, None if the server needs no key.
    """

    def __init__(
        self,
        id: str,
        goal: str,
        body: Sequence[BodyItem],
        scope: str | None,
        ttl_ms: int,
        expires_at: int,
    ) -> None:
        self.subscription: StoredSubscription | None = None
        self.owner: str | None = None
        self.id = id
        self.goal = goal
        self.body = tuple(body)
        self.scope = scope
        self.ttl_ms = ttl_ms
        self.expires_at = expires_at
        self.history = History()
        self.moment = StatePosition(0, 0)
        self.is_behind = False
        self.was_tried = False
        """True once the goal was evaluated, or could not be, without a reader after a start."""
        self.ended: KBError | None = None
        self._rules: GoalRules | None = None
        self._partition: PartitionKey | None = None
        self._answers: Relation | None = None
        self._kept: KeptGoal | None = None
        self._is_cheap = False
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._mutex = threading.Lock()
        self._busy = threading.RLock()
        """Held while the answers are evaluated, read or released; before `_mutex`."""

    @property
    def is_begun(self) -> bool:
        """True if the goal was evaluated and is kept current."""
        return self._answers is not None

    @property
    def is_durable(self) -> bool:
        """True if the goal survives a restart."""
        return self.subscription is not None

    @property
    def webhook(self) -> Webhook | None:
        """The address to which changes are sent, None without one."""
        return None if self.subscription is None else self.subscription.webhook

    @property
    def public_webhook_url(self) -> str | None:
        """The part of the address that those who do not own the goal may see, None without one."""
        return None if self.webhook is None else self.webhook.public_url

    @property
    def head(self) -> Atom:
        """The atom that the answers are instances of."""
        return self._known_rules.head

    @property
    def is_atom(self) -> bool:
        """True if the goal is one atom; the head of other goals has the variables of the goal."""
        return self.head.predicate != GOAL

    @property
    def stored(self) -> frozenset[RelationSchema]:
        """The stored relations whose rows can change the answers."""
        return self._known_rules.stored

    @property
    def count(self) -> int:
        """The number of current answers."""
        return 0 if self._answers is None else self._answers.counts().visible

    @property
    def _known_rules(self) -> GoalRules:
        if self._rules is None:
            raise EngineFault("a standing goal was not evaluated")
        return self._rules

    @property
    def maintained_bytes(self) -> tuple[int, int]:
        """The memory of what the answers follow from, with indexes and without."""
        keeper = self._kept  # without `_busy`: an evaluation may hold it for long
        return (0, 0) if keeper is None else keeper.sizes

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change and at the end; return a function that stops this."""
        with self._mutex:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._mutex:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return stop

    def symbols(self, evaluator: Evaluator, budget: Budget) -> RowSet:
        """Return the current answers in answer order; the caller holds the read lock."""
        arity = self.head.arity
        if self._answers is None:
            return RowSet(array("I"), 0, arity)
        rows = self._answers.match_rows([0] * arity, budget.yield_now)
        count = self._answers.counts().visible
        rows = evaluator.tenant.engine.sort(rows, arity, budget.offload, in_place=True)
        return RowSet(rows, count, arity)

    def begin(self, evaluator: Evaluator, moment: StatePosition, budget: Budget) -> None:
        """Compute the answers; the caller holds a lock.

        Raises BudgetExceeded, UnsafeRule, and InvalidInput for a goal that cannot be kept current.
        """
        with self._busy:
            partition = self._current_partition(evaluator.tenant)
            self._plan(evaluator, partition)
            answers = self._evaluated(evaluator, partition, budget)
            self._answers = evaluator.tenant.engine.relation(self.head.arity)
            self._answers.insert(answers.symbols, answers.count)
            self.moment = moment
            self.is_behind = False
            self.history.begin(moment)

    def update(
        self, evaluator: Evaluator, changed: Changed, moment: StatePosition, budget: Budget
    ) -> None:
        """Bring the answers to the present state, after facts of `changed` relations or rules have
        changed.

        The caller holds the write lock. If the budget does not suffice, the goal is behind
        afterwards. Any other error ends it; one with a subscription begins again with its next
        reader, who gets the error if it is still there.
        """
        with self._busy:
            if self.ended is not None or not self.is_begun:
                return
            try:
                self._advance(evaluator, changed, moment, budget)
            except BudgetExceeded as error:
                if (error.details or {}).get("limit") == "answers":
                    self.fail(error)
                else:
                    self.is_behind = True
                    self._notify()
            except KBError as error:
                self.fail(error)

    def advance(
        self,
        evaluator: Evaluator,
        changed: Mapping[RelationSchema, FactChanges],
        moment: StatePosition,
        budget: Budget,
    ) -> None:
        """Do what `update` does, but raise the error."""
        with self._busy:
            self._advance(evaluator, changed, moment, budget)

    def fail(self, error: KBError) -> None:
        """End the goal because of an error, or begin again with the next reader."""
        if self.subscription is None:
            self.end(error)
            return
        with self._busy:
            self.close()
            self.is_behind = True
        self._notify()

    def catch_up(self, evaluator: Evaluator, moment: StatePosition, budget: Budget) -> None:
        """Bring the answers of a goal that is behind to the present state.

        The caller holds the read lock. Raises BudgetExceeded, and the error that ended the goal.
        """
        with self._busy:
            if self.ended is None and not self.is_begun:
                self.begin(evaluator, moment, budget)
            elif self.ended is None and self.is_behind:
                self._advance(evaluator, {}, moment, budget)
            if self.ended is not None:
                raise self.ended

    def current(
        self, evaluator: Evaluator, moment: StatePosition, budget: Budget
    ) -> tuple[RowSet, StatePosition]:
        """Return the answers in the present state, and that state; the caller holds the read lock.

        Raises BudgetExceeded, and the error that ended the goal.
        """
        with self._busy:
            self.catch_up(evaluator, moment, budget)
            return self.symbols(evaluator, budget), self.moment

    def _advance(
        self, evaluator: Evaluator, changed: Changed, moment: StatePosition, budget: Budget
    ) -> None:
        partition = self._current_partition(evaluator.tenant)
        visible = evaluator.tenant.rules.visible(self.scope)
        is_same = (
            self._rules is not None
            and self._rules.visible is visible
            and self._partition == partition.key
        )
        if is_same and not self.is_behind and self.stored.isdisjoint(changed):
            self.moment = moment
            return
        if not is_same:
            self._plan(evaluator, partition)
        difference = None
        if is_same and not self.is_behind and (self._kept is not None or not self._is_cheap):
            difference = self._followed(evaluator, partition, changed, budget)
        if difference is None:
            answers = self._evaluated(evaluator, partition, budget)
            difference = self._compared(evaluator, answers)
        elif evaluator.verify:
            self._verify(evaluator, partition, difference, budget)
        self._record(difference, moment)

    def end(self, error: KBError) -> None:
        """End the goal; its readers get the error."""
        with self._busy:
            self.ended = error
            self.close()
        self._notify()

    def abandon(self, error: KBError) -> None:
        """End the goal without a lock; its answers are released with the engine."""
        self.ended = error
        self._notify()

    def close(self) -> None:
        """Release the answers."""
        with self._busy:
            self._let_go()
            answers, self._answers = self._answers, None
            if answers is not None:
                answers.drop()

    def move(self, old: Engine, new: Engine) -> None:
        """Go on with the answers in another engine, where the next update compares them with those
        of its state; the earlier changes are forgotten.

        The caller holds the write locks of both tenants.
        """
        with self._busy:
            self._let_go()
            self.is_behind = True
            self.history.begin(self.moment)
            if self._answers is None:
                return
            arity, count = self.head.arity, self.count
            texts = old.texts(self._answers.match_rows([0] * arity, go_on))
            answers = new.relation(arity)
            answers.insert(new.intern_many(texts), count)
            self._answers.drop()
            self._answers = answers

    # -- evaluation --------------------------------------------------------------------------------

    def _plan(self, evaluator: Evaluator, partition: Partition) -> None:
        visible = evaluator.tenant.rules.visible(self.scope)
        self._rules = goal_rules(self.body, visible, evaluator.external)
        self._partition = partition.key

    def _current_partition(self, tenant: Tenant) -> Partition:
        return tenant.partition(self.scope) or tenant.new_partition(self.scope)

    def _evaluated(self, evaluator: Evaluator, partition: Partition, budget: Budget) -> RowSet:
        """Return all answers, and keep what they follow from, if that is much."""
        self._let_go()
        evaluation = evaluated(
            evaluator.reasoner, partition, self._known_rules, budget, keep_all=evaluator.verify
        )
        self._kept, self._is_cheap = evaluation.keeper, evaluation.is_cheap
        return evaluation.answers

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _followed(
        self, evaluator: Evaluator, partition: Partition, changed: Changed, budget: Budget
    ) -> Difference | None:
        """Return the difference that changed facts make, without the rows that are no answers.

        None if it cannot be found from the changes.
        """
        relevant = {schema: facts for schema, facts in changed.items() if schema in self.stored}
        if self._kept is not None:
            difference = None
            try:
                if self._kept.holds(partition, self._known_rules):
                    difference = self._kept.change(relevant, budget)
                if difference is not None:
                    appeared, disappeared = difference
                    budget.check_answers(self.count + appeared.count - disappeared.count)
                    return difference
            finally:
                if difference is None:
                    self._let_go()
            return None
        difference = followed(
            evaluator.tenant, evaluator.programs, partition, self._known_rules, relevant, budget
        )
        if difference is None:
            return None
        appeared, disappeared = (self._matching(evaluator, rows) for rows in difference)
        budget.check_answers(self.count + appeared.count - disappeared.count)
        known = self._known(appeared)
        gone = self._known(disappeared)
        return Difference(
            appeared.chosen(id == NO_ROW for id in known),
            disappeared.chosen(id != NO_ROW for id in gone),
        )

    def _known(self, rows: RowSet) -> array[int]:
        return (
            array("I") if self._answers is None else self._answers.locate(rows.symbols, rows.count)
        )

    def _matching(self, evaluator: Evaluator, rows: RowSet) -> RowSet:
        """Return the rows that have the constants of the goal, and equal values for equal
        variables.
        """
        pattern = goal_pattern(self.head.args, evaluator.tenant.find)
        if pattern is None or not rows.count:
            return RowSet(array("I"), 0, rows.arity)
        if not any(pattern):
            return rows
        relation = evaluator.tenant.engine.relation(rows.arity)
        try:
            relation.insert(rows.symbols, rows.count)
            symbols, ids = relation.match(pattern)
            return RowSet(symbols, len(ids), rows.arity)
        finally:
            relation.drop()

    def _compared(self, evaluator: Evaluator, answers: RowSet) -> Difference:
        """Return the difference between the known answers and others."""
        now = evaluator.tenant.engine.relation(answers.arity)
        try:
            now.insert(answers.symbols, answers.count)
            if self._answers is None:
                raise EngineFault("a standing goal was not evaluated")
            difference = self._answers.compare(now)
            appeared = now.rows(difference.only_there)
            disappeared = self._answers.rows(difference.only_here)
        finally:
            now.drop()
        return Difference(
            RowSet(appeared, len(difference.only_there), answers.arity),
            RowSet(disappeared, len(difference.only_here), answers.arity),
        )

    def _verify(
        self, evaluator: Evaluator, partition: Partition, difference: Difference, budget: Budget
    ) -> None:
        answers = all_answers(evaluator.reasoner, partition, self._known_rules, budget)
        expected = self._compared(evaluator, answers)
        for rows, other in zip(difference, expected, strict=True):
            if _keys(rows) != _keys(other):
                raise EngineFault("a standing goal differs from a fresh evaluation")

    def _record(self, difference: Difference, moment: StatePosition) -> None:
        """Apply a difference to the answers, and add it to the history."""
        previous, self.moment = self.moment, moment
        self.is_behind = False
        appeared, disappeared = difference
        if self._answers is None or not (appeared.count or disappeared.count):
            return
        self._answers.delete(disappeared.symbols, disappeared.count)
        self._answers.insert(appeared.symbols, appeared.count)
        self.history.add(
            AnswerChange(
                previous,
                moment,
                appeared.symbols,
                appeared.count,
                disappeared.symbols,
                disappeared.count,
            )
        )
        self._notify()

    def wake(self) -> None:
        """Wake the listeners, which read the answers again."""
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def _keys(rows: RowSet) -> set[tuple[int, ...]]:
    if not rows.arity:
        return {()} if rows.count else set()
    return set(zip(*[iter(rows.symbols)] * rows.arity, strict=True))
