"""One tenant: an engine, partitions of facts, rules, and the moments at which facts begin or cease to hold."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from kbcore.errors import KBError
from kbcore.state.locks import ReadWriteLock
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbcore.state.rulebook import RuleBook
from kbplanner.backend import FOREVER, NO_ROW, Engine
from kbplanner.evaluate import PlanCache
from kbplanner.schema import RelationSchema
from kbplanner.settle import Models

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_SCOPES = "*"

PLAN_ROWS = 500
"""Changed rows after which plans are looked at again; a plan is made anew when a relation of 1000 rows or more has moved
tenfold."""


class Tenant:
    """The state of one tenant of one database.

    `lock` guards everything here; `backlog` holds durable changes not applied yet, in log order. `generation` counts
    applied change sets; `version` rises with them and with every fact that begins or ceases to hold; `plan_version` when
    a plan may not be the right one any more: with rules, with explicit negatives, with many rows. `failed` is set when a
    durable change could not be applied: then nothing here may be trusted.
    """

    def __init__(self, database: str, name: str, engine: Engine, created_at: int) -> None:
        self.database = database
        self.name = name
        self.engine = engine
        self.created_at = created_at
        self.lock = ReadWriteLock()
        self.backlog: deque[Callable[[], None]] = deque()
        self.generation = 0
        self.version = 0
        self.plan_version = 0
        self._rows_changed = 0
        self.failed: KBError | None = None
        self.rules = RuleBook()
        self.plans = PlanCache(engine)
        self.models = Models(engine)
        self._partitions: dict[str | None, Partition] = {None: Partition(engine, None)}
        self._now = 0
        self._moments: list[tuple[int, int, StoredRelation, RowKey]] = []
        self._counter = count()

    def partition(self, scope: str | None) -> Partition | None:
        """A partition, None if nothing was ever written there."""
        return self._partitions.get(scope)

    def need_partition(self, scope: str | None) -> Partition:
        """A partition, made if new."""
        found = self._partitions.get(scope)
        if found is None:
            found = self._partitions[scope] = Partition(self.engine, scope)
        return found

    def partitions(self, scope: str | None = ALL_SCOPES) -> list[Partition]:
        """The asked partition (none if nothing was ever written there), or for "*" all: the base, then by name."""
        if scope != ALL_SCOPES:
            found = self._partitions.get(scope)
            return [found] if found else []
        return [self._partitions[key] for key in sorted(self._partitions, key=lambda name: (name is not None, name or ""))]

    def facts(self) -> int:
        """Facts stored in all partitions."""
        return sum(partition.live() for partition in self._partitions.values())

    # -- time ---------------------------------------------------------------------------------------------------------

    def due(self, now: int) -> bool:
        """Whether some fact begins or ceases to hold at or before `now` and has not been brought up to date."""
        return bool(self._moments) and self._moments[0][0] <= max(now, self._now)

    def advance(self, now: int) -> None:
        """Bring the visibility of facts to `now` (epoch milliseconds); a clock that goes back changes nothing."""
        self._now = max(now, self._now)
        while self._moments and self._moments[0][0] <= self._now:
            _, _, relation, row = heapq.heappop(self._moments)
            self.limit(relation, row)
            self.version += 1

    def limit(self, relation: StoredRelation, row: RowKey) -> None:
        """Show or hide a fact with a validity window as the time says, and note when that changes next."""
        symbols = array("I", row)
        ids = relation.relation.locate(symbols, 1)
        if ids[0] == NO_ROW:
            relation.limited.discard(row)
            return
        start, end = next(relation.windows(ids))
        valid = start <= self._now < end
        if relation.relation.hide(symbols, 1, not valid):
            self.changed(1, relation.schema)
        following = start if self._now < start else end
        if following > self._now and following != FOREVER:
            heapq.heappush(self._moments, (following, next(self._counter), relation, row))

    def changed(self, rows: int, schema: RelationSchema) -> None:
        """So many rows of a stored relation came, went, or were shown or hidden."""
        self._rows_changed += rows
        if not schema.positive or self._rows_changed >= PLAN_ROWS:
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
