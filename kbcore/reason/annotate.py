"""Annotations of answer rows: confidence, validity, contradictions, non-monotonic conclusions.

Most goals read no fact with a confidence or a validity window, no negation and no explicit
negative. For these goals the only cost is one lookup of their marks, which are cached until the
tenant changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from kbcore.reason.budget import Budget
from kbcore.reason.inherited import ALWAYS, Inherited, inherited_values
from kbcore.reason.options import GoalOptions
from kbcore.reason.view import viewed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import MonotoneRules, RuleSet, tests_absence
from kbplanner.engine.backend import FOREVER, Attribute
from kbplanner.evaluate.evaluate import goal_shape
from kbplanner.evaluate.grounding import GroundForm, GroundPlans, GroundRun
from kbplanner.ir.program import Clause
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Atom
from kbplanner.lru import LruCache

Answers: TypeAlias = "tuple[array[int], int]"
"""Flat rows of symbols in answer order, and the number of rows."""

Solve = Callable[[Partition, RuleSet, Atom, Budget, GoalOptions], Answers]
"""Function that answers an atom with a rule set."""


class Absence(Enum):
    """The share of a goal's conclusions whose every proof depends on an absent fact."""

    NONE = 0
    PARTIAL = 1
    ALL = 2


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Everything a relation's conclusions can depend on: clauses, stored relations, absences, rules
    with a confidence.
    """

    clauses: tuple[Clause, ...]
    stored: frozenset[RelationSchema]
    absence: bool
    confident: bool


@dataclass(slots=True)
class Marks:
    """The annotations that answers of a goal may need, at one version of the tenant.

    `annotated` holds the stored relations with confidences or validity windows. None means that
    nothing is inherited.
    """

    version: int
    annotated: frozenset[RelationSchema] | None
    absence: Absence
    opposite: bool
    alike: bool = field(init=False)
    """True if all conclusions have the same annotation: none, or `nonMonotonic`."""
    plain: bool = field(init=False)
    """True if rows need no annotation."""

    def __post_init__(self) -> None:
        self.alike = (
            self.annotated is None and self.absence is not Absence.PARTIAL and not self.opposite
        )
        self.plain = self.alike and self.absence is Absence.NONE


class RowAnnotations:
    """Annotator for the answer rows of one tenant. The caller holds the tenant's read lock."""

    def __init__(self, tenant: Tenant, grounds: GroundPlans) -> None:
        self._tenant = tenant
        self._grounds = grounds
        self._marks: dict[tuple[str | None, str, int, bool], Marks] = {}
        self._slices: LruCache[tuple[RuleSet, RelationSchema, frozenset[RelationSchema]], Slice] = (
            LruCache(1024)
        )
        self._firm: LruCache[tuple[Slice, frozenset[RelationSchema]], bool] = LruCache(1024)
        self._monotone: LruCache[RuleSet, MonotoneRules] = LruCache(64)

    def marks(self, partition: Partition, atom: Atom) -> Marks:
        """Return the annotations that answers of an atom may need, from the cache or computed."""
        key = (partition.name, atom.predicate, len(atom.args), atom.positive)
        marks = self._marks.get(key)
        if marks is None or marks.version != self._tenant.version:
            if len(self._marks) > 1024:
                self._marks.clear()
            marks = self._marks[key] = self._look(
                partition, RelationSchema(atom.predicate, len(atom.args), atom.positive)
            )
        return marks

    def annotate(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        result_rows: Sequence[Row],
        budget: Budget,
        as_of: int | None,
        solve: Solve,
    ) -> None:
        """Add annotations to the rows of an atom's answers.

        `solve` answers the additional goals this needs. Raises BudgetExceeded.
        """
        marks = self.marks(partition, atom)
        if marks.plain or not result_rows:
            return
        if marks.annotated is not None:
            inherited = self._inherited(partition, atom, answers, marks.annotated, budget, as_of)
            for row, values in budget.paced(zip(result_rows, inherited, strict=True)):
                _inherit(row, values)
        elif marks.absence is Absence.ALL:
            for row in budget.paced(result_rows):
                if row["createdAt"] is None:
                    row["metadata"]["nonMonotonic"] = True
        elif marks.absence is Absence.PARTIAL:
            rules = self._rules(partition)
            monotone = self._monotone.get(rules)
            if monotone is None:
                monotone = MonotoneRules(rules.rules)
                self._monotone.put(rules, monotone)
            firm_answers = solve(partition, monotone, atom, budget, GoalOptions(as_of))
            firm = set(budget.keys(*firm_answers, atom.arity))
            for row, key in zip(result_rows, budget.keys(*answers, atom.arity), strict=True):
                if row["createdAt"] is None and key not in firm:
                    row["metadata"]["nonMonotonic"] = True
        if marks.opposite:
            opposite = Atom(atom.predicate, atom.args, not atom.positive)
            opposite_answers = solve(
                partition, self._rules(partition), opposite, budget, GoalOptions(as_of)
            )
            denied = set(budget.keys(*opposite_answers, atom.arity))
            for row, key in zip(result_rows, budget.keys(*answers, atom.arity), strict=True):
                if key in denied:
                    row["metadata"]["contradicted"] = True

    def _rules(self, partition: Partition) -> RuleSet:
        return self._tenant.rules.visible(partition.name)

    def _look(self, partition: Partition, schema: RelationSchema) -> Marks:
        rules, version = self._tenant.rules.visible(partition.name), self._tenant.version
        other_sign = RelationSchema(schema.predicate, schema.arity, not schema.positive)
        stored = partition.get(other_sign)
        opposite = other_sign in rules.derived or bool(stored and stored.relation.counts().live)
        if schema not in rules.derived:
            return Marks(version, None, Absence.NONE, opposite)
        # Explicit negatives count even if none is valid now: a goal may ask for another time.
        denied = frozenset(
            s for s in rules.deniable if (r := partition.get(s)) and r.relation.counts().live
        )
        slice_ = self._slice(rules, schema, denied)
        relations = [relation for s in slice_.stored if (relation := partition.get(s))]
        annotated = frozenset(
            r.schema for r in relations if r.limited or r.relation.uses(Attribute.CONFIDENCE)
        )
        absence = Absence.NONE
        if slice_.absence:
            nonempty = frozenset(r.schema for r in relations if r.relation.counts().live)
            absence = (
                Absence.PARTIAL
                if self._can_be_firm(slice_, rules.conclusions(schema), nonempty)
                else Absence.ALL
            )
        return Marks(
            version, annotated if annotated or slice_.confident else None, absence, opposite
        )

    def _can_be_firm(
        self, slice_: Slice, goal: RelationSchema, nonempty: frozenset[RelationSchema]
    ) -> bool:
        """Return whether the conclusions of a relation can have a proof without an absence, given
        the relations with facts.
        """
        key = (slice_, nonempty)
        can_be_firm = self._firm.get(key)
        if can_be_firm is None:
            can_be_firm = goal in _firm(slice_.clauses, nonempty)
            self._firm.put(key, can_be_firm)
        return can_be_firm

    def _slice(
        self, rules: RuleSet, goal: RelationSchema, denied: frozenset[RelationSchema]
    ) -> Slice:
        key = (rules, goal, denied)
        slice_ = self._slices.get(key)
        if slice_ is None:
            slice_ = _slice(rules, goal, denied)
            self._slices.put(key, slice_)
        return slice_

    def _inherited(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        annotated: frozenset[RelationSchema],
        budget: Budget,
        as_of: int | None,
    ) -> list[Inherited]:
        engine, rules = self._tenant.engine, self._rules(partition)
        shape = goal_shape(atom.args, engine.find)
        if shape is None:
            return []
        pattern, adornment = shape
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        with viewed(self._tenant, partition, rules, (schema,), budget, as_of) as view:
            goal = self._grounds.get(
                view.rules, schema, adornment, view.denied, view.statistics, GroundForm(annotated)
            )
            run = GroundRun(engine, goal, view.bind, budget.limits, budget.now)
            try:
                run.seed(array("I", pattern), 1)
                return inherited_values(run, partition, *answers, budget)
            finally:
                run.close()


def _slice(rules: RuleSet, goal: RelationSchema, denied: frozenset[RelationSchema]) -> Slice:
    """Return the slice that the positive parts of proofs of a stored schema can use."""
    heads: dict[RelationSchema, list[int]] = {}
    clauses = rules.clauses(denied)
    for index, clause in enumerate(clauses):
        heads.setdefault(clause.head.schema, []).append(index)
    used: list[Clause] = []
    stored: set[RelationSchema] = set()
    start = rules.conclusions(goal)
    reached, todo = {start}, [start]
    absence = confident = False
    while todo:
        for index in heads.get(todo.pop(), ()):
            clause = clauses[index]
            used.append(clause)
            absence = absence or tests_absence(clause)
            confident = confident or (
                clause.rule > 0 and rules.rules[clause.rule - 1].confidence is not None
            )
            for atom in clause.atoms():
                if atom.schema.role is Role.STORED:
                    stored.add(atom.schema)
                elif atom.schema not in reached:
                    reached.add(atom.schema)
                    todo.append(atom.schema)
    return Slice(tuple(used), frozenset(stored), absence, confident)


def _firm(clauses: Sequence[Clause], nonempty: frozenset[RelationSchema]) -> set[RelationSchema]:
    """Return the relations derivable from `nonempty` stored relations by clauses that test no
    absence.
    """
    firm: set[RelationSchema] = set(nonempty)
    grown = True
    while grown:
        grown = False
        for clause in clauses:
            head = clause.head.schema
            if (
                head not in firm
                and not tests_absence(clause)
                and all(atom.schema in firm for atom in clause.atoms())
            ):
                firm.add(head)
                grown = True
    return firm


def _inherit(row: Row, values: Inherited) -> None:
    """Set the inherited values of a row.

    An asserted fact keeps its own where no proof is better.
    """
    if row["createdAt"] is None:
        row["confidence"] = values.confidence
        better = True
    else:
        own = row["confidence"]
        if own is not None and values.confidence is not None and values.confidence > own:
            row["confidence"] = values.confidence
        until = row["validUntil"]
        better = until is not None and values.end > until
    if better:
        row["validFrom"] = None if values.start == ALWAYS else values.start
        row["validUntil"] = None if values.end == FOREVER else values.end
        if not values.monotone:
            row["metadata"]["nonMonotonic"] = True
