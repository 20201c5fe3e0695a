"""Every kind of change.

A change states the intention; applying it determines what really changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kbcore.errors import Conflict
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.facts import Fact, FactKey, FactRows, Row
from kbcore.state.idempotency import IdempotentAnswer, Outcome, RequestKey
from kbcore.state.keys import StoredKey
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.merging.sides import ConflictingFact, Keep
from kbcore.state.partition import RowKey
from kbcore.state.rule_sets import ItemKey, SetItems, VersionNote
from kbcore.state.rulebook import ParsedDeclaration, ParsedRule
from kbcore.state.subscriptions import StatePosition, StoredSubscription
from kbplanner.ir.inputs import Input
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Variable
from kbplanner.pacing import YieldNow, go_on
from kbtypes.results import INPUT_ID_SUFFIX


@dataclass(frozen=True, slots=True)
class AssertFacts:
    """Store facts; facts that are already stored get new metadata, validity and confidence."""

    facts: tuple[Fact, ...]
    discarded: int = 0
    """Facts of the same request that a conflict strategy did not store."""


@dataclass(frozen=True, slots=True)
class EndFacts:
    """End the validity of stored facts: part of storing the facts that a conflict strategy
    prefers.
    """

    facts: tuple[EndedFact, ...]


@dataclass(frozen=True, slots=True)
class EndedFact:
    """A fact that ends at `until` (epoch milliseconds), None for the time of the record."""

    predicate: str
    args: tuple[str, ...]
    positive: bool = True
    scope: str | None = None
    until: int | None = None

    @property
    def key(self) -> FactKey:
        """The identity of the fact."""
        return self.scope, self.predicate, self.args, self.positive


@dataclass(frozen=True, slots=True)
class AssertRows:
    """Store many facts that have arguments only."""

    rows: tuple[FactRows, ...]


@dataclass(frozen=True, slots=True)
class UseLabels:
    """Give these labels, not those of the change set, to what the changes after this one store."""

    labels: Labels


@dataclass(frozen=True, slots=True)
class RetractFact:
    """Remove one fact of a scope: of one sign, or of both if `positive` is None."""

    predicate: str
    args: tuple[str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class RetractPattern:
    """Remove the facts of a scope that match.

    Variables are wildcards, equal variables require equal arguments.
    """

    predicate: str
    pattern: tuple[Variable | str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class AssertRules:
    """Store rules; a rule that is already stored changes nothing."""

    rules: tuple[ParsedRule, ...]


@dataclass(frozen=True, slots=True)
class Declare:
    """Store phrases and inputs; each replaces an earlier one for the same predicate and scope."""

    declarations: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class RetractRule:
    """Remove a rule or a declaration of a scope by its id."""

    id: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class DeployRuleSet:
    """Store a version of a rule set: rules, declarations and facts that are new or changed in it,
    and the keys of those that are no more in it.

    It is the first change of its set, whose labels a new rule set gets. Those that follow store and
    remove the rules, declarations and facts which the deployment adds, and those which have lost
    their last owner.
    """

    name: str
    scope: str | None
    version: int
    note: VersionNote
    rules: tuple[ParsedRule, ...] = ()
    declarations: tuple[ParsedDeclaration, ...] = ()
    facts: tuple[Fact, ...] = ()
    dropped: tuple[ItemKey, ...] = ()

    @property
    def items(self) -> SetItems:
        """The rules, declarations and facts."""
        return SetItems(self.rules, self.declarations, self.facts)


@dataclass(frozen=True, slots=True)
class ForkScope:
    """Copy the facts and the own rules of a scope (None: the base) to a new scope.

    With `overwrite` an existing target is dropped first.
    """

    source: str | None
    target: str
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class DropScope:
    """Remove a scope with its facts and its own rules."""

    scope: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one conflict.

    `facts` lists the facts that remain if `keep` is `Keep.FACTS`.
    """

    keep: Keep
    facts: tuple[ConflictingFact, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeScope:
    """Merge a scope (None: the base) into another one, both as of `at` (epoch milliseconds).

    Facts that only the source has are copied to the target. Conflicts were decided before this
    change was written: `others` lists decisions by predicate and arguments, `usual` applies to all
    other conflicts.
    """

    source: str | None
    target: str | None
    at: int
    usual: Keep = Keep.SOURCE
    others: tuple[tuple[str, tuple[str, ...], Decision], ...] = ()


class EvictReason(Enum):
    """The reason of an eviction: the fact expired, it faded, or a newer summary replaces it."""

    EXPIRED = "expired"
    FADED = "faded"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class EvictFacts:
    """Remove exactly these facts.

    The result of expiry, fading or a newer summary, not the command that caused it.
    """

    rows: tuple[FactRows, ...]
    reason: EvictReason


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Set the priority of a stored fact, 0 to 1: of one sign, or of both if `positive` is None."""

    predicate: str
    args: tuple[str, ...]
    priority: float
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class AddEpisodes:
    """Store episodes; one whose id is known changes nothing."""

    episodes: tuple[NewEpisode, ...]


@dataclass(frozen=True, slots=True)
class AddEvidence:
    """Add the evidence of facts to those of them that are stored; nothing else of them changes."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class PurgeMemory:
    """Remove exactly these facts, episodes and subscriptions to goals, and stored answers, which
    may repeat their text.

    `id` names the purge, of which this may be a part; `by` says by what its facts were selected.
    `goals` are the ids of subscriptions.
    """

    id: str
    by: str
    rows: tuple[FactRows, ...] = ()
    episodes: tuple[str, ...] = ()
    goals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PutSubscription:
    """Store a subscription to a goal, or renew the one of the same id. No fact or rule changes."""

    subscription: StoredSubscription


@dataclass(frozen=True, slots=True)
class EndSubscriptions:
    """Remove subscriptions to goals by id. No fact or rule changes."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoteDelivery:
    """Store up to which state the receiver of a goal's webhook has the changes.

    No fact or rule changes.
    """

    id: str
    delivered: StatePosition


@dataclass(frozen=True, slots=True)
class RestoredFact:
    """A fact to be stored again with its attributes of before, evidence included.

    `ttl` is in milliseconds; the end that it gave is that of the standing. Without a `priority` a
    fact that is stored keeps its own.
    """

    scope: str | None
    predicate: str
    args: tuple[str, ...]
    standing: ConflictingFact
    ttl: int | None = None
    priority: float | None = None

    @property
    def key(self) -> FactKey:
        """The identity of the fact."""
        return self.scope, self.predicate, self.args, self.standing.positive


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """Store facts with exactly the given attributes: part of undoing a change set, and of a purge,
    which gives stored facts the time back that removed ones had taken.
    """

    facts: tuple[RestoredFact, ...]


class CatalogAction(Enum):
    """A change of a whole database or tenant."""

    CREATE_DATABASE = "createDatabase"
    DROP_DATABASE = "dropDatabase"
    NUKE_DATABASE = "nukeDatabase"
    CREATE_TENANT = "createTenant"
    DROP_TENANT = "dropTenant"
    NUKE_TENANT = "nukeTenant"


@dataclass(frozen=True, slots=True)
class ChangeCatalog:
    """Create, drop or empty the database or the tenant that the change set names.

    The only change of its set.
    """

    action: CatalogAction
    mark: int | None = None
    """In a shard that repeats a change of a database: its creation time, or when it was emptied, in
    the system shard."""


@dataclass(frozen=True, slots=True)
class ChangeKeys:
    """Add or replace keys of the node by id, and remove others; the only change of its set.

    The set names no database and no tenant.
    """

    put: tuple[StoredKey, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteAnswer:
    """Store the answer of a request with an idempotency key, None if it is too large.

    No fact or rule changes.
    """

    request: RequestKey
    answer: IdempotentAnswer | None


ScopeChange = ForkScope | DropScope | MergeScope

Change = (
    AssertFacts
    | AssertRows
    | UseLabels
    | RetractFact
    | RetractPattern
    | AssertRules
    | Declare
    | RetractRule
    | DeployRuleSet
    | EvictFacts
    | EndFacts
    | SetPriority
    | AddEpisodes
    | AddEvidence
    | PurgeMemory
    | RestoreFacts
    | NoteAnswer
    | PutSubscription
    | EndSubscriptions
    | NoteDelivery
    | ScopeChange
    | ChangeCatalog
    | ChangeKeys
)

BESIDES_CONTENT = (NoteAnswer, PutSubscription, EndSubscriptions, NoteDelivery)
"""Changes after which every goal has the same answers as before."""


class Outdated(Conflict):
    """Raised by a check: the state from which a change set was computed has changed."""


RelationName = tuple[str | None, str, int]
"""Scope, predicate and arity: the relations of both signs."""

EPISODES: RelationName = (None, "\0episodes", 0)
"""Stands for the episodes of a tenant among the names of relations."""


@dataclass(frozen=True, slots=True)
class Depends:
    """The inputs of a check.

    The relations it reads, those that must lose no fact (`needed`), and perhaps rules.
    """

    read: frozenset[RelationName]
    needed: frozenset[RelationName]
    rules: bool


@dataclass(slots=True)
class WriteSet:
    """The write set of the change sets of one tenant.

    Relations asserted to or removed from, rules, or anything.
    """

    asserted: set[RelationName] = field(default_factory=set)
    removed: set[RelationName] = field(default_factory=set)
    rules: bool = False
    anything: bool = False

    def add(self, changes: Iterable[Change]) -> None:
        """Add the write set of `changes`."""
        for change in changes:
            if isinstance(change, AssertFacts | AddEvidence):
                self.asserted.update(
                    (fact.scope, fact.predicate, len(fact.args)) for fact in change.facts
                )
            elif isinstance(change, AssertRows):
                self.asserted.update(
                    (rows.scope, rows.predicate, rows.arity) for rows in change.rows
                )
            elif isinstance(change, RetractFact):
                self.removed.add((change.scope, change.predicate, len(change.args)))
            elif isinstance(change, RetractPattern):
                self.removed.add((change.scope, change.predicate, len(change.pattern)))
            elif isinstance(change, AssertRules | Declare | RetractRule):
                self.rules = True
            elif isinstance(change, EvictFacts):
                self.removed.update(
                    (rows.scope, rows.predicate, rows.arity) for rows in change.rows
                )
            elif isinstance(change, SetPriority):
                self.asserted.add((change.scope, change.predicate, len(change.args)))
            elif isinstance(change, AddEpisodes):
                self.asserted.add(EPISODES)
            elif isinstance(change, RestoreFacts):
                self.asserted.update(
                    (fact.scope, fact.predicate, len(fact.args)) for fact in change.facts
                )
            elif isinstance(change, EndFacts):
                self.removed.update(
                    (fact.scope, fact.predicate, len(fact.args)) for fact in change.facts
                )
            elif isinstance(change, (UseLabels, *BESIDES_CONTENT)):
                pass
            else:
                self.anything = True

    def meets(self, depends: Depends | None) -> bool:
        """Return True if these writes could change the outcome of a check with these inputs (None:
        of any check).
        """
        if self.anything or depends is None:
            return True
        if self.rules and depends.rules:
            return True
        touched = depends.read | depends.needed
        return not (self.removed.isdisjoint(touched) and self.asserted.isdisjoint(depends.read))


def declares_inputs(change: Change) -> bool:
    """Return True if a change declares an input or withdraws one."""
    if isinstance(change, Declare):
        return any(isinstance(each, Input) for each in change.declarations)
    return isinstance(change, RetractRule) and change.id.endswith(INPUT_ID_SUFFIX)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes of one tenant that are applied together: one log record, all or none.

    `check`, if set, reads the state just before the record is written and raises to reject the
    change set; it is not logged. `depends` lists the inputs of the check (None: everything).
    `transaction` is the id of the transaction that the set commits, `request` the idempotency key
    and digest of its request, `key` the id of the API key that it was made with. `undoes` is the
    number of the change in the log that the set undoes. `labels` are those of everything that the
    set stores without others (UseLabels), and it removes and ends only what `view` admits and these
    labels dominate.
    `yield_now` is called about once a millisecond until the set waits for the log; what it raises
    refuses the set.
    """

    database: str
    tenant: str
    changes: tuple[Change, ...]
    check: Callable[[], None] | None = field(default=None, compare=False)
    depends: Depends | None = field(default=None, compare=False)
    transaction: str | None = None
    request: RequestKey | None = None
    key: str | None = field(default=None, compare=False)
    undoes: int | None = None
    labels: Labels = NO_LABELS
    view: Labels = NO_LABELS
    yield_now: YieldNow = field(default=go_on, compare=False)
    checked_inputs: tuple[int, int] | None = field(default=None, compare=False)
    """State of the declared inputs that the types of arguments were checked with; None if they were
    not."""
    of_catalog: bool = field(init=False, compare=False, repr=False)
    """True if the set changes whole databases or tenants, or the keys of the node."""
    declares_inputs: bool = field(init=False, compare=False, repr=False)
    """True if the set declares inputs or withdraws them."""

    def __post_init__(self) -> None:
        changes = self.changes
        of_catalog = len(changes) == 1 and isinstance(changes[0], ChangeCatalog | ChangeKeys)
        object.__setattr__(self, "of_catalog", of_catalog)
        object.__setattr__(self, "declares_inputs", any(map(declares_inputs, changes)))

    @property
    def creates_tenant(self) -> bool:
        """True if these changes store something, so that a missing tenant is created for them.

        Retractions, evictions, priorities and empty batches do nothing in a tenant that does not
        exist. A change set of a request with an idempotency key is always stored: the request must
        not run again.
        """
        return self.request is not None or self.of_catalog or any(map(_stores, self.changes))

    @property
    def makes_room(self) -> bool:
        """True if every change only removes data on request.

        Such a change is accepted on a full disk too.
        """
        return bool(self.changes) and all(
            change.action in _REMOVING_ACTIONS
            if isinstance(change, ChangeCatalog)
            else isinstance(change, _REMOVING_CHANGES)
            for change in self.changes
        )


def _stores(change: Change) -> bool:
    if isinstance(change, AssertFacts):
        return bool(change.facts)
    if isinstance(change, AssertRows):
        return any(len(rows) for rows in change.rows)
    if isinstance(change, AssertRules):
        return bool(change.rules)
    if isinstance(change, Declare):
        return bool(change.declarations)
    if isinstance(change, AddEpisodes):
        return bool(change.episodes)
    if isinstance(change, RestoreFacts):
        return bool(change.facts)
    return isinstance(change, DeployRuleSet | ForkScope | MergeScope | NoteAnswer | PutSubscription)


_REMOVING_CHANGES = (
    RetractFact,
    RetractPattern,
    RetractRule,
    DropScope,
    PurgeMemory,
    EndSubscriptions,
)
_REMOVING_ACTIONS = (
    CatalogAction.DROP_DATABASE,
    CatalogAction.NUKE_DATABASE,
    CatalogAction.DROP_TENANT,
    CatalogAction.NUKE_TENANT,
)


@dataclass(slots=True)
class RemovedFacts:
    """Facts that a change removed.

    Their stored schema, scope, symbols, and rows in their external form.

    `change` is the number of the change in its set.
    """

    schema: RelationSchema
    scope: str | None
    keys: list[RowKey]
    rows: list[Row]
    change: int = 0


RuleForms = Sequence[tuple[Labels, ParsedRule]]
RuleLabels = tuple[RuleForms, tuple[Labels, ...]]
"""Forms of a rule with their labels, and labels of its other forms."""


@dataclass(frozen=True, slots=True)
class Parted:
    """What a change did to a fact in a relation with labels: its details with each of its labels
    before, the newest ones last, and the labels with which it has them still.
    """

    before: Sequence[tuple[Labels, Row]]
    left: tuple[Labels, ...] = ()


@dataclass(slots=True)
class Delta:
    """The real effect of a change set.

    `at` is its logged time, `generation` the tenant's generation after it.

    `seq` is the sequence number in the log, 0 for a transaction that is not committed. `dropped`
    names the scopes that were removed, including those that were created again. Evicted facts are
    only counted: the change itself lists them. `ended` are those facts of EndFacts that held and do
    not hold any more: the number of the change, and that of the fact in it. `retold`, if requested,
    maps facts that were already stored, with their labels, to their creation times; then `parted`
    has the facts in relations with labels that a change, by its number, has removed, ended or
    moved, and `rule_labels` the rules with labels, by the list and their index in it: each form
    that was added or removed with its labels, and the labels that the rule has besides.
    `purged_episodes` are the labels of episodes that a purge has removed. `number` is that of the
    change that is applied. `labels` and `view` are those of the change set.
    """

    at: int
    seq: int = 0
    generation: int = 0
    labels: Labels = NO_LABELS
    view: Labels = NO_LABELS
    asserted: int = 0
    updated: int = 0
    evicted: int = 0
    discarded: int = 0
    removed: list[RemovedFacts] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    rules_added: list[ParsedRule] = field(default_factory=list)
    rules_removed: list[ParsedRule] = field(default_factory=list)
    declarations_removed: list[ParsedDeclaration] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    retold: dict[tuple[Labels, FactKey], int] | None = None
    number: int = 0
    parted: dict[tuple[int, Any], Parted] = field(default_factory=dict)
    rule_labels: dict[tuple[str, int], RuleLabels] = field(default_factory=dict)
    purged_episodes: set[Labels] = field(default_factory=set)
    details: dict[str, Any] = field(default_factory=dict)

    def note_rule(
        self, name: str, rule: ParsedRule, changed: RuleForms, left: Sequence[Labels]
    ) -> None:
        """Add a rule to the list of a name, with what is noted of its labels."""
        rules: list[ParsedRule] = getattr(self, name)
        if self.retold is not None and (left or any(labels for labels, _ in changed)):
            self.rule_labels[name, len(rules)] = tuple(changed), tuple(left)
        rules.append(rule)

    def outcome(self) -> Outcome:
        """Return what a request with an idempotency key needs to know of this effect."""
        removed = sum(len(each.rows) for each in self.removed)
        return Outcome(self.seq, self.at, self.asserted, self.updated, removed, self.discarded)
