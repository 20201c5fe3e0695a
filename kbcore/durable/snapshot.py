"""State to snapshot chunks and back.

A snapshot is taken in two parts. `capture` copies what can change, rows as symbols and attribute cells, while nobody
writes; that is a memory copy. `encode` then turns the copies into chunks at leisure: symbols never change.

Each chunk is UTF-8 JSON with a `kind`: one `tenant` chunk with its rules, then `facts` chunks of at most CHUNK_ROWS rows,
column by column.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kbcore.durable.records import decode_rule, encode_rule
from kbcore.state.catalog import Catalog
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.rulebook import stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.backend import FOREVER, REAL_ATTRIBUTES, Attribute, Engine
from kbplanner.schema import RelationSchema

CHUNK_ROWS = 5000

_USUAL: dict[Attribute, float] = {
    Attribute.VALID_FROM: 0,
    Attribute.VALID_UNTIL: FOREVER,
    Attribute.TTL: 0,
    Attribute.LAST_ACCESS: 0,
    Attribute.ACCESSES: 1,
    Attribute.PRIORITY: 0.5,
}


@dataclass(frozen=True, slots=True)
class _Relation:
    schema: RelationSchema
    scope: str | None
    rows: array[int]
    count: int
    cells: Mapping[Attribute, Any]
    metadata: Mapping[RowKey, Mapping[str, Any]]
    limited: frozenset[RowKey]


@dataclass(frozen=True, slots=True)
class TenantCapture:
    """The state of one tenant at one moment of the log."""

    head: bytes
    engine: Engine
    relations: tuple[_Relation, ...]


def capture(tenant: Tenant) -> TenantCapture:
    """Copy a tenant's state; the caller sees to it that nobody writes meanwhile."""
    head = {
        "kind": "tenant",
        "db": tenant.database,
        "tenant": tenant.name,
        "createdAt": tenant.created_at,
        "generation": tenant.generation,
        "now": tenant.at(0),
        "rules": [encode_rule(stored.rule) for stored in tenant.rules.all()],
    }
    return TenantCapture(orjson.dumps(head), tenant.engine, tuple(_capture(stored) for _, stored in tenant.stored()))


def _capture(stored: StoredRelation) -> _Relation:
    rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
    cells = {attribute: stored.relation.attributes(attribute, ids) for attribute in Attribute}
    return _Relation(stored.schema, stored.scope, rows, len(ids), cells, dict(stored.metadata), frozenset(stored.limited))


def encode(captures: Iterable[TenantCapture]) -> Iterator[bytes]:
    """The chunks of a snapshot; each takes a few milliseconds to make."""
    for tenant in captures:
        yield tenant.head
        for relation in tenant.relations:
            for start in range(0, relation.count, CHUNK_ROWS):
                yield _facts(tenant.engine, relation, start, min(start + CHUNK_ROWS, relation.count))


def _facts(engine: Engine, relation: _Relation, start: int, end: int) -> bytes:
    arity = relation.schema.arity
    rows = relation.rows[start * arity : end * arity]
    chunk: dict[str, Any] = {
        "kind": "facts",
        "scope": relation.scope,
        "predicate": relation.schema.predicate,
        "arity": arity,
        "positive": relation.schema.positive,
        "count": end - start,
        "args": engine.texts(rows),
    }
    for attribute, cells in relation.cells.items():
        values = list(cells[start:end])
        if attribute is Attribute.CONFIDENCE:
            values = [None if math.isnan(value) else value for value in values]
            usual = all(value is None for value in values)
        else:
            usual = attribute in _USUAL and all(value == _USUAL[attribute] for value in values)
        if not usual:
            chunk[attribute.name] = values
    if relation.metadata or relation.limited:
        keys = [tuple(rows[i * arity : (i + 1) * arity]) for i in range(end - start)]
        chunk["metadata"] = {str(i): relation.metadata[key] for i, key in enumerate(keys) if key in relation.metadata}
        chunk["limited"] = [i for i, key in enumerate(keys) if key in relation.limited]
    return orjson.dumps(chunk)


class Restorer:
    """Rebuilds a catalog from the chunks of a snapshot."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tenant: Tenant | None = None
        self.last = 0
        """The latest time any tenant had come to, in epoch milliseconds."""

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk."""
        found = orjson.loads(chunk)
        if found["kind"] == "tenant":
            self._tenant = self._catalog.need_tenant(found["db"], found["tenant"], found["createdAt"])
            self._tenant.generation = found["generation"]
            self._tenant.advance(found["now"])
            self.last = max(self.last, found["now"])
            for rule in found["rules"]:
                self._tenant.rules.add(stored_rule(decode_rule(rule)))
        elif self._tenant is None:
            raise ValueError("a snapshot chunk of facts comes before its tenant")
        else:
            _restore(self._tenant, found)


def _restore(tenant: Tenant, chunk: Mapping[str, Any]) -> None:
    schema = RelationSchema(chunk["predicate"], chunk["arity"], chunk["positive"])
    stored = tenant.need_partition(chunk["scope"]).need(schema)
    symbols = tenant.engine.intern_many(chunk["args"])
    ids, _ = stored.relation.insert(symbols, chunk["count"])
    for attribute in Attribute:
        values = chunk.get(attribute.name)
        if values is not None:
            if attribute in REAL_ATTRIBUTES:
                values = [float("nan") if value is None else value for value in values]
            stored.relation.set_attribute(attribute, ids, values)
    arity = schema.arity

    def key(place: int) -> RowKey:
        return tuple(symbols[place * arity : (place + 1) * arity])

    for place, metadata in chunk.get("metadata", {}).items():
        stored.metadata[key(int(place))] = metadata
    for place in chunk.get("limited", ()):
        stored.limited.add(key(place))
        tenant.limit(stored, key(place))
