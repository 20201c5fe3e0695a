"""Full comparison of conclusions before and after a removal.

The value of an aggregate depends on every row of its group, and recursion through negation on
unrelated facts. In these cases every conclusion that may depend on a removed fact is computed
twice: from the current facts, and from copies of the stored relations that include the removed
facts.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from kbcore.reason.budget import Budget
from kbcore.reason.view import all_conclusions, viewed
from kbcore.retraction.rows import RowSet
from kbcore.state.changes import RemovedFacts
from kbcore.state.partition import Partition, RowKey
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Relation
from kbplanner.evaluate.settle import View
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema


def compared(
    tenant: Tenant,
    partition: Partition,
    rules: RuleSet,
    group: Sequence[RemovedFacts],
    budget: Budget,
) -> tuple[dict[RelationSchema, RowSet], int]:
    """Return the conclusions that no longer hold, by stored schema and in answer order, and the
    number of new conclusions.

    The caller holds the read lock of the state after the removal. Raises BudgetExceeded.
    """
    removed = {change.schema for change in group}
    denied = partition.denied(rules.deniable) | (rules.deniable & removed)
    reached = sorted(_reached(rules, denied, removed), key=str)
    keys: dict[RelationSchema, set[RowKey]] = {}
    for change in group:
        keys.setdefault(change.schema, set()).update(change.keys)
    fallen: dict[RelationSchema, RowSet] = {}
    appeared = 0
    past = _Past(partition, group)
    with ExitStack() as open_runs:
        entered = viewed(tenant, partition, rules, None, budget, None, denied)
        after = _conclusions(tenant, entered, reached, budget, open_runs)
        try:
            facts = View(rules, denied, past.bind, partition)
            entered = tenant.models.view(facts, None, budget)
            before = _conclusions(tenant, entered, reached, budget, open_runs)
        finally:
            past.close()
        for schema in reached:
            budget.yield_now()
            difference = before[schema].compare(after[schema])
            symbols = before[schema].rows(difference.only_here)
            symbols = tenant.engine.sort(symbols, schema.arity, budget.offload, in_place=True)
            rows = RowSet(symbols, len(difference.only_here), schema.arity)
            fallen[schema] = rows.without(keys.get(schema, set()))
            appeared += len(difference.only_there)
    return fallen, appeared


class _Past:
    """The stored relations before the removal.

    Relations that lost rows are copies with these rows.
    """

    def __init__(self, partition: Partition, group: Sequence[RemovedFacts]) -> None:
        self._partition = partition
        self._rows: dict[RelationSchema, list[RowKey]] = {}
        for change in group:
            self._rows.setdefault(change.schema, []).extend(change.keys)
        self._copies: dict[RelationSchema, Relation] = {}

    def bind(self, schema: RelationSchema) -> Relation:
        """Return the relation of a stored schema before the removal."""
        rows = self._rows.get(schema)
        if rows is None:
            return self._partition.bind(schema)
        if schema not in self._copies:
            copy = self._copies[schema] = self._partition.bind(schema).copy()
            copy.insert(array("I", [symbol for row in rows for symbol in row]), len(rows))
        return self._copies[schema]

    def close(self) -> None:
        """Drop the copied relations."""
        for relation in self._copies.values():
            relation.drop()


def _reached(
    rules: RuleSet, denied: frozenset[RelationSchema], removed: set[RelationSchema]
) -> set[RelationSchema]:
    """Return the derived predicates whose rules read a removed relation, directly or indirectly."""
    reached = set(removed)
    grown = True
    while grown:
        grown = False
        for clause in rules.clauses(denied):
            read = {item.schema.stored for item in clause.body if isinstance(item, ClauseAtom)}
            read |= {
                schema.opposite for schema in read
            }  # an atom that must not be denied depends on both signs
            if clause.head.schema.stored not in reached and not read.isdisjoint(reached):
                reached.add(clause.head.schema.stored)
                grown = True
    return reached & rules.derived


def _conclusions(
    tenant: Tenant,
    entered: AbstractContextManager[View],
    schemas: Sequence[RelationSchema],
    budget: Budget,
    open_runs: ExitStack,
) -> dict[RelationSchema, Relation]:
    """Return relations with all conclusions, which live until `open_runs` is closed."""
    with entered as view:
        return {
            schema: all_conclusions(tenant, view, schema, budget, open_runs) for schema in schemas
        }
