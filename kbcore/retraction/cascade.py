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

import threading
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from kbplanner.passes import OPTIONAL, rewrite
from kbplanner.passes.order import Expecting, Statistics
from kbplanner.passes.wellfounded import without

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
class Fallen:
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
        self._programs: OrderedDict[Key, _Program] = OrderedDict()
        self._goals_before: OrderedDict[tuple[_Program, RelationSchema], CompiledGoal] = (
            OrderedDict()
        )
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Drop the compiled programs."""
        with self._mutex:
            self._programs.clear()
            self._goals_before.clear()

    def fallen(self, removed: Iterable[Removed], budget: Budget, result: Fallen) -> None:
        """Add the conclusions that fell with removed facts to `result`.

        The caller holds the read lock of the state after the retraction.
        """
        limits = budget.limits
        limits_within = Limits(
            min(MAX_ROWS, limits.rows), limits.bytes, min(MAX_STEPS, limits.steps)
        )
        within = replace(budget, limits=limits_within)
        by_scope: dict[str | None, list[Removed]] = {}
        for change in removed:
            by_scope.setdefault(change.scope, []).append(change)
        for scope, group in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._tenant.rules.visible(scope)
            if partition is None or (rules.reads | rules.deniable).isdisjoint(
                change.schema for change in group
            ):
                continue
            try:
                self._settle(partition, rules, group, within, result)
            except BudgetExceeded:
                result.truncated = True

    def _settle(
        self,
        partition: Partition,
        rules: RuleSet,
        group: Sequence[Removed],
        budget: Budget,
        result: Fallen,
    ) -> None:
        removed = frozenset(change.schema for change in group)
        denied = partition.denied(rules.deniable) | (rules.deniable & removed)
        with viewed(self._tenant, partition, rules, None, budget, None, denied) as view:
            self._count(partition, rules, view, group, budget, result)

    def _count(
        self,
        partition: Partition,
        rules: RuleSet,
        view: View,
        group: Sequence[Removed],
        budget: Budget,
        result: Fallen,
    ) -> None:
        engine = self._tenant.engine
        program = self._program(rules, frozenset(change.schema for change in group), view)
        if program.incomplete:
            try:
                self._count_whole(partition, rules, group, budget, result)
                return
            except BudgetExceeded:
                result.truncated = True
        removed: dict[RelationSchema, Relation] = {}
        keys: dict[RelationSchema, set[RowKey]] = {}
        for change in group:
            keys.setdefault(change.schema, set()).update(budget.paced(change.keys))
        run: GoalRun | None = None
        try:
            self._fill(removed, group, budget)
            if program.first is not None and self._nothing_fell(
                program.first, view, removed, keys, budget
            ):
                return
            run = GoalRun(
                engine, program.goal, lambda s: removed.get(s) or view.bind(s), budget.limits
            )
            run.ask([], budget)
            for slot, schema in sorted(
                enumerate(program.goal.plan.slots), key=lambda pair: str(pair[1])
            ):
                original = affected_of(schema)
                if original is not None:
                    rows, ids = run.run.relation(slot).match(
                        [0] * schema.arity, yield_now=budget.yield_now
                    )
                    rows, arity = engine.sort(rows, schema.arity, budget.offload), schema.arity
                    affected = budget.keys(rows, len(ids), arity)
                    gone = keys.get(original)
                    candidates = (
                        [row for row in affected if row not in gone] if gone else list(affected)
                    )
                    self._compare(
                        partition, view, program, removed, original, candidates, budget, result
                    )
        finally:
            if run is not None:
                run.close()
            for relation in removed.values():
                relation.drop()

    def _nothing_fell(
        self,
        goal: CompiledGoal,
        view: View,
        removed: Mapping[RelationSchema, Relation],
        gone: Mapping[RelationSchema, set[RowKey]],
        budget: Budget,
    ) -> bool:
        """Return True if all conclusions with a removed premise still hold.

        False also if the budget is exceeded.
        """
        run = GoalRun(
            self._tenant.engine, goal, lambda s: removed.get(s) or view.bind(s), budget.limits
        )
        try:
            run.ask([], budget)
            for slot, schema in enumerate(goal.plan.slots):
                original = affected_of(schema)
                if original is not None:
                    rows, ids = run.run.relation(slot).match(
                        [0] * schema.arity, yield_now=budget.yield_now
                    )
                    candidates = set(budget.keys(rows, len(ids), schema.arity)) - gone.get(
                        original, set()
                    )
                    if not self._all_hold(view, original, candidates, budget):
                        return False
            return True
        except BudgetExceeded:
            return False
        finally:
            run.close()

    def _all_hold(
        self, view: View, schema: RelationSchema, candidates: set[RowKey], budget: Budget
    ) -> bool:
        """Return True if all candidates hold.

        False also for candidates without a common constant.
        """
        if not candidates:
            return True
        pattern = _common(candidates)
        if not any(pattern) and pattern:
            return False
        return candidates <= self._answers(view, schema, pattern, budget)

    def _answers(
        self, view: View, schema: RelationSchema, pattern: Sequence[int], budget: Budget
    ) -> set[RowKey]:
        """Return the answers of a goal on the state after the retraction.

        0 in `pattern` is a variable.
        """
        adornment = "".join("b" if symbol else "f" for symbol in pattern)
        goal = self._tenant.plans.get(view.rules, schema, adornment, view.denied, view.statistics)
        run = GoalRun(self._tenant.engine, goal, view.bind, budget.limits)
        try:
            answers = run.ask(pattern, budget)
            if answers is None:
                raise EngineFault("a relation changed under the read lock")
            return set(budget.keys(*answers, schema.arity))
        finally:
            run.close()

    def _count_whole(
        self,
        partition: Partition,
        rules: RuleSet,
        group: Sequence[Removed],
        budget: Budget,
        result: Fallen,
    ) -> None:
        fell, appeared = compared(self._tenant, partition, rules, group, budget)
        result.appeared += appeared
        for schema, rows in fell.items():
            self._note(partition, schema, rows, result)

    def _program(self, rules: RuleSet, removed: frozenset[RelationSchema], view: View) -> _Program:
        key = (view.rules, removed, view.denied)
        with self._mutex:
            compiled = self._programs.get(key)
        if compiled is None:
            # Recursion through negation that the removal touches is excluded, with all that depends on it.
            touched = rules.touched(view.denied, removed)
            clauses = without(view.rules.clauses(view.denied), touched)
            affected = Affected(clauses, removed)
            # Usually few conclusions are affected, so joins should start from the affected relations.
            expecting = Expecting(view.statistics, lambda schema: affected_of(schema) is not None)
            program = rewrite(affected.clauses, ALL, "", expecting, skip={"restrict"})
            goal = CompiledGoal(load(self._tenant.engine, program, expecting))
            start = None
            if not (affected.signed or affected.incomplete or touched):
                begun = rewrite(
                    first(clauses, removed), ALL, "", view.statistics, skip={"restrict"}
                )
                start = CompiledGoal(load(self._tenant.engine, begun, view.statistics))
            past = tuple(before(clauses, removed)) if affected.signed else ()
            compiled = _Program(
                goal, start, past, affected.signed, affected.incomplete or bool(touched)
            )
            with self._mutex:
                self._programs[key] = compiled
                if len(self._programs) > MAX_PROGRAMS:
                    self._programs.popitem(last=False)
        return compiled

    def _goal_before(
        self, program: _Program, schema: RelationSchema, statistics: Statistics
    ) -> CompiledGoal:
        key = (program, schema)
        with self._mutex:
            goal = self._goals_before.get(key)
        if goal is None:
            rewritten = rewrite(
                program.before, schema.derived, "b" * schema.arity, statistics, skip=OPTIONAL
            )
            goal = CompiledGoal(load(self._tenant.engine, rewritten, statistics))
            with self._mutex:
                self._goals_before[key] = goal
                if len(self._goals_before) > MAX_PROGRAMS:
                    self._goals_before.popitem(last=False)
        return goal

    def _holding(
        self, goal: CompiledGoal, bind: Bind, candidates: Sequence[RowKey], budget: Budget
    ) -> list[bool]:
        rows = array("I", chain.from_iterable(budget.paced(candidates)))
        run = GoalRun(self._tenant.engine, goal, bind, budget.limits)
        try:
            return run.holding(rows, len(candidates), budget.drive)
        finally:
            run.close()

    def _fill(
        self, relations: dict[RelationSchema, Relation], group: Sequence[Removed], budget: Budget
    ) -> None:
        """Insert the removed facts into `relations`, by schema."""
        for change in group:
            schema = removed_schema(change.schema)
            if schema not in relations:
                relations[schema] = self._tenant.engine.relation(schema.arity)
            relation = relations[schema]
            relation.insert(
                array("I", chain.from_iterable(budget.paced(change.keys))), len(change.keys)
            )

    def _compare(
        self,
        partition: Partition,
        view: View,
        program: _Program,
        removed: Mapping[RelationSchema, Relation],
        schema: RelationSchema,
        candidates: Sequence[RowKey],
        budget: Budget,
        result: Fallen,
    ) -> None:
        """Count the candidates that held before and do not hold now, and those that hold only now."""
        if not candidates:
            return
        held = [True] * len(candidates)
        if program.signed:
            past = self._goal_before(program, schema, view.statistics)
            held = self._holding(past, lambda s: removed.get(s) or view.bind(s), candidates, budget)
        holds = self._hold(view, schema, candidates, budget)
        gone = [
            row for row, then, now in zip(candidates, held, holds, strict=True) if then and not now
        ]
        self._note(partition, schema, gone, result)
        result.appeared += sum(1 for then, now in zip(held, holds, strict=True) if now and not then)

    def _hold(
        self, view: View, schema: RelationSchema, candidates: Sequence[RowKey], budget: Budget
    ) -> list[bool]:
        """Return for each candidate whether it holds after the retraction, with one goal per group
        if possible.
        """
        groups = _groups(candidates)
        if groups:
            try:
                known: set[RowKey] = set()
                for group in groups:
                    known |= self._answers(view, schema, _common(group), budget)
                return [row in known for row in candidates]
            except BudgetExceeded:
                budget.check_time()  # the goals with fewer constants have too many answers: check each candidate instead
        goal = self._tenant.plans.get(
            view.rules, schema, "b" * schema.arity, view.denied, view.statistics, many=True
        )
        return self._holding(goal, view.bind, candidates, budget)

    def _note(
        self, partition: Partition, schema: RelationSchema, gone: Sequence[RowKey], result: Fallen
    ) -> None:
        """Count fallen conclusions and add the first of them as rows."""
        result.count += len(gone)
        listed = gone[: MAX_SHOWN - len(result.rows)]
        texts, arity = (
            self._tenant.engine.texts(array("I", chain.from_iterable(listed))),
            schema.arity,
        )
        starts = range(0, len(listed) * arity, arity) if arity else [0] * len(listed)
        predicate, positive, scope = schema.predicate, schema.positive, partition.name
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
