"""Evaluation of a standing goal: all its answers, or those that a change of stored facts
changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbcore.errors import InvalidInput
from kbcore.reason.ask import GOAL, Reasoner, body_variables
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.retraction.changes import ComponentChanges, Unfollowed
from kbcore.retraction.programs import Programs
from kbcore.retraction.rows import RowSet
from kbcore.state.changes import RemovedFacts
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.program import Computation
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule
from kbplanner.passes.check import check_evaluable

Changed = Mapping[RelationSchema, "FactChanges"]
"""The changed facts of stored relations."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """The facts of one relation that hold only now, and those that held only before."""

    added: list[RowKey]
    removed: list[RowKey]


class Difference(NamedTuple):
    """Answers that hold only now, and answers that held only before."""

    appeared: RowSet
    disappeared: RowSet


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
    denied = partition.denied(goal.rules.deniable) | (goal.rules.deniable & frozenset(changed))
    removed = [
        RemovedFacts(relation, partition.name, facts.removed, [])
        for relation, facts in changed.items()
        if facts.removed
    ]
    added = {
        relation: RowSet.of(facts.added, relation.arity)
        for relation, facts in changed.items()
        if facts.added
    }
    with viewed(tenant, partition, goal.rules, None, budget, None, denied) as view:
        changes = ComponentChanges(tenant, programs, goal.rules, view, removed, budget, added)
        try:
            if changes.is_incomplete:
                return None
            changes.follow()
            entry = changes.changes.get(goal.rules.conclusions(schema))
            if entry is None:
                return Difference(*[RowSet(array("I"), 0, schema.arity)] * 2)
            return Difference(_joined(entry.new, schema.arity), _joined(entry.fallen, schema.arity))
        except Unfollowed:
            return None
        finally:
            changes.close()


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


def _joined(parts: Sequence[RowSet], arity: int) -> RowSet:
    symbols = array("I")
    for rows in parts:
        symbols.extend(rows.symbols)
    return RowSet(symbols, sum(rows.count for rows in parts), arity)
