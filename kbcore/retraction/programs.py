"""Compiled programs that find the changes of components, cached by rules and removed relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kbcore.retraction.affected import (
    ALL,
    RulesComponent,
    before,
    candidate_rows,
    candidates,
    components_of,
)
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.evaluate import CompiledGoal
from kbplanner.evaluate.loaded import load
from kbplanner.evaluate.settle import View
from kbplanner.ir.program import Clause, dependencies
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.lru import LruCache
from kbplanner.pacing import current_yield
from kbplanner.passes import OPTIONAL, rewrite
from kbplanner.passes.order import SmallDerived, Statistics
from kbplanner.passes.wellfounded import clauses_independent_of

MAX_PROGRAMS = 256
MAX_RULE_SETS = 64


@dataclass(frozen=True, eq=False)
class RulesForRemoval:
    """Rules as they are evaluated after facts of some stored relations were removed or added.

    `clauses` leave out recursion through negation that depends on a changed relation, and its
    dependents; `is_incomplete` is True if there is any.
    """

    rules: RuleSet
    denied: frozenset[RelationSchema]
    removed: frozenset[RelationSchema]
    clauses: Sequence[Clause]
    is_incomplete: bool
    added: frozenset[RelationSchema] = frozenset()

    @cached_property
    def components(self) -> list[RulesComponent]:
        """The components of the clauses, each after those it depends on."""
        return components_of(self.clauses)

    @cached_property
    def read(self) -> frozenset[RelationSchema]:
        """The relations that clauses read."""
        return frozenset().union(*(component.reads for component in self.components))

    @cached_property
    def recursive(self) -> frozenset[RelationSchema]:
        """The relations of recursive components."""
        return frozenset().union(
            *(component.relations for component in self.components if component.is_recursive)
        )

    @cached_property
    def clauses_before(self) -> list[Clause]:
        """The clauses over the facts before the change."""
        return before(self.clauses, self.removed, self.added)


@dataclass(frozen=True, slots=True, eq=False)
class CandidateProgram:
    """A program that derives the candidates of a component, and the slots that hold them."""

    goal: CompiledGoal
    slots: tuple[tuple[RelationSchema, int], ...]


class Programs:
    """Compiled programs about removals in one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._rules: LruCache[
            tuple[
                RuleSet,
                frozenset[RelationSchema],
                frozenset[RelationSchema],
                frozenset[RelationSchema],
                RelationSchema | None,
            ],
            RulesForRemoval,
        ] = LruCache(MAX_RULE_SETS)
        self._candidates: LruCache[
            tuple[RulesComponent, frozenset[RelationSchema], bool], CandidateProgram
        ] = LruCache(MAX_PROGRAMS)
        self._tests: LruCache[tuple[RulesForRemoval, RelationSchema, bool], CompiledGoal]
        self._tests = LruCache(MAX_PROGRAMS)
        self._goals: LruCache[tuple[tuple[Clause, ...], RelationSchema], CompiledGoal]
        self._goals = LruCache(MAX_PROGRAMS)

    @classmethod
    def of(cls, tenant: Tenant) -> Programs:
        """Return the programs that are kept with a tenant."""
        return tenant.attached.need(cls, lambda: cls(tenant))

    def close(self) -> None:
        """Drop the compiled programs."""
        self._rules.clear()
        self._candidates.clear()
        self._tests.clear()
        self._goals.clear()

    def rules(
        self,
        source: RuleSet,
        view: View,
        removed: frozenset[RelationSchema],
        added: frozenset[RelationSchema] = frozenset(),
        goal: RelationSchema | None = None,
    ) -> RulesForRemoval:
        """Return the rules of a view after rows of these stored relations were removed or added;
        with `goal` only those that the conclusions of a stored schema depend on.

        `source` are the rules as they were before recursion through negation was settled.
        """
        key = (view.rules, removed, added, view.denied, goal)
        rules = self._rules.get(key)
        if rules is None:
            touched = source.components_reading(view.denied, removed | added)
            clauses: Sequence[Clause] = view.rules.clauses(view.denied)
            if goal is not None:
                needed = (view.rules.conclusions(goal),)
                touched &= dependencies(source.clauses(view.denied), needed, current_yield())
                reached = dependencies(clauses, needed, current_yield())
                clauses = tuple(each for each in clauses if each.head.schema in reached)
            clauses = clauses_independent_of(clauses, touched)
            rules = RulesForRemoval(view.rules, view.denied, removed, clauses, bool(touched), added)
            self._rules.put(key, rules)
        return rules

    def candidates(
        self,
        rules: RulesForRemoval,
        component: RulesComponent,
        changed: frozenset[RelationSchema],
        statistics: Statistics,
        *,
        closed: bool = False,
    ) -> CandidateProgram | None:
        """Return the program for the candidates of a component; see `affected.candidates`."""
        key = (component, changed, closed)
        program = self._candidates.get(key)
        if program is None or program.goal.loaded.is_outdated(statistics):
            clauses = candidates(rules.clauses, component, changed, closed=closed)
            if clauses is None:
                return None
            originals = {candidate_rows(schema): schema for schema in component.relations}
            # Few rows usually change: joins should start from them.
            expecting = SmallDerived(statistics, originals.__contains__)
            goal = self._compiled(
                clauses, ALL, "", expecting, frozenset({"restrict", "equivalence", "project"})
            )
            slots = tuple(
                (originals[schema.bare], slot)
                for slot, schema in enumerate(goal.plan.slots)
                if schema.role is Role.DERIVED and schema.bare in originals
            )
            program = CandidateProgram(goal, slots)
            self._candidates.put(key, program)
        return program

    def test_now(
        self, rules: RulesForRemoval, schema: RelationSchema, statistics: Statistics
    ) -> CompiledGoal:
        """Return the goal that tests many rows of a relation on the state after the removal."""
        if is_conclusion(schema):
            marks = "b" * schema.arity
            return self._tenant.plans.get(
                rules.rules, schema.stored, marks, rules.denied, statistics, many=True
            )
        return self._test(rules, schema, rules.clauses, statistics, now=True)

    def test_before(
        self, rules: RulesForRemoval, schema: RelationSchema, statistics: Statistics
    ) -> CompiledGoal:
        """Return the goal that tests many rows of a relation on the state before the removal."""
        return self._test(rules, schema, rules.clauses_before, statistics, now=False)

    def _test(
        self,
        rules: RulesForRemoval,
        schema: RelationSchema,
        clauses: Sequence[Clause],
        statistics: Statistics,
        *,
        now: bool,
    ) -> CompiledGoal:
        key = (rules, schema, now)
        goal = self._tests.get(key)
        if goal is None or goal.loaded.is_outdated(statistics):
            goal = self._compiled(clauses, schema, "b" * schema.arity, statistics, OPTIONAL)
            self._tests.put(key, goal)
        return goal

    def _compiled(
        self,
        clauses: Sequence[Clause],
        schema: RelationSchema,
        marks: str,
        statistics: Statistics,
        skip: frozenset[str],
    ) -> CompiledGoal:
        """Return a goal from the clauses it depends on, compiled again if they or sizes changed."""
        reached = dependencies(clauses, (schema,))
        used = tuple(clause for clause in clauses if clause.head.schema in reached)
        goal = self._goals.get((used, schema))
        if goal is None or goal.loaded.is_outdated(statistics):
            program = rewrite(used, schema, marks, statistics, skip=skip)
            goal = CompiledGoal(load(self._tenant.engine, program, statistics))
            self._goals.put((used, schema), goal)
        return goal


def is_conclusion(schema: RelationSchema) -> bool:
    """Return True if the rows of a relation are conclusions, which answers and counts include."""
    return schema == schema.stored.derived
