"""The changes of stored facts that standing goals depend on."""

from __future__ import annotations

from collections.abc import Iterable

from kbcore.state.partition import PartitionKey, RowJournal
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.evaluation import FactChanges
from kbcore.subscriptions.goal import StandingGoal
from kbplanner.ir.schema import RelationSchema

ChangedFacts = dict[PartitionKey, dict[RelationSchema, FactChanges]]


class Journals:
    """Journals of the relations of a tenant that goals depend on; there is one object per
    tenant.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._watched: dict[tuple[PartitionKey, RelationSchema], RowJournal] = {}

    def watch(self, goals: Iterable[StandingGoal]) -> None:
        """Record the changes of exactly those relations that goals depend on."""
        watched: dict[tuple[PartitionKey, RelationSchema], RowJournal] = {}
        for goal in goals:
            partition = self._tenant.partition(goal.scope)
            if goal.is_begun and partition is not None:
                for schema in goal.stored:
                    key, stored = (partition.key, schema), partition.need(schema)
                    journal = self._watched.get(key)
                    if journal is None or journal.stored is not stored:
                        journal = watched.get(key) or stored.journal(needs_all=True)
                    watched[key] = journal
        self._watched = watched

    def take(self) -> ChangedFacts:
        """Return the facts that became visible or invisible since the last call, by partition."""
        changed: ChangedFacts = {}
        for (partition, schema), journal in self._watched.items():
            facts = FactChanges(*journal.take())
            if facts.added or facts.removed:
                changed.setdefault(partition, {})[schema] = facts
        return changed
