"""One tenant: engine, partitions, rules, and the times at which facts become valid or expire."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from kbcore.errors import KBError
from kbcore.state.access import Accesses
from kbcore.state.episodes.episodes import StoredEpisodes
from kbcore.state.episodes.erased import ErasedEpisodes
from kbcore.state.episodes.purges import Purges
from kbcore.state.idempotency import AnsweredRequests, CommittedTransactions
from kbcore.state.intervals import EARLIER_KEY, earlier_of
from kbcore.state.locks import ReadWriteLock
from kbcore.state.partition import (
    NEVER_KEPT,
    Partition,
    RowKey,
    StoredRelation,
)
from kbcore.state.record_chain import RecordChain
from kbcore.state.rule_sets import RuleSets
from kbcore.state.rulebook import RuleBook
from kbcore.state.subscriptions import Subscriptions
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, Engine
from kbplanner.evaluate.evaluate import PlanCache
from kbplanner.evaluate.settle import Models
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, paced, sorted_in_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, MutableMapping

    from kbcore.state.changes import ChangeSet, Delta
    from kbcore.state.labels import Labels

ALL_SCOPES = "*"

NO_INPUTS = 0, 0
"""`inputs_state` of a tenant that does not exist."""

_SERIAL = count(1)
"""Identifies the tenants of a process; a tenant that was emptied gets a new number."""

PLAN_ROWS = 500
"""Number of changed rows after which plans are checked; a plan is rebuilt when a relation of 1000
rows or more has grown or shrunk tenfold."""


RELATIONS_PER_YIELD = 100
"""Relations without metadata copied or dropped between two calls of `yield_now`: about a
millisecond.
"""

PUSHES_PER_YIELD = 1000
"""Times pushed to the heap between two calls of `yield_now`: about a millisecond."""

MAX_HEAP_PUSHES = 1000
"""Largest number of times pushed to the heap one by one, so that a few facts never cost a heapify
of all times."""


class Attached(Protocol):
    """An object whose lifetime is bound to a tenant."""

    def close(self) -> None:
        """Release what the object holds of the engine."""


@runtime_checkable
class EndsWithTenant(Protocol):
    """An attached object that others wait for."""

    def tenant_ended(self) -> None:
        """Tell those who wait that the tenant was dropped or emptied.

        Must not block: writes wait for it. Readers may still use the object.
        """


_A = TypeVar("_A", bound=Attached)


class FollowingViews(Protocol):
    """States of views of a tenant."""

    def follow(self, changes: ChangeSet, delta: Delta, yield_now: YieldNow) -> None:
        """Follow what a change set has changed in the tenant; the caller holds its write lock."""


class Attachments:
    """Objects whose lifetime is bound to a tenant, at most one of each class.

    Each of them is made by the part of the program that needs it, which this package does not know.
    """

    def __init__(self) -> None:
        self._of: dict[type, Any] = {}

    def get(self, kind: type[_A]) -> _A | None:
        """Return the object of a class, or None."""
        known: _A | None = self._of.get(kind)
        return known

    def need(self, kind: type[_A], make: Callable[[], _A]) -> _A:
        """Return the object of a class, which `make` makes at the first call; no lock is needed."""
        known: _A | None = self._of.get(kind)
        if known is None:
            known = self._of.setdefault(kind, make())
        return known

    def pop(self, kind: type[_A]) -> _A | None:
        """Remove the object of a class without closing it; return it, or None."""
        removed: _A | None = self._of.pop(kind, None)
        return removed

    def clear(self) -> list[Attached]:
        """Remove all objects without closing them, and return them."""
        removed = list(self._of.values())
        self._of.clear()
        return removed


class Tenant:
    """The state of one tenant of one database.

    `find` returns the symbol of a constant in a goal, 0 for an unknown one. `lock` guards
    everything here; `backlog` holds durable changes not yet applied, in log order, and
    `has_new_inputs` is True while one of them declares inputs or withdraws them. `generation`
    counts applied change sets, `seq` is the sequence number of the last one in the log, `chain` the
    hash chain of their records. `version` increases with them and whenever a fact becomes valid or
    expires; `plan_version` when a plan may no longer be the best one: after a change of rules, of
    explicit negatives, or of many rows.
    `lost` counts the partitions that were deleted. `failed` is set when a durable change could not
    be applied: the state must not be trusted then. `gone` is True once the tenant was dropped or
    emptied; `attached` holds objects with the lifetime of the tenant. `accesses` are those
    not yet written to the cells; `read_at` is the start of the last read, in epoch milliseconds.
    `label_sets` are the different labels of what is stored, each with the generation of its last
    use; a snapshot drops those that nothing has any more. `episode_labels` are those of the
    episodes that have any; `views` are the states of views, which follow the changes.
    `observer` is called after each change set and each change of visibility, under the write lock.
    """

    def __init__(self, database: str, name: str, engine: Engine, created_at: int) -> None:
        self.database = database
        self.name = name
        self.engine = engine
        self.find: Callable[[str], int] = engine.find
        self.created_at = created_at
        self.lock = ReadWriteLock()
        self.backlog: deque[Callable[[], None]] = deque()
        self.has_new_inputs = False
        self.serial = next(_SERIAL)
        self.generation = 0
        self.seq = 0
        self.chain = RecordChain()
        self.version = 0
        self.plan_version = 0
        self._rows_changed = 0
        self._stamp = 0
        self.lost = 0
        self.failed: KBError | None = None
        self.committed = CommittedTransactions()
        self.answered = AnsweredRequests()
        self.episodes = StoredEpisodes()
        self.purges = Purges()
        self.erased = ErasedEpisodes()
        self.subscriptions = Subscriptions()
        self.rules = RuleBook()
        self.rule_sets = RuleSets()
        self.label_sets: dict[Labels, int] = {}
        self.episode_labels: MutableMapping[str, Labels] = {}
        self.views: FollowingViews | None = None
        self.gone = False
        self.attached = Attachments()
        self.accesses = Accesses()
        self.read_at = created_at
        self.observer: Callable[[], None] | None = None
        self.plans = PlanCache(engine)
        self.models = Models(engine)
        self._partitions: dict[str | None, Partition] = {None: Partition(engine, None)}
        self._nothing: dict[RelationSchema, StoredRelation] = {}
        self._now = 0
        self._moments: list[tuple[int, int, StoredRelation, RowKey]] = []
        self._counter = count()

    def use_labels(self, labels: Labels) -> None:
        """Note that something is stored with labels."""
        self.label_sets[labels] = self.generation

    def drop_unused_labels(self, generation: int, used: Collection[Labels]) -> None:
        """Forget the labels that nothing had in a generation, unless they were used since."""
        with self.lock.read():
            for labels, last in list(self.label_sets.items()):
                if last < generation and labels not in used:
                    del self.label_sets[labels]

    def writable_rules(self) -> RuleBook:
        """Return a rule book that may be changed."""
        return self.rules

    def writable_rule_sets(self) -> RuleSets:
        """Return the rule sets, which may be changed."""
        return self.rule_sets

    def partition(self, scope: str | None) -> Partition | None:
        """Return a partition, None if nothing was ever written to it."""
        return self._partitions.get(scope)

    def need_partition(self, scope: str | None) -> Partition:
        """Return a partition, created if it does not exist."""
        partition = self._partitions.get(scope)
        if partition is None:
            partition = self._partitions[scope] = Partition(self.engine, scope, self.lost)
        return partition

    def new_partition(self, scope: str | None) -> Partition:
        """Return an empty partition that is not stored.

        All of them share their relations and their goal tables.
        """
        return Partition(self.engine, scope, NEVER_KEPT, self._nothing)

    def lose_partition(self, scope: str, yield_now: YieldNow = go_on) -> Partition | None:
        """Remove and return a partition and drop its relations.

        None if nothing was ever written to it. `yield_now` is called about once a millisecond.

        Cached results stay in tables and models, under a key that no later partition of this name
        has.
        """
        lost = self._partitions.pop(scope, None)
        self.plan_version += 1
        if lost is not None:
            self.lost += 1
            limited = any(stored.limited for stored in lost.relations())
            for stored in paced(lost.relations(), yield_now, RELATIONS_PER_YIELD):
                stored.drop(yield_now)
            if limited:
                left = (moment for moment in paced(self._moments, yield_now) if not moment[2].gone)
                self._moments = sorted_in_parts(left, yield_now)  # which is a heap
        return lost

    def copy_partition(
        self, source: str | None, target: str, yield_now: YieldNow = go_on
    ) -> Partition:
        """Create a partition with the facts of another, including those not valid now.

        The target must be new. `yield_now` is called about once a millisecond.
        """
        partition = self.need_partition(target)
        copies: dict[int, StoredRelation] = {}
        known = self._partitions.get(source)
        relations = [] if known is None else known.relations()
        for stored in paced(relations, yield_now, RELATIONS_PER_YIELD):
            if live := stored.relation.counts().live:
                copy = partition.adopt(stored, yield_now)
                # A relation that has no labels any more is copied without its empty layers.
                layers = ((stored.layers[labels], each) for labels, each in copy.layers.items())
                for original, own in ((stored, copy), *layers):
                    own.scheduled = dict(paced(original.scheduled.items(), yield_now))
                    copies[id(original)] = own
                self.changed(live, copy)
        limited = [moment for moment in paced(self._moments, yield_now) if id(moment[2]) in copies]
        for at, _, stored, row in paced(limited, yield_now, PUSHES_PER_YIELD):
            moment = (at, next(self._counter), copies[id(stored)], row)
            heapq.heappush(self._moments, moment)
        return partition

    def unnoted(self) -> AbstractContextManager[None]:
        """Return a block in which a transaction does not record its reads.

        A tenant records none.
        """
        return nullcontext()

    def note_episodes(self, missing: str | None = None) -> None:
        """Do nothing: only a transaction records which episodes it has read."""

    def scopes(self) -> list[str]:
        """Return every scope that was written to or forked, or has its own rules, by name.

        The base has no name.
        """
        return sorted(
            scope for scope in {*self._partitions, *self.rules.scopes()} if scope is not None
        )

    def partitions(self, scope: str | None = ALL_SCOPES) -> list[Partition]:
        """Return the partition of a scope (none if never written to), or for "*" all partitions.

        The base, then by name.
        """
        if scope != ALL_SCOPES:
            partition = self._partitions.get(scope)
            return [partition] if partition else []
        return [
            self._partitions[key]
            for key in sorted(self._partitions, key=lambda name: (name is not None, name or ""))
        ]

    @property
    def inputs_state(self) -> tuple[int, int]:
        """Two numbers that change when an input is declared or withdrawn, and with the tenant."""
        return self.serial, self.rules.inputs_version

    @property
    def stored_bytes(self) -> int:
        """Approximate memory of facts, rules, rule sets, episodes and subscriptions, in bytes.

        The caller holds the read lock.
        """
        entries = self.rules, self.rule_sets, self.episodes, self.subscriptions
        return self.engine.bytes + sum(each.bytes for each in entries)

    def facts(self) -> int:
        """Count the facts stored in all partitions."""
        return sum(partition.live() for partition in self.partitions())

    # -- time --------------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """Return the next time at which the visibility of a fact may change (epoch
        milliseconds).
        """
        return self._moments[0][0] if self._moments else None

    def due(self, now: int) -> bool:
        """Return True if the visibility of a fact changes at or before `now` and has not been
        updated.
        """
        return bool(self._moments) and self._moments[0][0] <= max(now, self._now)

    def advance(self, now: int) -> None:
        """Update the visibility of facts to `now` (epoch milliseconds).

        An earlier time changes nothing.
        """
        self._now = max(now, self._now)
        while self._moments and self._moments[0][0] <= self._now:
            at, _, relation, row = heapq.heappop(self._moments)
            if relation.scheduled.get(row) != at:
                continue  # an earlier check was scheduled after this one and has run
            del relation.scheduled[row]
            self.limit(relation, row)
            self.version += 1

    def limit(self, relation: StoredRelation, row: RowKey) -> None:
        """Show or hide a fact with a validity window as of the current time, and schedule its next
        change.
        """
        if relation.gone:
            return
        symbols = array("I", row)
        ids = relation.relation.locate(symbols, 1)
        if ids[0] == NO_ROW:
            relation.limited.discard(row)
            return
        newest = next(relation.windows(ids))
        earlier = earlier_of(relation.metadata.get(row, {})) if relation.metadata else ()
        spans = [newest, *((each.start, each.end) for each in earlier)]
        valid = any(start <= self._now < end for start, end in spans)
        relation.expired.discard(row)
        relation.lapsed.discard(row)
        if newest[1] <= self._now:
            relation.expired.add(row)
            if not earlier and relation.relation.attributes(Attribute.TTL, ids)[0]:
                relation.lapsed.add(row)
        if relation.hide(symbols, ids, not valid):
            self.changed(1, relation)
        following = min(
            (
                bound
                for start, end in spans
                if start < end
                for bound in (start, end)
                if bound > self._now
            ),
            default=FOREVER,
        )
        # A fact asserted repeatedly with a ttl has one entry: the check at its earlier end
        # schedules the next.
        if self._now < following < min(relation.scheduled.get(row, FOREVER), FOREVER):
            relation.scheduled[row] = following
            heapq.heappush(self._moments, (following, next(self._counter), relation, row))

    def limit_many(self, relation: StoredRelation, rows: Sequence[RowKey], ids: array[int]) -> None:
        """Do what `limit` does for many stored facts, each once, which have a validity window."""
        now = self._now
        valid, hidden, expired = list[int](), list[int](), list[int]()
        scheduled = list[tuple[int, int, StoredRelation, RowKey]]()
        several = set[int]()
        for index, (start, end) in enumerate(relation.windows(ids)):
            row, is_valid = rows[index], start <= now < end
            following = FOREVER if start == end else start if now < start else end
            earlier = relation.metadata.get(row, {}).get(EARLIER_KEY) if relation.metadata else None
            if earlier:
                several.add(index)
                bounds = [bound for each in earlier for bound in each[:2] if bound > now]
                following = min([each for each in (following, *bounds) if each > now] or [FOREVER])
                is_valid = is_valid or any(each[0] <= now < each[1] for each in earlier)
            (valid if is_valid else hidden).append(index)
            if end <= now:
                expired.append(index)
            if now < following < min(relation.scheduled.get(row, FOREVER), FOREVER):
                relation.scheduled[row] = following
                scheduled.append((following, next(self._counter), relation, row))
        relation.limited.update(rows)
        relation.expired.difference_update(rows)
        relation.lapsed.difference_update(rows)
        relation.expired.update(rows[index] for index in expired)
        lives = relation.relation.attributes(
            Attribute.TTL, array("I", [ids[index] for index in expired])
        )
        relation.lapsed.update(
            rows[index]
            for index, ttl in zip(expired, lives, strict=True)
            if ttl and index not in several
        )
        self._show(relation, [(rows[index], ids[index]) for index in hidden], hidden=True)
        self._show(relation, [(rows[index], ids[index]) for index in valid], hidden=False)
        if len(scheduled) > MAX_HEAP_PUSHES:
            self._moments += scheduled
            heapq.heapify(self._moments)
        else:
            for moment in scheduled:
                heapq.heappush(self._moments, moment)

    def _show(
        self, relation: StoredRelation, rows: Sequence[tuple[RowKey, int]], *, hidden: bool
    ) -> None:
        """Hide those of some stored facts that are visible, or show those that are not."""
        if not rows:
            return
        symbols = array("I", [symbol for row, _ in rows for symbol in row])
        visible = set(relation.relation.match_many(symbols, len(rows))[0])
        changing = [(row, id) for row, id in rows if (id in visible) == hidden]
        if changing:
            symbols = array("I", [symbol for row, _ in changing for symbol in row])
            relation.hide(symbols, array("I", [id for _, id in changing]), hidden)
            self.changed(len(changing), relation)

    def changed(self, rows: int, relation: StoredRelation) -> None:
        """Record that `rows` rows were added, removed, shown or hidden.

        0 if only their attributes changed.
        """
        self._stamp += 1
        relation.version = self._stamp
        self._rows_changed += rows
        if not relation.schema.positive or self._rows_changed >= PLAN_ROWS:
            self._rows_changed = 0
            self.plan_version += 1

    def at(self, now: int) -> int:
        """Return the time of this tenant, at least `now`."""
        return max(now, self._now)

    def stored(self) -> Iterator[tuple[Partition, StoredRelation]]:
        """Yield every stored relation with its partition."""
        for partition in self.partitions():
            for relation in partition.relations():
                yield partition, relation

    def predicates(self) -> set[RelationSchema]:
        """Return the stored schemas that have facts."""
        return {relation.schema for _, relation in self.stored() if relation.relation.counts().live}
