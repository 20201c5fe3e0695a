"""Transactions: the open ones, their staged changes and reads, and the outcome of those that ended.

Optimistic: nothing is locked. A transaction remembers the versions of the relations and rules that
it read, and the facts that it wrote as they were at first use. All of them must be unchanged when
it commits. That makes committed transactions serializable in the order of the log (Kung and
Robinson, On Optimistic Methods for Concurrency Control, 1981).
"""

from __future__ import annotations

import secrets
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kbcore.clock import Clock
from kbcore.config.settings import Config
from kbcore.errors import Conflict, RateLimited, UnknownTransaction
from kbcore.state.changes import (
    EPISODES,
    AddEpisodes,
    AssertFacts,
    AssertRows,
    Change,
    Delta,
    Depends,
    RelationName,
    UseLabels,
)
from kbcore.state.facts import Row
from kbcore.state.idempotency import COMMITTED_KEPT_IDS, COMMITTED_KEPT_MS
from kbcore.state.intervals import earlier_of, restated_of, with_earlier, with_restated
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.overlay import Overlay, ReadSet, apply_to_overlay, scope_names, versions
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.pacing import YieldNow
from kbplanner.syntax.printer import print_atom

FactName = tuple[str | None, str, tuple[str, ...], bool]
"""Scope, predicate, arguments and sign of a fact."""


class TransactionState(Enum):
    """The state of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    EXPIRED = "expired"


@dataclass(slots=True, eq=False)
class SeenState:
    """A transaction as a view shows it: the state of the view, and over it, as `overlay`, what
    the first `copied` effects of the transaction have changed for the view.

    `whole` is the overlay of the whole tenant that the changes were copied from. `is_lost` is True
    if the state of the view was replaced by another one, whose versions say nothing about `reads`.
    """

    base: Tenant
    reads: ReadSet = field(default_factory=ReadSet)
    overlay: Overlay | None = None
    whole: Overlay | None = None
    copied: int = 0
    is_lost: bool = False

    def drop(self) -> None:
        """Release the overlay."""
        overlay, self.overlay, self.copied = self.overlay, None, 0
        if overlay is not None:
            overlay.drop()


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one tenant; a thread that works on it holds `operation`.

    `needed` lists the facts that it asserts and that were stored at first use, `facts` those it
    retracts, as they were; `present` says of each fact it wrote if the transaction now sees it as
    stored. `base` is the tenant at first use, None if there was none. Times are seconds of the
    monotonic clock. `view` is the one that it was begun with: what it writes changes only what the
    view admits, and `needed` and `facts` are as the view shows them. `labels` are those that the
    last staged changes store with.
    """

    id: str
    database: str
    tenant: str
    began: float
    used: float
    state: TransactionState = TransactionState.OPEN
    operation: threading.Lock = field(default_factory=threading.Lock)
    staged: list[Change] = field(default_factory=list)
    operations: int = 0
    bytes: int = 0
    reads: ReadSet = field(default_factory=ReadSet)
    needed: set[FactName] = field(default_factory=set)
    facts: dict[FactName, Row | None] = field(default_factory=dict)
    present: dict[FactName, bool] = field(default_factory=dict)
    overlay: Overlay | None = None
    view: Labels = NO_LABELS
    labels: Labels = NO_LABELS
    seen: dict[Labels, SeenState] = field(default_factory=dict)
    effects: list[tuple[Sequence[Change], Delta]] | None = None
    """The effects of the changes on `overlay`, in order; None until a view is read."""
    base: Tenant | None = None
    purges_seen: int = 0
    """The last purge of the tenant before the first use, by its sequence number."""
    uncertain: bool = False
    """True if its commit is in the log, but was not confirmed in time."""

    def see(self, tenant: Tenant | None) -> None:
        """Bind the transaction to the current tenant.

        Raise Conflict if it is not the one of before.
        """
        if self.base is None:
            self.base = tenant
            self.purges_seen = 0 if tenant is None else tenant.purges.last_seq()
        elif self.base is not tenant:
            raise self.conflict([{"tenant": self.tenant}], "the tenant was deleted or emptied")

    def depends(self) -> Depends | None:
        """Return the inputs of `check`, None for everything."""
        every = self.reads, *(seen.reads for seen in self.seen.values())
        if any(reads.scopes is not None for reads in every) or any(
            name[1] is None or name[2] is None for reads in every for name in reads.relations
        ):
            return None
        read = {
            (scope, predicate or "", arity or 0)
            for reads in every
            for scope, predicate, arity in reads.relations
        }
        read.update(_relation(name) for name in self.facts)
        reads_episodes = any(
            reads.episodes is not None or reads.missing_episodes for reads in every
        )
        if reads_episodes or any(isinstance(change, AddEpisodes) for change in self.staged):
            read.add(EPISODES)
        return Depends(
            frozenset(read),
            frozenset(_relation(name) for name in self.needed),
            self.stores_labels or any(reads.rules is not None for reads in every),
        )

    @property
    def stores_labels(self) -> bool:
        """True if anything is stored with labels: their dimensions must still be declared."""
        return any(isinstance(change, UseLabels) for change in self.staged)

    def check(self, tenant: Tenant, now: int) -> None:
        """Raise Conflict if something that was read or written has changed by `now` (epoch
        milliseconds).

        The caller holds the tenant's lock; the states of the views that were read are up to date.
        """
        written = self.seen[self.view].base if self.view else tenant
        changed = list(self._changed_reads(self.reads, self.overlay, tenant, now))
        for seen in self.seen.values():
            if seen.is_lost:
                changed.append({"view": True})
            changed += self._changed_reads(seen.reads, seen.overlay, seen.base, now)
        changed += self._changed_writes(written)
        if tenant.purges.last_seq() != self.purges_seen:  # it may write what was purged
            changed.append({"purge": True})
        if changed:
            raise self.conflict(changed, "what the transaction read or wrote has changed since")

    def _changed_reads(
        self, reads: ReadSet, overlay: Overlay | None, tenant: Tenant, now: int
    ) -> Iterator[dict[str, object]]:
        """Yield what was read of a tenant and has changed, as entries of the conflict."""
        if reads.rules is not None and reads.rules != tenant.rules.version:
            yield {"rules": True}
        if overlay is not None and (reads.aged or overlay.due(now)):
            yield {"time": True}
        if reads.scopes is not None and reads.scopes != scope_names(tenant):
            yield {"scopes": True}
        if reads.episodes is not None and reads.episodes != tenant.episodes.version:
            yield {"episodes": True}
        for id in sorted(reads.missing_episodes):
            if id in tenant.episodes:
                yield {"episode": id}
        for name, known in reads.relations.items():
            if versions(tenant.partition(name[0]), name) != known:
                yield {"predicate": name[1], "arity": name[2], "scope": name[0]}

    def _changed_writes(self, tenant: Tenant) -> Iterator[dict[str, object]]:
        """Yield the facts and episodes to be written that have changed, as entries of the
        conflict.
        """
        removed = (name for name in self.needed if stored_row(tenant, name) is None)
        modified = (name for name, known in self.facts.items() if stored_row(tenant, name) != known)
        for scope, predicate, args, positive in (*removed, *modified):
            yield {"fact": print_atom(Atom(predicate, args, positive)), "scope": scope}
        for id in self._taken_episodes(tenant):
            yield {"episode": id}

    def _taken_episodes(self, tenant: Tenant) -> Iterator[str]:
        """Yield the ids of staged episodes that now belong to episodes with other content."""
        for change in self.staged:
            for new in change.episodes if isinstance(change, AddEpisodes) else ():
                known = tenant.episodes.get(new.id)
                if known is not None and not new.is_same(known):
                    yield new.id

    def conflict(self, changed: list[dict[str, object]], message: str) -> Conflict:
        """Return the error of a transaction whose reads or writes are outdated."""
        rolled_back = TransactionState.ROLLED_BACK.value
        return Conflict(
            message, {"transaction": self.id, "state": rolled_back, "changed": changed[:100]}
        )

    def changes(self) -> tuple[Change, ...]:
        """Return the staged changes, with neighbouring asserts merged."""
        merged: list[Change] = []
        for change in self.staged:
            last = merged[-1] if merged else None
            if isinstance(last, AssertFacts) and isinstance(change, AssertFacts):
                merged[-1] = AssertFacts(last.facts + change.facts)
            elif isinstance(last, AssertRows) and isinstance(change, AssertRows):
                merged[-1] = AssertRows(last.rows + change.rows)
            else:
                merged.append(change)
        return tuple(merged)

    def end(self, state: TransactionState) -> None:
        """End the transaction and release what it holds."""
        self.state = state
        self.staged, self.reads, self.needed, self.facts, self.present = (
            [],
            ReadSet(),
            set(),
            {},
            {},
        )
        overlay, self.overlay = self.overlay, None
        for seen in self.seen.values():
            seen.drop()
        self.seen, self.effects = {}, None
        if overlay is not None:
            overlay.drop()


def play(
    overlay: Overlay,
    changes: Sequence[Change],
    now: int,
    yield_now: YieldNow,
    labels: Labels = NO_LABELS,
    view: Labels = NO_LABELS,
) -> Delta:
    """Apply changes to an overlay as the commit applies them to the tenant: with these labels where
    they name no others, and within a view.
    """
    with overlay.lock.write():
        return apply_to_overlay(overlay, changes, now, yield_now, labels, view)


def stored_row(tenant: Tenant, name: FactName, *, history: bool = False) -> Row | None:
    """Return a stored fact in its external form, None if it does not exist or has expired.

    With `history` also one that has ended without a `ttl`, and with its closed intervals and the
    times from which it was stated again in its metadata.
    """
    scope, predicate, args, positive = name
    partition = tenant.partition(scope)
    stored = partition.get(RelationSchema(predicate, len(args), positive)) if partition else None
    if stored is None:
        return None
    symbols = array("I", [tenant.engine.find(arg) for arg in args])
    return stored_row_of(tenant, stored, symbols, history=history)


def stored_row_of(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], *, history: bool = False
) -> Row | None:
    """Return what `stored_row` returns for a fact of a relation, by its symbols."""
    if 0 in symbols:
        return None
    ids = stored.relation.locate(symbols, 1)
    if ids[0] == NO_ROW:
        return None
    has_ended = bool(stored.limited) and next(stored.windows(ids))[1] <= tenant.at(0)
    if has_ended and (not history or stored.relation.attributes(Attribute.TTL, ids)[0]):
        return None
    row = stored.rows(tenant.engine, symbols, ids)[0]
    if history:
        metadata = stored.metadata.get(tuple(symbols), {})
        row["metadata"] = dict(
            with_restated(
                with_earlier(row["metadata"], earlier_of(metadata)), restated_of(metadata)
            )
        )
    return row


class Transactions:
    """All transactions of a node; ended ones are remembered for ten minutes.

    `count` is called with each outcome.
    """

    def __init__(
        self, config: Config, clock: Clock, count: Callable[[str], None] | None = None
    ) -> None:
        self._count = count
        self._config = config
        self._clock = clock
        self._mutex = threading.Lock()
        self._open: dict[str, Transaction] = {}
        self._ended: OrderedDict[str, tuple[float, Transaction]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, database: str, tenant: str, view: Labels = NO_LABELS) -> Transaction:
        """Open a transaction within a view; raises RateLimited when the tenant has too many."""
        self.expire()
        now = self._clock.monotonic()
        with self._mutex:
            open_count = sum(
                (each.database, each.tenant) == (database, tenant) for each in self._open.values()
            )
            if open_count >= (limit := self._config.tx_max_open):
                details = {"limit": "TX_MAX_OPEN", "value": limit, "open": open_count}
                raise RateLimited("too many open transactions in this tenant", 1.0, details)
            transaction = Transaction(secrets.token_hex(16), database, tenant, now, now, view=view)
            self._open[transaction.id] = transaction
        return transaction

    def find(self, database: str, tenant: str, id: str, known: Tenant | None) -> Transaction:
        """Return an open transaction; `known` is the tenant, if it exists.

        Raises UnknownTransaction, also for an id of another tenant, and Conflict with the state of
        an ended one.
        """
        self.expire()
        with self._mutex:
            transaction = self._open.get(id) or self._ended.get(id, (0.0, None))[1]
        if transaction is not None and (transaction.database, transaction.tenant) == (
            database,
            tenant,
        ):
            if transaction.uncertain and known is not None and self._is_committed(known, id):
                with transaction.operation:
                    if transaction.state is TransactionState.OPEN:
                        self.end(transaction, TransactionState.COMMITTED)
            if transaction.state is TransactionState.OPEN:
                return transaction
            raise ended(id, transaction.state)
        if known is not None and self._is_committed(known, id):
            raise ended(id, TransactionState.COMMITTED)
        raise UnknownTransaction(id)

    def _is_committed(self, tenant: Tenant, id: str) -> bool:
        with tenant.lock.read():
            return tenant.committed.known(id, self._clock.now_ms())

    def end(self, transaction: Transaction, state: TransactionState) -> None:
        """End a transaction; the caller holds its `operation`."""
        transaction.end(state)
        with self._mutex:
            if self._open.pop(transaction.id, None) is not None:
                self._ended[transaction.id] = (self._clock.monotonic(), transaction)
                if self._count is not None:
                    self._count(state.value)
            self._forget()

    def fail(self, database: str, tenant: str | None) -> None:
        """End the open transactions of a tenant (None: of all tenants) that was deleted or
        emptied.
        """
        with self._mutex:
            affected = [
                each
                for each in self._open.values()
                if each.database == database and tenant in (None, each.tenant)
            ]
        for transaction in affected:
            with transaction.operation:
                if transaction.state is TransactionState.OPEN:
                    self.end(transaction, TransactionState.ROLLED_BACK)

    def expire(self) -> None:
        """End transactions that are idle for too long or too old, and that no thread works on."""
        for transaction in self._overdue():
            if transaction.operation.acquire(blocking=False):
                try:
                    if transaction.state is TransactionState.OPEN:
                        self.end(transaction, TransactionState.EXPIRED)
                finally:
                    transaction.operation.release()

    def _overdue(self) -> Iterator[Transaction]:
        now = self._clock.monotonic()
        with self._mutex:
            every = list(self._open.values())
            self._forget()
        for each in every:
            idle, life = (now - each.used) * 1000, (now - each.began) * 1000
            if idle >= self._config.tx_idle_ms or life >= self._config.tx_life_ms:
                yield each

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._ended and (
            len(self._ended) > COMMITTED_KEPT_IDS
            or (now - next(iter(self._ended.values()))[0]) * 1000 > COMMITTED_KEPT_MS
        ):
            self._ended.popitem(last=False)


def ended(id: str, state: TransactionState) -> Conflict:
    """Return the error for a transaction that has ended."""
    return Conflict(
        f"the transaction is {state.value.replace('_', ' ')}",
        {"transaction": id, "state": state.value},
    )


def _relation(name: FactName) -> RelationName:
    return name[0], name[1], len(name[2])
