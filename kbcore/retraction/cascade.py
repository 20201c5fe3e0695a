"""What a retraction takes with it: the conclusions that held before and do not hold after; and those it brings.

Forward, then backward, in the manner of Backward/Forward maintenance (Motik et al. 2015). Forward: a conclusion is
*affected* if some instance of a rule gives it from premises that hold now or are affected, at least one of them affected;
the removed facts are affected to begin with. Every conclusion that changed is affected. Backward: each affected conclusion
is asked as a goal on the state after the retraction. Without `not` those that do not hold have fallen, since all of them
held before. Where an affected predicate is used under `not`, each is asked on the state before as well.

Where what was removed reaches an aggregate or recursion through negation, conclusions are compared whole. Where the work
meets its budget, the counts are not complete and say so.
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
from kbplanner.compile.build import build
from kbplanner.compile.bytecode import encode
from kbplanner.compile.plan import Plan
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Limits, Relation
from kbplanner.evaluate.evaluate import Bind, CompiledGoal, GoalRun
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

SOME = 8
"""From so many candidates on one goal with what they have in common takes less time than a goal for each."""

MAX_GROUPS = 32
"""Goals asked in this way at most: each has the limits of a run to itself."""

Key = tuple[RuleSet, frozenset[RelationSchema], frozenset[RelationSchema]]


@dataclass(slots=True)
class Fallen:
    """Conclusions that fell: how many, the first of them as rows; how many appeared; `truncated` if there may be more."""

    count: int = 0
    appeared: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """What finds the conclusions a removal affects, and (None: of no use) the first of them; clauses over the facts before;
    what `Affected` says of itself."""

    goal: CompiledGoal
    first: CompiledGoal | None
    before: tuple[Clause, ...]
    signed: bool
    incomplete: bool


class Cascades:
    """Finds what falls with retractions in one tenant, and keeps the programs compiled for that."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._programs: OrderedDict[Key, _Program] = OrderedDict()
        self._goals_before: OrderedDict[tuple[_Program, RelationSchema], CompiledGoal] = OrderedDict()
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Forget what was compiled."""
        with self._mutex:
            self._programs.clear()
            self._goals_before.clear()

    def fallen(self, removed: Iterable[Removed], budget: Budget, found: Fallen) -> None:
        """Note what fell with removed facts; the caller holds the read lock of the state after the retraction."""
        limits = budget.limits
        most = Limits(min(MAX_ROWS, limits.rows), limits.bytes, min(MAX_STEPS, limits.steps))
        within = replace(budget, limits=most)
        by_scope: dict[str | None, list[Removed]] = {}
        for one in removed:
            by_scope.setdefault(one.scope, []).append(one)
        for scope, group in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._tenant.rules.visible(scope)
            if partition is None or (rules.reads | rules.deniable).isdisjoint(one.schema for one in group):
                continue
            try:
                self._settle(partition, rules, group, within, found)
            except BudgetExceeded:
                found.truncated = True

    def _settle(self, partition: Partition, rules: RuleSet, group: Sequence[Removed], budget: Budget, found: Fallen) -> None:
        removed = frozenset(one.schema for one in group)
        denied = partition.denied(rules.deniable) | (rules.deniable & removed)
        with viewed(self._tenant, partition, rules, None, budget, None, denied) as view:
            self._count(partition, rules, view, group, budget, found)

    def _count(
        self,
        partition: Partition,
        rules: RuleSet,
        view: View,
        group: Sequence[Removed],
        budget: Budget,
        found: Fallen,
    ) -> None:
        engine = self._tenant.engine
        program = self._program(rules, frozenset(one.schema for one in group), view)
        if program.incomplete:
            try:
                self._count_whole(partition, rules, group, budget, found)
                return
            except BudgetExceeded:
                found.truncated = True
        removed: dict[RelationSchema, Relation] = {}
        keys: dict[RelationSchema, set[RowKey]] = {}
        for one in group:
            keys.setdefault(one.schema, set()).update(budget.paced(one.keys))
        run: GoalRun | None = None
        try:
            self._fill(removed, group, budget)
            if program.first is not None and self._nothing_fell(program.first, view, removed, keys, budget):
                return
            run = GoalRun(engine, program.goal, lambda s: removed.get(s) or view.bind(s), budget.limits)
            run.ask([], budget)
            for slot, schema in sorted(enumerate(program.goal.plan.slots), key=lambda pair: str(pair[1])):
                original = affected_of(schema)
                if original is not None:
                    rows, ids = run.run.relation(slot).match([0] * schema.arity, rest=budget.rest)
                    rows, arity = engine.sort(rows, schema.arity, budget.via), schema.arity
                    affected = budget.keys(rows, len(ids), arity)
                    gone = keys.get(original)
                    candidates = [row for row in affected if row not in gone] if gone else list(affected)
                    self._compare(partition, view, program, removed, original, candidates, budget, found)
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
        """Whether all that a removed fact was a premise of still holds; False also where there is too much of it to say."""
        run = GoalRun(self._tenant.engine, goal, lambda s: removed.get(s) or view.bind(s), budget.limits)
        try:
            run.ask([], budget)
            for slot, schema in enumerate(goal.plan.slots):
                original = affected_of(schema)
                if original is not None:
                    rows, ids = run.run.relation(slot).match([0] * schema.arity, rest=budget.rest)
                    candidates = set(budget.keys(rows, len(ids), schema.arity)) - gone.get(original, set())
                    if not self._all_hold(view, original, candidates, budget):
                        return False
            return True
        except BudgetExceeded:
            return False
        finally:
            run.close()

    def _all_hold(self, view: View, schema: RelationSchema, candidates: set[RowKey], budget: Budget) -> bool:
        """Whether all candidates hold: one goal where all have a constant in common, else False for more than a few."""
        if not candidates:
            return True
        pattern = _common(candidates)
        if not any(pattern) and pattern:
            return False
        return candidates <= self._answers(view, schema, pattern, budget)

    def _answers(self, view: View, schema: RelationSchema, pattern: Sequence[int], budget: Budget) -> set[RowKey]:
        """The answers of a goal on the state after; 0 in its pattern for a variable."""
        adornment = "".join("b" if symbol else "f" for symbol in pattern)
        goal = self._tenant.plans.get(view.rules, schema, adornment, view.denied, view.statistics)
        run = GoalRun(self._tenant.engine, goal, view.bind, budget.limits)
        try:
            found = run.ask(pattern, budget)
            if found is None:
                raise EngineFault("a relation changed under the read lock")
            return set(budget.keys(*found, schema.arity))
        finally:
            run.close()

    def _count_whole(
        self, partition: Partition, rules: RuleSet, group: Sequence[Removed], budget: Budget, found: Fallen
    ) -> None:
        fell, appeared = compared(self._tenant, partition, rules, group, budget)
        found.appeared += appeared
        for schema, rows in fell.items():
            self._note(partition, schema, rows, found)

    def _program(self, rules: RuleSet, removed: frozenset[RelationSchema], view: View) -> _Program:
        key = (view.rules, removed, view.denied)
        with self._mutex:
            found = self._programs.get(key)
        if found is None:
            # What a removal changes in recursion through negation is not looked at, nor what rests on that.
            touched = rules.touched(view.denied, removed)
            clauses = without(view.rules.clauses(view.denied), touched)
            affected = Affected(clauses, removed)
            # Few conclusions are affected as a rule, and what they rest on is to be looked up from them.
            few = Expecting(view.statistics, lambda schema: affected_of(schema) is not None)
            goal = self._compiled(build(rewrite(affected.clauses, ALL, "", few, skip={"restrict"}), few))
            start = None
            if not (affected.signed or affected.incomplete or touched):
                begun = rewrite(first(clauses, removed), ALL, "", view.statistics, skip={"restrict"})
                start = self._compiled(build(begun, view.statistics))
            past = tuple(before(clauses, removed)) if affected.signed else ()
            found = _Program(goal, start, past, affected.signed, affected.incomplete or bool(touched))
            with self._mutex:
                self._programs[key] = found
                if len(self._programs) > MAX_PROGRAMS:
                    self._programs.popitem(last=False)
        return found

    def _goal_before(self, program: _Program, schema: RelationSchema, statistics: Statistics) -> CompiledGoal:
        key = (program, schema)
        with self._mutex:
            found = self._goals_before.get(key)
        if found is None:
            rewritten = rewrite(program.before, schema.derived, "b" * schema.arity, statistics, skip=OPTIONAL)
            found = self._compiled(build(rewritten, statistics))
            with self._mutex:
                self._goals_before[key] = found
                if len(self._goals_before) > MAX_PROGRAMS:
                    self._goals_before.popitem(last=False)
        return found

    def _compiled(self, plan: Plan) -> CompiledGoal:
        engine = self._tenant.engine
        return CompiledGoal(plan, engine.load(encode(plan)), tuple(engine.intern(text) for text in plan.parameters), {})

    def _holding(self, goal: CompiledGoal, bind: Bind, candidates: Sequence[RowKey], budget: Budget) -> list[bool]:
        rows = array("I", chain.from_iterable(budget.paced(candidates)))
        run = GoalRun(self._tenant.engine, goal, bind, budget.limits)
        try:
            return run.holding(rows, len(candidates), budget.drive)
        finally:
            run.close()

    def _fill(self, found: dict[RelationSchema, Relation], group: Sequence[Removed], budget: Budget) -> None:
        """Make relations of the removed facts."""
        for one in group:
            schema = removed_schema(one.schema)
            if schema not in found:
                found[schema] = self._tenant.engine.relation(schema.arity)
            relation = found[schema]
            relation.insert(array("I", chain.from_iterable(budget.paced(one.keys))), len(one.keys))

    def _compare(
        self,
        partition: Partition,
        view: View,
        program: _Program,
        removed: Mapping[RelationSchema, Relation],
        schema: RelationSchema,
        candidates: Sequence[RowKey],
        budget: Budget,
        found: Fallen,
    ) -> None:
        """Count the candidates that held before and do not hold now, and the other way round."""
        if not candidates:
            return
        held = [True] * len(candidates)
        if program.signed:
            past = self._goal_before(program, schema, view.statistics)
            held = self._holding(past, lambda s: removed.get(s) or view.bind(s), candidates, budget)
        holds = self._hold(view, schema, candidates, budget)
        gone = [row for row, then, now in zip(candidates, held, holds, strict=True) if then and not now]
        self._note(partition, schema, gone, found)
        found.appeared += sum(1 for then, now in zip(held, holds, strict=True) if now and not then)

    def _hold(
        self, view: View, schema: RelationSchema, candidates: Sequence[RowKey], budget: Budget
    ) -> list[bool]:
        """Which candidates hold on the state after: by a goal for those with a constant in common, else one by one."""
        groups = _groups(candidates)
        if groups:
            try:
                known: set[RowKey] = set()
                for group in groups:
                    known |= self._answers(view, schema, _common(group), budget)
                return [row in known for row in candidates]
            except BudgetExceeded:
                budget.check_time()  # else such a goal has far more answers than were asked for
        goal = self._tenant.plans.get(view.rules, schema, "b" * schema.arity, view.denied, view.statistics, many=True)
        return self._holding(goal, view.bind, candidates, budget)

    def _note(self, partition: Partition, schema: RelationSchema, gone: Sequence[RowKey], found: Fallen) -> None:
        """Count conclusions that fell, and show the first of them."""
        found.count += len(gone)
        shown = gone[: MAX_SHOWN - len(found.rows)]
        texts, arity = self._tenant.engine.texts(array("I", chain.from_iterable(shown))), schema.arity
        starts = range(0, len(shown) * arity, arity) if arity else [0] * len(shown)
        predicate, positive, scope = schema.predicate, schema.positive, partition.name
        found.rows += [conclusion(predicate, positive, texts[at : at + arity], scope) for at in starts]


def _common(rows: Collection[RowKey]) -> list[int]:
    """The symbols that all rows have in a column, 0 where they differ; there is a row."""
    columns = [set(column) for column in zip(*rows, strict=True)]
    return [column.pop() if len(column) == 1 else 0 for column in columns]


def _groups(rows: Sequence[RowKey]) -> list[Sequence[RowKey]]:
    """Rows by the column in which fewest differ; none where these groups would be many, or of few rows each."""
    columns: list[set[int]] = [set(column) for column in zip(*rows, strict=True)]
    if not columns:
        return []
    place, values = min(enumerate(columns), key=lambda pair: len(pair[1]))
    if len(values) > MAX_GROUPS or len(values) * SOME > len(rows):
        return []
    if len(values) == 1:
        return [rows]
    groups: dict[int, list[RowKey]] = {value: [] for value in values}
    for row in rows:
        groups[row[place]].append(row)
    return [*groups.values()]
