"""Index of the vectors of a tenant's facts, updated when a search reads it.

A vector belongs to a text, so that equal facts of several scopes share it. The index knows for each
row of a relation the position of its vector. Rows without one are *missing*: they are given to the
embedder in batches, by the thread of `indexer` or, if they are few, by a search. A search compares
all visible vectors, or, if they are many, the candidates that `signs` chooses.
"""

from __future__ import annotations

import heapq
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from weakref import ref

from kbcore.search.vectors.signs import candidate_count
from kbcore.search.vectors.store import Digest, VectorEntry, VectorStore, digest_of
from kbcore.state.overlay import Overlay
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.engine.vectors import NO_POSITION, NearestSearch, Quantized

TextOf = Callable[[str, Sequence[str], bool], str]
"""The text of a fact for an embedder, from its predicate, arguments and whether it is negated."""

Pause = Callable[[], None]
"""Called between batches; may raise to end the work, and what was done stays done."""

Near = tuple[StoredRelation, int, float]
"""A fact: its relation, its row id while the read lock is held, its cosine to the query."""

BATCH_ROWS = 2000
"""Rows that are looked up between two calls of `Pause`."""

SEARCH_ROWS = 1 << 16
"""Vectors compared in a single call of the engine: about two milliseconds."""

MAX_SHELVES = 64
"""Partitions whose arrays of positions are kept."""

MAX_QUERIES = 256
"""Vectors of recent queries that are kept."""


class Missing(NamedTuple):
    """A fact whose text has no vector yet."""

    part: VectorPart
    row: int
    digest: Digest
    text: str


class VectorPart:
    """The facts of one relation: positions by row id, and the rows that have none, oldest first.

    `live` is the number of stored rows when it was last read; `stale` is True if rows were removed
    since their positions were released. `counts` is False for a relation of a transaction, which
    does not keep vectors: what was purged must go although a transaction has a copy of it.
    """

    def __init__(self, stored: StoredRelation, *, counts: bool) -> None:
        self.stored = ref(stored)  # a weak reference: the index must not keep the relation alive
        self.renumbered = stored.renumbered
        self.positions = array("I")
        self.missing = array("I")
        self.live = 0
        self.stale = False
        self.alive = True
        self.counts = counts


class _Shelf(NamedTuple):
    """The visible facts of a partition in one array of positions, and where each relation
    begins.
    """

    version: int
    revision: int
    positions: array[int]
    starts: list[int]
    owners: list[tuple[VectorPart, array[int] | None]]


class VectorIndex:
    """The vectors of one tenant; the caller holds the tenant's read lock unless a method says
    otherwise.

    `revision` rises whenever facts get vectors. A transaction uses the index of its base tenant.
    """

    def __init__(self, dimension: int, max_bytes: int, text_of: TextOf) -> None:
        self.store = VectorStore(dimension, max_bytes)
        self.revision = 0
        self.unsaved: list[Digest] = []
        self._text_of = text_of
        self._mutex = threading.Lock()
        self._parts: dict[int, VectorPart] = {}
        self._shelves: OrderedDict[str | None, _Shelf] = OrderedDict()
        self._queries: OrderedDict[str, Quantized] = OrderedDict()

    @classmethod
    def of(cls, tenant: Tenant) -> VectorIndex | None:
        """Return the index of a tenant, None if it has none yet; no lock is needed."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        return home.attached.get(cls)

    @classmethod
    def need(cls, tenant: Tenant, dimension: int, max_bytes: int, text_of: TextOf) -> VectorIndex:
        """Return the index of a tenant, created empty if it does not exist; no lock is needed."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        return home.attached.need(cls, lambda: cls(dimension, max_bytes, text_of))

    def close(self) -> None:
        """Remove everything."""
        with self._mutex:
            self._parts.clear()
            self._shelves.clear()
            self._queries.clear()

    # -- queries -----------------------------------------------------------------------------------

    def query(self, text: str) -> Quantized | None:
        """Return the vector of a recent query; no lock is needed."""
        with self._mutex:
            known = self._queries.get(text)
            if known is not None:
                self._queries.move_to_end(text)
            return known

    def keep_query(self, text: str, vector: Quantized) -> None:
        """Keep the vector of a query; no lock is needed."""
        with self._mutex:
            self._queries[text] = vector
            while len(self._queries) > MAX_QUERIES:
                self._queries.popitem(last=False)

    def forget_queries(self) -> None:
        """Forget the queries, which may name what was purged; no lock is needed."""
        with self._mutex:
            self._queries.clear()

    def search(
        self,
        tenant: Tenant,
        partition: Partition,
        query: Quantized,
        k: int,
        pause: Pause,
        *,
        predicates: Container[str] | None = None,
        least: float = 0.0,
    ) -> list[Near]:
        """Return the `k` visible facts of a partition nearest to a query, nearest first.

        Facts whose text has no vector yet are left out, and those with a cosine below `least`.
        Among many facts a few of the nearest may be missing (`signs`). Ties are ordered by
        predicate, arity and sign, then by age, oldest first.
        """
        relations = _ordered(partition, predicates)
        with self._mutex:
            self._update(tenant, relations, pause)
            visible, starts, owners = self._shelf(tenant, partition, relations, predicates)
            chosen = self._candidates(tenant, query, visible, k, pause)
            positions = visible if chosen is None else array("I", map(visible.__getitem__, chosen))
            hits: list[tuple[float, int]] = []
            for start in range(0, len(positions), SEARCH_ROWS):
                chunk = (
                    positions
                    if len(positions) <= SEARCH_ROWS
                    else positions[start : start + SEARCH_ROWS]
                )
                indexes, scores = self._nearest(tenant, query, chunk, k, least)
                hits += [(-score, start + at) for at, score in zip(indexes, scores, strict=True)]
                if len(chunk) < len(positions):
                    hits = heapq.nsmallest(k, hits)
                    if len(hits) == k:
                        least = max(least, -hits[-1][0])
                    pause()
            return [
                _fact(negative, at if chosen is None else chosen[at], starts, owners)
                for negative, at in hits
            ]

    def cosines(
        self, tenant: Tenant, facts: Iterable[tuple[StoredRelation, int]], query: Quantized
    ) -> Mapping[tuple[StoredRelation, int], float]:
        """Return the cosines of facts to a query, without those that have no vector yet.

        Their relations were searched before, under the same lock.
        """
        facts = list(facts)
        with self._mutex:
            positions = array("I")
            for stored, row in facts:
                part = self._part(stored)
                known = part is not None and row < len(part.positions)
                positions.append(part.positions[row] if part is not None and known else NO_POSITION)
            indexes, scores = self._nearest(tenant, query, positions, len(positions), -2.0)
            return {facts[at]: score for at, score in zip(indexes, scores, strict=True)}

    def _candidates(
        self, tenant: Tenant, query: Quantized, visible: array[int], k: int, pause: Pause
    ) -> array[int] | None:
        """Return the indexes of the visible positions to compare, in order; None: all."""
        count = candidate_count(len(visible), self.store.dimension, k)
        if count is None:
            return None
        self.store.signs.update(tenant.engine, self.store.vectors, pause)
        return self.store.signs.candidates(tenant.engine, query, visible, count, pause)

    def _nearest(
        self, tenant: Tenant, query: Quantized, positions: array[int], k: int, least: float
    ) -> tuple[array[int], array[float]]:
        search = NearestSearch(self.store.cells, self.store.factors, query, least)
        return tenant.engine.nearest(search, positions, k)

    # -- the vectors of facts ----------------------------------------------------------------------

    def update(self, tenant: Tenant, partitions: Iterable[Partition], pause: Pause) -> None:
        """Look up the vectors of facts that are new."""
        for partition in partitions:
            with self._mutex:
                self._update(tenant, partition.relations(), pause)

    def missing(
        self, tenant: Tenant, partitions: Iterable[Partition], limit: int, *, newest: bool = False
    ) -> list[Missing]:
        """Return facts of partitions without a vector, oldest or newest first, each text once.

        The partitions were given to `update` before, under the same lock.
        """
        with self._mutex:
            parts = [part for part in self._parts_of(partitions) if part.missing]
            if newest:
                last = [
                    (-at, -row, order, part)
                    for order, part in enumerate(parts)
                    for row, at in self._created(part, limit)
                ]
                chosen = [(part, -row) for _, row, _, part in heapq.nsmallest(limit, last)]
            else:
                chosen = []
                for part in parts:
                    self._release_removed(part)
                    chosen += [(part, row) for row in part.missing[: limit - len(chosen)]]
                    if len(chosen) >= limit:
                        break
            return self._described(tenant, chosen)

    def backlog(self, partitions: Iterable[Partition]) -> int:
        """Return how many facts of partitions have no vector, as of the last `update`."""
        with self._mutex:
            return sum(len(part.missing) for part in self._parts_of(partitions))

    def add(
        self,
        tenant: Tenant,
        partitions: Sequence[Partition],
        facts: Sequence[Missing],
        entries: Sequence[VectorEntry],
    ) -> None:
        """Store the vectors of facts of partitions, or of the first ones, unless they were
        removed.
        """
        with self._mutex:
            for partition in partitions:
                self._update(tenant, partition.relations(), _no_pause)
            for fact, entry in zip(facts, entries, strict=False):
                self._release_removed(fact.part)
                rows = fact.part.missing
                at = bisect_left(rows, fact.row)
                if not fact.part.alive or at == len(rows) or rows[at] != fact.row:
                    continue
                before = len(self.store)
                position = self.store.add(entry)
                if position == NO_POSITION:
                    break
                if len(self.store) > before and fact.part.counts:
                    self.unsaved.append(entry.digest)
                self._set(fact.part, fact.row, position)
            self._trim({id(fact.part): fact.part for fact in facts}.values())
            self.revision += 1

    def load(self, entries: Iterable[VectorEntry]) -> None:
        """Store vectors that were saved earlier; no lock is needed."""
        with self._mutex:
            for entry in entries:
                self.store.add(entry)

    def take_unsaved(self) -> list[VectorEntry]:
        """Return the vectors that were not returned before; no lock is needed."""
        with self._mutex:
            digests, self.unsaved = self.unsaved, []
            return list(self.store.chosen(digests))

    def all_entries(self) -> list[VectorEntry]:
        """Return every vector, and none of them again as unsaved; no lock is needed."""
        with self._mutex:
            self.unsaved = []
            return list(self.store.entries())

    def drop_unused(self, tenant: Tenant) -> int:
        """Remove the vectors of facts that are not stored any more; return their number.

        All partitions of the tenant were given to `update` before, under the same lock.
        """
        with self._mutex:
            for key, part in list(self._parts.items()):
                stored = part.stored()
                if stored is None or stored.gone:
                    self._discard(key)
            for part in self._parts_of(tenant.partitions()):
                self._release_removed(part)
            if self.store.has_unused:
                for key, part in list(self._parts.items()):
                    if not part.counts:
                        self._discard(key)
            return self.store.drop_unused()

    def _parts_of(self, partitions: Iterable[Partition]) -> list[VectorPart]:
        return [
            part
            for partition in partitions
            for stored in partition.relations()
            if (part := self._part(stored)) is not None
        ]

    def _part(self, stored: StoredRelation) -> VectorPart | None:
        part = self._parts.get(id(stored))
        return part if part is not None and part.stored() is stored else None

    def _update(self, tenant: Tenant, relations: Iterable[StoredRelation], pause: Pause) -> None:
        for stored in relations:
            part = self._part(stored)
            if part is None or part.renumbered != stored.renumbered:
                if id(stored) in self._parts:
                    self._discard(id(stored))
                part = self._parts[id(stored)] = VectorPart(
                    stored, counts=_is_stored(tenant, stored)
                )
            counts = stored.relation.counts()
            if counts.rows == len(part.positions) and counts.live == part.live:
                continue
            if counts.live - part.live == counts.rows - len(part.positions):
                new = array("I", range(len(part.positions), counts.rows))
            else:  # rows were removed, perhaps new ones among them
                part.stale = True
                _, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
                new = ids[bisect_left(ids, len(part.positions)) :]
            self._look_up(tenant, part, stored, new, pause)
            part.positions.extend([NO_POSITION] * (counts.rows - len(part.positions)))
            part.live = counts.live

    def _look_up(
        self,
        tenant: Tenant,
        part: VectorPart,
        stored: StoredRelation,
        new: array[int],
        pause: Pause,
    ) -> None:
        for start in range(0, len(new), BATCH_ROWS):
            ids = new[start : start + BATCH_ROWS]
            part.positions.extend([NO_POSITION] * (ids[-1] + 1 - len(part.positions)))
            for row, text in zip(ids, self._texts(tenant, stored, ids), strict=True):
                position = self.store.position(digest_of(text))
                if position == NO_POSITION:
                    part.missing.append(row)
                else:
                    self._set(part, row, position)
            part.live += len(ids)
            self.revision += 1
            if start + BATCH_ROWS < len(new):
                pause()

    def _texts(self, tenant: Tenant, stored: StoredRelation, ids: array[int]) -> Iterator[str]:
        schema = stored.schema
        texts = tenant.engine.texts(stored.relation.rows(ids))
        for at in range(len(ids)):
            args = texts[at * schema.arity : (at + 1) * schema.arity]
            yield self._text_of(schema.predicate, args, not schema.positive)

    def _described(self, tenant: Tenant, chosen: Sequence[tuple[VectorPart, int]]) -> list[Missing]:
        groups: dict[int, tuple[VectorPart, array[int]]] = {}
        for part, row in chosen:
            groups.setdefault(id(part), (part, array("I")))[1].append(row)
        described: dict[Digest, Missing] = {}
        for part, rows in groups.values():
            stored = cast(StoredRelation, part.stored())
            for row, text in zip(rows, self._texts(tenant, stored, rows), strict=True):
                digest = digest_of(text)
                if (position := self.store.position(digest)) != NO_POSITION:
                    self._set(part, row, position)
                else:
                    described.setdefault(digest, Missing(part, row, digest, text))
            self._trim([part])
        return list(described.values())

    def _set(self, part: VectorPart, row: int, position: int) -> None:
        if part.alive and row < len(part.positions) and part.positions[row] == NO_POSITION:
            part.positions[row] = position
            if part.counts:
                self.store.use(position)

    @staticmethod
    def _trim(parts: Iterable[VectorPart]) -> None:
        """Remove the rows at both ends of the missing ones that have a vector by now."""
        for part in parts:
            missing, positions = part.missing, part.positions
            start, end = 0, len(missing)
            while start < end and positions[missing[start]] != NO_POSITION:
                start += 1
            while end > start and positions[missing[end - 1]] != NO_POSITION:
                end -= 1
            if end - start < len(missing):
                part.missing = missing[start:end]

    def _release_removed(self, part: VectorPart) -> None:
        """Release the positions of rows that were removed, if there are any."""
        stored = part.stored()
        if not part.stale or stored is None:
            return
        _, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
        left = set(ids)
        for row in set(range(len(part.positions))).difference(left):
            if (position := part.positions[row]) != NO_POSITION:
                if part.counts:
                    self.store.release(position)
                part.positions[row] = NO_POSITION
        part.missing = array("I", [row for row in part.missing if row in left])
        part.stale = False

    def _created(self, part: VectorPart, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the newest rows without a vector, with their creation times."""
        self._release_removed(part)
        rows, stored = part.missing[-limit:], part.stored()
        if stored is not None:
            created = stored.relation.attributes(Attribute.CREATED_AT, rows)
            yield from ((row, int(at)) for row, at in zip(rows, created, strict=True))

    def _discard(self, key: int) -> None:
        part = self._parts.pop(key)
        part.alive = False
        for position in part.positions if part.counts else ():
            if position != NO_POSITION:
                self.store.release(position)

    def _shelf(
        self,
        tenant: Tenant,
        partition: Partition,
        relations: Sequence[StoredRelation],
        predicates: Container[str] | None,
    ) -> tuple[array[int], list[int], list[tuple[VectorPart, array[int] | None]]]:
        """Return the positions of the visible facts of relations, where each relation begins, and
        the row ids of each (None: all of its rows).
        """
        own = predicates is None and tenant.partition(partition.name) is partition
        if own and not isinstance(tenant, Overlay):
            known = self._shelves.get(partition.name)
            if known is not None and known[:2] == (tenant.version, self.revision):
                return known.positions, known.starts, known.owners
        positions, starts = array("I"), list[int]()
        owners: list[tuple[VectorPart, array[int] | None]] = []
        for stored in relations:
            part = self._part(stored)
            counts = stored.relation.counts()
            if part is None or not counts.visible:
                continue
            starts.append(len(positions))
            if counts.visible == len(part.positions):
                owners.append((part, None))
                positions.extend(part.positions)
            else:
                _, ids = stored.relation.match([0] * stored.schema.arity)
                owners.append((part, ids))
                positions.extend([part.positions[row] for row in ids])
        if own and not isinstance(tenant, Overlay):
            self._shelves[partition.name] = _Shelf(
                tenant.version, self.revision, positions, starts, owners
            )
            self._shelves.move_to_end(partition.name)
            while len(self._shelves) > MAX_SHELVES:
                self._shelves.popitem(last=False)
        return positions, starts, owners


def _fact(
    negative: float,
    at: int,
    starts: Sequence[int],
    owners: Sequence[tuple[VectorPart, array[int] | None]],
) -> Near:
    which = bisect_right(starts, at) - 1
    part, ids = owners[which]
    row = at - starts[which]
    stored = cast(StoredRelation, part.stored())  # the partition holds it
    return stored, row if ids is None else ids[row], -negative


def _ordered(partition: Partition, predicates: Container[str] | None) -> list[StoredRelation]:
    return sorted(
        (
            stored
            for stored in partition.relations()
            if predicates is None or stored.schema.predicate in predicates
        ),
        key=lambda stored: (
            stored.schema.predicate,
            stored.schema.arity,
            not stored.schema.positive,
        ),
    )


def _is_stored(tenant: Tenant, stored: StoredRelation) -> bool:
    """Return True unless a relation is the copy of a transaction."""
    home = tenant.base if isinstance(tenant, Overlay) else tenant
    partition = home.partition(stored.scope)
    return partition is not None and partition.get(stored.schema) is stored


def _no_pause() -> None:
    """Do nothing: the work is short."""
