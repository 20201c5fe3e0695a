"""What rows of answers say beside their arguments: inherited confidence and validity, contradictions, reliance on absences.

Most goals read no fact with a confidence or a window, no absence and no explicit negative; a look at their marks, kept until
something changes, is all they pay here.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from kbcore.reason.budget import Budget
from kbcore.reason.inherited import ALWAYS, Weight, weigh
from kbcore.reason.view import viewed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.monotone import MonotoneRules, tests_absence
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import FOREVER, Attribute
from kbplanner.evaluate.evaluate import goal_shape
from kbplanner.evaluate.grounding import GroundPlans, GroundRun
from kbplanner.ir.program import Clause
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Atom

Answers: TypeAlias = "tuple[array[int], int]"
"""Rows of symbols in answer order, and how many."""

Solve = Callable[[Partition, RuleSet, Atom, Budget, "int | None"], Answers]
"""Answer an atom with some rules."""


class Absence(Enum):
    """Which conclusions of a goal rest on something being absent in every proof of theirs."""

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """What conclusions of a relation can rest on: clauses, stored relations, absences, rules with a confidence."""

    clauses: tuple[Clause, ...]
    stored: frozenset[RelationSchema]
    absence: bool
    confident: bool


@dataclass(slots=True)
class Marks:
    """What the answers of a goal have to be looked at for, at one version of the tenant.

    `weighed` are the stored relations with confidences or windows; None: nothing is inherited.
    """

    version: int
    weighed: frozenset[RelationSchema] | None
    absence: Absence
    opposite: bool
    alike: bool = field(init=False)
    """Whether all conclusions say the same beside their arguments: nothing, or that they rest on an absence."""
    plain: bool = field(init=False)
    """Whether rows are shown as they are."""

    def __post_init__(self) -> None:
        self.alike = self.weighed is None and self.absence is not Absence.SOME and not self.opposite
        self.plain = self.alike and self.absence is Absence.NONE


class Annotations:
    """Annotates the rows of one tenant's answers. The caller holds the read lock."""

    def __init__(self, tenant: Tenant, grounds: GroundPlans) -> None:
        self._tenant = tenant
        self._grounds = grounds
        self._marks: dict[tuple[str | None, str, int, bool], Marks] = {}
        self._slices: OrderedDict[tuple[RuleSet, RelationSchema, frozenset[RelationSchema]], Slice] = OrderedDict()
        self._firm: OrderedDict[tuple[Slice, frozenset[RelationSchema]], bool] = OrderedDict()
        self._monotone: OrderedDict[RuleSet, MonotoneRules] = OrderedDict()

    def marks(self, partition: Partition, atom: Atom) -> Marks:
        """What the answers of an atom have to be looked at for."""
        key = (partition.name, atom.predicate, len(atom.args), atom.positive)
        found = self._marks.get(key)
        if found is None or found.version != self._tenant.version:
            if len(self._marks) > 1024:
                self._marks.clear()
            found = self._marks[key] = self._look(partition, RelationSchema(atom.predicate, atom.arity, atom.positive))
        return found

    def annotate(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        shown: Sequence[Row],
        marks: Marks,
        budget: Budget,
        as_of: int | None,
        solve: Solve,
    ) -> None:
        """Complete the rows of answers of an atom; `solve` answers more goals. Raises BudgetExceeded."""
        if not shown:
            return
        if marks.weighed is not None:
            weights = self._weights(partition, atom, answers, marks.weighed, budget, as_of)
            for row, weight in budget.paced(zip(shown, weights, strict=True)):
                _inherit(row, weight)
        elif marks.absence is Absence.ALL:
            for row in budget.paced(shown):
                if row["createdAt"] is None:
                    row["metadata"]["nonMonotonic"] = True
        elif marks.absence is Absence.SOME:
            rules = self._rules(partition)
            monotone = self._monotone.get(rules)
            if monotone is None:
                monotone = self._monotone[rules] = MonotoneRules(rules.rules)
                if len(self._monotone) > 64:
                    self._monotone.popitem(last=False)
            firm = set(budget.keys(*solve(partition, monotone, atom, budget, as_of), atom.arity))
            for row, key in zip(shown, budget.keys(*answers, atom.arity), strict=True):
                if row["createdAt"] is None and key not in firm:
                    row["metadata"]["nonMonotonic"] = True
        if marks.opposite:
            opposite = Atom(atom.predicate, atom.args, not atom.positive)
            found = solve(partition, self._rules(partition), opposite, budget, as_of)
            denied = set(budget.keys(*found, atom.arity))
            for row, key in zip(shown, budget.keys(*answers, atom.arity), strict=True):
                if key in denied:
                    row["metadata"]["contradicted"] = True

    def _rules(self, partition: Partition) -> RuleSet:
        return self._tenant.rules.visible(partition.name)

    def _look(self, partition: Partition, schema: RelationSchema) -> Marks:
        rules, version = self._rules(partition), self._tenant.version
        stored = partition.get(schema.opposite)
        opposite = schema.opposite in rules.derived or bool(stored and stored.relation.counts().live)
        if schema not in rules.derived:
            return Marks(version, None, Absence.NONE, opposite)
        # Explicit negatives count also while none of them is valid: goals may be asked of another moment.
        denied = frozenset(s for s in rules.deniable if (r := partition.get(s)) and r.relation.counts().live)
        found = self._slice(rules, schema, denied)
        relations = [relation for s in found.stored if (relation := partition.get(s))]
        weighed = frozenset(r.schema for r in relations if r.limited or r.relation.uses(Attribute.CONFIDENCE))
        absence = Absence.NONE
        if found.absence:
            told = frozenset(r.schema for r in relations if r.relation.counts().live)
            absence = Absence.SOME if self._can_be_firm(found, schema, told) else Absence.ALL
        return Marks(version, weighed if weighed or found.confident else None, absence, opposite)

    def _can_be_firm(self, slice_: Slice, goal: RelationSchema, told: frozenset[RelationSchema]) -> bool:
        """Whether a conclusion can be without an absence, as far as it depends on which relations have facts."""
        key = (slice_, told)
        found = self._firm.get(key)
        if found is None:
            found = self._firm[key] = goal.derived in _firm(slice_.clauses, told)
            if len(self._firm) > 1024:
                self._firm.popitem(last=False)
        return found

    def _slice(self, rules: RuleSet, goal: RelationSchema, denied: frozenset[RelationSchema]) -> Slice:
        key = (rules, goal, denied)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = _slice(rules, goal, denied)
            if len(self._slices) > 1024:
                self._slices.popitem(last=False)
        return found

    def _weights(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        weighed: frozenset[RelationSchema],
        budget: Budget,
        as_of: int | None,
    ) -> list[Weight]:
        engine, rules = self._tenant.engine, self._rules(partition)
        asked = goal_shape(atom.args, engine.find)
        if asked is None:
            return []
        pattern, adornment = asked
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        with viewed(self._tenant, partition, rules, (schema,), budget, as_of) as view:
            goal = self._grounds.get(view.rules, schema, adornment, view.denied, view.statistics, weighed)
            run = GroundRun(engine, goal, view.bind, budget.limits)
            try:
                run.seed(array("I", pattern), 1)
                return weigh(run, rules, partition, *answers, budget)
            finally:
                run.close()


def _slice(rules: RuleSet, goal: RelationSchema, denied: frozenset[RelationSchema]) -> Slice:
    """What the positive parts of proofs of a stored schema's conclusions can use."""
    heads: dict[RelationSchema, list[int]] = {}
    clauses = rules.clauses(denied)
    for place, clause in enumerate(clauses):
        heads.setdefault(clause.head.schema, []).append(place)
    used: list[Clause] = []
    stored: set[RelationSchema] = set()
    reached, todo = {goal.derived}, [goal.derived]
    absence = confident = False
    while todo:
        for place in heads.get(todo.pop(), ()):
            clause = clauses[place]
            used.append(clause)
            absence = absence or tests_absence(clause)
            confident = confident or (clause.rule > 0 and rules.rules[clause.rule - 1].confidence is not None)
            for atom in clause.atoms():
                if atom.schema.role is Role.STORED:
                    stored.add(atom.schema)
                elif atom.schema not in reached:
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return Slice(tuple(used), frozenset(stored), absence, confident)


def _firm(clauses: Sequence[Clause], told: frozenset[RelationSchema]) -> set[RelationSchema]:
    """The relations that can have conclusions by clauses that test no absence, from the stored relations of `told`."""
    found: set[RelationSchema] = set(told)
    grown = True
    while grown:
        grown = False
        for clause in clauses:
            head = clause.head.schema
            if head not in found and not tests_absence(clause) and all(atom.schema in found for atom in clause.atoms()):
                found.add(head)
                grown = True
    return found


def _inherit(row: Row, weight: Weight) -> None:
    """Give a row what its best proofs say; a fact that is asserted keeps what it says itself where no proof is better."""
    if row["createdAt"] is None:
        row["confidence"] = weight.confidence
        better = True
    else:
        own = row["confidence"]
        if own is not None and weight.confidence is not None and weight.confidence > own:
            row["confidence"] = weight.confidence
        until = row["validUntil"]
        better = until is not None and weight.end > until
    if better:
        row["validFrom"] = None if weight.start == ALWAYS else weight.start
        row["validUntil"] = None if weight.end == FOREVER else weight.end
        if not weight.monotone:
            row["metadata"]["nonMonotonic"] = True
