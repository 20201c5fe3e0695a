"""Application of the deployment of a rule set, and of writes by hand to what rule sets contain."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

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
from kbcore.state.partition import StoredRelation, located
from kbcore.state.rule_sets import (
    BY_HAND,
    FACT,
    ITEMS_PER_YIELD,
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


def deploy(tenant: Tenant, change: DeployRuleSet, at: int, yield_now: YieldNow) -> None:
    """Store a version of a rule set at `at` (epoch milliseconds), before its items are stored.

    An item that is stored and has no owner yet was stored by hand.
    """
    scope = change.scope
    sets = tenant.writable_rule_sets()
    known = sets.get(scope, change.name)
    items: dict[ItemKey, Item] = {} if known is None else dict(known.items)
    removed: list[Item] = []
    by_hand: list[ItemKey] = []
    for key in paced(change.dropped, yield_now, ITEMS_PER_YIELD):
        if key in items:
            removed.append(items.pop(key))
    for item in paced(change.items, yield_now, ITEMS_PER_YIELD):
        key = item_key(item)
        if key in items:
            removed.append(items[key])
        elif not sets.owners(scope, key) and _is_stored(tenant, item):
            by_hand.append(key)
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
    deployed = StoredRuleSet(scope, change.name, items, kept((*earlier, version)), items_bytes=size)
    sets.put(deployed, by_hand, yield_now)


def stored_by_hand(tenant: Tenant, change: Change, yield_now: YieldNow) -> None:
    """Record what a change that was made by hand is about to store, where a rule set contains
    it.
    """
    if isinstance(change, AssertFacts):
        asserted_by_hand(tenant, change.facts, yield_now)
    elif isinstance(change, AssertRows):
        rows_asserted_by_hand(tenant, change.rows, yield_now)
    elif isinstance(change, AssertRules):
        items_stored_by_hand(tenant, change.rules, yield_now)
    elif isinstance(change, Declare):
        items_stored_by_hand(tenant, map(stored_declaration, change.declarations), yield_now)
    elif isinstance(change, RestoreFacts):
        restored = (
            Fact(each.predicate, each.args, each.standing.positive, each.scope)
            for each in change.facts
        )
        asserted_by_hand(tenant, restored, yield_now)


def forget_removed(tenant: Tenant, change: Change, yield_now: YieldNow) -> None:
    """Remove the facts that a change has evicted, purged or replaced from the rule sets that
    contain them.
    """
    if isinstance(change, EvictFacts):
        tenant.writable_rule_sets().forget_facts(change.rows, yield_now=yield_now)
    elif isinstance(change, PurgeMemory):
        tenant.writable_rule_sets().forget_facts(change.rows, ever=True, yield_now=yield_now)
    elif isinstance(change, MergeScope):
        scope = change.target

        def is_stored(key: ItemKey) -> bool:
            return is_stored_fact(tenant, scope, key)

        tenant.writable_rule_sets().forget_missing(scope, is_stored, yield_now)


def asserted_by_hand(tenant: Tenant, facts: Iterable[Fact], yield_now: YieldNow) -> None:
    """Record that facts were asserted by hand, where a rule set contains them."""
    for fact in paced(facts, yield_now, ITEMS_PER_YIELD):
        if tenant.rule_sets.has_facts(fact.scope, fact.schema):
            owners = tenant.rule_sets.owners(fact.scope, item_key(fact))
            if owners and BY_HAND not in owners:
                tenant.writable_rule_sets().add_hand(fact.scope, item_key(fact))


def rows_asserted_by_hand(tenant: Tenant, groups: Iterable[FactRows], yield_now: YieldNow) -> None:
    """Record that facts of a bulk load were asserted by hand, where a rule set contains them."""
    for rows in groups:
        if tenant.rule_sets.has_facts(rows.scope, rows.schema):
            facts = (rows.fact(index) for index in range(len(rows)))
            asserted_by_hand(tenant, facts, yield_now)


def items_stored_by_hand(tenant: Tenant, items: Iterable[Item], yield_now: YieldNow) -> None:
    """Record that rules or declarations were stored by hand, where a rule set contains them.

    A declaration with another text takes the place of that of the rule sets, which contain it no
    more.
    """
    forgotten: dict[str | None, list[ItemKey]] = {}
    for item in paced(items, yield_now, ITEMS_PER_YIELD):
        key, scope = item_key(item), item.scope
        owners = tenant.rule_sets.owners(scope, key)
        if not owners:
            continue
        if isinstance(item, ParsedRule) or _is_stored(tenant, item):
            tenant.writable_rule_sets().add_hand(scope, key)
        else:
            forgotten.setdefault(scope, []).append(key)
    for scope, keys in forgotten.items():
        tenant.writable_rule_sets().forget(scope, keys, yield_now=yield_now)


def stays(tenant: Tenant, scope: str | None, key: ItemKey) -> bool:
    """Record that an item is removed by hand; return True if it stays, because a rule set contains
    it.
    """
    owners = tenant.rule_sets.owners(scope, key)
    if BY_HAND in owners:
        return tenant.writable_rule_sets().drop_hand(scope, key)
    return bool(owners)


def without_staying(
    tenant: Tenant, stored: StoredRelation, rows: array[int], count: int, yield_now: YieldNow
) -> tuple[array[int], int]:
    """Return those of `count` rows to be removed by hand that no rule set contains, with their
    number; record the removal of the others.
    """

    def is_kept(key: ItemKey) -> bool:
        return stays(tenant, stored.scope, key)

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


def is_stored_fact(tenant: Tenant, scope: str | None, key: ItemKey) -> bool:
    """Return True if the fact with a key is stored in a scope, valid now or not."""
    if len(key) != 4:
        raise ValueError("a rule or declaration is no fact")
    _, predicate, args, positive = key
    partition = tenant.partition(scope)
    stored = (
        None if partition is None else partition.get(RelationSchema(predicate, len(args), positive))
    )
    symbols = array("I", [tenant.engine.find(arg) for arg in args])
    if stored is None or 0 in symbols:
        return False
    return bool(len(located(stored.relation, symbols, 1)[1]))


def is_plainly_stored(tenant: Tenant, fact: Fact) -> bool:
    """Return True if a fact with arguments only is stored and valid now.

    To assert it again would replace what is known about it.
    """
    if fact != Fact(fact.predicate, fact.args, fact.positive, fact.scope):
        return False
    partition = tenant.partition(fact.scope)
    stored = None if partition is None else partition.get(fact.schema)
    row = tuple(tenant.engine.find(arg) for arg in fact.args)
    if stored is None or 0 in row or row in stored.limited:
        return False
    return bool(len(located(stored.relation, array("I", row), 1)[1]))


def _is_stored(tenant: Tenant, item: Item) -> bool:
    """Return True if an equal item is stored; an equal fact may have other attributes."""
    if isinstance(item, Fact):
        return is_stored_fact(tenant, item.scope, item_key(item))
    if isinstance(item, ParsedRule):
        return tenant.rules.get(item.scope, item.id) is not None
    declared = tenant.rules.declaration(item.scope, item.id)
    return declared is not None and declared.text == item.text
