"""Application of the changes that memory upkeep writes: evictions and priorities."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from kbcore.state.changes import Delta, EndedFact, EndFacts, EvictFacts, Parted, SetPriority
from kbcore.state.facts import FactRows
from kbcore.state.intervals import (
    earlier_of,
    interval_at,
    restated_of,
    with_earlier,
    with_restated,
    within,
)
from kbcore.state.labelling import (
    changed_by,
    lapses,
    note_parted,
    settle,
    take_admitted,
)
from kbcore.state.labels import Labels
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute, beginning_cell
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, in_parts, paced

GROUPS_PER_YIELD = 50
ENDS_PER_YIELD = 200
ROWS_PER_YIELD = 500
"""Relations or single facts, facts of one relation that end, and rows of one relation that are
removed, between two calls of `yield_now`: about a millisecond."""


def evict(tenant: Tenant, change: EvictFacts, delta: Delta, yield_now: YieldNow) -> int:
    """Remove those of the facts that are stored, relation by relation; return their number."""
    evicted = 0
    for group in paced(change.rows, yield_now, GROUPS_PER_YIELD):
        partition = tenant.partition(group.scope)
        stored = partition.get(group.schema) if partition else None
        if partition is None or stored is None:
            continue
        for part in group.in_parts(yield_now, ROWS_PER_YIELD):
            symbols = tenant.engine.intern_many(part.args)
            rows, ids = located(stored.relation, symbols, len(part))
            if len(ids) < len(part) and delta.retold is not None and tenant.label_sets:
                _note_missing(stored, part, delta, symbols)
            if len(ids):
                stored = partition.writable(group.schema)
                if stored.has_labels:
                    keys = list(zip(*[iter(rows)] * group.arity, strict=True)) or [()]
                    goes = lapses(stored, change.reason, delta.labels)
                    rows, count, _ = take_admitted(tenant, stored, keys, delta, yield_now, goes)
                    rows, ids = located(stored.relation, rows, count)
                    if not count:
                        continue
                stored.remove(rows, len(ids))
                tenant.changed(len(ids), stored)
                evicted += len(ids)
    return evicted


def _note_missing(
    stored: StoredRelation, part: FactRows, delta: Delta, symbols: array[int]
) -> None:
    """Note the facts that are not stored any more: nobody knows who saw them."""
    for index, id in enumerate(stored.relation.locate(symbols, len(part))):
        if id == NO_ROW:
            fact = part.fact(index)
            delta.parted[delta.number, (fact.scope, fact.schema, fact.args)] = Parted(())


def set_priority(tenant: Tenant, change: SetPriority, delta: Delta) -> None:
    """Set the priority of the stored facts that a change names, where it may change them."""
    partition = tenant.partition(change.scope)
    symbols = array("I", [tenant.engine.find(arg) for arg in change.args])
    if partition is None or 0 in symbols:
        return
    for stored in partition.named(change.predicate, len(change.args), change.positive):
        if len(located(stored.relation, symbols, 1)[1]):
            stored = partition.writable(stored.schema)
            row = tuple(symbols)
            layers = changed_by(stored, row, delta, tenant.rules.dimensions())
            if stored.has_labels:
                note_parted(tenant, stored, row, delta, _others(stored, row, layers))
            for layer in layers:
                ids = layer.relation.locate(symbols, 1)
                layer.relation.set_attribute(Attribute.PRIORITY, ids, [change.priority])
                tenant.changed(0, layer)
            settle(tenant, stored, row)


def end_facts(tenant: Tenant, change: EndFacts, delta: Delta, yield_now: YieldNow) -> list[int]:
    """End the interval of each named fact that contains the given time, not after its own end.

    If the fact was stated again from a later time in the interval, it begins again then. Returns
    the indexes of the facts that held up to the time of the change and do not hold any more.
    """
    dimensions = tenant.rules.dimensions()
    ended: list[int] = []
    together: set[int] = set()
    if len(change.facts) > 1 and not (delta.labels or delta.view):
        together = _end_together(tenant, change.facts, delta.at, yield_now)
        ended += sorted(together)
    for index, fact in enumerate(paced(change.facts, yield_now, GROUPS_PER_YIELD)):
        if index in together:
            continue
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
        layers = changed_by(stored, row, delta, dimensions)
        over = [_end(tenant, layer, row, fact.until, delta.at) for layer in layers]
        if any(over):
            ended.append(index)
            if stored.has_labels:
                gone = [layer for layer, is_over in zip(layers, over, strict=True) if is_over]
                note_parted(tenant, stored, row, delta, _others(stored, row, gone))
        settle(tenant, stored, row)
    return sorted(ended)


def _end_together(
    tenant: Tenant, facts: Sequence[EndedFact], now: int, yield_now: YieldNow
) -> set[int]:
    """End those facts that hold in their newest interval and end `now`; return their indexes."""
    groups: dict[tuple[str | None, str, int, bool], list[int]] = {}
    for index, fact in enumerate(paced(facts, yield_now, ROWS_PER_YIELD)):
        if fact.until is None:
            name = fact.scope, fact.predicate, len(fact.args), fact.positive
            groups.setdefault(name, []).append(index)
    ended: set[int] = set()
    for (scope, predicate, arity, positive), indexes in groups.items():
        partition, schema = tenant.partition(scope), RelationSchema(predicate, arity, positive)
        stored = partition.get(schema) if partition else None
        if partition is None or stored is None or stored.has_labels or not arity:
            continue
        stored = partition.writable(schema)
        for part in in_parts(indexes, yield_now, ENDS_PER_YIELD):
            args = list(chain.from_iterable([facts[index].args for index in part]))
            symbols = tenant.engine.find_many(args)
            rows = list(zip(*[iter(symbols)] * arity, strict=True))
            ended.update(part[each] for each in _end_rows(tenant, stored, rows, now))
    return ended


def _end_rows(tenant: Tenant, stored: StoredRelation, rows: list[RowKey], now: int) -> list[int]:
    """End those facts that are stored and hold in their newest interval, without later times;
    return their indexes.
    """
    indexes = list({row: index for index, row in enumerate(rows)}.values())
    if stored.metadata:
        indexes = [index for index in indexes if not _has_later(stored, rows[index], now)]
    ids = stored.relation.locate(array("I", chain.from_iterable(rows)), len(rows))
    known = [index for index in indexes if ids[index] != NO_ROW]
    windows = stored.windows(array("I", [ids[index] for index in known]))
    current = tenant.at(now)
    holding = [
        index
        for index, (begin, end) in zip(known, windows, strict=True)
        if begin <= now and current < end
    ]
    if not holding:
        return holding
    ended, ended_ids = [rows[index] for index in holding], array("I", [ids[i] for i in holding])
    stored.relation.set_attribute(Attribute.VALID_UNTIL, ended_ids, [now] * len(ended))
    tenant.limit_many(stored, ended, ended_ids)
    return holding


def _has_later(stored: StoredRelation, row: RowKey, at: int) -> bool:
    """Return True if a fact was stated again after a time, or has a closed interval after it."""
    metadata = stored.metadata.get(row)
    if not metadata:
        return False
    ends = (each.end for each in earlier_of(metadata))
    return any(end > at for end in (*ends, *restated_of(metadata)))


def _others(stored: StoredRelation, row: RowKey, layers: Sequence[StoredRelation]) -> list[Labels]:
    """Return the labels of a fact whose details are in other layers than these."""
    stack = stored.stacked.get(row)
    if stack is None:
        return [] if layers else [stored.labels.get(row)]
    return [labels for labels in stack if stored.layers[labels] not in layers]


def _end(tenant: Tenant, stored: StoredRelation, row: RowKey, at: int | None, now: int) -> bool:
    """End the interval of a fact that contains the time `at`, None for `now`; return True if the
    fact held until now and does not hold any more.
    """
    ids = stored.relation.locate(array("I", row), 1)
    begin, end = next(stored.windows(ids))
    until = now if at is None else at
    metadata = stored.metadata.get(row, {})
    held = _holds(begin, end, metadata, now)
    if until < begin and interval_at(metadata, until) is not None:
        left = [
            part
            for each in earlier_of(metadata)
            for part in (each.without(until) if each.start <= until < each.end else (each,))
        ]
        stored.describe(row, with_earlier(metadata, left))
        tenant.limit(stored, row)
        tenant.changed(0, stored)
        return held and not _holds(begin, end, stored.metadata.get(row), now)
    again = within(restated_of(metadata), until, end) if begin <= until else ()
    until = max(begin, until)
    if again:
        before = stored.newest_interval(row, ids, until)
        described = with_earlier(metadata, [*earlier_of(metadata), before])
        stored.describe(row, with_restated(described, again[1:]))
        begins = beginning_cell(again[0])
        stored.relation.set_attribute(Attribute.VALID_FROM, ids, [begins])
    else:
        stored.relation.set_attribute(Attribute.VALID_UNTIL, ids, [min(end, until)])
    begin, end = next(stored.windows(ids))
    stored.limited.add(row)
    tenant.limit(stored, row)
    tenant.changed(0, stored)
    return held and not _holds(begin, end, stored.metadata.get(row), now)


def _holds(begin: int, end: int, metadata: Mapping[str, Any] | None, at: int) -> bool:
    """Return True if a time is in the newest interval of a fact or in an earlier one."""
    return begin <= at < end or interval_at(metadata, at) is not None
