"""What a retraction takes with it: the conclusions that held before and do not hold after.

Forward, then backward, in the manner of Backward/Forward maintenance (Motik et al. 2015). Forward: a conclusion is
*affected* if some instance of a rule gives it from premises that hold now or are affected, at least one of them affected;
the removed facts are affected to begin with. Every conclusion that fell is affected. Backward: each affected conclusion is
asked as a goal on the state after the retraction; those that do not hold have fallen.

Where an affected predicate is used under `not` or aggregated, or the work meets its budget, the count is not complete and
says so.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kbcore.errors import BudgetExceeded
from kbcore.reason.affected import ALL, Affected, affected_of, removed_schema
from kbcore.reason.ask import derived_row
from kbcore.reason.budget import Budget
from kbcore.state.changes import Removed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.backend import Limits, Relation
from kbplanner.build import build
from kbplanner.bytecode import encode
from kbplanner.evaluate import CompiledGoal, GoalRun
from kbplanner.passes import rewrite
from kbplanner.rules import RuleSet
from kbplanner.schema import RelationSchema
from kbplanner.terms import Atom

MAX_ROWS = 100_000
MAX_STEPS = 1_000_000
MAX_SHOWN = 1000
MAX_PROGRAMS = 64

Key = tuple[RuleSet, frozenset[RelationSchema], frozenset[RelationSchema]]


@dataclass(slots=True)
class Fallen:
    """Conclusions that fell: how many, the first of them as rows; `truncated` if there may be more."""

    count: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class _Program:
    """What finds the affected conclusions of a removal, and whether it can miss one."""

    goal: CompiledGoal
    incomplete: bool


class Cascades:
    """Finds what falls with retractions in one tenant, and keeps the programs compiled for that."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._programs: OrderedDict[Key, _Program] = OrderedDict()
        self._mutex = threading.Lock()

    def fallen(self, removed: Iterable[Removed], budget: Budget) -> Fallen:
        """What fell with removed facts; the caller holds the read lock of the state after the retraction."""
        found = Fallen()
        within = replace(budget, limits=Limits(MAX_ROWS, budget.limits.bytes, MAX_STEPS))
        by_scope: dict[str | None, list[Removed]] = {}
        for one in removed:
            by_scope.setdefault(one.scope, []).append(one)
        for scope, group in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._tenant.rules.visible(scope)
            if partition is None or not rules.reads.intersection(one.schema for one in group):
                continue
            try:
                self._settle(partition, rules, group, within, found)
            except BudgetExceeded:
                found.truncated = True
        return found

    def _settle(self, partition: Partition, rules: RuleSet, group: Sequence[Removed], budget: Budget, found: Fallen) -> None:
        engine = self._tenant.engine
        program = self._program(rules, frozenset(one.schema for one in group), partition)
        found.truncated = found.truncated or program.incomplete
        removed = self._removed(group)
        keys: dict[RelationSchema, set[RowKey]] = {}
        for one in group:
            keys.setdefault(one.schema, set()).update(one.keys)
        run = GoalRun(engine, program.goal, lambda s: removed.get(s) or partition.need(s).relation, budget.limits)
        try:
            run.ask([], budget.drive)
            for slot, schema in sorted(enumerate(program.goal.plan.slots), key=lambda pair: str(pair[1])):
                original = affected_of(schema)
                if original is not None:
                    rows, ids = run.run.relation(slot).match([0] * schema.arity)
                    rows, arity = engine.sort(rows, schema.arity), schema.arity
                    affected = (tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids)))
                    gone = keys.get(original, set())
                    self._ask_again(partition, rules, original, [row for row in affected if row not in gone], budget, found)
        finally:
            run.close()
            for relation in removed.values():
                relation.drop()

    def _program(self, rules: RuleSet, removed: frozenset[RelationSchema], partition: Partition) -> _Program:
        denied = partition.denied(rules.deniable)
        key = (rules, removed, denied)
        with self._mutex:
            found = self._programs.get(key)
        if found is None:
            engine = self._tenant.engine
            affected = Affected(rules.clauses(denied), removed)
            plan = build(rewrite(affected.clauses, ALL, "", partition), partition)
            constants = tuple(engine.intern(text) for text in plan.parameters)
            found = _Program(CompiledGoal(plan, engine.load(encode(plan)), constants, {}), affected.incomplete)
            with self._mutex:
                self._programs[key] = found
                if len(self._programs) > MAX_PROGRAMS:
                    self._programs.popitem(last=False)
        return found

    def _removed(self, group: Sequence[Removed]) -> dict[RelationSchema, Relation]:
        found: dict[RelationSchema, Relation] = {}
        for one in group:
            schema = removed_schema(one.schema)
            relation = found.setdefault(schema, self._tenant.engine.relation(schema.arity))
            relation.insert(array("I", [symbol for key in one.keys for symbol in key]), len(one.keys))
        return found

    def _ask_again(
        self,
        partition: Partition,
        rules: RuleSet,
        schema: RelationSchema,
        candidates: Sequence[RowKey],
        budget: Budget,
        found: Fallen,
    ) -> None:
        """Count the candidates that do not hold now."""
        if not candidates:
            return
        tenant = self._tenant
        marks, denied = "b" * schema.arity, partition.denied(rules.deniable)
        goal = tenant.plans.get(rules, schema, marks, denied, partition, many=True)
        rows = array("I", [symbol for row in candidates for symbol in row])
        run = GoalRun(tenant.engine, goal, lambda s: partition.need(s).relation, budget.limits)
        try:
            holding = run.holding(rows, len(candidates), budget.drive)
        finally:
            run.close()
        gone = [row for row, holds in zip(candidates, holding, strict=True) if not holds]
        found.count += len(gone)
        shown = gone[: MAX_SHOWN - len(found.rows)]
        texts = tenant.engine.texts(array("I", [symbol for row in shown for symbol in row]))
        for i in range(len(shown)):
            args = tuple(texts[i * schema.arity : (i + 1) * schema.arity])
            found.rows.append(derived_row(Atom(schema.predicate, args, schema.positive), args, partition.name))
