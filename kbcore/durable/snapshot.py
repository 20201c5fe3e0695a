"""State to snapshot chunks and back.

A snapshot is taken in two parts. `capture` copies the relations while nobody writes: a copy of memory, some ten milliseconds
for a million facts. `encode` then turns the copies into chunks at leisure, and gives each up: symbols never change.

Each chunk is UTF-8 JSON with a `kind`: `databases` first, with the keys of the node, then for each tenant a `tenant` chunk
with its rules and `facts` chunks of at most CHUNK_ROWS rows, column by column.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kbcore.durable.records import decode_key, decode_rule, encode_key, encode_rule
from kbcore.state.catalog import Catalog
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.rulebook import stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.backend import FOREVER, REAL_ATTRIBUTES, Attribute, Engine, Relation
from kbplanner.schema import RelationSchema

CHUNK_ROWS = 1000
"""Rows of a chunk: it takes about two milliseconds to make one, and others have their turn after each."""

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
    copy: Relation
    metadata: Mapping[RowKey, Mapping[str, Any]]
    limited: frozenset[RowKey]


@dataclass(frozen=True, slots=True)
class TenantCapture:
    """The state of one tenant at one moment of the log."""

    head: bytes
    engine: Engine
    relations: tuple[_Relation, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """The state of a node at one moment of the log."""

    head: bytes
    tenants: tuple[TenantCapture, ...]


def capture(catalog: Catalog) -> Capture:
    """Copy the state of a node; the caller sees to it that nobody writes meanwhile."""
    known = [{"name": database.name, "createdAt": database.created_at} for database in catalog.databases()]
    ring = catalog.keys
    keys = {"used": ring.used, "known": [encode_key(key) for key in ring.all()]}
    head = orjson.dumps({"kind": "databases", "databases": known, "keys": keys})
    return Capture(head, tuple(_capture_tenant(tenant) for tenant in catalog.tenants()))


def _capture_tenant(tenant: Tenant) -> TenantCapture:
    head = {
        "kind": "tenant",
        "db": tenant.database,
        "tenant": tenant.name,
        "createdAt": tenant.created_at,
        "generation": tenant.generation,
        "seq": tenant.seq,
        "now": tenant.at(0),
        "scopes": [partition.name for partition in tenant.partitions() if partition.name is not None],
        "rules": [encode_rule(stored.rule) for stored in tenant.rules.all()],
        "transactions": tenant.committed.all(),
        "answered": tenant.answered.all(),
    }
    return TenantCapture(orjson.dumps(head), tenant.engine, tuple(_capture(stored) for _, stored in tenant.stored()))


def _capture(stored: StoredRelation) -> _Relation:
    metadata = stored.metadata.copy()
    return _Relation(stored.schema, stored.scope, stored.relation.copy(), metadata, frozenset(stored.limited))


def encode(captured: Capture) -> Iterator[bytes]:
    """The chunks of a snapshot; each takes a few milliseconds to make. What was captured is used up."""
    waiting = [relation for tenant in captured.tenants for relation in tenant.relations]
    waiting.reverse()
    try:
        yield captured.head
        for tenant in captured.tenants:
            yield tenant.head
            for relation in tenant.relations:
                yield from _chunks(tenant.engine, relation)
                waiting.pop().copy.drop()
    finally:
        for relation in waiting:
            relation.copy.drop()


def _chunks(engine: Engine, relation: _Relation) -> Iterator[bytes]:
    arity = relation.schema.arity
    for rows, ids in relation.copy.pieces([0] * arity, hidden=True):
        for start in range(0, len(ids), CHUNK_ROWS):
            end = start + CHUNK_ROWS
            yield _facts(engine, relation, rows[start * arity : end * arity], ids[start:end])


def _facts(engine: Engine, relation: _Relation, rows: array[int], ids: array[int]) -> bytes:
    arity = relation.schema.arity
    chunk: dict[str, Any] = {
        "kind": "facts",
        "scope": relation.scope,
        "predicate": relation.schema.predicate,
        "arity": arity,
        "positive": relation.schema.positive,
        "count": len(ids),
        "args": engine.texts(rows),
    }
    for attribute in Attribute:
        values: list[Any] = list(relation.copy.attributes(attribute, ids))
        if attribute is Attribute.CONFIDENCE:
            values = [None if math.isnan(value) else value for value in values]
            usual = all(value is None for value in values)
        else:
            usual = attribute in _USUAL and all(value == _USUAL[attribute] for value in values)
        if not usual:
            chunk[attribute.name] = values
    if relation.metadata or relation.limited:
        keys = [tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids))]
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
        if found["kind"] == "databases":
            for database in found["databases"]:
                self._catalog.need_database(database["name"], database["createdAt"])
            keys = found.get("keys")
            if keys and keys["used"]:  # older snapshots have none
                self._catalog.keys.change((decode_key(key) for key in keys["known"]), ())
        elif found["kind"] == "tenant":
            self._tenant = self._catalog.need_tenant(found["db"], found["tenant"], found["createdAt"])
            self._tenant.generation = found["generation"]
            self._tenant.seq = found.get("seq", 0)
            self._tenant.advance(found["now"])
            self.last = max(self.last, found["now"])
            for scope in found.get("scopes", ()):
                self._tenant.need_partition(scope)
            for rule in found["rules"]:
                self._tenant.rules.add(stored_rule(decode_rule(rule)))
            self._tenant.committed.restore(found.get("transactions", {}).items())
            self._tenant.answered.restore(found.get("answered", ()))
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
