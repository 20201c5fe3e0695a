"""One scope of a tenant: its stored relations, and the metadata of the facts that have any."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbcore.state.facts import Row
from kbplanner.backend import FOREVER, NO_ROW, Attribute, Engine, Relation
from kbplanner.schema import RelationSchema

RowKey = tuple[int, ...]
"""The symbols of a row: it stays the same when row ids do not."""


class StoredRelation:
    """The asserted facts of one predicate, arity and sign in one scope.

    `metadata` holds a dict for each fact that has one. `limited` holds the facts with a validity window of their own;
    those not valid now are hidden in the engine.
    """

    def __init__(self, schema: RelationSchema, scope: str | None, relation: Relation) -> None:
        self.schema = schema
        self.scope = scope
        self.relation = relation
        self.metadata: dict[RowKey, Mapping[str, Any]] = {}
        self.limited: set[RowKey] = set()

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
        lives = read(Attribute.TTL, ids)
        confidences = read(Attribute.CONFIDENCE, ids)
        found: list[Row] = []
        for i in range(len(ids)):
            until = min(ends[i], created[i] + lives[i]) if lives[i] else ends[i]
            confidence = confidences[i]
            found.append(
                {
                    "predicate": self.schema.predicate,
                    "args": texts[i * arity : (i + 1) * arity],
                    "negated": not self.schema.positive,
                    "scope": self.scope,
                    "metadata": dict(self.metadata.get(tuple(rows[i * arity : (i + 1) * arity]), {}))
                    if self.metadata
                    else {},
                    "createdAt": created[i],
                    "validFrom": starts[i] or created[i],
                    "validUntil": None if until == FOREVER else until,
                    "ttl": lives[i] or None,
                    "confidence": None if confidence != confidence else confidence,
                }
            )
        return found

    def windows(self, ids: array[int]) -> Iterator[tuple[int, int]]:
        """The validity window [from, until) of each fact, in epoch milliseconds."""
        read = self.relation.attributes
        columns = (read(a, ids) for a in (Attribute.CREATED_AT, Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL))
        for created, start, end, life in zip(*columns, strict=True):
            yield int(start or created), int(min(end, created + life) if life else end)


class Partition:
    """The stored relations of one scope; `name` is None for the base partition."""

    def __init__(self, engine: Engine, name: str | None) -> None:
        self._engine = engine
        self.name = name
        self._relations: dict[RelationSchema, StoredRelation] = {}

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

    def bind(self, schema: RelationSchema) -> Relation:
        """The engine's relation of a stored schema."""
        return self.need(schema).relation

    def relations(self) -> list[StoredRelation]:
        """All relations, also empty ones."""
        return list(self._relations.values())

    def named(self, predicate: str, arity: int | None = None, positive: bool | None = None) -> list[StoredRelation]:
        """Relations of a predicate, of one arity and sign or of all, in order of arity and sign."""
        found = [
            relation
            for schema, relation in self._relations.items()
            if schema.predicate == predicate and arity in (None, schema.arity) and positive in (None, schema.positive)
        ]
        return sorted(found, key=lambda r: (r.schema.arity, not r.schema.positive))

    def visible(self) -> int:
        """Facts that are valid now."""
        return sum(relation.relation.counts().visible for relation in self._relations.values())

    def live(self) -> int:
        """Facts that are stored, valid now or not."""
        return sum(relation.relation.counts().live for relation in self._relations.values())

    # -- statistics for the planner -------------------------------------------------------------------------------

    def rows(self, schema: RelationSchema) -> int:
        """Visible rows of a stored relation."""
        found = self._relations.get(schema)
        return found.relation.counts().visible if found else 0

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Distinct values of columns of a stored relation, 0 when not known."""
        found = self._relations.get(schema)
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
