"""Rule sets: named units of rules, declarations and facts, with their versions and owners.

A rule, declaration or fact that a rule set contains has owners: the rule sets that contain it, and
the labels with which it was also stored one by one. All rules and facts of a rule set have its
labels. With these an item stays stored until its last owner of these labels drops it. What no rule
set contains has no entry here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import is_not
from typing import Any

from kbcore.state.episodes.text_sizes import entry_bytes
from kbcore.state.facts import Fact, FactRows
from kbcore.state.labels import NO_LABELS, Labels, to_json
from kbcore.state.rulebook import (
    ParsedDeclaration,
    ParsedRule,
    is_same_rule,
    stored_declaration,
    stored_rule,
)
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.pacing import YieldNow, go_on, paced
from kbplanner.syntax.printer import print_fact, print_rule
from kbplanner.syntax.statements import Annotations
from kbtypes.rule_sets import RuleSetContents

MAX_VERSIONS = 100
"""Maximum number of versions of a rule set that are kept; the oldest are dropped first."""

MAX_HISTORY_BYTES = 8 << 20
"""Maximum size of the differences between the kept versions of a rule set. That of the oldest one
to the version before is not counted."""

ITEMS_PER_YIELD = 200
SETS_PER_YIELD = 20
"""Items compared or changed, and small rule sets searched, between two calls of `yield_now`: about
a millisecond."""

SORTED_PER_YIELD = 2000
"""Items put to those of their kind between two such calls."""

TEXTS_PER_YIELD = 20
"""Items written as text between two such calls."""

UNKNOWN_SIZE = -1
"""The size of items that is to be computed."""

RULE, DECLARATION, FACT = "rule", "declaration", "fact"

Item = ParsedRule | ParsedDeclaration | Fact
"""A part of a rule set. Its scope is that of the rule set."""

ItemKey = tuple[str, str] | tuple[str, str, tuple[str, ...], bool]
"""Identity of an item in its scope: the kind, and the id of a rule or declaration, or predicate,
arguments and sign of a fact."""

Owners = frozenset[str | Labels]
"""Names of rule sets, and the labels with which an item was stored one by one."""

HandKey = tuple[ItemKey, Labels]
"""Identity of an item, and the labels with which it was stored one by one."""

SetName = tuple[str | None, str]
"""Scope and name of a rule set."""


def item_key(item: Item) -> ItemKey:
    """Return the identity of an item in its scope."""
    if isinstance(item, Fact):
        return FACT, item.predicate, item.args, item.positive
    return RULE if isinstance(item, ParsedRule) else DECLARATION, item.id


def is_same(item: Item, other: Item) -> bool:
    """Return True if two items of one key are equal, apart from names of variables."""
    if isinstance(item, ParsedRule) and isinstance(other, ParsedRule):
        return is_same_rule(item, other)
    if isinstance(item, Fact) or isinstance(other, Fact):
        return item == other
    return item.text == other.text


def item_text(item: Item) -> str:
    """Return an item as a statement in the rule language, without its scope."""
    if isinstance(item, Fact):
        annotations = Annotations(
            item.confidence,
            None,
            None,
            item.valid_from,
            item.valid_until,
            item.metadata or None,
        )
        return print_fact(Atom(item.predicate, item.args, item.positive), annotations)
    if isinstance(item, ParsedRule):
        return print_rule(replace(item.rule, scope=None))
    return item.text


def item_bytes(item: Item) -> int:
    """Return the approximate size of an item in bytes."""
    if isinstance(item, Fact):
        metadata = json.dumps(item.metadata, ensure_ascii=False) if item.metadata else None
        return entry_bytes(item.predicate, *item.args, metadata)
    return item.bytes


def sized(items: Iterable[Item], yield_now: YieldNow = go_on) -> int:
    """Return the approximate size of items in bytes."""
    return sum(map(item_bytes, paced(items, yield_now, ITEMS_PER_YIELD)))


def with_scope(item: Item, scope: str | None) -> Item:
    """Return an item as that of another scope."""
    if isinstance(item, Fact):
        return replace(item, scope=scope)
    if isinstance(item, ParsedRule):
        return stored_rule(replace(item.rule, scope=scope))
    return stored_declaration(replace(item.declaration, scope=scope))


@dataclass(frozen=True, slots=True)
class SetItems:
    """Rules, declarations and facts of a rule set."""

    rules: tuple[ParsedRule, ...] = ()
    declarations: tuple[ParsedDeclaration, ...] = ()
    facts: tuple[Fact, ...] = ()

    def __len__(self) -> int:
        return len(self.rules) + len(self.declarations) + len(self.facts)

    def __iter__(self) -> Iterator[Item]:
        yield from self.rules
        yield from self.declarations
        yield from self.facts

    @classmethod
    def of(cls, items: Iterable[Item], yield_now: YieldNow = go_on) -> SetItems:
        """Return items by their kind."""
        rules, declarations, facts = list[ParsedRule](), list[ParsedDeclaration](), list[Fact]()
        for each in paced(items, yield_now, SORTED_PER_YIELD):
            if isinstance(each, Fact):
                facts.append(each)
            elif isinstance(each, ParsedRule):
                rules.append(each)
            else:
                declarations.append(each)
        return cls(tuple(rules), tuple(declarations), tuple(facts))


@dataclass(frozen=True, slots=True)
class VersionNote:
    """The note of a version: what is recorded beside its contents.

    `digest` is the SHA-256 of the deployed files, `rolled_back_to` the version whose contents this
    one has. `key` is the name of the API key, None without one.
    """

    digest: str
    message: str | None = None
    revision: str | None = None
    key: str | None = None
    rolled_back_to: int | None = None


@dataclass(frozen=True, slots=True)
class SetVersion:
    """A version of a rule set: its number, logged time and note, and the difference to the version
    before. A changed item is in both `added` and `removed`.
    """

    number: int
    at: int
    note: VersionNote
    added: SetItems
    removed: SetItems
    items_bytes: int = field(default=UNKNOWN_SIZE, compare=False)
    """Approximate size of `added` and `removed` in bytes, once for many reads of it."""

    def __post_init__(self) -> None:
        if self.items_bytes == UNKNOWN_SIZE:
            object.__setattr__(self, "items_bytes", sized(self.added) + sized(self.removed))

    @property
    def bytes(self) -> int:
        """Approximate size in bytes."""
        note = self.note
        return self.items_bytes + entry_bytes(
            note.digest, note.message or "", note.revision, note.key
        )

    def without(self, keys: frozenset[ItemKey], yield_now: YieldNow = go_on) -> SetVersion:
        """Return the version without some items in its difference; itself if it has none of
        them.
        """
        added, removed = (
            [
                item
                for item in paced(items, yield_now, ITEMS_PER_YIELD)
                if item_key(item) not in keys
            ]
            for items in (self.added, self.removed)
        )
        if len(added) == len(self.added) and len(removed) == len(self.removed):
            return self
        return replace(
            self,
            added=SetItems.of(added, yield_now),
            removed=SetItems.of(removed, yield_now),
            items_bytes=sized(added, yield_now) + sized(removed, yield_now),
        )


@dataclass(frozen=True, slots=True)
class StoredRuleSet:
    """A rule set: its items by key, and its kept versions, oldest first. It never changes: a
    deployment replaces it.

    `is_whole` is False if items were removed since the newest version, such as purged facts.
    `labels` are those of its rules and facts in all versions.
    """

    scope: str | None
    name: str
    items: Mapping[ItemKey, Item]
    versions: tuple[SetVersion, ...]
    is_whole: bool = True
    items_bytes: int = field(default=UNKNOWN_SIZE, compare=False)
    """Approximate size of the items in bytes, once for many reads of it."""
    labels: Labels = NO_LABELS

    def __post_init__(self) -> None:
        if self.items_bytes == UNKNOWN_SIZE:
            object.__setattr__(self, "items_bytes", sized(self.items.values()))

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self.versions[-1].number

    @property
    def bytes(self) -> int:
        """Approximate size of the items and versions in bytes."""
        return self.items_bytes + sum(each.bytes for each in self.versions)

    def find(self, number: int) -> SetVersion | None:
        """Return a kept version, None for another number."""
        index = number - self.versions[0].number
        return self.versions[index] if 0 <= index < len(self.versions) else None

    def items_of(self, number: int, yield_now: YieldNow = go_on) -> dict[ItemKey, Item]:
        """Return the items of a kept version by key."""
        items = dict(self.items)
        for version in reversed(self.versions):
            if version.number == number:
                break
            for item in paced(version.added, yield_now, ITEMS_PER_YIELD):
                items.pop(item_key(item), None)
            for item in paced(version.removed, yield_now, ITEMS_PER_YIELD):
                items[item_key(item)] = item
        return items


@dataclass(frozen=True, slots=True)
class ContentDifference:
    """The difference between two contents of a rule set; `changed` has pairs, the old one first."""

    added: tuple[Item, ...] = ()
    changed: tuple[tuple[Item, Item], ...] = ()
    removed: tuple[Item, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def new(self) -> Iterator[Item]:
        """The items that are added, and the new ones of those that are changed."""
        yield from self.added
        yield from (after for _, after in self.changed)


def difference(
    before: Mapping[ItemKey, Item], after: Mapping[ItemKey, Item], yield_now: YieldNow = go_on
) -> ContentDifference:
    """Return the difference between two contents, in the order of the contents."""
    added, changed = list[Item](), list[tuple[Item, Item]]()
    for key, item in paced(after.items(), yield_now, ITEMS_PER_YIELD):
        known = before.get(key)
        if known is None:
            added.append(item)
        elif known is not item and not is_same(known, item):
            changed.append((known, item))
    removed = (
        item for key, item in paced(before.items(), yield_now, ITEMS_PER_YIELD) if key not in after
    )
    return ContentDifference(tuple(added), tuple(changed), tuple(removed))


class RuleSets:
    """The rule sets of a tenant, and the owners of what they contain."""

    def __init__(self) -> None:
        self._sets: dict[SetName, StoredRuleSet] = {}
        self._owners: dict[tuple[str | None, ItemKey], Owners] = {}
        self._facts: Counter[tuple[str | None, RelationSchema]] = Counter()
        self.version = 0
        """Number of changes of the rule sets."""
        self.bytes = 0
        """Approximate size of the rule sets in bytes."""
        self.state = object()
        """Another object after each change of the rule sets or of owners."""

    def __bool__(self) -> bool:
        return bool(self._sets)

    def copy(self) -> RuleSets:
        """Return a separate copy."""
        copy = RuleSets()
        copy._sets, copy._owners = dict(self._sets), dict(self._owners)
        copy._facts = Counter(self._facts)
        copy.version, copy.bytes, copy.state = self.version, self.bytes, self.state
        return copy

    def show(
        self, source: RuleSets, is_seen: Callable[[Labels], bool], yield_now: YieldNow
    ) -> None:
        """Become the rule sets of `source` with labels for which `is_seen` returns True, without
        their labels.
        """
        if self.state is source.state:
            return
        state = source.state
        self._sets, self._owners, self._facts, self.bytes = {}, {}, Counter(), 0
        for known in source._sets.values():
            if is_seen(known.labels):
                hand: list[HandKey] = [
                    (key, NO_LABELS)
                    for key in paced(known.items, yield_now, ITEMS_PER_YIELD)
                    if any(map(is_seen, source.by_hand_with(known.scope, key)))
                ]
                self.put(replace(known, labels=NO_LABELS), hand, yield_now)
        self.version += 1
        self.state = state

    def all(self) -> list[StoredRuleSet]:
        """Return every rule set, by scope and name."""
        return [
            self._sets[name]
            for name in sorted(
                self._sets, key=lambda each: (each[0] is not None, each[0] or "", each[1])
            )
        ]

    def get(self, scope: str | None, name: str) -> StoredRuleSet | None:
        """Return the rule set of a scope with a name."""
        return self._sets.get((scope, name))

    def owners(self, scope: str | None, key: ItemKey) -> Owners:
        """Return the owners of an item; none for what no rule set contains."""
        return self._owners.get((scope, key), frozenset())

    def owners_with(self, scope: str | None, key: ItemKey, labels: Labels) -> Owners:
        """Return the owners of an item with labels: rule sets that have them, and the labels
        themselves.
        """
        return frozenset(
            owner
            for owner in self.owners(scope, key)
            if (self._sets[scope, owner].labels if isinstance(owner, str) else owner) == labels
        )

    def by_hand_with(self, scope: str | None, key: ItemKey) -> list[Labels]:
        """Return the labels with which an item of rule sets was also stored by hand."""
        return [owner for owner in self.owners(scope, key) if not isinstance(owner, str)]

    def sets_of(self, scope: str | None, key: ItemKey) -> list[str]:
        """Return the names of the rule sets that contain an item, sorted."""
        return sorted(name for name in self.owners(scope, key) if isinstance(name, str))

    def versions_of(self, rule: ParsedRule) -> list[dict[str, Any]]:
        """Return the rule sets that contain a rule, each with `name` and `version`, by name."""
        if not self._sets:
            return []
        return [
            {"name": name, "version": self._sets[rule.scope, name].version}
            for name in self.sets_of(rule.scope, item_key(rule))
        ]

    def has_facts(self, scope: str | None, schema: RelationSchema) -> bool:
        """Return True if a rule set contains a fact of a relation."""
        return (scope, schema) in self._facts

    def facts_ever(self) -> Iterator[Fact]:
        """Yield the facts of the kept versions of all rule sets, some of them repeatedly."""
        for rule_set in self._sets.values():
            for version in rule_set.versions:
                yield from version.added.facts
                yield from version.removed.facts

    def by_hand(self) -> list[tuple[str | None, ItemKey, Labels]]:
        """Return scope, key and labels of the items of rule sets that were also stored by hand."""
        return [
            (scope, key, labels)
            for scope, key in self._owners
            for labels in self.by_hand_with(scope, key)
        ]

    def put(
        self, rule_set: StoredRuleSet, by_hand: Iterable[HandKey], yield_now: YieldNow = go_on
    ) -> None:
        """Store a rule set in place of the one of its name; `by_hand` are those of its items that
        are stored by hand too, with their labels.
        """
        scope, name = rule_set.scope, rule_set.name
        known = self._sets.get((scope, name))
        before: Mapping[ItemKey, Item] = {} if known is None else known.items
        for key in paced(before, yield_now, ITEMS_PER_YIELD):
            if key not in rule_set.items:
                self._set_owners(scope, key, self.owners(scope, key) - {name})
        for key in paced(rule_set.items, yield_now, ITEMS_PER_YIELD):
            if key not in before:
                self._set_owners(scope, key, self.owners(scope, key) | {name})
        for key, labels in by_hand:
            self._set_owners(scope, key, self.owners(scope, key) | {labels})
        self._replace(rule_set)

    def add_hand(self, scope: str | None, key: ItemKey, labels: Labels) -> None:
        """Record that an item was stored by hand with labels, if a rule set contains it."""
        owners = self.owners(scope, key)
        if owners and labels not in owners:
            self._set_owners(scope, key, owners | {labels})

    def drop_hand(self, scope: str | None, key: ItemKey, labels: Labels) -> None:
        """Record that an item was removed by hand with labels, if a rule set contains it."""
        owners = self.owners(scope, key)
        if labels in owners:
            self._set_owners(scope, key, owners - {labels})

    def forget(
        self,
        scope: str | None,
        keys: Iterable[ItemKey],
        *,
        ever: bool = False,
        is_stored: Callable[[ItemKey, Labels], bool] = lambda key, labels: False,
        yield_now: YieldNow = go_on,
    ) -> None:
        """Remove items from the rule sets of a scope where they are stored no more with the labels
        of the rule set.

        With `ever` they are removed from the differences between versions as well.
        """
        every = frozenset(keys)
        gone: dict[str, set[ItemKey]] = {}
        for key in paced(every, yield_now, ITEMS_PER_YIELD):
            owners, left = self.owners(scope, key), set[str | Labels]()
            for owner in owners:
                labels = self._sets[scope, owner].labels if isinstance(owner, str) else owner
                if is_stored(key, labels):
                    left.add(owner)
                elif isinstance(owner, str):
                    gone.setdefault(owner, set()).add(key)
            if owners:
                self._set_owners(scope, key, frozenset(left))
        sets = [each for each in self._sets.values() if each.scope == scope]
        for known in paced(sets, yield_now, SETS_PER_YIELD):
            own = every if ever else frozenset(gone.get(known.name, ()))
            if own:
                self._without(known, own, ever, yield_now)

    def _without(
        self, known: StoredRuleSet, gone: frozenset[ItemKey], ever: bool, yield_now: YieldNow
    ) -> None:
        """Remove items from a rule set, with `ever` from its history too."""
        items, items_bytes = known.items, known.items_bytes
        if not items.keys().isdisjoint(gone):
            kept_items = paced(items.items(), yield_now, ITEMS_PER_YIELD)
            items = {key: item for key, item in kept_items if key not in gone}
            items_bytes = sized(items.values(), yield_now)
        versions = known.versions
        if ever:
            versions = tuple(version.without(gone, yield_now) for version in versions)
        if items is not known.items or any(map(is_not, versions, known.versions)):
            is_whole = known.is_whole and len(items) == len(known.items)
            self._replace(
                replace(
                    known,
                    items=items,
                    versions=versions,
                    is_whole=is_whole,
                    items_bytes=items_bytes,
                )
            )

    def forget_facts(
        self,
        groups: Iterable[FactRows],
        *,
        ever: bool = False,
        is_stored: Callable[[str | None, ItemKey, Labels], bool] = lambda *fact: False,
        yield_now: YieldNow = go_on,
    ) -> None:
        """Remove facts that are stored no more, as `forget` does."""
        if not self._sets:
            return
        keys: dict[str | None, list[ItemKey]] = {}
        for rows in paced(groups, yield_now, ITEMS_PER_YIELD):
            if ever or self.has_facts(rows.scope, rows.schema):
                indexes = paced(range(len(rows)), yield_now, ITEMS_PER_YIELD)
                facts = map(rows.fact, indexes)
                keys.setdefault(rows.scope, []).extend(map(item_key, facts))
        for scope, gone in keys.items():
            known = partial(is_stored, scope)
            self.forget(scope, gone, ever=ever, is_stored=known, yield_now=yield_now)

    def forget_missing(
        self,
        scope: str | None,
        is_stored: Callable[[ItemKey, Labels], bool],
        yield_now: YieldNow = go_on,
    ) -> None:
        """Remove the facts of a scope for which `is_stored(key, labels)` is False."""
        owned = paced(list(self._owners), yield_now, ITEMS_PER_YIELD)
        facts = [key for where, key in owned if where == scope and key[0] == FACT]
        self.forget(scope, facts, is_stored=is_stored, yield_now=yield_now)

    def fork(self, source: str | None, target: str, yield_now: YieldNow = go_on) -> None:
        """Copy the rule sets of a scope to another one, which has none."""
        for known in [each for each in self._sets.values() if each.scope == source]:
            items = {
                key: with_scope(item, target)
                for key, item in paced(known.items.items(), yield_now, ITEMS_PER_YIELD)
            }
            versions = tuple(_in_scope(each, target, yield_now) for each in known.versions)
            size = sized(items.values(), yield_now)
            copy = replace(known, scope=target, items=items, versions=versions, items_bytes=size)
            hand = [(key, own) for key in items for own in self.by_hand_with(source, key)]
            self.put(copy, hand, yield_now)

    def drop_scope(self, scope: str | None, yield_now: YieldNow = go_on) -> None:
        """Remove the rule sets of a scope."""
        for name in [each for each in self._sets if each[0] == scope]:
            self.bytes -= self._sets.pop(name).bytes
            self.version += 1
        of_scope = [each for each in paced(list(self._owners), yield_now) if each[0] == scope]
        for owned in paced(of_scope, yield_now, ITEMS_PER_YIELD):
            self._set_owners(*owned, frozenset())

    def _replace(self, rule_set: StoredRuleSet) -> None:
        name = rule_set.scope, rule_set.name
        known = self._sets.get(name)
        self.bytes += rule_set.bytes - (0 if known is None else known.bytes)
        self._sets[name] = rule_set
        self.version += 1
        self.state = object()

    def _set_owners(self, scope: str | None, key: ItemKey, owners: Owners) -> None:
        """Change the owners of an item; without a rule set among them it has no entry."""
        is_owned = any(isinstance(owner, str) for owner in owners)
        was_owned = (scope, key) in self._owners
        self.state = object()
        if is_owned:
            self._owners[scope, key] = owners
        elif was_owned:
            del self._owners[scope, key]
        if is_owned != was_owned and len(key) == 4:
            _, predicate, args, positive = key
            relation = scope, RelationSchema(predicate, len(args), positive)
            self._facts[relation] += 1 if is_owned else -1
            if not self._facts[relation]:
                del self._facts[relation]


@dataclass(frozen=True, slots=True)
class CapturedSet:
    """A rule set at one time, and the keys of those of its items that are stored by hand too, with
    the labels of the rule set.
    """

    rule_set: StoredRuleSet
    by_hand: frozenset[ItemKey]

    def written(self, yield_now: YieldNow = go_on) -> RuleSetContents:
        """Return the contents as statements, declarations first and facts last; needs no lock."""
        items = SetItems.of(self.rule_set.items.values(), yield_now)
        in_order = chain(items.declarations, items.rules, items.facts)
        statements, by_hand = list[str](), list[str]()
        for item in paced(in_order, yield_now, TEXTS_PER_YIELD):
            text = item_text(item)
            statements.append(text)
            if item_key(item) in self.by_hand:
                by_hand.append(text)
        newest = self.rule_set.versions[-1]
        return RuleSetContents(
            self.rule_set.name,
            self.rule_set.scope,
            newest.number,
            newest.at,
            newest.note.message,
            newest.note.revision,
            statements,
            by_hand,
            to_json(self.rule_set.labels) or None,
        )


def captured_set(
    sets: RuleSets, rule_set: StoredRuleSet, yield_now: YieldNow = go_on
) -> CapturedSet:
    """Return a rule set as it is now; the caller holds the tenant's read lock."""
    keys = paced(rule_set.items, yield_now, SORTED_PER_YIELD)
    by_hand = (key for key in keys if rule_set.labels in sets.owners(rule_set.scope, key))
    return CapturedSet(rule_set, frozenset(by_hand))


def kept(versions: Sequence[SetVersion]) -> tuple[SetVersion, ...]:
    """Return the newest versions that are kept, oldest first; the newest one always is."""
    size = 0
    for count, version in enumerate(reversed(versions)):
        if count >= MAX_VERSIONS or size > MAX_HISTORY_BYTES:
            return tuple(versions[-count:])
        size += version.bytes
    return tuple(versions)


def _in_scope(version: SetVersion, scope: str, yield_now: YieldNow) -> SetVersion:
    added, removed = (
        SetItems.of(with_scope(item, scope) for item in paced(items, yield_now, ITEMS_PER_YIELD))
        for items in (version.added, version.removed)
    )
    return replace(version, added=added, removed=removed)
