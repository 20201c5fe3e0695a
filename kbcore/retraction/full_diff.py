"""Whole conclusions before and after a removal, compared: for rules whose changes cannot be followed fact by fact.

An aggregate's value changes with any row of its group, and recursion through negation with facts far away. There every
conclusion that may rest on what was removed is worked out twice: as things are, and over copies of the stored relations with
the removed facts in them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from kbcore.errors import EngineFault
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.state.changes import Removed
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Relation
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.evaluate.settle import View
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema

Conclusions = Mapping[RelationSchema, set[RowKey]]


def compared(
    tenant: Tenant, partition: Partition, rules: RuleSet, group: Sequence[Removed], budget: Budget
) -> tuple[dict[RelationSchema, list[RowKey]], int]:
    """The rows that held before and do not hold now, by stored schema, and how many hold now and did not; raises
    BudgetExceeded. The caller holds the read lock of the state after the removal."""
    removed = {one.schema for one in group}
    denied = partition.denied(rules.deniable) | (rules.deniable & removed)
    reached = sorted(_reached(rules, denied, removed), key=str)
    after = _conclusions(tenant, viewed(tenant, partition, rules, None, budget, None, denied), reached, budget)
    past = _Past(partition, group)
    try:
        ask = rules, denied, None, past.bind, partition, budget.limits, budget.work, budget.rest
        before = _conclusions(tenant, tenant.models.view(*ask, scope=partition.name, version=-1), reached, budget)
    finally:
        past.close()
    keys: dict[RelationSchema, set[RowKey]] = {}
    for one in group:
        keys.setdefault(one.schema, set()).update(one.keys)
    fell: dict[RelationSchema, list[RowKey]] = {}
    appeared = 0
    for schema in reached:
        now, then, gone = after[schema], before[schema], keys.get(schema, set())
        fell[schema] = sorted([key for key in budget.paced(then) if key not in now and key not in gone])
        appeared += sum(1 for key in budget.paced(now) if key not in then)
    return fell, appeared


class _Past:
    """The stored relations as they were: copies of those that lost rows, with the rows."""

    def __init__(self, partition: Partition, group: Sequence[Removed]) -> None:
        self._partition = partition
        self._rows: dict[RelationSchema, list[RowKey]] = {}
        for one in group:
            self._rows.setdefault(one.schema, []).extend(one.keys)
        self._copies: dict[RelationSchema, Relation] = {}

    def bind(self, schema: RelationSchema) -> Relation:
        """The relation of a stored schema before the removal."""
        rows = self._rows.get(schema)
        if rows is None:
            return self._partition.bind(schema)
        if schema not in self._copies:
            copy = self._copies[schema] = self._partition.bind(schema).copy()
            copy.insert(array("I", [symbol for row in rows for symbol in row]), len(rows))
        return self._copies[schema]

    def close(self) -> None:
        """Give the copies back."""
        for relation in self._copies.values():
            relation.drop()


def _reached(
    rules: RuleSet, denied: frozenset[RelationSchema], removed: set[RelationSchema]
) -> set[RelationSchema]:
    """The predicates with rules that read what was removed, directly or not."""
    found = set(removed)
    grown = True
    while grown:
        grown = False
        for clause in rules.clauses(denied):
            read = {item.schema.stored for item in clause.body if isinstance(item, ClauseAtom)}
            read |= {schema.opposite for schema in read}  # what is not denied rests on both signs
            if clause.head.schema.stored not in found and not read.isdisjoint(found):
                found.add(clause.head.schema.stored)
                grown = True
    return found & rules.derived


def _conclusions(
    tenant: Tenant, entered: AbstractContextManager[View], schemas: Sequence[RelationSchema], budget: Budget
) -> Conclusions:
    found: dict[RelationSchema, set[RowKey]] = {}
    with entered as view:
        for schema in schemas:
            goal = tenant.plans.get(view.rules, schema, "f" * schema.arity, view.denied, view.statistics)
            run = GoalRun(tenant.engine, goal, view.bind, budget.limits)
            try:
                answers = run.ask([0] * schema.arity, budget)
            finally:
                run.close()
            if answers is None:
                raise EngineFault("a relation changed under the read lock")
            found[schema] = set(budget.keys(*answers, schema.arity))
    return found
