"""Evaluation of a standing goal: all its answers, or those that a change of stored facts
changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from kbcore.errors import BudgetExceeded, EngineFault, InvalidInput
from kbcore.reason.ask import GOAL, Reasoner, body_variables, terms_of
from kbcore.reason.budget import Budget
from kbcore.reason.tables import GoalTables
from kbcore.reason.view import viewed
from kbcore.retraction.differences import differences
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.evaluate import GoalRun, adornment_of, goal_equalities, goal_pattern
from kbplanner.evaluate.follow import Unmaintained
from kbplanner.evaluate.maintained import Changed as MaintainedChange
from kbplanner.evaluate.maintained import FlatRows
from kbplanner.evaluate.maintained_goal import MaintainedGoal, can_be_maintained
from kbplanner.ir.program import Computation
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule
from kbplanner.passes.check import check_evaluable

CHEAP_ROWS = 500
"""A goal that derives fewer rows, and has fewer answers, is answered again after each change."""

MAX_FOLLOWED = 20_000
"""Changed facts that are followed; more of them change so much that all answers are compared."""

Changed = Mapping[RelationSchema, "FactChanges"]
"""The changed facts of stored relations."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """The facts of one relation that hold only now, and those that held only before."""

    added: list[RowKey]
    removed: list[RowKey]


@dataclass(frozen=True, slots=True)
class GoalRules:
    """The rules that a goal depends on, with one for the goal itself if it has several literals.

    `head` is the atom that the answers are instances of, `visible` the rules they were chosen from.
    `stored` are the stored relations whose rows can change the answers.
    """

    head: Atom
    rules: RuleSet
    visible: RuleSet
    stored: frozenset[RelationSchema]

    @property
    def schema(self) -> RelationSchema:
        """The stored schema of the head."""
        return RelationSchema(self.head.predicate, self.head.arity, self.head.positive)


def goal_rules(
    body: Sequence[BodyItem], visible: RuleSet, external: Iterable[RelationSchema]
) -> GoalRules:
    """Return the rules that a goal depends on.

    Raises UnsafeRule, and InvalidInput for a goal whose answers can change without a change of
    facts: because they depend on `now()` or on a predicate whose rows a plugin provides.
    """
    item = body[0]
    own: list[Rule] = []
    if len(body) == 1 and isinstance(item, Literal) and not item.negated:
        head = item.atom
    else:
        head = Atom(GOAL, tuple(body_variables(body)))
        rule = Rule(head, tuple(body))
        check_evaluable(rule)
        own = [rule]
    needed = _needed(visible.rules, own, head.predicate)
    rules = RuleSet([*needed, *own])
    stored = (rules.reads | rules.deniable) | {
        RelationSchema(head.predicate, head.arity, head.positive)
    }
    provided = sorted(map(str, stored.intersection(external)))
    if provided:
        raise InvalidInput.at(
            "goal",
            f"depends on {provided[0]}, whose rows a plugin provides: nothing reports changes",
        )
    if any(
        isinstance(part, Computation) and part.function == "now"
        for clause in rules.clauses(frozenset())
        for part in clause.body
    ):
        raise InvalidInput.at("goal", "depends on now(), which changes without a commit")
    return GoalRules(head, rules, visible, stored)


def all_answers(
    reasoner: Reasoner, partition: Partition, goal: GoalRules, budget: Budget
) -> RowSet:
    """Return all answers of a goal; the caller holds a lock of the tenant.

    Raises BudgetExceeded.
    """
    symbols, count = reasoner.solve_once(partition, goal.rules, goal.head, budget)
    budget.check_answers(count)
    return RowSet(symbols, count, goal.head.arity)


class KeptGoal:
    """The answers of a goal, kept in the engine with the rows that they follow from.

    It holds for the rules it was made with, and while the same explicit negatives have rows.
    """

    def __init__(
        self,
        table: MaintainedGoal,
        pattern: list[int],
        denied: frozenset[RelationSchema],
        tables: GoalTables,
    ) -> None:
        self._table = table
        self._tables = tables
        self.sizes = (0, 0)
        """The memory of the rows with their indexes, and of the rows alone, as last measured."""
        self._measure()
        self._pattern = pattern
        self._denied = denied

    def holds(self, partition: Partition, goal: GoalRules) -> bool:
        """Return True if the goal is still evaluated in the way in which it was."""
        return partition.denied(goal.rules.deniable) == self._denied

    def change(self, changed: Changed, budget: Budget) -> Difference | None:
        """Follow the changes of facts; return their difference, None if that is not possible.

        Then, and after BudgetExceeded, it can only be closed.
        """
        if sum(len(each.added) + len(each.removed) for each in changed.values()) > MAX_FOLLOWED:
            return None
        changes = {schema: _kept_change(schema.arity, facts) for schema, facts in changed.items()}
        try:
            came, gone = self._table.follow(changes, budget, self._pattern)
        except Unmaintained:
            return None
        if not self._measure():
            return None
        arity = len(self._pattern)
        return Difference(
            RowSet(came.symbols, came.number, arity), RowSet(gone.symbols, gone.number, arity)
        )

    def close(self) -> None:
        """Free the rows."""
        self._tables.count_kept(-self.sizes[0])
        self.sizes = (0, 0)
        self._table.close()

    def _measure(self) -> bool:
        """Count the memory that the rows take now; return False if that is too much."""
        before, self.sizes = self.sizes[0], (self._table.bytes, self._table.row_bytes)
        return self._tables.count_kept(self.sizes[0] - before)


def _kept_change(arity: int, facts: FactChanges) -> MaintainedChange:
    rows = (RowSet.of(each, arity) for each in (facts.added, facts.removed))
    return MaintainedChange(*(FlatRows(each.symbols, each.count) for each in rows))


class Evaluated(NamedTuple):
    """All answers of a goal.

    `keeper` keeps them current; None where that is not possible, or not worth it because the goal
    `is_cheap`.
    """

    answers: RowSet
    keeper: KeptGoal | None
    is_cheap: bool


def evaluated(
    reasoner: Reasoner, partition: Partition, goal: GoalRules, budget: Budget, *, keep_all: bool
) -> Evaluated:
    """Return all answers of a goal; with `keep_all` also a goal that is cheap is kept.

    The caller holds a lock of the tenant. Raises BudgetExceeded.
    """
    schema, head, tenant = goal.schema, goal.head, reasoner.tenant
    pattern = goal_pattern(head.args, tenant.engine.intern)
    if schema in goal.rules.derived and pattern is not None:
        with viewed(tenant, partition, goal.rules, (schema,), budget) as view:
            if not view.settled:
                bounded = replace(schema, restrictions=goal_equalities(pattern))
                plan = tenant.plans.get(
                    view.rules, bounded, adornment_of(terms_of(head)), view.denied, view.statistics
                )
                run = GoalRun(tenant.engine, plan, view.bind, budget.limits, budget.now)
                try:
                    return _run(
                        run, pattern, partition, view.denied, budget, reasoner.tables, keep_all
                    )
                finally:
                    run.close()
    before = budget.rows_made
    answers = all_answers(reasoner, partition, goal, budget)
    return Evaluated(answers, None, _is_cheap(budget.rows_made - before, answers))


def _run(
    run: GoalRun,
    pattern: list[int],
    partition: Partition,
    denied: frozenset[RelationSchema],
    budget: Budget,
    tables: GoalTables,
    keep_all: bool,
) -> Evaluated:
    symbols = run.ask(pattern, budget)
    if symbols is None:
        raise EngineFault("a relation changed under a lock")
    budget.check_answers(symbols[1])
    answers = RowSet(*symbols, len(pattern))
    is_cheap = _is_cheap(run.rows_made, answers)
    keeper = None
    if (keep_all or not is_cheap) and can_be_maintained(run) and tables.has_room_to_keep(run.bytes):
        with suppress(BudgetExceeded):  # the answers are there
            table = MaintainedGoal(run, pattern, partition.bind, partition)
            keeper = KeptGoal(table, pattern, denied, tables)
    return Evaluated(answers, keeper, is_cheap)


def _is_cheap(derived: int, answers: RowSet) -> bool:
    return derived <= CHEAP_ROWS and answers.count <= CHEAP_ROWS


def followed(
    tenant: Tenant,
    programs: Programs,
    partition: Partition,
    goal: GoalRules,
    changed: Changed,
    budget: Budget,
) -> Difference | None:
    """Return the difference that changed facts make, found from the changes.

    None if it cannot be found in this way: a change reaches an aggregate, or recursion through
    negation. Raises BudgetExceeded.
    """
    schema = goal.schema
    if schema not in goal.rules.derived:
        own = changed.get(schema, FactChanges([], []))
        return Difference(RowSet.of(own.added, schema.arity), RowSet.of(own.removed, schema.arity))
    facts = {
        relation: Difference(
            RowSet.of(each.added, relation.arity), RowSet.of(each.removed, relation.arity)
        )
        for relation, each in changed.items()
    }
    changes = differences(tenant, programs, partition, goal.rules, facts, budget)
    if changes is None:
        return None
    return changes.get(schema) or Difference(*[RowSet(array("I"), 0, schema.arity)] * 2)


def _needed(rules: Iterable[Rule], own: Sequence[Rule], predicate: str) -> list[Rule]:
    """Return the rules that a predicate, or the bodies of a goal's own rules, depend on."""
    by_head: dict[str, list[Rule]] = {}
    for rule in rules:
        by_head.setdefault(rule.head.predicate, []).append(rule)
    chosen: set[int] = set()
    reached = {predicate}
    waiting = [predicate]
    for rule in own:
        for name in _read(rule) - reached:
            reached.add(name)
            waiting.append(name)
    while waiting:
        for rule in by_head.get(waiting.pop(), ()):
            chosen.add(id(rule))
            for name in _read(rule) - reached:
                reached.add(name)
                waiting.append(name)
    return [rule for rule in rules if id(rule) in chosen]


def _read(rule: Rule) -> set[str]:
    return {item.atom.predicate for item in rule.body if isinstance(item, Literal)}
