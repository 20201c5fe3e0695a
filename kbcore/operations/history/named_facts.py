"""The facts that logged changes concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kbcore.state.changes import (
    AddEvidence,
    AssertFacts,
    AssertRows,
    Change,
    ChangeCatalog,
    DropScope,
    EndFacts,
    EvictFacts,
    ForkScope,
    MergeScope,
    PurgeMemory,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    SetPriority,
)
from kbcore.state.facts import FactKey
from kbcore.state.tenant import Tenant
from kbplanner.evaluate.evaluate import goal_pattern


def named_facts(tenant: Tenant, changes: Iterable[Change]) -> set[FactKey]:
    """Return the facts that changes name, and for patterns those that match."""
    names: set[FactKey] = set()
    for change in changes:
        if isinstance(change, AssertFacts | AddEvidence | EndFacts | RestoreFacts):
            names.update(fact.key for fact in change.facts)
        elif isinstance(change, AssertRows | EvictFacts | PurgeMemory):
            names.update(fact.key for rows in change.rows for fact in rows.facts())
        elif isinstance(change, RetractFact | SetPriority):
            signs = (True, False) if change.positive is None else (change.positive,)
            names.update((change.scope, change.predicate, change.args, sign) for sign in signs)
        elif isinstance(change, RetractPattern):
            names.update(matching_facts(tenant, change))
    return names


def matching_facts(tenant: Tenant, change: RetractPattern) -> Iterator[FactKey]:
    """Yield the stored facts of a scope that match a pattern to retract."""
    partition = tenant.partition(change.scope)
    pattern = goal_pattern(change.pattern, tenant.engine.find)
    if partition is None or pattern is None:
        return
    for stored in partition.named(change.predicate, len(change.pattern), change.positive):
        rows, ids = stored.relation.match(pattern, hidden=True)
        arity = stored.schema.arity
        texts = tenant.engine.texts(rows)
        for index in range(len(ids)):
            args = tuple(texts[index * arity : (index + 1) * arity])
            yield change.scope, change.predicate, args, stored.schema.positive


def is_wide(changes: Iterable[Change]) -> bool:
    """Return True if changes name no single facts, so that states must be compared."""
    return any(
        isinstance(change, ForkScope | DropScope | MergeScope | ChangeCatalog | PurgeMemory)
        for change in changes
    )
