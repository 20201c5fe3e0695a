"""Application of a change set to a tenant.

Commits, recovery and followers all change state through it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import isnan
from typing import Any, NamedTuple

from kbcore.state.changes import (
    BESIDES_CONTENT,
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    Declare,
    Delta,
    DeployRuleSet,
    EndFacts,
    EndSubscriptions,
    EvictFacts,
    NoteAnswer,
    NoteDelivery,
    PurgeMemory,
    PutSubscription,
    RemovedFacts,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    ScopeChange,
    SetPriority,
    UseLabels,
)
from kbcore.state.deploying import (
    deploy,
    forget_removed,
    goes_by_deployment,
    goes_by_hand,
    rows_asserted_by_hand,
    stays,
    stored_by_hand,
    without_staying,
)
from kbcore.state.episodes.applying import add_episodes, add_evidence, purge, restore_facts
from kbcore.state.episodes.evidence import evidence_of, union, with_evidence, without_evidence
from kbcore.state.eviction import end_facts, evict, set_priority
from kbcore.state.facts import UNSET_PRIORITY, Fact, FactRows
from kbcore.state.intervals import (
    EVIDENCE_KEY,
    STATED_KEY,
    Interval,
    earlier_of,
    restated_of,
    with_earlier,
    with_late,
    with_restated,
    within,
    without_reserved,
)
from kbcore.state.labelling import (
    Goes,
    all_go,
    assert_labelled,
    may_change,
    shown_of,
    take_admitted,
)
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.merging.scopes import change_scopes
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.record_chain import WAITING_RECORDS
from kbcore.state.rule_sets import DECLARATION, FACT, RULE
from kbcore.state.subscriptions import StatePosition
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, beginning, beginning_cell
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, in_parts, paced

UNKNOWN = float("nan")

FACTS_PER_YIELD = 300
ROWS_PER_YIELD = 1000
PREDICATES_PER_YIELD = 20
CHANGES_PER_YIELD = 5
"""Facts, bulk rows, predicates with few facts, and small changes, stored between two calls of
`yield_now`: about a millisecond."""

_WINDOW = Attribute.TTL, Attribute.VALID_FROM, Attribute.VALID_UNTIL


def apply(
    tenant: Tenant,
    changes: ChangeSet,
    at: int,
    seq: int = 0,
    *,
    noted: bool = False,
    yield_now: YieldNow = go_on,
    chained: bytes | None = None,
) -> Delta:
    """Apply a change set of logged time `at` (epoch milliseconds).

    The caller holds the tenant's write lock.

    `seq` is the sequence number of the change set in the log, 0 for a change set that is not
    logged. `chained` is its record as the chain takes it, None if it is in none. With `noted`, the
    delta lists the facts that were asserted again. Changes that were accepted into the log must
    not fail here. `yield_now` is called about once a millisecond, while
    the changes are applied in part: it lets work run that waits for the lock before it looks at the
    tenant.
    """
    tenant.advance(at)
    if chained is not None:
        chain = tenant.chain
        chain.waiting.append(chained)
        if len(chain.waiting) >= WAITING_RECORDS:
            chain.hash_waiting()
    delta = Delta(at, seq, labels=changes.labels, view=changes.view, retold={} if noted else None)
    apply_changes(tenant, changes.changes, at, delta, yield_now)
    if changes.transaction is not None:
        tenant.committed.note(changes.transaction, at)
    besides_content = True
    for change in changes.changes:
        if not isinstance(change, BESIDES_CONTENT):
            besides_content = False
            break
    if changes.request is not None:
        outcome = None if besides_content else delta.outcome()
        tenant.answered.note(changes.request, at, outcome=outcome)
    tenant.seq = seq
    if besides_content:
        _keep_answers(tenant, changes.changes, at)
    else:
        tenant.generation += 1
        tenant.version += 1
    delta.generation = tenant.generation
    if tenant.views is not None:
        tenant.views.follow(changes, delta, yield_now)
    return delta


def _keep_answers(tenant: Tenant, changes: Iterable[Change], at: int) -> None:
    for change in changes:
        if isinstance(change, NoteAnswer):
            tenant.answered.note(change.request, at, change.answer)


def apply_changes(
    tenant: Tenant, changes: Iterable[Change], at: int, delta: Delta, yield_now: YieldNow = go_on
) -> None:
    """Apply changes to a tenant and record in `delta` what they changed; `yield_now` as for
    `apply`.

    Beside a deployment, what is stored and removed belongs to its rule set. Otherwise it is stored
    and removed by hand.
    """
    by_hand = True
    labels = delta.labels
    for number, change in enumerate(paced(changes, yield_now, CHANGES_PER_YIELD)):
        delta.number = number
        if isinstance(change, UseLabels):
            delta.labels = change.labels
            continue
        if isinstance(change, DeployRuleSet):
            by_hand = False
            deploy(tenant, change, at, delta.labels, yield_now)
            continue
        if by_hand and tenant.rule_sets.version:  # most tenants have never had any
            stored_by_hand(tenant, change, delta.labels, yield_now)
        _apply_change(tenant, change, (number, by_hand), at, delta, yield_now)
        if tenant.rule_sets.version:
            forget_removed(tenant, change, yield_now)
    delta.labels = labels


def _apply_change(
    tenant: Tenant,
    change: Change,
    origin: tuple[int, bool],
    at: int,
    delta: Delta,
    yield_now: YieldNow,
) -> None:
    """Apply one change; `origin` is its number in the set, and True if it was made by hand."""
    number, by_hand = origin
    if isinstance(change, AssertFacts):
        _assert_facts(tenant, change.facts, at, delta, yield_now)
        delta.discarded += change.discarded
    elif isinstance(change, AssertRows):
        _assert_rows(tenant, change.rows, at, delta, yield_now)
    elif isinstance(change, RetractFact):
        _retract_fact(tenant, change, delta, number, by_hand)
    elif isinstance(change, RetractPattern):
        _retract_pattern(tenant, change, delta, number, yield_now)
    elif isinstance(change, AssertRules):
        _assert_rules(tenant, change, delta, yield_now)
    elif isinstance(change, Declare):
        _declare(tenant, change, yield_now)
    elif isinstance(change, RetractRule):
        _retract_rule(tenant, change, delta, by_hand)
    elif isinstance(change, ScopeChange):
        change_scopes(tenant, change, delta, yield_now)
    elif isinstance(change, EvictFacts):
        delta.evicted += evict(tenant, change, delta, yield_now)
    elif isinstance(change, EndFacts):
        delta.ended += ((number, index) for index in end_facts(tenant, change, delta, yield_now))
    elif isinstance(change, SetPriority):
        set_priority(tenant, change, delta)
    elif isinstance(change, AddEpisodes):
        add_episodes(tenant, change, at, delta, yield_now)
    elif isinstance(change, AddEvidence):
        add_evidence(tenant, change, delta, yield_now)
    elif isinstance(change, PurgeMemory):
        purge(tenant, change, delta, number, yield_now)
    elif isinstance(change, RestoreFacts):
        restore_facts(tenant, change, delta, yield_now)
    elif isinstance(change, PutSubscription | EndSubscriptions | NoteDelivery):
        _change_subscriptions(tenant, change, delta)
    elif isinstance(change, NoteAnswer):
        pass  # no fact or rule changes; `apply` stores the answer
    else:
        raise TypeError(f"{type(change).__name__} changes the catalog, not a tenant")


def _assert_rules(tenant: Tenant, change: AssertRules, delta: Delta, yield_now: YieldNow) -> None:
    rules = tenant.writable_rules()
    for stored in paced(change.rules, yield_now, FACTS_PER_YIELD):
        known = rules.get(stored.scope, stored.id)
        others = () if known is None else rules.labels_of(known)
        if rules.add(stored, delta.labels):
            delta.note_rule("rules_added", stored, ((delta.labels, stored),), others)
    tenant.plan_version += 1
    if delta.labels and change.rules:
        tenant.use_labels(delta.labels)


def _declare(tenant: Tenant, change: Declare, yield_now: YieldNow) -> None:
    rules = tenant.writable_rules()
    for declared in paced(change.declarations, yield_now, FACTS_PER_YIELD):
        rules.declare(declared)
    if rules.required:
        tenant.plan_version += 1


def _assert_facts(
    tenant: Tenant, facts: Sequence[Fact], at: int, delta: Delta, yield_now: YieldNow
) -> None:
    if len(facts) == 1:  # the most frequent change by far needs no groups
        (only,) = facts
        schema = RelationSchema(only.predicate, len(only.args), only.positive)
        stored = tenant.need_partition(only.scope).writable(schema)
        _insert(tenant, stored, tenant.engine.intern_many(only.args), facts, at, delta)
        return
    for group in paced(_by_relation(facts, yield_now), yield_now, PREDICATES_PER_YIELD):
        stored = tenant.need_partition(group[0].scope).writable(group[0].schema)
        for part in in_parts(group, yield_now, FACTS_PER_YIELD):
            args = list(chain.from_iterable([fact.args for fact in part]))
            _insert(tenant, stored, tenant.engine.intern_many(args), part, at, delta)


def _by_relation(facts: Sequence[Fact], yield_now: YieldNow) -> Sequence[Sequence[Fact]]:
    """Return facts grouped by the relation that stores them, in order."""
    relations = set(map(_only_relation, in_parts(facts, yield_now, ROWS_PER_YIELD)))
    if len(relations) == 1 and None not in relations:
        return (facts,)
    groups: dict[tuple[str | None, str, int, bool], list[Fact]] = {}
    for fact in paced(facts, yield_now, ROWS_PER_YIELD):
        name = fact.scope, fact.predicate, len(fact.args), fact.positive
        groups.setdefault(name, []).append(fact)
    return list(groups.values())


def _only_relation(facts: Sequence[Fact]) -> tuple[str | None, str, int, bool] | None:
    """Return the scope, predicate, arity and sign of facts; None if they are not all equal."""
    first = facts[0]
    is_one = (
        len({fact.predicate for fact in facts}) == 1
        and len({fact.scope for fact in facts}) == 1
        and len({len(fact.args) for fact in facts}) == 1
        and len({fact.positive for fact in facts}) == 1
    )
    return (first.scope, first.predicate, len(first.args), first.positive) if is_one else None


def _assert_rows(
    tenant: Tenant, groups: Sequence[FactRows], at: int, delta: Delta, yield_now: YieldNow
) -> None:
    for group in paced(groups, yield_now, PREDICATES_PER_YIELD):
        stored = tenant.need_partition(group.scope).writable(group.schema)
        for rows in group.in_parts(yield_now, ROWS_PER_YIELD):
            symbols = tenant.engine.intern_many(rows.args)
            if delta.labels or stored.has_labels:
                _insert(tenant, stored, symbols, rows.facts(), at, delta)
                continue
            before, ids, added = _add(tenant, stored, symbols, len(rows), at, delta)
            if added < len(rows):
                _assert_again(tenant, stored, rows, (symbols, ids, before), at, delta, yield_now)
            _contest(tenant, stored, symbols, ids, at)


def _assert_again(
    tenant: Tenant,
    stored: StoredRelation,
    rows: FactRows,
    inserted: tuple[array[int], array[int], int],
    at: int,
    delta: Delta,
    yield_now: YieldNow,
) -> None:
    """Describe those of some bulk rows that were stored before.

    `inserted` are the symbols and ids of all of them, and the number of rows before.
    """
    symbols, ids, seen = inserted
    together = set[int]()
    again = [index for index, id in enumerate(ids) if id < seen]
    for part in in_parts(again, yield_now, FACTS_PER_YIELD):
        facts = {index: rows.fact(index) for index in part}
        together |= _describe_together(tenant, stored, (symbols, ids), facts, at, delta)
    for index in paced(range(len(rows)), yield_now, FACTS_PER_YIELD):
        if ids[index] < seen and index not in together:
            row = tuple(symbols[index * rows.arity : (index + 1) * rows.arity])
            _describe(tenant, stored, row, ids[index : index + 1], rows.fact(index), at, True)
            if delta.retold is not None:
                delta.retold[delta.labels, rows.fact(index).key] = _created(
                    stored, ids[index : index + 1]
                )
        seen = max(seen, ids[index] + 1)


def _add(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], count: int, at: int, delta: Delta
) -> tuple[int, array[int], int]:
    """Insert rows; return the row count before, the ids, and the number of new rows."""
    relation = stored.relation
    before = relation.counts().rows
    ids, added = stored.insert(symbols, count)
    if added:
        relation.fill_attribute(Attribute.CREATED_AT, before, added, at)
        tenant.changed(added, stored)
    delta.asserted += added
    delta.updated += count - added
    return before, ids, added


def _insert(
    tenant: Tenant,
    stored: StoredRelation,
    symbols: array[int],
    facts: Sequence[Fact],
    at: int,
    delta: Delta,
) -> None:
    if delta.labels or stored.has_labels:

        def insert(layer: StoredRelation, symbols: array[int], facts: Sequence[Fact]) -> None:
            _insert_in(tenant, layer, symbols, facts, at, delta)

        assert_labelled(tenant, stored, symbols, facts, delta.labels, insert)
    else:
        _insert_in(tenant, stored, symbols, facts, at, delta)


def _insert_in(
    tenant: Tenant,
    stored: StoredRelation,
    symbols: array[int],
    facts: Sequence[Fact],
    at: int,
    delta: Delta,
) -> None:
    before, ids, added = _add(tenant, stored, symbols, len(facts), at, delta)
    if added == len(facts):
        _describe_new(tenant, stored, symbols, ids, facts, at)
        _contest(tenant, stored, symbols, ids, at)
        return
    arity = stored.schema.arity
    seen = before
    together = set[int]()
    if len(facts) > 1:
        known = {index: facts[index] for index, id in enumerate(ids) if id < before}
        together = _describe_together(tenant, stored, (symbols, ids), known, at, delta)
    for i, fact in enumerate(facts):
        id = ids[i]
        again = id < seen
        seen = max(seen, id + 1)
        if i not in together and (again or not _plain(fact)):
            row = tuple(symbols[i * arity : (i + 1) * arity])
            _describe(tenant, stored, row, ids[i : i + 1], fact, at, again)
            if again and delta.retold is not None:
                delta.retold[delta.labels, fact.key] = _created(stored, ids[i : i + 1])
    _contest(tenant, stored, symbols, ids, at)


def _describe_new(
    tenant: Tenant,
    stored: StoredRelation,
    symbols: array[int],
    ids: array[int],
    facts: Sequence[Fact],
    at: int,
) -> None:
    """Write metadata, confidence and validity of facts that were just inserted, at `at` (epoch
    milliseconds).
    """
    described = [
        index for index, fact in enumerate(facts) if fact.metadata or fact.evidence or fact.restated
    ]
    sure = [index for index, fact in enumerate(facts) if fact.confidence is not None]
    windowed = [
        index
        for index, fact in enumerate(facts)
        if fact.ttl is not None or fact.valid_from is not None or fact.valid_until is not None
    ]
    if not (described or sure or windowed):
        return
    relation = stored.relation
    rows = _rows_of(symbols, stored.schema.arity, len(facts)) if described or windowed else []
    if described:
        if any(fact.evidence or fact.restated for fact in facts):
            metadata = [_metadata(tenant, facts[index], None) for index in described]
        else:
            metadata = [facts[index].metadata for index in described]
        stored.describe_many([rows[index] for index in described], metadata)
    if sure:
        relation.set_attribute(
            Attribute.CONFIDENCE,
            _selected(ids, sure),
            [facts[index].confidence or 0.0 for index in sure],
        )
    if windowed:
        selected = _selected(ids, windowed)
        windows = [
            (fact.ttl or 0, beginning_cell(fact.valid_from), _end(fact, at))
            for fact in map(facts.__getitem__, windowed)
        ]
        for attribute, cells in zip(_WINDOW, zip(*windows, strict=True), strict=True):
            relation.set_attribute(attribute, selected, cells)
        tenant.limit_many(stored, [rows[index] for index in windowed], selected)
    tenant.changed(0, stored)


def _rows_of(symbols: array[int], arity: int, count: int) -> list[tuple[int, ...]]:
    """Return flat symbols as rows."""
    return list(zip(*[iter(symbols)] * arity, strict=True)) if arity else [()] * count


def _selected(ids: array[int], indices: list[int]) -> array[int]:
    """Return the ids at some indices, which are in order."""
    return ids if len(indices) == len(ids) else array("I", [ids[index] for index in indices])


def replay_rows(
    tenant: Tenant,
    scope: str | None,
    schema: RelationSchema,
    args: Sequence[str],
    times: Sequence[int],
) -> None:
    """Store plain facts of one relation in order, each with its own assertion time (epoch
    milliseconds).

    The result equals applying one change set per fact. The caller updates the tenant's time and
    generation.
    """
    stored = tenant.need_partition(scope).writable(schema)
    relation, arity = stored.relation, schema.arity
    symbols = tenant.engine.intern_many(args)
    if stored.has_labels:
        for index, at in enumerate(times):
            start, stop = index * arity, (index + 1) * arity
            fact = Fact(schema.predicate, tuple(args[start:stop]), schema.positive, scope)
            tenant.advance(at)
            _insert(tenant, stored, symbols[start:stop], [fact], at, Delta(at))
        return
    seen = relation.counts().rows
    ids, added = stored.insert(symbols, len(times))
    new, again = list[int](), list[int]()
    for index, id in enumerate(ids):
        if id < seen:
            again.append(index)
        else:
            new.append(index)
            seen = id + 1
    if added:
        relation.set_attribute(
            Attribute.CREATED_AT, array("I", [ids[i] for i in new]), [times[i] for i in new]
        )
        tenant.changed(added, stored)
    if _opposite(tenant, stored) is not None:
        for index in new:
            own = symbols[index * arity : (index + 1) * arity]
            _contest(tenant, stored, own, ids[index : index + 1], times[index])
    for index in again:
        row = tuple(symbols[index * arity : (index + 1) * arity])
        fact = Fact(schema.predicate, (), schema.positive, scope)
        _describe(tenant, stored, row, ids[index : index + 1], fact, times[index], True)
        _contest(tenant, stored, array("I", row), ids[index : index + 1], times[index])
    rows_asserted_by_hand(
        tenant, [FactRows(schema.predicate, arity, args, schema.positive, scope)], NO_LABELS, go_on
    )


def _end(fact: Fact, at: int) -> int:
    """Return the VALID_UNTIL cell of a fact asserted at `at`.

    A `ttl` counts from this assertion, not from the creation.
    """
    until = FOREVER if fact.valid_until is None else fact.valid_until
    return until if fact.ttl is None else min(until, at + fact.ttl)


def _created(stored: StoredRelation, ids: array[int]) -> int:
    return int(stored.relation.attributes(Attribute.CREATED_AT, ids)[0])


def _plain(fact: Fact) -> bool:
    return (
        not fact.metadata
        and not fact.evidence
        and fact.ttl is None
        and fact.valid_from is None
        and fact.valid_until is None
        and fact.confidence is None
    )


def _is_limited(fact: Fact) -> bool:
    """Return True for a fact that is asserted with a validity window or a `ttl`."""
    return fact.ttl is not None or fact.valid_from is not None or fact.valid_until is not None


def _describe(
    tenant: Tenant,
    stored: StoredRelation,
    row: tuple[int, ...],
    ids: array[int],
    fact: Fact,
    at: int,
    again: bool,
) -> None:
    """Write metadata, confidence and validity of one fact.

    With `again` the fact was stored before: it keeps its creation time, unless it had expired, and
    its `ttl` counts from `at`.
    """
    tenant.changed(0, stored)
    relation = stored.relation
    limited = _is_limited(fact)
    before = stored.metadata.get(row, {}) if again else {}
    earlier = earlier_of(before)
    begin, end = beginning_cell(fact.valid_from), _end(fact, at)
    if again:
        window = _window(stored, ids)
        if _is_earlier(fact, window):
            closed = Interval(
                fact.valid_from or 0, end, at, fact.confidence, fact.metadata, fact.restated
            )
            _add_earlier(tenant, stored, row, fact, with_late(earlier, closed))
            return
        renewal = _renewal(stored, ids, fact, at, window)
        begin, end = renewal.begin, renewal.end
        if renewal.past_end is not None:
            earlier.append(stored.newest_interval(row, ids, renewal.past_end))
        _count_assertion(stored, ids, at, renewal.is_over)
    if fact.metadata or fact.evidence or fact.restated or again:
        stored.describe(row, with_earlier(_metadata(tenant, fact, before), earlier))
    if fact.confidence is not None or again:
        relation.set_attribute(
            Attribute.CONFIDENCE, ids, [UNKNOWN if fact.confidence is None else fact.confidence]
        )
    if limited or row in stored.limited:
        relation.set_attribute(Attribute.TTL, ids, [fact.ttl or 0])
        relation.set_attribute(Attribute.VALID_FROM, ids, [begin])
        relation.set_attribute(Attribute.VALID_UNTIL, ids, [end])
        stored.limited.add(row)
        if again:
            _note_restated(stored, row, ids, [*restated_of(before), window[0], *fact.restated])
        tenant.limit(stored, row)
        if not limited and not earlier:
            stored.limited.discard(row)


def _describe_together(
    tenant: Tenant,
    stored: StoredRelation,
    inserted: tuple[array[int], array[int]],
    facts: Mapping[int, Fact],
    at: int,
    delta: Delta,
) -> set[int]:
    """Do what `_describe` does for those facts that were stored before, each once, and are asserted
    without an end and evidence; return their indexes.

    `inserted` are the symbols and ids of all facts of a request, and `facts` those that were stored
    before, by index.
    """
    symbols, ids = inserted
    arity, relation = stored.schema.arity, stored.relation
    rows = {index: tuple(symbols[index * arity : (index + 1) * arity]) for index in facts}
    chosen = [
        index
        for index, fact in facts.items()
        if fact.ttl is None and fact.valid_until is None and not fact.evidence
        if EVIDENCE_KEY not in stored.metadata.get(rows[index], ())
    ]
    own = array("I", [ids[index] for index in chosen])
    if len(set(rows.values())) < len(rows) or not chosen:
        return set()
    lives = relation.attributes(Attribute.TTL, own)
    created = list(relation.attributes(Attribute.CREATED_AT, own))
    accesses = list(relation.attributes(Attribute.ACCESSES, own))
    sure = relation.attributes(Attribute.CONFIDENCE, own)
    over = list[int]()  # positions of facts whose stored interval has ended
    limited = list[int]()
    begins, ends = list[int](), list[int]()
    unlimited = list[RowKey]()
    windows = zip(stored.windows(own), lives, strict=True)
    for number, (index, ((start, until), ttl)) in enumerate(zip(chosen, windows, strict=True)):
        fact, row, id = facts[index], rows[index], own[number : number + 1]
        before = stored.metadata.get(row, {})
        renewal = _renewal(stored, id, fact, at, (start, until, int(ttl)))
        earlier = earlier_of(before)
        if renewal.past_end is not None:
            earlier.append(
                Interval(
                    start,
                    renewal.past_end,
                    int(created[number]),
                    None if isnan(sure[number]) else sure[number],
                    dict(without_reserved(before)),
                    within(restated_of(before), start, renewal.past_end),
                )
            )
        if renewal.is_over:
            over.append(number)
            created[number], accesses[number] = at, 1
        else:
            accesses[number] += 1
        metadata = with_earlier(_metadata(tenant, fact, before), earlier)
        if row in stored.limited or fact.valid_from is not None:
            limited.append(number)
            begins.append(renewal.begin)
            ends.append(renewal.end)
            times = [*restated_of(before), start, *fact.restated]
            new_start = beginning(renewal.begin, int(created[number]))
            inside = within(times, new_start, renewal.end)
            metadata = with_restated(metadata, inside) if inside else metadata
            if fact.valid_from is None and not earlier:
                unlimited.append(row)
        if metadata or before:
            stored.describe(row, metadata)
    relation.set_attribute(Attribute.CREATED_AT, own, created)
    relation.set_attribute(Attribute.ACCESSES, own, accesses)
    relation.set_attribute(Attribute.LAST_ACCESS, own, [at] * len(own))
    if over:
        new = array("I", [own[number] for number in over])
        relation.set_attribute(Attribute.PRIORITY, new, [UNSET_PRIORITY] * len(new))
    known = [facts[index].confidence for index in chosen]
    confidences = [UNKNOWN if each is None else each for each in known]
    relation.set_attribute(Attribute.CONFIDENCE, own, confidences)
    tenant.changed(0, stored)
    if limited:
        selected = array("I", [own[number] for number in limited])
        for attribute, cells in zip(_WINDOW, ([0] * len(selected), begins, ends), strict=True):
            relation.set_attribute(attribute, selected, cells)
        tenant.limit_many(stored, [rows[chosen[number]] for number in limited], selected)
        stored.limited.difference_update(unlimited)
    if delta.retold is not None:
        for number, index in enumerate(chosen):
            delta.retold[delta.labels, facts[index].key] = int(created[number])
    return set(chosen)


def _window(stored: StoredRelation, ids: array[int]) -> tuple[int, int, int]:
    """Return the newest interval of a stored fact, and its `ttl` or 0."""
    start, until = next(stored.windows(ids))
    return start, until, int(stored.relation.attributes(Attribute.TTL, ids)[0])


class _Renewal(NamedTuple):
    """The change of a stored fact's newest interval by another assertion of the fact.

    `begin` and `end` are the new VALID_FROM and VALID_UNTIL cells. `is_over` is True if the stored
    interval had ended. `past_end` is where it ends if it becomes a closed one, else None.
    """

    begin: int
    end: int
    is_over: bool
    past_end: int | None


def _renewal(
    stored: StoredRelation, ids: array[int], fact: Fact, at: int, window: tuple[int, int, int]
) -> _Renewal:
    """Return the change of a newest interval, from the `_window` of a stored fact."""
    _, until, ttl = window
    begin, end = beginning_cell(fact.valid_from), _end(fact, at)
    past_end: int | None = None
    closes = fact.valid_from is None and fact.valid_until is not None and fact.ttl is None
    new_start = at if fact.valid_from is None else fact.valid_from
    is_over = until <= at and not (closes and end <= at)
    if is_over or (until <= new_start and not closes):
        past_end = None if ttl else min(until, new_start)
    elif closes:
        begin = int(stored.relation.attributes(Attribute.VALID_FROM, ids)[0])
    elif fact.ttl is None and fact.valid_from is not None and fact.valid_until is None:
        end = FOREVER if ttl else until
    return _Renewal(begin, end, is_over, past_end)


def _count_assertion(stored: StoredRelation, ids: array[int], at: int, is_new: bool) -> None:
    """Record an assertion of a stored fact; `is_new` makes it a fact created at `at`."""
    relation = stored.relation
    if is_new:
        relation.set_attribute(Attribute.CREATED_AT, ids, [at])
        relation.set_attribute(Attribute.ACCESSES, ids, [1])
        relation.set_attribute(Attribute.PRIORITY, ids, [UNSET_PRIORITY])
    else:
        accesses = relation.attributes(Attribute.ACCESSES, ids)[0]
        relation.set_attribute(Attribute.ACCESSES, ids, [int(accesses) + 1])
    relation.set_attribute(Attribute.LAST_ACCESS, ids, [at])


def _is_earlier(fact: Fact, window: tuple[int, int, int]) -> bool:
    """Return True if an assertion names an interval that ends before the newest one of the fact,
    as returned by `_window`, begins.
    """
    start, until, _ = window
    return (
        fact.late
        and fact.valid_from is not None
        and fact.valid_until is not None
        and fact.valid_from < fact.valid_until <= start < until
    )


def _note_restated(
    stored: StoredRelation, row: tuple[int, ...], ids: array[int], times: Iterable[int]
) -> None:
    """Store the times of statements that lie within the newest interval of a fact."""
    start, until, _ = _window(stored, ids)
    inside = within(times, start, until)
    if inside:
        stored.describe(row, with_restated(stored.metadata.get(row, {}), inside))


def _add_earlier(
    tenant: Tenant,
    stored: StoredRelation,
    row: tuple[int, ...],
    fact: Fact,
    intervals: Iterable[Interval],
) -> None:
    """Store the closed intervals of a fact, and its evidence; its newest interval stays."""
    before = stored.metadata.get(row, {})
    described = _metadata(tenant, replace(fact, metadata=without_evidence(before)), before)
    if STATED_KEY in before:
        described = {**described, STATED_KEY: before[STATED_KEY]}
    described = with_restated(described, restated_of(before))
    stored.describe(row, with_earlier(described, intervals))
    stored.limited.add(row)
    tenant.limit(stored, row)


def _opposite(tenant: Tenant, stored: StoredRelation) -> StoredRelation | None:
    """Return the relation of the opposite facts, None if it has none."""
    partition = tenant.partition(stored.scope)
    opposite = None if partition is None else partition.get(stored.schema.opposite)
    return opposite if opposite is not None and opposite.relation.counts().live else None


def _contest(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], ids: array[int], at: int
) -> None:
    """Make asserted facts whose opposite is stored the newer statements, with at least as many
    accesses, so that earlier reads of the opposite do not count against them.
    """
    opposite = _opposite(tenant, stored)
    if opposite is None:
        return
    arity, relation = stored.schema.arity, stored.relation
    others = opposite.relation.locate(symbols, len(ids))
    for index, other in enumerate(others):
        if other == NO_ROW:
            continue
        own = ids[index : index + 1]
        accesses = max(
            int(opposite.relation.attributes(Attribute.ACCESSES, others[index : index + 1])[0]),
            int(relation.attributes(Attribute.ACCESSES, own)[0]),
        )
        relation.set_attribute(Attribute.ACCESSES, own, [accesses])
        if _created(stored, own) != at:
            row = tuple(symbols[index * arity : (index + 1) * arity])
            stored.describe(row, {**stored.metadata.get(row, {}), STATED_KEY: at})


def _metadata(tenant: Tenant, fact: Fact, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the metadata of a fact as they are stored, with all its evidence.

    `before` are those of the same fact from earlier. Evidence that names no known episode is left
    out: the episode was purged after the assertion was accepted.
    """
    known = () if before is None else evidence_of(before)
    metadata = fact.metadata
    if fact.restated:
        metadata = with_restated(metadata, fact.restated)
    if not fact.evidence and not known:
        return metadata
    new = [each.to_json() for each in fact.evidence if each.episode in tenant.episodes]
    return with_evidence(metadata, union(known, new))


def _retract_fact(
    tenant: Tenant, change: RetractFact, delta: Delta, number: int, by_hand: bool
) -> None:
    partition = tenant.partition(change.scope)
    symbols = array("I", [tenant.engine.find(arg) for arg in change.args])
    if partition is None or 0 in symbols:
        return
    for stored in partition.named(change.predicate, len(change.args), change.positive):
        if not by_hand:
            goes = goes_by_deployment(stored, delta.labels)
        elif delta.labels or stored.has_labels:
            goes = goes_by_hand(tenant, stored)
        else:
            key = FACT, change.predicate, change.args, stored.schema.positive
            if stays(tenant, change.scope, key, NO_LABELS):
                continue
            goes = all_go
        _remove(tenant, stored, symbols, 1, delta, (number, goes))


def _retract_pattern(
    tenant: Tenant, change: RetractPattern, delta: Delta, number: int, yield_now: YieldNow
) -> None:
    partition = tenant.partition(change.scope)
    pattern = goal_pattern(change.pattern, tenant.engine.find)
    if partition is None or pattern is None:
        return
    for stored in partition.named(change.predicate, len(change.pattern), change.positive):
        rows, ids = stored.relation.match(pattern, hidden=True, yield_now=yield_now)
        count = len(ids)
        goes: Goes = all_go
        if delta.labels or stored.has_labels:
            goes = goes_by_hand(tenant, stored)
        else:
            rows, count = without_staying(tenant, stored, rows, count, yield_now)
        _remove(tenant, stored, rows, count, delta, (number, goes), yield_now)


def _remove(
    tenant: Tenant,
    stored: StoredRelation,
    symbols: array[int],
    count: int,
    delta: Delta,
    origin: tuple[int, Goes],
    yield_now: YieldNow = go_on,
) -> None:
    """Remove facts; `origin` is the number of the change, and says which of their details go."""
    rows, ids = located(stored.relation, symbols, count)
    if not len(ids):
        return
    writable = tenant.need_partition(stored.scope).writable(stored.schema)
    if writable is not stored:
        stored, (rows, ids) = writable, located(writable.relation, rows, len(ids))
    if delta.labels or stored.has_labels:
        rows, ids = _admitted(tenant, stored, (rows, ids), delta, origin, yield_now)
        if not len(ids):
            return
    keys, removed_rows = stored.take(tenant.engine, rows, ids, yield_now)
    tenant.changed(len(ids), stored)
    delta.removed.append(RemovedFacts(stored.schema, stored.scope, keys, removed_rows, origin[0]))


def _admitted(
    tenant: Tenant,
    stored: StoredRelation,
    located_rows: tuple[array[int], array[int]],
    delta: Delta,
    origin: tuple[int, Goes],
    yield_now: YieldNow,
) -> tuple[array[int], array[int]]:
    """Remove from stacks what a change may remove, and return the facts that are to be removed as a
    whole: symbols and ids, as in `located_rows`.
    """
    rows, ids = located_rows
    arity = stored.schema.arity
    keys = [tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids))]
    dimensions = tenant.rules.dimensions()
    before = {
        key: shown_of(tenant, stored, key, lambda labels: may_change(delta, labels, dimensions))
        for key in keys
        if key in stored.stacked
    }
    number, goes = origin
    whole, count, parted = take_admitted(tenant, stored, keys, delta, yield_now, goes)
    if parted:
        left = [row for key in parted for row in before[key]]
        delta.removed.append(RemovedFacts(stored.schema, stored.scope, parted, left, number))
    return located(stored.relation, whole, count)


def _retract_rule(tenant: Tenant, change: RetractRule, delta: Delta, by_hand: bool) -> None:
    declared = tenant.rules.declaration(change.scope, change.id)
    if declared is not None:
        key = DECLARATION, change.id
        if by_hand and not delta.labels and stays(tenant, change.scope, key, NO_LABELS):
            return
        if not (delta.labels or delta.view):  # declarations belong to everybody
            tenant.writable_rules().withdraw(change.scope, change.id)
            tenant.plan_version += 1
            delta.declarations_removed.append(declared)
        return
    dimensions = tenant.rules.dimensions()

    def goes(labels: Labels) -> bool:
        if not by_hand:
            return labels == delta.labels
        key = RULE, change.id
        return may_change(delta, labels, dimensions) and not stays(
            tenant, change.scope, key, labels
        )

    rules = tenant.writable_rules()
    known = rules.get(change.scope, change.id)
    forms = () if known is None else rules.forms_of(known)
    removed = rules.remove(change.scope, change.id, goes)
    tenant.plan_version += 1
    if removed is not None:
        still = rules.get(change.scope, change.id)
        left = () if still is None else rules.labels_of(still)
        gone = [(labels, form) for labels, form in forms if labels not in left]
        delta.note_rule("rules_removed", removed, gone, left)


def _change_subscriptions(
    tenant: Tenant, change: PutSubscription | EndSubscriptions | NoteDelivery, delta: Delta
) -> None:
    """Add, renew or remove subscriptions, or record what the receiver of a webhook has."""
    if isinstance(change, PutSubscription):
        tenant.subscriptions.put(change.subscription, StatePosition(delta.seq, tenant.at(delta.at)))
    elif isinstance(change, EndSubscriptions):
        tenant.subscriptions.remove(change.ids)
    else:
        tenant.subscriptions.note_delivery(change.id, change.delivered)
