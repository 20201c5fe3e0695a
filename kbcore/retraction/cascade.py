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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.retraction.affected import ALL, Affected, affected_of, before, first, removed_schema
from kbcore.retraction.full_diff import compared
from kbcore.state.changes import Removed
from kbcore.state.facts import Row, conclusion
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Limits, Relation
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
MAX_SHOWN = 1000
MAX_PROGRAMS = 64

MIN_GROUP_SIZE = 8
"""With this many candidates, one goal with their common constants is faster than one goal per
candidate.
"""

MAX_GROUPS = 32
"""Maximum number of such goals: each run has its own limits."""

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
        limits = Limits(
            min(MAX_ROWS, budget.limits.rows),
            budget.limits.bytes,
            min(MAX_STEPS, budget.limits.steps),
        )
        cascade_budget = replace(budget, limits=limits)
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
                    cascade.count(rules, result)
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

    def count(self, rules: RuleSet, result: Consequences) -> None:
        """Add the fallen and the new conclusions to `result`. Raises BudgetExceeded."""
        schemas = frozenset(change.schema for change in self._changes)
        program = self._cascades.program(rules, schemas, self._view)
        if program.incomplete:
            try:
                fallen, appeared = compared(
                    self._tenant, self._partition, rules, self._changes, self._budget
                )
                result.appeared += appeared
                for schema, rows in fallen.items():
                    self._note(schema, rows, result)
                return
            except BudgetExceeded:
                result.truncated = True
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
                    affected = self._affected(run, slot, schema.arity, ordered=True)
                    self._compare(program, original, list(affected), result)
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

    def _affected(
        self, run: GoalRun, slot: int, arity: int, ordered: bool = False
    ) -> Iterator[RowKey]:
        """Yield the rows of a relation of affected conclusions, except the removed facts."""
        budget = self._budget
        rows, ids = run.run.relation(slot).match([0] * arity, yield_now=budget.yield_now)
        if ordered:
            rows = self._engine.sort(rows, arity, budget.offload)
        original = affected_of(run.goal.plan.slots[slot])
        removed = self._removed_keys.get(original, set()) if original is not None else set()
        return (row for row in budget.keys(rows, len(ids), arity) if row not in removed)

    def _nothing_fell(self, goal: CompiledGoal) -> bool:
        """Return True if all conclusions with a removed premise still hold.

        False also if the budget is exceeded.
        """
        run = self._opened(goal)
        try:
            run.ask([], self._budget)
            for slot, schema in enumerate(goal.plan.slots):
                original = affected_of(schema)
                if original is not None:
                    candidates = set(self._affected(run, slot, schema.arity))
                    if not self._all_hold(original, candidates):
                        return False
            return True
        except BudgetExceeded:
            return False
        finally:
            run.close()

    def _all_hold(self, schema: RelationSchema, candidates: set[RowKey]) -> bool:
        """Return True if all candidates hold.

        False also for candidates without a common constant.
        """
        if not candidates:
            return True
        pattern = _common(candidates)
        if not any(pattern) and pattern:
            return False
        return candidates <= self._answers(schema, pattern)

    def _answers(self, schema: RelationSchema, pattern: Sequence[int]) -> set[RowKey]:
        """Return the answers of a goal on the state after the retraction.

        0 in `pattern` is a variable.
        """
        view = self._view
        adornment = "".join("b" if symbol else "f" for symbol in pattern)
        goal = self._tenant.plans.get(view.rules, schema, adornment, view.denied, view.statistics)
        run = GoalRun(self._engine, goal, view.bind, self._budget.limits)
        try:
            answers = run.ask(pattern, self._budget)
            if answers is None:
                raise EngineFault("a relation changed under the read lock")
            return set(self._budget.keys(*answers, schema.arity))
        finally:
            run.close()

    def _compare(
        self,
        program: _Program,
        schema: RelationSchema,
        candidates: Sequence[RowKey],
        result: Consequences,
    ) -> None:
        """Count the candidates that held only before, and those that hold only now."""
        if not candidates:
            return
        held = [True] * len(candidates)
        if program.signed:
            past = self._cascades.goal_before(program, schema, self._view.statistics)
            held = self._holding(past, self._bind, candidates)
        holds = self._hold(schema, candidates)
        fallen = [
            row for row, old, new in zip(candidates, held, holds, strict=True) if old and not new
        ]
        self._note(schema, fallen, result)
        result.appeared += sum(1 for old, new in zip(held, holds, strict=True) if new and not old)

    def _hold(self, schema: RelationSchema, candidates: Sequence[RowKey]) -> list[bool]:
        """Return for each candidate whether it holds after the retraction, with one goal per group
        if possible.
        """
        groups = _groups(candidates)
        if groups:
            try:
                true: set[RowKey] = set()
                for group in groups:
                    true |= self._answers(schema, _common(group))
                return [row in true for row in candidates]
            except BudgetExceeded:
                # The goals with fewer constants have too many answers: check each candidate.
                self._budget.check_time()
        view = self._view
        goal = self._tenant.plans.get(
            view.rules, schema, "b" * schema.arity, view.denied, view.statistics, many=True
        )
        return self._holding(goal, view.bind, candidates)

    def _holding(self, goal: CompiledGoal, bind: Bind, candidates: Sequence[RowKey]) -> list[bool]:
        rows = array("I", chain.from_iterable(self._budget.paced(candidates)))
        run = GoalRun(self._engine, goal, bind, self._budget.limits)
        try:
            return run.holding(rows, len(candidates), self._budget.drive)
        finally:
            run.close()

    def _note(self, schema: RelationSchema, fallen: Sequence[RowKey], result: Consequences) -> None:
        """Count fallen conclusions and add the first of them as rows."""
        result.count += len(fallen)
        listed, arity = fallen[: MAX_SHOWN - len(result.rows)], schema.arity
        texts = self._engine.texts(array("I", chain.from_iterable(listed)))
        starts = range(0, len(listed) * arity, arity) if arity else [0] * len(listed)
        predicate, positive, scope = schema.predicate, schema.positive, self._partition.name
        result.rows += [
            conclusion(predicate, positive, texts[at : at + arity], scope) for at in starts
        ]


def _common(rows: Collection[RowKey]) -> list[int]:
    """Return for each column the symbol that all rows share, or 0; `rows` is not empty."""
    columns = [set(column) for column in zip(*rows, strict=True)]
    return [column.pop() if len(column) == 1 else 0 for column in columns]


def _groups(rows: Sequence[RowKey]) -> list[Sequence[RowKey]]:
    """Group rows by the column with the fewest values.

    Return [] if groups are too many or too small.
    """
    columns: list[set[int]] = [set(column) for column in zip(*rows, strict=True)]
    if not columns:
        return []
    index, values = min(enumerate(columns), key=lambda pair: len(pair[1]))
    if len(values) > MAX_GROUPS or len(values) * MIN_GROUP_SIZE > len(rows):
        return []
    if len(values) == 1:
        return [rows]
    groups: dict[int, list[RowKey]] = {value: [] for value in values}
    for row in rows:
        groups[row[index]].append(row)
    return [*groups.values()]
