"""The changes of stored facts that standing goals depend on."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from kbcore.state.partition import PartitionKey, RowJournal, StoredRelation
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.evaluation import FactChanges
from kbcore.subscriptions.goal import StandingGoal
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.schema import RelationSchema

ChangedFacts = dict[PartitionKey, dict[RelationSchema, FactChanges]]


class Journals:
    """Journals of the relations of a tenant that goals depend on; there is one object per
    tenant.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._watched: dict[tuple[PartitionKey, RelationSchema], StoredRelation] = {}

    def watch(self, goals: Iterable[StandingGoal]) -> None:
        """Record the changes of exactly those relations that goals depend on."""
        needed: dict[tuple[PartitionKey, RelationSchema], StoredRelation] = {}
        for goal in goals:
            partition = self._tenant.partition(goal.scope)
            if goal.is_begun and partition is not None:
                for schema in goal.stored:
                    needed[partition.key, schema] = partition.need(schema)
        for key, stored in self._watched.items():
            if needed.get(key) is not stored:
                stored.journal = None
        for stored in needed.values():
            if stored.journal is None:
                stored.journal = RowJournal()
        self._watched = needed

    def take(self) -> ChangedFacts:
        """Return the facts that became visible or invisible since the last call, by partition."""
        changed: ChangedFacts = {}
        for (partition, schema), stored in self._watched.items():
            if stored.journal and not stored.gone:
                facts = _net_changes(stored)
                if facts.added or facts.removed:
                    changed.setdefault(partition, {})[schema] = facts
        return changed


def _net_changes(stored: StoredRelation) -> FactChanges:
    """Return the rows of a journal whose visibility differs from that before, and empty it."""
    rows = {} if stored.journal is None else stored.journal.take()
    relation, arity = stored.relation, stored.schema.arity
    ids = relation.locate(array("I", [symbol for row in rows for symbol in row]), len(rows))
    added, removed = [], []
    for (row, was_visible), id in zip(rows.items(), ids, strict=True):
        visible = id != NO_ROW
        if visible and row in stored.limited:
            visible = len(relation.match(list(row), limit=1)[1]) > 0 if arity else _shown(stored)
        if visible and not was_visible:
            added.append(row)
        elif was_visible and not visible:
            removed.append(row)
    return FactChanges(added, removed)


def _shown(stored: StoredRelation) -> bool:
    return stored.relation.counts().visible > 0
