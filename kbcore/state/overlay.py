"""The view of one transaction.

The committed state of a tenant, and over it the writes of the transaction.

Relations that the transaction writes are copied; all others are read from the tenant, so they
always show the committed state. An overlay records what is read through it with the versions at
that time; the transaction compares them when it commits.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from kbcore.errors import Conflict, TooLarge
from kbcore.state.access import Uncounted
from kbcore.state.apply import apply_changes
from kbcore.state.changes import Change, Delta
from kbcore.state.episodes.episodes import StoredEpisodes
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.locks import ReadWriteLock
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.rule_sets import RuleSets
from kbcore.state.rulebook import RuleBook
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, current_yield

ReadName = tuple[str | None, str | None, int | None]
"""Scope, predicate and arity of a read; arity None: every arity; predicate None: the whole
partition."""

Versions = tuple[tuple[RelationSchema, int], ...]
"""The relations that were ever written, with their versions."""


MAX_NEW_TEXT = 1 << 20
"""Limit per transaction on characters of constants in goals that no fact has: such constants take
memory."""


@dataclass(slots=True)
class ReadSet:
    """The read set of a transaction.

    Relations, version of the rules, names of scopes and version of the list of episodes at the
    first read, and the ids of episodes that were not found.

    `aged` is True if a fact of the transaction itself has become valid or invalid since. `new_text`
    counts the characters of constants in goals that no fact has.
    """

    relations: dict[ReadName, Versions] = field(default_factory=dict)
    rules: int | None = None
    scopes: tuple[str | None, ...] | None = None
    episodes: int | None = None
    missing_episodes: set[str] = field(default_factory=set)
    aged: bool = False
    new_text: int = 0


def versions(partition: Partition | None, name: ReadName) -> Versions:
    """Return the versions of the relations that a name covers in its partition (None: never
    written).
    """
    _, predicate, arity = name
    if partition is None:
        return ()
    if predicate is not None and arity is not None:
        signs = (RelationSchema(predicate, arity, True), RelationSchema(predicate, arity, False))
        relations = [
            relation for schema in signs if (relation := partition.get(schema)) is not None
        ]
    elif predicate is not None:
        relations = partition.named(predicate)
    else:
        relations = partition.relations()
    known = ((r.schema, r.version) for r in relations if r.version)
    return tuple(
        sorted(known, key=lambda each: (each[0].predicate, each[0].arity, each[0].positive))
    )


def scope_names(tenant: Tenant) -> tuple[str | None, ...]:
    """Return the names of a tenant's partitions."""
    return tuple(partition.name for partition in Tenant.partitions(tenant))


class Overlay(Tenant):
    """The view of one transaction over `base`; its writes are visible nowhere else.

    Hold `lock.read()` to read the overlay and `lock.write()` to apply changes to it; both also hold
    the read lock of the base. `reads` records reads while `noting` is set. The overlay is usable
    until it is `outdated`.
    """

    def __init__(self, base: Tenant, reads: ReadSet) -> None:
        self.base = base
        self.noting = True
        self._reads = reads
        self._layers: dict[str | None, _Layer] = {}
        self._own_rules: RuleBook | None = None
        self._rules_below = 0
        super().__init__(base.database, base.name, base.engine, base.created_at)
        self.find = self._find
        self.lock: OverlayLock = OverlayLock(self)
        self.accesses = Uncounted()
        self.plans = base.plans
        self.episodes = StoredEpisodes(base.episodes)
        self.label_sets = dict(base.label_sets)
        self.episode_labels = ChainMap({}, base.episode_labels)
        self.erased = base.erased
        self.rule_sets = base.rule_sets
        self._rule_sets_below = 0
        self.lost = base.lost
        self.advance(base.at(0))
        self._seen = (base.version, base.plan_version)

    @property
    def rules(self) -> RuleBook:
        """The rules, for reading; the read is recorded."""
        if self._own_rules is not None:
            return self._own_rules
        if self.noting and self._reads.rules is None:
            self._reads.rules = self.base.rules.version
        return self.base.rules

    @rules.setter
    def rules(self, book: RuleBook) -> None:
        """Ignore the empty rule book that a new tenant sets.

        An overlay reads the rules of its base.
        """

    def writable_rules(self) -> RuleBook:
        """Return a rule book that may be changed."""
        if self._own_rules is None:
            self._own_rules = self.base.rules.copy()
            self._rules_below = self._own_rules.version
        return self._own_rules

    def writable_rule_sets(self) -> RuleSets:
        """Return a copy of the rule sets, whose owners may be changed."""
        if self.rule_sets is self.base.rule_sets:
            self.rule_sets = self.base.rule_sets.copy()
            self._rule_sets_below = self.rule_sets.version
        return self.rule_sets

    def partition(self, scope: str | None) -> Partition:
        """Return a partition as the transaction sees it, empty if it does not exist."""
        layer = self._layers.get(scope)
        return self._layers.setdefault(scope, _Layer(self, scope)) if layer is None else layer

    def need_partition(self, scope: str | None) -> Partition:
        """Return the same as `partition`."""
        return self.partition(scope)

    def partitions(self, scope: str | None = ALL_SCOPES) -> list[Partition]:
        """Return the partition of a scope, or for "*" all partitions: the base, then by name."""
        if scope != ALL_SCOPES:
            return [self.partition(scope)]
        below = scope_names(self.base)
        if self.noting and self._reads.scopes is None:
            self._reads.scopes = below
        names = {*below, *(name for name, layer in self._layers.items() if layer.written)}
        return [
            self.partition(name)
            for name in sorted(names, key=lambda name: (name is not None, name or ""))
        ]

    def _find(self, text: str) -> int:
        """Return the symbol of a constant.

        Intern an unknown one, so that the goal runs and its reads are recorded.
        """
        symbol = self.engine.find(text)
        if not symbol:
            self._reads.new_text += len(text)
            if self._reads.new_text > MAX_NEW_TEXT:
                limits = {"limit": "newTextChars", "value": MAX_NEW_TEXT}
                raise TooLarge(
                    "the goals of the transaction contain too many constants that no fact has",
                    limits,
                )
            symbol = self.engine.intern(text)
        return symbol

    def changed(self, rows: int, relation: StoredRelation) -> None:
        """Record a change as a tenant does, but keep the version of a copy equal to that of its
        original.
        """
        version = relation.version
        super().changed(rows, relation)
        relation.version = version

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Return a block in which reads are not recorded."""
        noting, self.noting = self.noting, False
        try:
            yield
        finally:
            self.noting = noting

    def note(self, name: ReadName) -> None:
        """Record a read, if it is the first one of this name."""
        if self.noting and name not in self._reads.relations:
            with self.unnoted():
                read_versions = versions(self.partition(name[0]), name)
            self._reads.relations[name] = read_versions

    def note_episodes(self, missing: str | None = None) -> None:
        """Record that all episodes were read, or that the one with an id was not found.

        One that was found is not recorded: only a purge removes it, with which every transaction
        conflicts.
        """
        if not self.noting:
            return
        if missing is not None:
            self._reads.missing_episodes.add(missing)
        elif self._reads.episodes is None:
            self._reads.episodes = self.base.episodes.version

    def outdated(self) -> bool:
        """Return True if a copied relation, rules or rule sets have changed in the base since."""
        if self._own_rules is not None and self._rules_below != self.base.rules.version:
            return True
        base_sets = self.base.rule_sets
        if self.rule_sets is not base_sets and self._rule_sets_below != base_sets.version:
            return True
        return self.lost != self.base.lost or any(
            layer.outdated() for layer in self._layers.values()
        )

    def renew(self, now: int) -> None:
        """Advance an overlay that is not outdated to the present.

        What is read through it may have changed.
        """
        self.advance(max(now, self.base.at(0)))
        seen = (self.base.version, self.base.plan_version)
        if seen != self._seen:
            self._seen = seen
            self.version += 1
            self.plan_version += 1

    def advance(self, now: int) -> None:
        """Bring the visibility of the transaction's own facts to `now` (epoch milliseconds)."""
        self._reads.aged |= self.due(now)
        super().advance(now)

    def forget(self) -> None:
        """Close cached results.

        Reads from them would not be recorded, or would show the state before a write.
        """
        for attached in self.attached.clear():
            attached.close()
        self.models.clear()

    def drop(self) -> None:
        """Release everything, when there are no readers left."""
        with self.lock.alone():
            self.forget()
            for layer in self._layers.values():
                layer.drop()


class _Layer(Partition):
    """A partition of an overlay."""

    def __init__(self, overlay: Overlay, scope: str | None) -> None:
        super().__init__(overlay.engine, scope, overlay.lost)
        self._overlay = overlay
        self._nothing = Partition(overlay.engine, scope, overlay.lost)

    @property
    def written(self) -> bool:
        """True if the transaction wrote to this partition."""
        return bool(self._relations)

    @property
    def _below(self) -> Partition:
        return self._overlay.base.partition(self.name) or self._nothing

    def get(self, schema: RelationSchema) -> StoredRelation | None:
        """Return the relation of a stored schema; the read is recorded."""
        self._overlay.note((self.name, schema.predicate, schema.arity))
        return self._relations.get(schema) or self._below.get(schema)

    def need(self, schema: RelationSchema) -> StoredRelation:
        """Return the relation of a stored schema, created empty in the base if it does not
        exist.
        """
        return self.get(schema) or self._below.need(schema)

    def writable(self, schema: RelationSchema) -> StoredRelation:
        """Return a copy of the relation of the base, or a new one that the base does not get.

        Cached results, which are bound to the original, are closed.
        """
        own = self._relations.get(schema)
        if own is None:
            below = self._below.get(schema)
            own = self._relations[schema] = (
                StoredRelation(schema, self.name, self._engine.relation(schema.arity))
                if below is None
                else below.copy(current_yield())
            )
            self._overlay.forget()
        return own

    def named(
        self, predicate: str, arity: int | None = None, positive: bool | None = None
    ) -> list[StoredRelation]:
        """Return the relations of a predicate; the read is recorded."""
        self._overlay.note((self.name, predicate, arity))
        return super().named(predicate, arity, positive)

    def relations(self) -> list[StoredRelation]:
        """Return all relations; the read is recorded."""
        self._overlay.note((self.name, None, None))
        return super().relations()

    def outdated(self) -> bool:
        """Return True if a relation that was copied has changed in the base."""
        return any(
            (0 if (below := self._below.get(schema)) is None else below.version) != own.version
            for schema, own in self._relations.items()
        )

    def drop(self) -> None:
        """Drop the copies."""
        for relation in self._relations.values():
            relation.gone = True
            relation.relation.drop()
        self._relations.clear()

    def _known(self) -> Iterable[StoredRelation]:
        below = {relation.schema: relation for relation in self._below.relations()}
        return (below | self._relations).values()


class OverlayLock(ReadWriteLock):
    """The lock of an overlay: its own lock, and inside it the read lock of the base."""

    def __init__(self, overlay: Overlay) -> None:
        super().__init__()
        self._overlay = overlay

    @contextmanager
    def _with_base(self, own: AbstractContextManager[None]) -> Iterator[None]:
        overlay = self._overlay
        with own, overlay.base.lock.read():
            if overlay.lost != overlay.base.lost:
                raise Conflict("a scope was deleted during the transaction", {"reason": "scope"})
            yield

    def read(self) -> AbstractContextManager[None]:
        """Hold the lock together with other readers."""
        return self._with_base(super().read())

    def write(self) -> AbstractContextManager[None]:
        """Hold the lock exclusively."""
        return self._with_base(super().write())

    def alone(self) -> AbstractContextManager[None]:
        """Hold the lock exclusively, without the lock of the base."""
        return super().write()


def apply_to_overlay(
    overlay: Overlay,
    changes: Sequence[Change],
    now: int,
    yield_now: YieldNow,
    labels: Labels = NO_LABELS,
    view: Labels = NO_LABELS,
) -> Delta:
    """Apply changes to an overlay; the caller holds its lock, or is its only user and holds the
    read lock of its base. `yield_now` is called about once a millisecond; if it raises, the overlay
    must not be used any more. `labels` and `view` are those of the change set.
    """
    delta = Delta(now, labels=labels, view=view)
    with overlay.unnoted():
        overlay.advance(now)
        apply_changes(overlay, changes, now, delta, yield_now)
        overlay.version += 1
    return delta
