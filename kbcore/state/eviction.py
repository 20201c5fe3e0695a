"""Application of the changes that memory upkeep writes: evictions and priorities."""

from __future__ import annotations

from array import array

from kbcore.state.changes import EndFacts, EvictFacts, SetPriority
from kbcore.state.partition import located
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import Rest, paced

GROUPS_PER_REST = 50
ROWS_PER_REST = 500
"""Relations or single facts, and rows of one relation, between two calls of `rest`: about a
millisecond."""


def evict(tenant: Tenant, change: EvictFacts, rest: Rest) -> int:
    """Remove those of the facts that are stored, relation by relation; return their number."""
    evicted = 0
    for group in paced(change.rows, rest, GROUPS_PER_REST):
        partition = tenant.partition(group.scope)
        stored = partition.get(group.schema) if partition else None
        if partition is None or stored is None:
            continue
        for part in group.in_parts(rest, ROWS_PER_REST):
            rows, ids = located(stored.relation, tenant.engine.intern_many(part.args), len(part))
            if len(ids):
                stored = partition.writable(group.schema)
                stored.remove(rows, len(ids))
                tenant.changed(len(ids), stored)
                evicted += len(ids)
    return evicted


def set_priority(tenant: Tenant, change: SetPriority) -> None:
    """Set the priority of the stored facts that a change names."""
    partition = tenant.partition(change.scope)
    symbols = array("I", [tenant.engine.find(arg) for arg in change.args])
    if partition is None or 0 in symbols:
        return
    for stored in partition.named(change.predicate, len(change.args), change.positive):
        if len(located(stored.relation, symbols, 1)[1]):
            stored = partition.writable(stored.schema)
            ids = stored.relation.locate(symbols, 1)
            stored.relation.set_attribute(Attribute.PRIORITY, ids, [change.priority])
            tenant.changed(0, stored)


def end_facts(tenant: Tenant, change: EndFacts, at: int, rest: Rest) -> None:
    """End the validity of the stored facts that a change names, not after the end they have."""
    for fact in paced(change.facts, rest, GROUPS_PER_REST):
        partition = tenant.partition(fact.scope)
        schema = RelationSchema(fact.predicate, len(fact.args), fact.positive)
        stored = partition.get(schema) if partition else None
        row = tuple(tenant.engine.find(arg) for arg in fact.args)
        symbols = array("I", row)
        if partition is None or stored is None or 0 in row:
            continue
        if not len(located(stored.relation, symbols, 1)[1]):
            continue
        stored = partition.writable(schema)
        ids = stored.relation.locate(symbols, 1)
        begin, end = next(stored.windows(ids))
        until = max(begin, at if fact.until is None else fact.until)
        stored.relation.set_attribute(Attribute.VALID_UNTIL, ids, [min(end, until)])
        stored.limited.add(row)
        tenant.limit(stored, row)
        tenant.changed(0, stored)
