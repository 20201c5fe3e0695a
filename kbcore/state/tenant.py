"""One tenant: an engine, partitions of facts, rules, and the moments at which facts begin or cease to hold."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Protocol

from kbcore.errors import KBError
from kbcore.state.access import Accesses
from kbcore.state.finished_transactions import CommittedTransactions
from kbcore.state.idempotency import AnsweredRequests
from kbcore.state.locks import ReadWriteLock
from kbcore.state.partition import FLIP_HIDDEN, FLIP_SHOWN, NEVER_KEPT, Partition, RowKey, StoredRelation
from kbcore.state.rulebook import RuleBook
from kbplanner.engine.backend import FOREVER, NO_ROW, Engine
from kbplanner.evaluate.evaluate import PlanCache
from kbplanner.evaluate.settle import Models
from kbplanner.ir.schema import RelationSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_SCOPES = "*"

_SERIAL = count(1)
"""Tells tenants of a process apart, also one that was emptied from what it was before."""

PLAN_ROWS = 500
"""Changed rows after which plans are looked at again; a plan is made anew when a relation of 1000 rows or more has moved
tenfold."""


FEW_MOMENTS = 1000
"""Moments that are put in order one by one, so that a few facts never cost a look at all of a tenant's moments."""


class Attached(Protocol):
    """What is kept beside a tenant for as long as there is one."""

    def close(self) -> None:
        """Give back what it holds of the engine."""


class Tenant:
    """The state of one tenant of one database.

    `find` gives the symbol of a constant in a goal, 0 where nothing has it. `lock` guards everything here; `backlog` holds
    durable changes not applied yet, in log order. `generation` counts applied change sets, `seq` is the place in the log of
    the last one; `version` rises with them and with every fact that begins or ceases to hold; `plan_version` when a plan may
    not be the right one any more: with rules, with explicit negatives, with many rows; `lost` counts the partitions
    that were deleted. `failed` is set when a durable change could not be applied: then nothing here may be trusted. `gone`
    says that the tenant was dropped or emptied; `attached` is what others keep beside it for as long as there is one.
    `accesses` are those of facts that are not written yet; `read_at` is when the last read began, in epoch milliseconds.
    """

    def __init__(self, database: str, name: str, engine: Engine, created_at: int) -> None:
        self.database = database
        self.name = name
        self.engine = engine
        self.find: Callable[[str], int] = engine.find
        self.created_at = created_at
        self.lock = ReadWriteLock()
        self.backlog: deque[Callable[[], None]] = deque()
        self.serial = next(_SERIAL)
        self.generation = 0
        self.seq = 0
        self.version = 0
        self.plan_version = 0
        self._rows_changed = 0
        self._stamp = 0
        self.lost = 0
        self.failed: KBError | None = None
        self.committed = CommittedTransactions()
        self.answered = AnsweredRequests()
        self.rules = RuleBook()
        self.gone = False
        self.attached: dict[str, Attached] = {}
        self.accesses = Accesses()
        self.read_at = created_at
        self.plans = PlanCache(engine)
        self.models = Models(engine)
        self._partitions: dict[str | None, Partition] = {None: Partition(engine, None)}
        self._nothing: dict[RelationSchema, StoredRelation] = {}
        self._now = 0
        self._moments: list[tuple[int, int, StoredRelation, RowKey]] = []
        self._counter = count()

    def writable_rules(self) -> RuleBook:
        """The rules, to be changed."""
        return self.rules

    def partition(self, scope: str | None) -> Partition | None:
        """A partition, None if nothing was ever written there."""
        return self._partitions.get(scope)

    def need_partition(self, scope: str | None) -> Partition:
        """A partition, made if new."""
        found = self._partitions.get(scope)
        if found is None:
            found = self._partitions[scope] = Partition(self.engine, scope, self.lost)
        return found

    def new_partition(self, scope: str | None) -> Partition:
        """An empty partition that is not kept; all such share their relations and their goal tables."""
        return Partition(self.engine, scope, NEVER_KEPT, self._nothing)

    def lose_partition(self, scope: str) -> Partition | None:
        """Let go of a partition and give back what it holds; None if nothing was ever written there.

        What was worked out from it stays in tables and models, under a key that no later partition of this name has.
        """
        lost = self._partitions.pop(scope, None)
        self.plan_version += 1
        if lost is not None:
            self.lost += 1
            for stored in lost.relations():
                stored.drop()
            self._moments = [moment for moment in self._moments if not moment[2].gone]
            heapq.heapify(self._moments)
        return lost

    def copy_partition(self, source: str | None, target: str) -> Partition:
        """Make a partition that holds the facts of another, those too that are not valid now; the target is new."""
        made = self.need_partition(target)
        copies: dict[int, StoredRelation] = {}
        known = self._partitions.get(source)
        for stored in () if known is None else known.relations():
            if live := stored.relation.counts().live:
                copies[id(stored)] = copy = made.adopt(stored)
                copy.scheduled = dict(stored.scheduled)
                self.changed(live, copy)
        limited = [moment for moment in self._moments if id(moment[2]) in copies]
        self._moments += [(at, next(self._counter), copies[id(stored)], row) for at, _, stored, row in limited]
        heapq.heapify(self._moments)
        return made

    def unnoted(self) -> AbstractContextManager[None]:
        """Return a block in which a transaction does not note its reads; a tenant notes none."""
        return nullcontext()

    def scopes(self) -> list[str]:
        """Every scope that was written to or forked, or has rules of its own, by name; the base is none."""
        return sorted(scope for scope in {*self._partitions, *self.rules.scopes()} if scope is not None)

    def partitions(self, scope: str | None = ALL_SCOPES) -> list[Partition]:
        """The asked partition (none if nothing was ever written there), or for "*" all: the base, then by name."""
        if scope != ALL_SCOPES:
            found = self._partitions.get(scope)
            return [found] if found else []
        return [self._partitions[key] for key in sorted(self._partitions, key=lambda name: (name is not None, name or ""))]

    def facts(self) -> int:
        """Facts stored in all partitions."""
        return sum(partition.live() for partition in self.partitions())

    # -- time ---------------------------------------------------------------------------------------------------------

    def due(self, now: int) -> bool:
        """Whether some fact begins or ceases to hold at or before `now` and has not been brought up to date."""
        return bool(self._moments) and self._moments[0][0] <= max(now, self._now)

    def advance(self, now: int) -> None:
        """Bring the visibility of facts to `now` (epoch milliseconds); a clock that goes back changes nothing."""
        self._now = max(now, self._now)
        while self._moments and self._moments[0][0] <= self._now:
            at, _, relation, row = heapq.heappop(self._moments)
            if relation.scheduled.get(row) != at:
                continue  # an earlier check was scheduled after this one and has been made
            del relation.scheduled[row]
            self.limit(relation, row)
            self.version += 1

    def limit(self, relation: StoredRelation, row: RowKey) -> None:
        """Show or hide a fact with a validity window as the time says, and note when that changes next."""
        if relation.gone:
            return
        symbols = array("I", row)
        ids = relation.relation.locate(symbols, 1)
        if ids[0] == NO_ROW:
            relation.limited.discard(row)
            return
        start, end = next(relation.windows(ids))
        valid = start <= self._now < end
        (relation.expired.add if end <= self._now else relation.expired.discard)(row)
        if relation.relation.hide(symbols, 1, not valid):
            relation.note(ids, FLIP_SHOWN if valid else FLIP_HIDDEN)
            self.changed(1, relation)
        following = start if self._now < start < end else end
        # A fact that is told again and again with a ttl has one entry: the check at its earlier end schedules the next.
        if self._now < following < min(relation.scheduled.get(row, FOREVER), FOREVER):
            relation.scheduled[row] = following
            heapq.heappush(self._moments, (following, next(self._counter), relation, row))

    def limit_new(self, relation: StoredRelation, rows: Sequence[RowKey], ids: array[int]) -> None:
        """What `limit` does, for facts that have just come, all of which are shown so far and have a window."""
        now, over, hidden, coming = self._now, list[RowKey](), list[int](), list[tuple[int, int, StoredRelation, RowKey]]()
        for place, (start, end) in enumerate(relation.windows(ids)):
            if not start <= now < end:
                hidden.append(place)
                if end <= now:
                    over.append(rows[place])
            following = start if now < start < end else end
            if now < following < min(relation.scheduled.get(rows[place], FOREVER), FOREVER):
                relation.scheduled[rows[place]] = following
                coming.append((following, next(self._counter), relation, rows[place]))
        relation.limited.update(rows)
        relation.expired.update(over)
        if hidden:
            relation.relation.hide(array("I", [symbol for place in hidden for symbol in rows[place]]), len(hidden), True)
            relation.note(array("I", [ids[place] for place in hidden]), FLIP_HIDDEN)
            self.changed(len(hidden), relation)
        if len(coming) > FEW_MOMENTS:
            self._moments += coming
            heapq.heapify(self._moments)
        else:
            for moment in coming:
                heapq.heappush(self._moments, moment)

    def changed(self, rows: int, relation: StoredRelation) -> None:
        """So many rows of a stored relation came, went, or were shown or hidden; none if only what they carry changed."""
        self._stamp += 1
        relation.version = self._stamp
        self._rows_changed += rows
        if not relation.schema.positive or self._rows_changed >= PLAN_ROWS:
            self._rows_changed = 0
            self.plan_version += 1

    def at(self, now: int) -> int:
        """The time this tenant has come to, at least `now`."""
        return max(now, self._now)

    def stored(self) -> Iterator[tuple[Partition, StoredRelation]]:
        """Every stored relation with its partition."""
        for partition in self.partitions():
            for relation in partition.relations():
                yield partition, relation

    def predicates(self) -> set[RelationSchema]:
        """Stored schemas that have facts."""
        return {relation.schema for _, relation in self.stored() if relation.relation.counts().live}
