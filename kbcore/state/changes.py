"""Every mutation there is. A change says what is intended; applying it finds what really changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kbcore.state.facts import Fact, FactKey, FactRows, Row
from kbcore.state.idempotency import Answer, RequestKey
from kbcore.state.keys import StoredKey
from kbcore.state.partition import RowKey
from kbcore.state.rulebook import StoredRule
from kbcore.state.standing import Keep, Standing
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Rule, Variable


@dataclass(frozen=True, slots=True)
class AssertFacts:
    """Store facts; those that are there already get new metadata, validity and confidence."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class AssertRows:
    """Store many facts that have nothing beside their arguments."""

    rows: tuple[FactRows, ...]


@dataclass(frozen=True, slots=True)
class RetractFact:
    """Remove one fact of a scope: of one sign, or of both where `positive` is None."""

    predicate: str
    args: tuple[str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class RetractPattern:
    """Remove the facts of a scope that match; variables are wildcards, the same variable asks for equal arguments."""

    predicate: str
    pattern: tuple[Variable | str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class AssertRules:
    """Teach rules; one that is there already changes nothing."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class RetractRule:
    """Forget a rule of a scope by its id."""

    id: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class ForkScope:
    """Copy the facts of a scope (None: the base), and the rules it has of its own, to a new one.

    With `overwrite` a target that is there is dropped first.
    """

    source: str | None
    target: str
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class DropScope:
    """Remove a scope with its facts and the rules it has of its own."""

    scope: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What stands at the predicate and arguments of a conflict afterwards; `facts` where that is `Keep.FACTS`."""

    keep: Keep
    facts: tuple[Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeScope:
    """Add to a scope what another one has (None: the base), both as of the moment `at` (epoch milliseconds).

    What is only in the source comes to the target. Conflicts were decided when this was written: all of them in the `usual`
    way, but for those in `others`, by predicate and arguments.
    """

    source: str | None
    target: str | None
    at: int
    usual: Keep = Keep.SOURCE
    others: tuple[tuple[str, tuple[str, ...], Decision], ...] = ()


class EvictReason(Enum):
    """Why facts were evicted: their time was over, too little spoke for them, or a newer summary takes their place."""

    EXPIRED = "expired"
    FADED = "faded"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class EvictFacts:
    """Remove exactly these facts: the result of expiry, fading or a newer summary, not the command that led to it."""

    rows: tuple[FactRows, ...]
    reason: EvictReason


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Say how important a stored fact is, 0 to 1: of one sign, or of both where `positive` is None."""

    predicate: str
    args: tuple[str, ...]
    priority: float
    positive: bool | None = None
    scope: str | None = None


class CatalogAction(Enum):
    """What can happen to databases and tenants as a whole."""

    CREATE_DATABASE = "createDatabase"
    DROP_DATABASE = "dropDatabase"
    NUKE_DATABASE = "nukeDatabase"
    CREATE_TENANT = "createTenant"
    DROP_TENANT = "dropTenant"
    NUKE_TENANT = "nukeTenant"


@dataclass(frozen=True, slots=True)
class ChangeCatalog:
    """Create, drop or empty the database or the tenant that the change set names; the only change of its set."""

    action: CatalogAction


@dataclass(frozen=True, slots=True)
class ChangeKeys:
    """Take keys of the node in, or in place of those with their ids, and let others go; the only change of its set.

    The set names no database and no tenant.
    """

    put: tuple[StoredKey, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteAnswer:
    """Keep the answer of a request with a key, None where it is too large. What is known does not change by it."""

    request: RequestKey
    answer: Answer | None


ScopeChange = ForkScope | DropScope | MergeScope

Change = (
    AssertFacts
    | AssertRows
    | RetractFact
    | RetractPattern
    | AssertRules
    | RetractRule
    | EvictFacts
    | SetPriority
    | NoteAnswer
    | ScopeChange
    | ChangeCatalog
    | ChangeKeys
)

RelationName = tuple[str | None, str, int]
"""Scope, predicate and arity: the relations of both signs."""


@dataclass(frozen=True, slots=True)
class Depends:
    """What the outcome of a check rests on: facts of the relations `read`, that nothing goes from those in `kept`, rules."""

    read: frozenset[RelationName]
    kept: frozenset[RelationName]
    rules: bool


@dataclass(slots=True)
class Footprint:
    """What change sets of one tenant write: relations that facts come to or go from, rules, or anything at all."""

    asserted: set[RelationName] = field(default_factory=set)
    removed: set[RelationName] = field(default_factory=set)
    rules: bool = False
    anything: bool = False

    def add(self, changes: Iterable[Change]) -> None:
        """Add what changes write."""
        for change in changes:
            if isinstance(change, AssertFacts):
                self.asserted.update((fact.scope, fact.predicate, len(fact.args)) for fact in change.facts)
            elif isinstance(change, AssertRows):
                self.asserted.update((rows.scope, rows.predicate, rows.arity) for rows in change.rows)
            elif isinstance(change, RetractFact):
                self.removed.add((change.scope, change.predicate, len(change.args)))
            elif isinstance(change, RetractPattern):
                self.removed.add((change.scope, change.predicate, len(change.pattern)))
            elif isinstance(change, AssertRules | RetractRule):
                self.rules = True
            elif isinstance(change, EvictFacts):
                self.removed.update((rows.scope, rows.predicate, rows.arity) for rows in change.rows)
            elif isinstance(change, SetPriority):
                self.asserted.add((change.scope, change.predicate, len(change.args)))
            elif isinstance(change, NoteAnswer):
                pass
            else:
                self.anything = True

    def meets(self, depends: Depends | None) -> bool:
        """Whether what is written could change the outcome of a check that depends on this (None: on everything)."""
        if self.anything or depends is None:
            return True
        if self.rules and depends.rules:
            return True
        touched = depends.read | depends.kept
        return not (self.removed.isdisjoint(touched) and self.asserted.isdisjoint(depends.read))


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes of one tenant that happen together: one log record, all or none.

    `check`, if given, looks at the state just before the record is written and raises to refuse it; it is not logged.
    `depends` says what its outcome rests on (None: everything). `transaction` is the id of the transaction it commits,
    `request` the request with a key that it belongs to.
    """

    database: str
    tenant: str
    changes: tuple[Change, ...]
    check: Callable[[], None] | None = field(default=None, compare=False)
    depends: Depends | None = field(default=None, compare=False)
    transaction: str | None = None
    request: RequestKey | None = None

    @property
    def of_catalog(self) -> bool:
        """Whether it changes databases or tenants as a whole, or the keys of the node."""
        return len(self.changes) == 1 and isinstance(self.changes[0], ChangeCatalog | ChangeKeys)

    @property
    def creates_tenant(self) -> bool:
        """Whether these changes store something, so that a tenant that does not exist is created for them.

        Retractions, evictions, priorities and empty batches do nothing in a tenant that does not exist. A change set that
        belongs to a request with an idempotency key is always stored: the request must not be carried out again.
        """
        return self.request is not None or self.of_catalog or any(map(_stores, self.changes))

    @property
    def makes_room(self) -> bool:
        """Whether all it does is to take something away at somebody's wish: such a change is taken on a full disk too."""
        return bool(self.changes) and all(
            change.action in _TAKING_AWAY if isinstance(change, ChangeCatalog) else isinstance(change, _LESS)
            for change in self.changes
        )


def _stores(change: Change) -> bool:
    if isinstance(change, AssertFacts):
        return bool(change.facts)
    if isinstance(change, AssertRows):
        return any(len(rows) for rows in change.rows)
    if isinstance(change, AssertRules):
        return bool(change.rules)
    return isinstance(change, ForkScope | MergeScope | NoteAnswer)


_LESS = (RetractFact, RetractPattern, RetractRule, DropScope)
_TAKING_AWAY = (
    CatalogAction.DROP_DATABASE,
    CatalogAction.NUKE_DATABASE,
    CatalogAction.DROP_TENANT,
    CatalogAction.NUKE_TENANT,
)


@dataclass(slots=True)
class Removed:
    """Facts that an application removed: their stored schema, scope, symbols, and rows for the outside.

    `change` is the number of the change in its set.
    """

    schema: RelationSchema
    scope: str | None
    keys: list[RowKey]
    rows: list[Row]
    change: int = 0


@dataclass(slots=True)
class Delta:
    """What applying a change set really changed; `at` is its logged time, `generation` the tenant's after it.

    `seq` is its place in the log, 0 where there is none: in a transaction that is not committed.

    `dropped` names the scopes that went, also those that were made anew. Facts that were evicted are counted only: the
    change itself lists them. `retold`, where it was asked for, has the facts that were there before, with their times of
    creation.
    """

    at: int
    seq: int = 0
    generation: int = 0
    asserted: int = 0
    updated: int = 0
    evicted: int = 0
    removed: list[Removed] = field(default_factory=list)
    rules_added: list[StoredRule] = field(default_factory=list)
    rules_removed: list[StoredRule] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    retold: dict[FactKey, int] | None = None
    details: dict[str, Any] = field(default_factory=dict)
