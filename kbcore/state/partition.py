"""One scope of a tenant: its stored relations, and the metadata of the facts that have any."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from kbcore.state.facts import Row
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, Engine, Relation
from kbplanner.engine.cells import beginning
from kbplanner.ir.schema import RelationSchema

RowKey = tuple[int, ...]
"""The symbols of a row: it stays the same when row ids do not."""


_NO_ROW = array("I", [NO_ROW]).tobytes()

FLIP_HIDDEN, FLIP_SHOWN, FLIP_GONE = 0, 1, 2
"""What happened to a row, in the two lowest bits of a flip; above them its id."""

MAX_FLIPS = 1 << 16
"""Notes that are kept for one who does not look; after so many it had better look at everything."""


class MetadataThen:
    """The metadata of a relation's facts as they were when somebody began to look, whatever is written meanwhile."""

    __slots__ = ("__weakref__", "_before", "_held")

    def __init__(self, held: dict[RowKey, Mapping[str, Any]]) -> None:
        self._held = held
        self._before: dict[RowKey, Mapping[str, Any] | None] = {}

    def get(self, row: RowKey) -> Mapping[str, Any] | None:
        """What a fact had then, None where it had none."""
        now = self._held.get(row)  # first: a writer who comes in between keeps before it writes
        return self._before.get(row, now)

    def keep(self, row: RowKey) -> None:
        """Remember what a fact has, before that changes."""
        if row not in self._before:
            self._before[row] = self._held.get(row)


class StoredRelation:
    """The asserted facts of one predicate, arity and sign in one scope.

    `metadata` holds a dict for each fact that has one, changed by `describe` only. `limited` holds
    the facts with a validity window of their own; those not valid now are hidden in the engine,
    `expired` are those whose time is over. `scheduled` has the next time (epoch milliseconds) at
    which the tenant checks the window of a fact. `version` is the tenant's stamp of the last change
    to it, 0 before any; `gone` says that its scope was deleted. `flips` notes which rows were
    hidden, shown or removed, for a reader that keeps something by row id and sets it; None: no reader does,
    or the ids have changed.
    """

    def __init__(self, schema: RelationSchema, scope: str | None, relation: Relation) -> None:
        self.schema = schema
        self.scope = scope
        self.relation = relation
        self.metadata: dict[RowKey, Mapping[str, Any]] = {}
        self._looking: WeakSet[MetadataThen] | None = None
        self.limited: set[RowKey] = set()
        self.scheduled: dict[RowKey, int] = {}
        self.expired: set[RowKey] = set()
        self.version = 0
        self.gone = False
        self.flips: array[int] | None = None

    def drop(self) -> None:
        """Give everything back; nobody may use it any more."""
        self.gone = True
        self.metadata = {}  # a new one: who looks at the old one goes on
        self.limited.clear()
        self.scheduled.clear()
        self.relation.drop()

    def remove(self, rows: array[int], count: int) -> None:
        """Delete rows that are there, with what they carry."""
        if self.flips is None:
            self.relation.delete(rows, count)
        else:
            self.note(self.relation.locate(rows, count), FLIP_GONE)
            before = self.relation.counts().rows
            self.relation.delete(rows, count)
            if self.relation.counts().rows != before:
                self.flips = None
        if self.metadata or self.limited:
            arity = self.schema.arity
            for i in range(count):
                key = tuple(rows[i * arity : (i + 1) * arity])
                self.describe(key, None)
                self.limited.discard(key)
                self.expired.discard(key)

    def describe(self, row: RowKey, metadata: Mapping[str, Any] | None) -> None:
        """Give a fact this metadata, or none."""
        if self._looking:
            for then in list(self._looking):
                then.keep(row)
        if metadata:
            self.metadata[row] = dict(metadata)
        else:
            self.metadata.pop(row, None)

    def metadata_then(self) -> MetadataThen | None:
        """The metadata as they are now, for as long as the caller keeps it; None where there are none."""
        if not self.metadata:
            return None
        then = MetadataThen(self.metadata)
        if self._looking is None:
            self._looking = WeakSet()
        self._looking.add(then)
        return then

    def note(self, ids: array[int], flip: int) -> None:
        """Leave a note that rows are hidden, shown or gone now."""
        if self.flips is not None:
            self.flips.extend([place << 2 | flip for place in ids])
            if len(self.flips) > MAX_FLIPS:
                self.flips = None

    def touch(self, ids: array[int], times: int, at: int) -> None:
        """So many accesses of each of some rows, the last one at `at` (epoch milliseconds); NO_ROW is passed over."""
        if _NO_ROW in ids.tobytes():  # a search in bytes is much quicker than one among numbers, if too often right
            ids = array("I", [place for place in ids if place != NO_ROW])
        if times > 1:
            known = self.relation.attributes(Attribute.ACCESSES, ids)
            self.relation.set_attribute(Attribute.ACCESSES, ids, [min(int(n) + times, FOREVER) - 1 for n in known])
        if len(ids):
            self.relation.touch(ids, at)

    def raise_accesses(self, ids: array[int], most: int) -> None:
        """Add one access to each of some rows that have fewer than `most`, without an access time; NO_ROW is passed over."""
        ids = array("I", [row for row in ids if row != NO_ROW])
        counts = self.relation.attributes(Attribute.ACCESSES, ids)
        raised = [(row, int(count) + 1) for row, count in zip(ids, counts, strict=True) if count < most]
        if raised:
            rows, values = zip(*raised, strict=True)
            self.relation.set_attribute(Attribute.ACCESSES, array("I", rows), list(values))

    def copy(self) -> StoredRelation:
        """The same facts in a relation of their own, of the same version."""
        made = StoredRelation(self.schema, self.scope, self.relation.copy())
        made.metadata, made.limited, made.version = dict(self.metadata), set(self.limited), self.version
        made.expired = set(self.expired)
        return made

    def rows(self, engine: Engine, rows: array[int], ids: array[int]) -> list[Row]:
        """Rows of this relation, given their symbols and ids, as they are shown outside."""
        if not len(ids):
            return []
        arity = self.schema.arity
        texts = engine.texts(rows)
        read = self.relation.attributes
        created = read(Attribute.CREATED_AT, ids)
        starts = read(Attribute.VALID_FROM, ids)
        ends = read(Attribute.VALID_UNTIL, ids)
        ttls = read(Attribute.TTL, ids)
        confidences = read(Attribute.CONFIDENCE, ids)
        predicate, negated, scope = self.schema.predicate, not self.schema.positive, self.scope
        found: list[Row] = []
        at = 0
        for told, start, end, ttl, sure in zip(created, starts, ends, ttls, confidences, strict=True):
            found.append(
                {
                    "predicate": predicate,
                    "args": texts[at : at + arity],
                    "negated": negated,
                    "scope": scope,
                    "metadata": dict(self.metadata.get(tuple(rows[at : at + arity]), {})) if self.metadata else {},
                    "createdAt": told,
                    "validFrom": beginning(int(start), int(told)),
                    "validUntil": None if end == FOREVER else end,
                    "ttl": ttl or None,
                    "confidence": None if sure != sure else sure,
                }
            )
            at += arity
        return found

    def windows(self, ids: array[int]) -> Iterator[tuple[int, int]]:
        """The validity window [from, until) of each fact, in epoch milliseconds."""
        read = self.relation.attributes
        columns = (read(a, ids) for a in (Attribute.CREATED_AT, Attribute.VALID_FROM, Attribute.VALID_UNTIL))
        for created, start, end in zip(*columns, strict=True):
            yield beginning(int(start), int(created)), int(end)


PartitionKey = tuple[str | None, int]
"""A partition for as long as it exists: its name, and how many partitions its tenant had lost when it came."""

NEVER_KEPT = -1
"""In place of that number, and without a name: one of the partitions that stand for those where nothing was ever written.
They are all empty, and may share what was worked out from them."""


class Partition:
    """The stored relations of one scope; `name` is None for the base partition."""

    def __init__(
        self,
        engine: Engine,
        name: str | None,
        lost: int = 0,
        relations: dict[RelationSchema, StoredRelation] | None = None,
    ) -> None:
        self._engine = engine
        self.name = name
        self.key: PartitionKey = (None if lost == NEVER_KEPT else name, lost)
        self._relations = {} if relations is None else relations

    def get(self, schema: RelationSchema) -> StoredRelation | None:
        """The relation of a stored schema, None while no fact or rule has needed it."""
        return self._relations.get(schema)

    def need(self, schema: RelationSchema) -> StoredRelation:
        """The relation of a stored schema, made empty if it was never needed."""
        found = self._relations.get(schema)
        if found is None:
            made = StoredRelation(schema, self.name, self._engine.relation(schema.arity))
            found = self._relations.setdefault(schema, made)
        return found

    def writable(self, schema: RelationSchema) -> StoredRelation:
        """The relation of a stored schema, to be changed."""
        return self.need(schema)

    def adopt(self, other: StoredRelation) -> StoredRelation:
        """A copy of a relation of another partition of the tenant, as the relation of its schema here, which is new."""
        made = self._relations[other.schema] = other.copy()
        made.scope = self.name
        return made

    def bind(self, schema: RelationSchema) -> Relation:
        """The engine's relation of a stored schema."""
        return self.need(schema).relation

    def relations(self) -> list[StoredRelation]:
        """All relations, also empty ones."""
        return list(self._known())

    def named(self, predicate: str, arity: int | None = None, positive: bool | None = None) -> list[StoredRelation]:
        """Relations of a predicate, of one arity and sign or of all, in order of arity and sign."""
        found = [
            relation
            for relation in self._known()
            if relation.schema.predicate == predicate
            and arity in (None, relation.schema.arity)
            and positive in (None, relation.schema.positive)
        ]
        return sorted(found, key=lambda r: (r.schema.arity, not r.schema.positive))

    def visible(self) -> int:
        """Facts that are valid now."""
        return sum(relation.relation.counts().visible for relation in self.relations())

    def live(self) -> int:
        """Facts that are stored, valid now or not."""
        return sum(relation.relation.counts().live for relation in self.relations())

    def _known(self) -> Iterable[StoredRelation]:
        return self._relations.values()

    # -- statistics for the planner -------------------------------------------------------------------------------

    def rows(self, schema: RelationSchema) -> int:
        """Visible rows of a stored relation."""
        found = self.get(schema)
        return found.relation.counts().visible if found else 0

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Distinct values of columns of a stored relation, 0 when not known."""
        found = self.get(schema)
        return found.relation.distinct(columns) if found else 0

    def denied(self, schemas: Iterable[RelationSchema]) -> frozenset[RelationSchema]:
        """Which of these stored relations have visible rows."""
        return frozenset(schema for schema in schemas if self.rows(schema))


def located(relation: Relation, rows: array[int], count: int) -> tuple[array[int], array[int]]:
    """Of `count` rows those that are there, with their ids."""
    arity = relation.arity
    ids = relation.locate(rows, count)
    if NO_ROW not in ids:
        return rows, ids
    kept, kept_ids = array("I"), array("I")
    for i, place in enumerate(ids):
        if place != NO_ROW:
            kept.extend(rows[i * arity : (i + 1) * arity])
            kept_ids.append(place)
    return kept, kept_ids
