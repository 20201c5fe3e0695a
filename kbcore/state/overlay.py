"""A tenant as one transaction sees it: what is committed, and over it what the transaction has written.

Relations the transaction writes are copied; everything else is read where it is, so it is always what is committed now. An
overlay notes what is read from it, with the versions of that moment, for the transaction to compare when it commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from kbcore.errors import Conflict, TooLarge
from kbcore.state.access import Uncounted
from kbcore.state.locks import ReadWriteLock
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.rulebook import RuleBook
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.schema import RelationSchema

ReadName = tuple[str | None, str | None, int | None]
"""Scope, predicate and arity of what was read; None for the arity: every one, for the predicate: the whole partition."""

Versions = tuple[tuple[RelationSchema, int], ...]
"""The relations that ever held something, with their versions."""


MAX_NEW_TEXT = 1 << 20
"""Characters of constants in the goals of one transaction that no fact has: they take memory."""


@dataclass(slots=True)
class Reads:
    """What was read, as it was when it was first read: relations, the version of the rules, the names of the scopes.

    `aged` says that a fact of the transaction itself has begun or ceased to hold since; `new_text` counts the characters of
    constants in goals that nothing has.
    """

    relations: dict[ReadName, Versions] = field(default_factory=dict)
    rules: int | None = None
    scopes: tuple[str | None, ...] | None = None
    aged: bool = False
    new_text: int = 0


def versions(partition: Partition | None, name: ReadName) -> Versions:
    """The versions of what a name stands for in its partition (None: nothing was ever written there)."""
    _, predicate, arity = name
    if partition is None:
        return ()
    if predicate is not None and arity is not None:
        signs = (RelationSchema(predicate, arity, True), RelationSchema(predicate, arity, False))
        found = [relation for schema in signs if (relation := partition.get(schema)) is not None]
    elif predicate is not None:
        found = partition.named(predicate)
    else:
        found = partition.relations()
    known = ((r.schema, r.version) for r in found if r.version)
    return tuple(sorted(known, key=lambda each: (each[0].predicate, each[0].arity, each[0].positive)))


def scope_names(tenant: Tenant) -> tuple[str | None, ...]:
    """The partitions of a tenant, by name."""
    return tuple(partition.name for partition in Tenant.partitions(tenant))


class Overlay(Tenant):
    """The view of one transaction over `base`; nothing of it is seen elsewhere.

    `lock.read()` is for reading it, `lock.write()` for applying changes to it; both hold the base still. `reads` is where
    reads are noted while `noting` is set. It serves as long as it is not `outdated`.
    """

    def __init__(self, base: Tenant, reads: Reads) -> None:
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
        self.lost = base.lost
        self.advance(base.at(0))
        self._seen = (base.version, base.plan_version)

    @property
    def rules(self) -> RuleBook:
        """The rules, to be read; that is noted."""
        if self._own_rules is not None:
            return self._own_rules
        if self.noting and self._reads.rules is None:
            self._reads.rules = self.base.rules.version
        return self.base.rules

    @rules.setter
    def rules(self, book: RuleBook) -> None:
        """A tenant begins with an empty book; an overlay with that of the tenant below."""

    def writable_rules(self) -> RuleBook:
        """The rules, to be changed."""
        if self._own_rules is None:
            self._own_rules = self.base.rules.copy()
            self._rules_below = self._own_rules.version
        return self._own_rules

    def partition(self, scope: str | None) -> Partition:
        """A partition as the transaction sees it, also where there is none yet."""
        found = self._layers.get(scope)
        return self._layers.setdefault(scope, _Layer(self, scope)) if found is None else found

    def need_partition(self, scope: str | None) -> Partition:
        """The same as `partition`."""
        return self.partition(scope)

    def partitions(self, scope: str | None = ALL_SCOPES) -> list[Partition]:
        """The asked partition, or for "*" all: the base, then by name."""
        if scope != ALL_SCOPES:
            return [self.partition(scope)]
        below = scope_names(self.base)
        if self.noting and self._reads.scopes is None:
            self._reads.scopes = below
        names = {*below, *(name for name, layer in self._layers.items() if layer.written)}
        return [self.partition(name) for name in sorted(names, key=lambda name: (name is not None, name or ""))]

    def _find(self, text: str) -> int:
        """A constant that nothing has gets a symbol, so that the goal is evaluated and what it reads is noted."""
        found = self.engine.find(text)
        if not found:
            self._reads.new_text += len(text)
            if self._reads.new_text > MAX_NEW_TEXT:
                most = {"limit": "bytes", "max": MAX_NEW_TEXT}
                raise TooLarge("the goals of a transaction have too much text that no fact has", most)
            found = self.engine.intern(text)
        return found

    def changed(self, rows: int, relation: StoredRelation) -> None:
        """As for a tenant; but the version of a copy stays that of what it was copied from."""
        version = relation.version
        super().changed(rows, relation)
        relation.version = version

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Reads in here are not noted."""
        noting, self.noting = self.noting, False
        try:
            yield
        finally:
            self.noting = noting

    def note(self, name: ReadName) -> None:
        """Something is read, perhaps for the first time."""
        if self.noting and name not in self._reads.relations:
            with self.unnoted():
                found = versions(self.partition(name[0]), name)
            self._reads.relations[name] = found

    def outdated(self) -> bool:
        """Whether what was copied has changed below since."""
        if self._own_rules is not None and self._rules_below != self.base.rules.version:
            return True
        return self.lost != self.base.lost or any(layer.outdated() for layer in self._layers.values())

    def renew(self, now: int) -> None:
        """Bring an overlay that is not outdated to the present: what is read through it may have changed."""
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
        """Give up what was worked out from it: read again, it would not be noted, or be what held before a write."""
        for attached in self.attached.values():
            attached.close()
        self.attached.clear()
        self.models.clear()

    def drop(self) -> None:
        """Give everything back, when nobody reads it any more."""
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
        """Whether the transaction wrote here."""
        return bool(self._relations)

    @property
    def _below(self) -> Partition:
        return self._overlay.base.partition(self.name) or self._nothing

    def get(self, schema: RelationSchema) -> StoredRelation | None:
        """The relation of a stored schema; that it is read is noted."""
        self._overlay.note((self.name, schema.predicate, schema.arity))
        return self._relations.get(schema) or self._below.get(schema)

    def need(self, schema: RelationSchema) -> StoredRelation:
        """The relation of a stored schema, below made empty if it was never needed."""
        return self.get(schema) or self._below.need(schema)

    def writable(self, schema: RelationSchema) -> StoredRelation:
        """A copy of the relation below. What was worked out before is bound to that one, so it is given up."""
        own = self._relations.get(schema)
        if own is None:
            own = self._relations[schema] = self._below.need(schema).copy()
            self._overlay.forget()
        return own

    def named(self, predicate: str, arity: int | None = None, positive: bool | None = None) -> list[StoredRelation]:
        """Relations of a predicate; that they are read is noted."""
        self._overlay.note((self.name, predicate, arity))
        return super().named(predicate, arity, positive)

    def relations(self) -> list[StoredRelation]:
        """All relations; that they are read is noted."""
        self._overlay.note((self.name, None, None))
        return super().relations()

    def outdated(self) -> bool:
        """Whether a relation that was copied has changed below."""
        below = self._below
        return any(below.need(schema).version != own.version for schema, own in self._relations.items())

    def drop(self) -> None:
        """Give the copies back."""
        for relation in self._relations.values():
            relation.gone = True
            relation.relation.drop()
        self._relations.clear()

    def _known(self) -> Iterable[StoredRelation]:
        below = {relation.schema: relation for relation in self._below.relations()}
        return (below | self._relations).values()


class OverlayLock(ReadWriteLock):
    """The lock of an overlay: its own, and inside it the base held still."""

    def __init__(self, overlay: Overlay) -> None:
        super().__init__()
        self._overlay = overlay

    @contextmanager
    def _with_base(self, own: AbstractContextManager[None]) -> Iterator[None]:
        overlay = self._overlay
        with own, overlay.base.lock.read():
            if overlay.lost != overlay.base.lost:
                raise Conflict("a scope was deleted under the transaction", {"reason": "scope"})
            yield

    def read(self) -> AbstractContextManager[None]:
        """Hold it together with other readers."""
        return self._with_base(super().read())

    def write(self) -> AbstractContextManager[None]:
        """Hold it alone."""
        return self._with_base(super().write())

    def alone(self) -> AbstractContextManager[None]:
        """Hold it alone, whatever becomes of the base."""
        return super().write()
