"""Apply a change set to a tenant. The one place where state changes: commits, recovery and followers all come here."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    Delta,
    EvictFacts,
    NoteAnswer,
    Removed,
    RetractFact,
    RetractPattern,
    RetractRule,
    ScopeChange,
    SetPriority,
)
from kbcore.state.eviction import evict, set_priority
from kbcore.state.facts import Fact, FactRows
from kbcore.state.merging.scopes import change_scopes
from kbcore.state.partition import Partition, StoredRelation, located
from kbcore.state.rulebook import stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, Attribute
from kbplanner.engine.cells import beginning_cell
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema

UNKNOWN = float("nan")

_WINDOW = Attribute.TTL, Attribute.VALID_FROM, Attribute.VALID_UNTIL

UNSET_PRIORITY = 0.5
"""Of a fact whose priority nobody set."""


def apply(tenant: Tenant, changes: ChangeSet, at: int, seq: int = 0, *, noted: bool = False) -> Delta:
    """Apply a change set of logged time `at` (epoch milliseconds); the caller holds the tenant's write lock.

    `seq` is its place in the log, 0 where there is none; with `noted` the delta says which facts were told again.

    It must not fail for changes that were accepted into the log.
    """
    tenant.advance(at)
    delta = Delta(at, seq, retold={} if noted else None)
    apply_changes(tenant, changes.changes, at, delta)
    if changes.transaction is not None:
        tenant.committed.note(changes.transaction, at)
    if changes.request is not None:
        tenant.answered.note(changes.request, at)
    tenant.seq = seq
    if all(isinstance(change, NoteAnswer) for change in changes.changes):
        _keep_answers(tenant, changes.changes, at)
    else:
        tenant.generation += 1
        tenant.version += 1
    delta.generation = tenant.generation
    return delta


def _keep_answers(tenant: Tenant, changes: Iterable[Change], at: int) -> None:
    for change in changes:
        if isinstance(change, NoteAnswer):
            tenant.answered.note(change.request, at, change.answer)


def apply_changes(tenant: Tenant, changes: Iterable[Change], at: int, delta: Delta) -> None:
    """Apply changes to what a tenant holds, and write down what really changes."""
    for number, change in enumerate(changes):
        if isinstance(change, AssertFacts):
            _assert_facts(tenant, change.facts, at, delta)
        elif isinstance(change, AssertRows):
            _assert_rows(tenant, change.rows, at, delta)
        elif isinstance(change, RetractFact):
            _retract_fact(tenant, change, delta, number)
        elif isinstance(change, RetractPattern):
            _retract_pattern(tenant, change, delta, number)
        elif isinstance(change, AssertRules):
            rules = tenant.writable_rules()
            delta.rules_added.extend(stored for rule in change.rules if rules.add(stored := stored_rule(rule)))
            tenant.plan_version += 1
        elif isinstance(change, RetractRule):
            _retract_rule(tenant, change, delta)
        elif isinstance(change, ScopeChange):
            change_scopes(tenant, change, delta)
        elif isinstance(change, EvictFacts):
            delta.evicted += evict(tenant, change)
        elif isinstance(change, SetPriority):
            set_priority(tenant, change)
        elif isinstance(change, NoteAnswer):
            pass  # nothing known changes; `apply` keeps it
        else:
            raise TypeError(f"{type(change).__name__} changes the catalog, not a tenant")


def _assert_facts(tenant: Tenant, facts: Sequence[Fact], at: int, delta: Delta) -> None:
    groups: dict[tuple[str | None, RelationSchema], list[Fact]] = {}
    for fact in facts:
        groups.setdefault((fact.scope, fact.schema), []).append(fact)
    for (scope, schema), group in groups.items():
        stored = tenant.need_partition(scope).writable(schema)
        symbols = tenant.engine.intern_many([arg for fact in group for arg in fact.args])
        _insert(tenant, stored, symbols, group, at, delta)


def _assert_rows(tenant: Tenant, groups: Sequence[FactRows], at: int, delta: Delta) -> None:
    for rows in groups:
        stored = tenant.need_partition(rows.scope).writable(rows.schema)
        symbols = tenant.engine.intern_many(rows.args)
        before, ids, added = _add(tenant, stored, symbols, len(rows), at, delta)
        seen = before
        for place in range(len(rows) if added < len(rows) else 0):
            if ids[place] < seen:
                row = tuple(symbols[place * rows.arity : (place + 1) * rows.arity])
                _describe(tenant, stored, row, ids[place : place + 1], rows.fact(place), at, True)
                if delta.retold is not None:
                    delta.retold[rows.fact(place).key] = _created(stored, ids[place : place + 1])
            seen = max(seen, ids[place] + 1)


def _add(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], count: int, at: int, delta: Delta
) -> tuple[int, array[int], int]:
    """Insert rows; the row count before, their ids, and how many were new."""
    relation = stored.relation
    before = relation.counts().rows
    ids, added = relation.insert(symbols, count)
    if added:
        relation.fill_attribute(Attribute.CREATED_AT, before, added, at)
        tenant.changed(added, stored)
    delta.asserted += added
    delta.updated += count - added
    return before, ids, added


def _insert(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], facts: Sequence[Fact], at: int, delta: Delta
) -> None:
    before, ids, added = _add(tenant, stored, symbols, len(facts), at, delta)
    if added == len(facts):
        _describe_new(tenant, stored, symbols, ids, facts, at)
        return
    arity = stored.schema.arity
    seen = before
    for i, fact in enumerate(facts):
        place = ids[i]
        again = place < seen
        seen = max(seen, place + 1)
        if again or not _plain(fact):
            row = tuple(symbols[i * arity : (i + 1) * arity])
            _describe(tenant, stored, row, ids[i : i + 1], fact, at, again)
            if again and delta.retold is not None:
                delta.retold[fact.key] = _created(stored, ids[i : i + 1])


def _describe_new(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], ids: array[int], facts: Sequence[Fact], at: int
) -> None:
    """Write metadata, confidence and validity of facts that were all inserted just now, at `at` (epoch milliseconds)."""
    described = [place for place, fact in enumerate(facts) if not _plain(fact)]
    if not described:
        return
    arity, relation = stored.schema.arity, stored.relation
    sure, sureness = array("I"), list[float]()
    windowed, windowed_rows, windows = array("I"), list[tuple[int, ...]](), list[tuple[int, int, int]]()
    for place in described:
        fact, row = facts[place], tuple(symbols[place * arity : (place + 1) * arity])
        if fact.metadata:
            stored.describe(row, fact.metadata)
        if fact.confidence is not None:
            sure.append(ids[place])
            sureness.append(fact.confidence)
        if fact.ttl is not None or fact.valid_from is not None or fact.valid_until is not None:
            windowed.append(ids[place])
            windowed_rows.append(row)
            windows.append((fact.ttl or 0, beginning_cell(fact.valid_from), _end(fact, at)))
    relation.set_attribute(Attribute.CONFIDENCE, sure, sureness)
    if windows:
        for attribute, cells in zip(_WINDOW, zip(*windows, strict=True), strict=True):
            relation.set_attribute(attribute, windowed, cells)
        tenant.limit_new(stored, windowed_rows, windowed)
    tenant.changed(0, stored)


def tell_rows(tenant: Tenant, scope: str | None, schema: RelationSchema, args: Sequence[str], times: Sequence[int]) -> None:
    """Store plain facts of one relation, each told at a time of its own (epoch milliseconds), in the order of their telling.

    It comes to the same as one change set after the other; their generations are the caller's, and the time of the tenant.
    """
    stored = tenant.need_partition(scope).writable(schema)
    relation, arity = stored.relation, schema.arity
    seen = relation.counts().rows
    symbols = tenant.engine.intern_many(args)
    ids, added = relation.insert(symbols, len(times))
    new, again = list[int](), list[int]()
    for place, id in enumerate(ids):
        if id < seen:
            again.append(place)
        else:
            new.append(place)
            seen = id + 1
    if added:
        relation.set_attribute(Attribute.CREATED_AT, array("I", [ids[i] for i in new]), [times[i] for i in new])
        tenant.changed(added, stored)
    for place in again:
        row = tuple(symbols[place * arity : (place + 1) * arity])
        fact = Fact(schema.predicate, (), schema.positive, scope)
        _describe(tenant, stored, row, ids[place : place + 1], fact, times[place], True)


def _end(fact: Fact, at: int) -> int:
    """Return the VALID_UNTIL cell of a fact asserted at `at`: a `ttl` counts from this assertion, not from the creation."""
    until = FOREVER if fact.valid_until is None else fact.valid_until
    return until if fact.ttl is None else min(until, at + fact.ttl)


def _created(stored: StoredRelation, one: array[int]) -> int:
    return int(stored.relation.attributes(Attribute.CREATED_AT, one)[0])


def _plain(fact: Fact) -> bool:
    return (
        not fact.metadata
        and fact.ttl is None
        and fact.valid_from is None
        and fact.valid_until is None
        and fact.confidence is None
    )


def _describe(
    tenant: Tenant, stored: StoredRelation, row: tuple[int, ...], one: array[int], fact: Fact, at: int, again: bool
) -> None:
    """Write metadata, confidence and validity of one fact.

    With `again` the fact was stored before: it keeps its creation time, unless it had expired, and its `ttl` counts from
    `at`.
    """
    tenant.changed(0, stored)
    relation = stored.relation
    limited = fact.ttl is not None or fact.valid_from is not None or fact.valid_until is not None
    if again:
        if row in stored.limited and next(stored.windows(one))[1] <= at:
            relation.set_attribute(Attribute.CREATED_AT, one, [at])
            relation.set_attribute(Attribute.ACCESSES, one, [1])
            relation.set_attribute(Attribute.PRIORITY, one, [UNSET_PRIORITY])
        else:
            accesses = relation.attributes(Attribute.ACCESSES, one)[0]
            relation.set_attribute(Attribute.ACCESSES, one, [int(accesses) + 1])
        relation.set_attribute(Attribute.LAST_ACCESS, one, [at])
    if fact.metadata or again:
        stored.describe(row, fact.metadata)
    if fact.confidence is not None or again:
        relation.set_attribute(Attribute.CONFIDENCE, one, [UNKNOWN if fact.confidence is None else fact.confidence])
    if limited or row in stored.limited:
        relation.set_attribute(Attribute.TTL, one, [fact.ttl or 0])
        relation.set_attribute(Attribute.VALID_FROM, one, [beginning_cell(fact.valid_from)])
        relation.set_attribute(Attribute.VALID_UNTIL, one, [_end(fact, at)])
        stored.limited.add(row)
        tenant.limit(stored, row)
        if not limited:
            stored.limited.discard(row)


def _retract_fact(tenant: Tenant, change: RetractFact, delta: Delta, number: int) -> None:
    partition = tenant.partition(change.scope)
    symbols = array("I", [tenant.engine.find(arg) for arg in change.args])
    if partition is None or 0 in symbols:
        return
    for stored in partition.named(change.predicate, len(change.args), change.positive):
        _remove(tenant, partition, stored, symbols, 1, delta, number)


def _retract_pattern(tenant: Tenant, change: RetractPattern, delta: Delta, number: int) -> None:
    partition = tenant.partition(change.scope)
    pattern = goal_pattern(change.pattern, tenant.engine.find)
    if partition is None or pattern is None:
        return
    for stored in partition.named(change.predicate, len(change.pattern), change.positive):
        rows, ids = stored.relation.match(pattern, hidden=True)
        _remove(tenant, partition, stored, rows, len(ids), delta, number)


def _remove(
    tenant: Tenant,
    partition: Partition,
    stored: StoredRelation,
    symbols: array[int],
    count: int,
    delta: Delta,
    change: int,
) -> None:
    arity = stored.schema.arity
    rows, ids = located(stored.relation, symbols, count)
    if not len(ids):
        return
    writable = partition.writable(stored.schema)
    if writable is not stored:
        stored, (rows, ids) = writable, located(writable.relation, rows, len(ids))
    shown = stored.rows(tenant.engine, rows, ids)
    keys = [tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids))]
    stored.remove(rows, len(ids))
    tenant.changed(len(ids), stored)
    delta.removed.append(Removed(stored.schema, stored.scope, keys, shown, change))


def _retract_rule(tenant: Tenant, change: RetractRule, delta: Delta) -> None:
    removed = tenant.writable_rules().remove(change.scope, change.id)
    tenant.plan_version += 1
    if removed is not None:
        delta.rules_removed.append(removed)
