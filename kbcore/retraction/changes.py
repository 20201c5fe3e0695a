"""The changes of every component of the rules after facts were removed or added, each from the
changes below it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.budget import Budget
from kbcore.retraction.affected import RulesComponent, changed_rows
from kbcore.retraction.programs import CandidateProgram, Programs, is_conclusion
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.changes import RemovedFacts
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Engine, Relation
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.loaded import Bind
from kbplanner.evaluate.settle import View
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS

ROUNDS = 3
"""Rounds of a recursive component before everything that may follow is derived in one run."""

MAX_ROUNDS = 200
"""Rounds of a component in which that is too much."""

MAX_CLOSURE_ROWS = 100_000
"""Limit of derived rows of such a run."""

TEST_STEPS_PER_CANDIDATE, TEST_STEPS = 64, 40_000
"""Limit of steps for testing each candidate of a relation without recursion, before goals for
groups of candidates are tried: a multiple of their number, and a constant.
"""

GROUP_ROWS_PER_CANDIDATE, GROUP_ROWS = 8, 1000
"""Limit of derived rows of goals for groups of candidates: a multiple of their number, and a
constant. Beyond it testing each candidate takes less time.
"""


@dataclass(slots=True)
class Changes:
    """The changed rows of one relation: the conclusions that fell, and those that hold only now.

    `rows` has all of them if a clause reads the relation. `added` counts the rows that hold only
    now, `has_fallen` is True if there are rows that held only before, stored facts included.
    """

    rows: Relation
    fallen: list[RowSet] = field(default_factory=list)
    new: list[RowSet] = field(default_factory=list)
    added: int = 0
    has_fallen: bool = False


class Unfollowed(Exception):
    """A change reaches an aggregate, or a clause with too many variants."""


def removed_rows(
    removed: Iterable[RemovedFacts], budget: Budget
) -> dict[RelationSchema, Difference]:
    """Return the rows of removed facts by relation."""
    symbols: dict[RelationSchema, array[int]] = {}
    counts: dict[RelationSchema, int] = {}
    for change in removed:
        rows = symbols.setdefault(change.schema, array("I"))
        rows.extend(chain.from_iterable(budget.paced(change.keys)))
        counts[change.schema] = counts.get(change.schema, 0) + len(change.keys)
    return {
        schema: Difference(
            RowSet(array("I"), 0, schema.arity), RowSet(rows, counts[schema], schema.arity)
        )
        for schema, rows in symbols.items()
    }


class ComponentChanges:
    """The changes after facts of one partition were removed or added, on a view of the state
    afterwards.

    `changes` has an entry for each relation with changed rows, including those of the facts. With
    `goal` only the rules that this predicate depends on are followed. The relations live until
    `close`.
    """

    def __init__(
        self,
        tenant: Tenant,
        programs: Programs,
        rules: RuleSet,
        view: View,
        facts: Mapping[RelationSchema, Difference],
        budget: Budget,
        goal: RelationSchema | None = None,
    ) -> None:
        self._engine = tenant.engine
        self._tenant = tenant
        self._programs = programs
        self._view = view
        self._budget = budget
        self._relations: dict[RelationSchema, Relation] = {}  # by `changed_rows`
        self.changes: dict[RelationSchema, Changes] = {}
        for schema, (appeared, disappeared) in facts.items():
            for rows in (appeared, disappeared):
                if rows.count:
                    entry = self._entry(schema)
                    entry.rows.insert(rows.symbols, rows.count)
                    if rows is disappeared:
                        entry.has_fallen = True
                    else:
                        entry.added += rows.count
        self._removed = frozenset(s for s, each in facts.items() if each.disappeared.count)
        added = frozenset(s for s, each in facts.items() if each.appeared.count)
        self._rules = programs.rules(rules, view, self._removed, added, goal)

    def close(self) -> None:
        """Drop the relations of changed rows."""
        for relation in self._relations.values():
            relation.drop()
        self._relations.clear()

    @property
    def is_incomplete(self) -> bool:
        """True if a changed fact may change recursion through negation, which is not followed."""
        return self._rules.is_incomplete

    def follow(self) -> None:
        """Find the changes of every component.

        Raises Unfollowed and BudgetExceeded; the changes found until then are right.
        """
        for component in self._rules.components:
            changed = component.reads.intersection(self.changes)
            if changed:
                self._follow(component, changed)

    def counted(self, schema: RelationSchema) -> RowSet:
        """Return the fallen conclusions of a relation, without removed facts, in answer order."""
        entry = self.changes[schema]
        symbols = array("I")
        for rows in entry.fallen:
            symbols.extend(rows.symbols)
        fallen = RowSet(symbols, sum(rows.count for rows in entry.fallen), schema.arity)
        if schema.stored in self._removed:
            fallen = self._without(fallen, self._rows(schema.stored))
        self._engine.sort(fallen.symbols, schema.arity, self._budget.offload, in_place=True)
        return fallen

    # -- one component -----------------------------------------------------------------------------

    def _follow(self, component: RulesComponent, changed: frozenset[RelationSchema]) -> None:
        """Find the changes of a component, of which the relations below it have `changed`.

        Each round tests the candidates that follow from the changes of the round before.
        """
        program = None
        if not component.aggregates:
            program = self._programs.candidates(
                self._rules, component, changed, self._view.statistics
            )
        if program is None:
            raise Unfollowed
        for schema in component.relations:
            self._rows(schema)
        effect = self._effect(component, changed)
        with _Candidates(self._engine, program, self._bind, self._budget) as candidates:
            for number in range(MAX_ROUNDS):
                if number == ROUNDS and self._followed_at_once(component, changed, effect):
                    return
                is_grown = False
                for schema, rows in candidates.next():
                    unknown = self._without(rows, self._rows(schema)) if number else rows
                    is_grown = self._test(schema, unknown, effect) or is_grown
                if not (is_grown and component.is_recursive):
                    return
        message = f"the changes of a recursion take more than {MAX_ROUNDS} rounds"
        raise BudgetExceeded(message, "rounds", MAX_ROUNDS)

    def _effect(self, component: RulesComponent, changed: frozenset[RelationSchema]) -> _Effect:
        """Return in which ways the changes below a component can change it.

        A changed row of `not r(_)` does not decide the literal, as other rows of r may match too: a
        candidate then need not hold on either side.
        """
        falls = adds = False
        for clause in component.clauses:
            for atom in clause.all_atoms():
                if atom.schema in changed:
                    if atom.absent and ANONYMOUS in atom.args:
                        return _Effect(falls=True, adds=True)
                    below = self.changes[atom.schema]
                    falls |= bool(below.added) if atom.absent else below.has_fallen
                    adds |= below.has_fallen if atom.absent else bool(below.added)
        return _Effect(falls, adds)

    def _followed_at_once(
        self, component: RulesComponent, changed: frozenset[RelationSchema], effect: _Effect
    ) -> bool:
        """Find what remains with one run that derives all that may follow from the changes so far.

        False if that is too much.
        """
        program = self._programs.candidates(
            self._rules, component, changed, self._view.statistics, closed=True
        )
        if program is None:
            return False
        limits = replace(self._budget.limits, rows=min(MAX_CLOSURE_ROWS, self._budget.limits.rows))
        budget = replace(self._budget, limits=limits)
        with _Candidates(self._engine, program, self._bind, budget) as candidates:
            try:
                rows_of = list(candidates.next())
            except BudgetExceeded:
                self._budget.check_time()
                return False
            for schema, rows in rows_of:
                # Those that have changed are among the candidates: they are known already.
                self._test(schema, self._without(rows, self._rows(schema)), effect)
        return True

    def _test(self, schema: RelationSchema, candidates: RowSet, effect: _Effect) -> bool:
        """Record those candidates that have changed; return True if there are any."""
        if not candidates.count:
            return False
        fallen = added = RowSet(array("I"), 0, schema.arity)
        if not effect.adds:  # all candidates held before
            fallen = self._false_now(schema, candidates)
        elif not effect.falls:  # all candidates hold now
            added = self._false_before(schema, candidates)
        else:
            false_now = self._false_now(schema, candidates)
            fallen = self._difference(false_now, self._false_before(schema, false_now))
            added = self._false_before(schema, self._difference(candidates, false_now))
        if not (fallen.count or added.count):
            return False
        entry = self._entry(schema)
        if schema in self._rules.read:
            for rows in (fallen, added):
                entry.rows.insert(rows.symbols, rows.count)
        if fallen.count:
            entry.fallen.append(fallen)
            entry.has_fallen = True
        if added.count:
            entry.new.append(added)
            entry.added += added.count
        return True

    # -- tests of candidates -----------------------------------------------------------------------

    def _false_now(self, schema: RelationSchema, candidates: RowSet) -> RowSet:
        """Return the candidates that do not hold after the removal.

        Goals for groups of candidates take less time than tests of single candidates where a test
        is a search, but can have too many answers. So relations without recursion are tested first,
        within a limit, if the goals would leave several arguments free. Tests without a limit of
        their own are the last resort.
        """
        patterns = candidates.patterns(self._engine) if is_conclusion(schema) else []
        limits = self._budget.limits
        is_wide = any(pattern.count(0) > 1 for pattern in patterns)
        if is_wide and schema not in self._rules.recursive:
            steps = min(TEST_STEPS_PER_CANDIDATE * candidates.count + TEST_STEPS, limits.steps)
            budget = replace(self._budget, limits=replace(limits, steps=steps))
            try:
                return self._not_passing(schema, candidates, budget)
            except BudgetExceeded:
                self._budget.check_time()
        if patterns:
            # Goals with fewer constants can have too many answers.
            rows = min(GROUP_ROWS_PER_CANDIDATE * candidates.count + GROUP_ROWS, limits.rows)
            budget = replace(self._budget, limits=replace(limits, rows=rows))
            try:
                with self._answers(schema, patterns, budget) as true:
                    return self._without(candidates, true)
            except BudgetExceeded:
                self._budget.check_time()
        return self._not_passing(schema, candidates, self._budget)

    def _not_passing(self, schema: RelationSchema, candidates: RowSet, budget: Budget) -> RowSet:
        """Test each candidate on the state after the removal; return those that do not hold."""
        goal = self._programs.test_now(self._rules, schema, self._view.statistics)
        return self._failing(goal, self._view.bind, candidates, budget)

    def _false_before(self, schema: RelationSchema, candidates: RowSet) -> RowSet:
        """Return the candidates that did not hold before the removal."""
        goal = self._programs.test_before(self._rules, schema, self._view.statistics)
        return self._failing(goal, self._bind, candidates, self._budget)

    def _failing(
        self, goal: CompiledGoal, bind: Bind, candidates: RowSet, budget: Budget
    ) -> RowSet:
        """Return the candidates that a goal for many bindings does not answer."""
        if not candidates.count:
            return candidates
        run = GoalRun(self._engine, goal, bind, budget.limits, budget.now)
        try:
            true = run.tested(candidates.symbols, candidates.count, budget.drive)
            return self._without(candidates, true)
        finally:
            run.close()

    @contextmanager
    def _answers(
        self, schema: RelationSchema, patterns: Sequence[Sequence[int]], budget: Budget
    ) -> Iterator[Relation]:
        """Provide the answers of goals on the state after the removal; 0 in a pattern is a
        variable.
        """
        view = self._view
        true = self._engine.relation(schema.arity)
        try:
            for pattern in patterns:
                adornment = "".join("b" if symbol else "f" for symbol in pattern)
                goal = self._tenant.plans.get(
                    view.rules, schema.stored, adornment, view.denied, view.statistics
                )
                run = GoalRun(self._engine, goal, view.bind, budget.limits, budget.now)
                try:
                    answers = run.ask(pattern, budget)
                finally:
                    run.close()
                if answers is None:
                    raise EngineFault("a relation changed under the read lock")
                true.insert(*answers)
            yield true
        finally:
            true.drop()

    # -- relations ---------------------------------------------------------------------------------

    def _difference(self, rows: RowSet, others: RowSet) -> RowSet:
        """Return the rows that are not among others."""
        with self._related(others) as relation:
            return self._without(rows, relation)

    def _without(self, rows: RowSet, relation: Relation) -> RowSet:
        """Return the rows that a relation does not have."""
        symbols, count = relation.missing(rows.symbols, rows.count)
        return rows if count == rows.count else RowSet(symbols, count, rows.arity)

    @contextmanager
    def _related(self, rows: RowSet) -> Iterator[Relation]:
        """Provide rows as a relation."""
        relation = self._engine.relation(rows.arity)
        try:
            relation.insert(rows.symbols, rows.count)
            yield relation
        finally:
            relation.drop()

    def _rows(self, schema: RelationSchema) -> Relation:
        """Return the changed rows of a relation, of which there may be none."""
        name = changed_rows(schema)
        if name not in self._relations:
            self._relations[name] = self._engine.relation(schema.arity)
        return self._relations[name]

    def _entry(self, schema: RelationSchema) -> Changes:
        if schema not in self.changes:
            self.changes[schema] = Changes(self._rows(schema))
        return self.changes[schema]

    def _bind(self, schema: RelationSchema) -> Relation:
        return self._relations.get(schema) or self._view.bind(schema)


@dataclass(frozen=True, slots=True)
class _Effect:
    """The ways in which a component can change: conclusions fall, or are added, or both."""

    falls: bool
    adds: bool


class _Candidates:
    """A run that derives candidates, and continues when changed rows are added."""

    def __init__(
        self, engine: Engine, program: CandidateProgram, bind: Bind, budget: Budget
    ) -> None:
        self._engine = engine
        self._program = program
        self._bind = bind
        self._budget = budget
        self._run = self._opened()
        self._rows_before = dict.fromkeys(program.slots, 0)

    def __enter__(self) -> _Candidates:
        return self

    def __exit__(self, *exc: object) -> None:
        self._run.close()

    def _opened(self) -> GoalRun:
        return GoalRun(
            self._engine, self._program.goal, self._bind, self._budget.limits, self._budget.now
        )

    def next(self) -> Iterator[tuple[RelationSchema, RowSet]]:
        """Continue, then yield the relations of the component with their new candidates.

        A run that cannot continue begins again, and yields known candidates once more.
        """
        if self._run.ask([], self._budget) is None:
            self._run.close()
            self._run = self._opened()
            self._rows_before = dict.fromkeys(self._program.slots, 0)
            self._run.ask([], self._budget)
        for entry in self._program.slots:
            schema, slot = entry
            relation = self._run.run.relation(slot)
            first, end = self._rows_before[entry], relation.counts().rows
            self._rows_before[entry] = end
            if not first:
                yield schema, RowSet.in_relation(relation, schema.arity, self._budget.yield_now)
            elif first < end:
                symbols = relation.rows(array("I", range(first, end)))
                yield schema, RowSet(symbols, end - first, schema.arity)
