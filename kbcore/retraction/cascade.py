"""Cascades of retractions: conclusions that no longer hold after a retraction, and new conclusions.

The method follows Backward/Forward maintenance (Motik et al. 2015). Forward: a conclusion is
*affected* if an instance of a rule derives it from premises that hold now or are affected, at least
one of them affected; initially the removed facts are affected. Every changed conclusion is
affected. Backward: each affected conclusion is evaluated as a goal on the state after the
retraction. Without `not`, those that do not hold have fallen, because all of them held before. If
an affected predicate is used under `not`, each conclusion is evaluated on the state before as well.

If a removed fact reaches an aggregate or recursion through negation, all conclusions are compared
(`full_diff`). If the work exceeds its budget, the counts are incomplete and marked `truncated`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.retraction.affected import ALL, Affected, affected_of, before, first, removed_schema
from kbcore.retraction.full_diff import compared
from kbcore.retraction.rows import Rows
from kbcore.state.changes import Removed
from kbcore.state.facts import Row, conclusion
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import NO_ROW, Limits, Relation
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.loaded import Bind, load
from kbplanner.evaluate.settle import View
from kbplanner.ir.program import Clause
from kbplanner.ir.schema import RelationSchema
from kbplanner.lru import LruCache
from kbplanner.passes import OPTIONAL, rewrite
from kbplanner.passes.order import SmallDerived, Statistics
from kbplanner.passes.wellfounded import clauses_independent_of

MAX_ROWS = 100_000
MAX_STEPS = 1_000_000
MAX_FULL_ROWS = 1_000_000
MAX_FULL_STEPS = 10_000_000
"""Limits of a comparison of all conclusions, which takes less time for each of them."""

MAX_SHOWN = 1000
MAX_PROGRAMS = 64

Key = tuple[RuleSet, frozenset[RelationSchema], frozenset[RelationSchema]]


@dataclass(slots=True)
class Consequences:
    """The number of fallen conclusions, the first of them as rows, and the number of new
    conclusions.

    `truncated` is True if there may be more.
    """

    count: int = 0
    appeared: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False

    def add(self, other: Consequences, max_rows: int) -> None:
        """Add other consequences, of which at most as many rows as there is space for are kept."""
        self.count += other.count
        self.appeared += other.appeared
        self.rows += other.rows[: max(max_rows - len(self.rows), 0)]


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The compiled programs for a removal, see `affected`: affected conclusions, first ones,
    clauses before.

    `first` is None if first conclusions cannot decide anything. `signed` and `incomplete` are those
    of `Affected`.
    """

    goal: CompiledGoal
    first: CompiledGoal | None
    before: tuple[Clause, ...]
    signed: bool
    incomplete: bool


class Cascades:
    """Finder of conclusions that fall with retractions in one tenant, with a cache of compiled
    programs.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._programs: LruCache[Key, _Program] = LruCache(MAX_PROGRAMS)
        self._goals_before: LruCache[tuple[_Program, RelationSchema], CompiledGoal]
        self._goals_before = LruCache(MAX_PROGRAMS)

    def close(self) -> None:
        """Drop the compiled programs."""
        self._programs.clear()
        self._goals_before.clear()

    def count(self, removed: Iterable[Removed], budget: Budget, result: Consequences) -> None:
        """Add the conclusions that fell with removed facts to `result`.

        The caller holds the read lock of the state after the retraction.
        """
        cascade_budget = _limited(budget, MAX_ROWS, MAX_STEPS)
        full_budget = _limited(budget, MAX_FULL_ROWS, MAX_FULL_STEPS)
        by_scope: dict[str | None, list[Removed]] = {}
        for change in removed:
            by_scope.setdefault(change.scope, []).append(change)
        for scope, changes in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._tenant.rules.visible(scope)
            removed_schemas = frozenset(change.schema for change in changes)
            if partition is None or (rules.reads | rules.deniable).isdisjoint(removed_schemas):
                continue
            denied = partition.denied(rules.deniable) | (rules.deniable & removed_schemas)
            try:
                with viewed(
                    self._tenant, partition, rules, None, cascade_budget, None, denied
                ) as view:
                    cascade = _Cascade(self, self._tenant, partition, changes, cascade_budget, view)
                    cascade.count(rules, full_budget, result)
            except BudgetExceeded:
                result.truncated = True

    def program(self, rules: RuleSet, removed: frozenset[RelationSchema], view: View) -> _Program:
        """Return the compiled programs for a removal from these stored relations."""
        key = (view.rules, removed, view.denied)
        compiled = self._programs.get(key)
        if compiled is None:
            # Excludes recursion through negation that the removal touches, and its dependents.
            touched = rules.components_reading(view.denied, removed)
            clauses = clauses_independent_of(view.rules.clauses(view.denied), touched)
            affected = Affected(clauses, removed)
            # Few conclusions are usually affected: joins should start from the affected relations.
            expecting = SmallDerived(
                view.statistics, lambda schema: affected_of(schema) is not None
            )
            program = rewrite(affected.clauses, ALL, "", expecting, skip={"restrict", "project"})
            goal = CompiledGoal(load(self._tenant.engine, program, expecting))
            start = None
            if not (affected.signed or affected.incomplete or touched):
                begun = rewrite(
                    first(clauses, removed), ALL, "", view.statistics, skip={"restrict", "project"}
                )
                start = CompiledGoal(load(self._tenant.engine, begun, view.statistics))
            past = tuple(before(clauses, removed)) if affected.signed else ()
            compiled = _Program(
                goal, start, past, affected.signed, affected.incomplete or bool(touched)
            )
            self._programs.put(key, compiled)
        return compiled

    def goal_before(
        self, program: _Program, schema: RelationSchema, statistics: Statistics
    ) -> CompiledGoal:
        """Return the goal that evaluates conclusions of a schema before the removal."""
        key = (program, schema)
        goal = self._goals_before.get(key)
        if goal is None:
            rewritten = rewrite(
                program.before, schema.derived, "b" * schema.arity, statistics, skip=OPTIONAL
            )
            goal = CompiledGoal(load(self._tenant.engine, rewritten, statistics))
            self._goals_before.put(key, goal)
        return goal


class _Cascade:
    """The evaluation of one removal in one partition, on a view of the state after the removal."""

    def __init__(
        self,
        cascades: Cascades,
        tenant: Tenant,
        partition: Partition,
        changes: Sequence[Removed],
        budget: Budget,
        view: View,
    ) -> None:
        self._cascades = cascades
        self._tenant = tenant
        self._engine = tenant.engine
        self._partition = partition
        self._changes = changes
        self._budget = budget
        self._view = view
        self._removed: dict[RelationSchema, Relation] = {}
        self._removed_keys: dict[RelationSchema, set[RowKey]] = {}

    def count(self, rules: RuleSet, full_budget: Budget, result: Consequences) -> None:
        """Add the fallen and the new conclusions to `result`. Raises BudgetExceeded.

        If too many conclusions are affected, all are compared within `full_budget`.
        """
        schemas = frozenset(change.schema for change in self._changes)
        program = self._cascades.program(rules, schemas, self._view)
        if program.incomplete:
            try:
                self._compare_all(rules, self._budget, result)
                return
            except BudgetExceeded:
                result.truncated = True
        affected = Consequences()
        try:
            self._count_affected(program, affected)
        except BudgetExceeded:
            if program.incomplete:
                raise
            self._budget.check_time()
            everything = Consequences()
            self._compare_all(rules, full_budget, everything)
            affected = everything
        finally:
            result.add(affected, MAX_SHOWN)

    def _compare_all(self, rules: RuleSet, budget: Budget, result: Consequences) -> None:
        """Compare all conclusions before and after the removal."""
        fallen, appeared = compared(self._tenant, self._partition, rules, self._changes, budget)
        result.appeared += appeared
        for schema, rows in fallen.items():
            self._note(schema, rows, result)

    def _count_affected(self, program: _Program, result: Consequences) -> None:
        """Evaluate the affected conclusions and compare each before and after the removal."""
        run: GoalRun | None = None
        try:
            self._fill()
            if program.first is not None and self._nothing_fell(program.first):
                return
            run = self._opened(program.goal)
            run.ask([], self._budget)
            slots = sorted(enumerate(program.goal.plan.slots), key=lambda pair: str(pair[1]))
            for slot, schema in slots:
                original = affected_of(schema)
                if original is not None:
                    affected = self._affected(run, slot, schema.arity)
                    self._compare(program, original, affected, result)
        finally:
            if run is not None:
                run.close()
            for relation in self._removed.values():
                relation.drop()

    def _fill(self) -> None:
        """Create the relations of removed facts."""
        for change in self._changes:
            self._removed_keys.setdefault(change.schema, set()).update(
                self._budget.paced(change.keys)
            )
            schema = removed_schema(change.schema)
            if schema not in self._removed:
                self._removed[schema] = self._engine.relation(schema.arity)
            symbols = array("I", chain.from_iterable(self._budget.paced(change.keys)))
            self._removed[schema].insert(symbols, len(change.keys))

    def _bind(self, schema: RelationSchema) -> Relation:
        return self._removed.get(schema) or self._view.bind(schema)

    def _opened(self, goal: CompiledGoal) -> GoalRun:
        return GoalRun(self._engine, goal, self._bind, self._budget.limits)

    def _affected(self, run: GoalRun, slot: int, arity: int) -> Rows:
        """Return the rows of a relation of affected conclusions in answer order, except the removed
        facts.
        """
        budget = self._budget
        relation = run.run.relation(slot)
        count = relation.counts().visible
        rows = relation.match_rows([0] * arity, budget.yield_now)
        rows = self._engine.sort(rows, arity, budget.offload, in_place=True)
        original = affected_of(run.goal.plan.slots[slot])
        removed = self._removed_keys.get(original) if original is not None else None
        if removed:
            keys = budget.keys(rows, count, arity)
            return Rows.of([row for row in keys if row not in removed], arity)
        return Rows(rows, count, arity)

    def _nothing_fell(self, goal: CompiledGoal) -> bool:
        """Return True if all conclusions with a removed premise still hold.

        False also if the budget is exceeded.
        """
        run = self._opened(goal)
        try:
            run.ask([], self._budget)
            for slot, schema in enumerate(goal.plan.slots):
                original = affected_of(schema)
                if original is not None and not self._all_hold(
                    original, self._affected(run, slot, schema.arity)
                ):
                    return False
            return True
        except BudgetExceeded:
            return False
        finally:
            run.close()

    def _all_hold(self, schema: RelationSchema, candidates: Rows) -> bool:
        """Return True if all candidates hold.

        False also for candidates without a common constant.
        """
        if not candidates.count:
            return True
        pattern = candidates.common()
        if not any(pattern) and pattern:
            return False
        return all(self._answering(schema, [pattern], candidates))

    def _answering(
        self, schema: RelationSchema, patterns: Iterable[Sequence[int]], candidates: Rows
    ) -> list[bool]:
        """Return for each candidate whether a goal with one of these patterns answers it on the
        state after the retraction; 0 in a pattern is a variable.
        """
        true = self._engine.relation(schema.arity)
        try:
            for pattern in patterns:
                true.insert(*self._answers(schema, pattern))
            return _located(true, candidates)
        finally:
            true.drop()

    def _answers(self, schema: RelationSchema, pattern: Sequence[int]) -> tuple[array[int], int]:
        """Return the answers of a goal on the state after the retraction."""
        view = self._view
        adornment = "".join("b" if symbol else "f" for symbol in pattern)
        goal = self._tenant.plans.get(view.rules, schema, adornment, view.denied, view.statistics)
        run = GoalRun(self._engine, goal, view.bind, self._budget.limits)
        try:
            answers = run.ask(pattern, self._budget)
            if answers is None:
                raise EngineFault("a relation changed under the read lock")
            return answers
        finally:
            run.close()

    def _compare(
        self,
        program: _Program,
        schema: RelationSchema,
        candidates: Rows,
        result: Consequences,
    ) -> None:
        """Count the candidates that held only before, and those that hold only now."""
        if not candidates.count:
            return
        holds = self._hold(schema, candidates)
        if not program.signed:
            self._note(schema, candidates.chosen(not now for now in holds), result)
            return
        past = self._cascades.goal_before(program, schema, self._view.statistics)
        held = self._holding(past, self._bind, candidates)
        pairs = list(zip(held, holds, strict=True))
        self._note(schema, candidates.chosen(old and not now for old, now in pairs), result)
        result.appeared += sum(1 for old, now in pairs if now and not old)

    def _hold(self, schema: RelationSchema, candidates: Rows) -> list[bool]:
        """Return for each candidate whether it holds after the retraction, with one goal per group
        if possible.
        """
        patterns = candidates.patterns(self._engine)
        if patterns:
            try:
                return self._answering(schema, patterns, candidates)
            except BudgetExceeded:
                # The goals with fewer constants have too many answers: check each candidate.
                self._budget.check_time()
        view = self._view
        goal = self._tenant.plans.get(
            view.rules, schema, "b" * schema.arity, view.denied, view.statistics, many=True
        )
        return self._holding(goal, view.bind, candidates)

    def _holding(self, goal: CompiledGoal, bind: Bind, candidates: Rows) -> list[bool]:
        run = GoalRun(self._engine, goal, bind, self._budget.limits)
        try:
            return run.holding(candidates.symbols, candidates.count, self._budget.drive)
        finally:
            run.close()

    def _note(self, schema: RelationSchema, fallen: Rows, result: Consequences) -> None:
        """Count fallen conclusions and add the first of them as rows."""
        result.count += fallen.count
        arity, listed = schema.arity, min(fallen.count, MAX_SHOWN - len(result.rows))
        texts = self._engine.texts(fallen.symbols[: listed * arity])
        predicate, positive, scope = schema.predicate, schema.positive, self._partition.name
        result.rows += [
            conclusion(predicate, positive, texts[at * arity : (at + 1) * arity], scope)
            for at in range(listed)
        ]


def _limited(budget: Budget, rows: int, steps: int) -> Budget:
    """Return a budget with lower limits of derived rows and of steps."""
    now = budget.limits
    return replace(budget, limits=Limits(min(rows, now.rows), now.bytes, min(steps, now.steps)))


def _located(relation: Relation, rows: Rows) -> list[bool]:
    """Return for each row whether a relation has it."""
    return [index != NO_ROW for index in relation.locate(rows.symbols, rows.count)]
