"""Application of the deployment of a rule set, and of writes by hand to what rule sets contain."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import partial

from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    Declare,
    DeployRuleSet,
    EvictFacts,
    MergeScope,
    PurgeMemory,
    RestoreFacts,
)
from kbcore.state.facts import Fact, FactRows
from kbcore.state.labelling import Goes, all_go, labels_in
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.rule_sets import (
    FACT,
    ITEMS_PER_YIELD,
    HandKey,
    Item,
    ItemKey,
    SetItems,
    SetVersion,
    StoredRuleSet,
    item_key,
    kept,
    sized,
)
from kbcore.state.rulebook import ParsedRule, stored_declaration
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, paced


def deploy(
    tenant: Tenant, change: DeployRuleSet, at: int, labels: Labels, yield_now: YieldNow
) -> None:
    """Store a version of a rule set at `at` (epoch milliseconds), before its items are stored.

    A new rule set gets the `labels`. An item that is stored and has no owner yet was stored by
    hand.
    """
    scope = change.scope
    sets = tenant.writable_rule_sets()
    known = sets.get(scope, change.name)
    items: dict[ItemKey, Item] = {} if known is None else dict(known.items)
    removed: list[Item] = []
    by_hand: list[HandKey] = []
    for key in paced(change.dropped, yield_now, ITEMS_PER_YIELD):
        if key in items:
            removed.append(items.pop(key))
    for item in paced(change.items, yield_now, ITEMS_PER_YIELD):
        key = item_key(item)
        if key in items:
            removed.append(items[key])
        elif not sets.owners(scope, key):
            by_hand += ((key, own) for own in stored_with(tenant, item))
        items[key] = item
    added_bytes, removed_bytes = sized(change.items, yield_now), sized(removed, yield_now)
    version = SetVersion(
        change.version,
        at,
        change.note,
        change.items,
        SetItems.of(removed, yield_now),
        added_bytes + removed_bytes,
    )
    earlier, before = ((), 0) if known is None else (known.versions, known.items_bytes)
    size = before + added_bytes - removed_bytes
    if labels:
        tenant.use_labels(labels)
    versions = kept((*earlier, version))
    deployed = StoredRuleSet(scope, change.name, items, versions, items_bytes=size, labels=labels)
    sets.put(deployed, by_hand, yield_now)


def stored_by_hand(tenant: Tenant, change: Change, labels: Labels, yield_now: YieldNow) -> None:
    """Record what a change that was made by hand is about to store with labels, where a rule set
    contains it.
    """
    if isinstance(change, AssertFacts):
        asserted_by_hand(tenant, change.facts, labels, yield_now)
    elif isinstance(change, AssertRows):
        rows_asserted_by_hand(tenant, change.rows, labels, yield_now)
    elif isinstance(change, AssertRules):
        rules_stored_by_hand(tenant, change.rules, labels, yield_now)
    elif isinstance(change, Declare):
        declared_by_hand(tenant, change, yield_now)
    elif isinstance(change, RestoreFacts):
        restored = (
            Fact(each.predicate, each.args, each.standing.positive, each.scope)
            for each in change.facts
        )
        asserted_by_hand(tenant, restored, labels, yield_now)


def forget_removed(tenant: Tenant, change: Change, yield_now: YieldNow) -> None:
    """Remove the facts that a change has evicted, purged or replaced from the rule sets that
    contain them.
    """
    if isinstance(change, EvictFacts):
        tenant.writable_rule_sets().forget_facts(
            change.rows, is_stored=partial(is_stored_fact, tenant), yield_now=yield_now
        )
    elif isinstance(change, PurgeMemory):
        tenant.writable_rule_sets().forget_facts(change.rows, ever=True, yield_now=yield_now)
    elif isinstance(change, MergeScope):
        is_stored = partial(is_stored_fact, tenant, change.target)
        tenant.writable_rule_sets().forget_missing(change.target, is_stored, yield_now)


def asserted_by_hand(
    tenant: Tenant, facts: Iterable[Fact], labels: Labels, yield_now: YieldNow
) -> None:
    """Record that facts were asserted by hand with labels, where a rule set contains them."""
    for fact in paced(facts, yield_now, ITEMS_PER_YIELD):
        if tenant.rule_sets.has_facts(fact.scope, fact.schema):
            owners = tenant.rule_sets.owners(fact.scope, item_key(fact))
            if owners and labels not in owners:
                tenant.writable_rule_sets().add_hand(fact.scope, item_key(fact), labels)


def rows_asserted_by_hand(
    tenant: Tenant, groups: Iterable[FactRows], labels: Labels, yield_now: YieldNow
) -> None:
    """Record that facts of a bulk load were asserted by hand, where a rule set contains them."""
    for rows in groups:
        if tenant.rule_sets.has_facts(rows.scope, rows.schema):
            facts = (rows.fact(index) for index in range(len(rows)))
            asserted_by_hand(tenant, facts, labels, yield_now)


def rules_stored_by_hand(
    tenant: Tenant, rules: Iterable[ParsedRule], labels: Labels, yield_now: YieldNow
) -> None:
    """Record that rules were stored by hand with labels, where a rule set contains them."""
    for rule in paced(rules, yield_now, ITEMS_PER_YIELD):
        if tenant.rule_sets.owners(rule.scope, item_key(rule)):
            tenant.writable_rule_sets().add_hand(rule.scope, item_key(rule), labels)


def declared_by_hand(tenant: Tenant, change: Declare, yield_now: YieldNow) -> None:
    """Record that declarations were stored by hand, where a rule set contains them.

    A declaration with another text takes the place of that of the rule sets, which contain it no
    more.
    """
    forgotten: dict[str | None, list[ItemKey]] = {}
    for item in map(stored_declaration, paced(change.declarations, yield_now, ITEMS_PER_YIELD)):
        key, scope = item_key(item), item.scope
        if not tenant.rule_sets.owners(scope, key):
            continue
        if stored_with(tenant, item):
            tenant.writable_rule_sets().add_hand(scope, key, NO_LABELS)
        else:
            forgotten.setdefault(scope, []).append(key)
    for scope, keys in forgotten.items():
        tenant.writable_rule_sets().forget(scope, keys, yield_now=yield_now)


def stays(tenant: Tenant, scope: str | None, key: ItemKey, labels: Labels) -> bool:
    """Record that an item with labels is removed by hand; return True if it stays, because a rule
    set with these labels contains it.
    """
    owners = tenant.rule_sets.owners_with(scope, key, labels)
    if labels in owners:
        tenant.writable_rule_sets().drop_hand(scope, key, labels)
        owners -= {labels}
    return bool(owners)


def goes_by_hand(tenant: Tenant, stored: StoredRelation) -> Goes:
    """Return the function that says which details of a fact are removed by hand: those with labels
    of no rule set that contains the fact.
    """
    if not tenant.rule_sets.has_facts(stored.scope, stored.schema):
        return all_go

    def goes(layer: StoredRelation, row: RowKey) -> bool:
        key = fact_key(stored.schema, tenant.engine.texts(array("I", row)))
        return not stays(tenant, stored.scope, key, labels_in(stored, layer, row))

    return goes


def goes_by_deployment(stored: StoredRelation, labels: Labels) -> Goes:
    """Return the function that says which details of a fact a deployment removes: those with the
    labels of the rule set.
    """
    return lambda layer, row: labels_in(stored, layer, row) == labels


def without_staying(
    tenant: Tenant, stored: StoredRelation, rows: array[int], count: int, yield_now: YieldNow
) -> tuple[array[int], int]:
    """Return those of `count` rows without labels to be removed by hand that no rule set contains,
    with their number; record the removal of the others.
    """

    def is_kept(key: ItemKey) -> bool:
        return stays(tenant, stored.scope, key, NO_LABELS)

    return _without(tenant, stored, (rows, count), is_kept, yield_now)


def outside_rule_sets(
    tenant: Tenant, stored: StoredRelation, rows: array[int], count: int, yield_now: YieldNow
) -> tuple[array[int], int]:
    """Return those of `count` rows that no rule set contains, with their number."""

    def is_owned(key: ItemKey) -> bool:
        return bool(tenant.rule_sets.owners(stored.scope, key))

    return _without(tenant, stored, (rows, count), is_owned, yield_now)


def _without(
    tenant: Tenant,
    stored: StoredRelation,
    counted: tuple[array[int], int],
    is_left_out: Callable[[ItemKey], bool],
    yield_now: YieldNow,
) -> tuple[array[int], int]:
    """Return rows with their number, without those whose facts are left out."""
    if not tenant.rule_sets.has_facts(stored.scope, stored.schema):
        return counted
    rows, count = counted
    arity, left, left_count = stored.schema.arity, array("I"), 0
    for index in paced(range(count), yield_now, ITEMS_PER_YIELD):
        row = rows[index * arity : (index + 1) * arity]
        if not is_left_out(fact_key(stored.schema, tenant.engine.texts(row))):
            left.extend(row)
            left_count += 1
    return left, left_count


def fact_key(schema: RelationSchema, args: Iterable[str]) -> ItemKey:
    """Return the key of a fact of a relation."""
    return FACT, schema.predicate, tuple(args), schema.positive


def is_stored_fact(tenant: Tenant, scope: str | None, key: ItemKey, labels: Labels) -> bool:
    """Return True if the fact with a key is stored in a scope with labels, valid now or not."""
    if len(key) != 4:
        raise ValueError("a rule or declaration is no fact")
    _, predicate, args, positive = key
    return labels in _fact_labels(tenant, Fact(predicate, args, positive, scope))


def is_plainly_stored(tenant: Tenant, fact: Fact, labels: Labels) -> bool:
    """Return True if a fact with arguments only is stored with labels and valid now.

    To assert it again would replace what is known about it.
    """
    if fact != Fact(fact.predicate, fact.args, fact.positive, fact.scope):
        return False
    if labels not in _fact_labels(tenant, fact):
        return False
    partition = tenant.partition(fact.scope)
    stored = None if partition is None else partition.get(fact.schema)
    row = tuple(tenant.engine.find(arg) for arg in fact.args)
    return stored is not None and row not in stored.layers.get(labels, stored).limited


def _fact_labels(tenant: Tenant, fact: Fact) -> tuple[Labels, ...]:
    """Return all the labels with which a fact is stored; none if it is not."""
    partition = tenant.partition(fact.scope)
    stored = None if partition is None else partition.get(fact.schema)
    row = tuple(tenant.engine.find(arg) for arg in fact.args)
    if stored is None or 0 in row or not len(located(stored.relation, array("I", row), 1)[1]):
        return ()
    stack = stored.stacked.get(row)
    return (stored.labels.get(row),) if stack is None else stack


def stored_with(tenant: Tenant, item: Item) -> tuple[Labels, ...]:
    """Return all the labels with which an equal item is stored; an equal fact may have other
    attributes.
    """
    if isinstance(item, Fact):
        return _fact_labels(tenant, item)
    if isinstance(item, ParsedRule):
        known = tenant.rules.get(item.scope, item.id)
        return () if known is None else tenant.rules.labels_of(known)
    declared = tenant.rules.declaration(item.scope, item.id)
    return (NO_LABELS,) if declared is not None and declared.text == item.text else ()
