"""Encoding of a state as snapshot chunks, and its restoration.

A captured state (`capture.py`) is encoded in the background, and each relation is released when it
is done: symbols never change.

Each chunk is UTF-8 JSON with a `kind`: `databases` first, with the keys of the node, then for each
tenant a `tenant` chunk with its rules and `facts` chunks of at most CHUNK_ROWS rows, column by
column. Episodes have chunks `episodes` before the facts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from kbcore.durable.capture import Capture, RelationState, TenantState
from kbcore.durable.records import (
    ITEM_KEYS,
    KEY_CODEC,
    SUBSCRIPTION_CODEC,
    decode_rule,
    decode_rule_set,
    encode_item_keys,
    encode_rule,
    encode_rule_set,
)
from kbcore.state.catalog import Catalog
from kbcore.state.labelling import need_layer
from kbcore.state.labels import NO_LABELS, Labels, from_json, to_json
from kbcore.state.partition import RowKey
from kbcore.state.rule_sets import HandKey, ItemKey
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import DETAILS, FOREVER, REAL_ATTRIBUTES, Attribute, Engine
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.parser import parse_declaration
from kbplanner.syntax.printer import print_declaration
from kbtypes.episodes import Episode

CHUNK_ROWS = 1000
CHUNK_BYTES = 128 << 10
"""Target size of a chunk, from the size of the previous one: a millisecond or two of work."""

FIRST_ROWS = 64
"""Rows of the first chunk of a relation, whose size per row is not known yet."""

SETTLE_ROWS = 16_384
"""Rows copied in one call: about a megabyte with every attribute."""

RULE_BATCH = 64

CHUNK_COST = 2048
STRETCH = 48 << 10
"""Bytes of encoded output after which other threads get a turn; each chunk counts CHUNK_COST bytes
more."""

_USUAL: dict[Attribute, float] = {
    Attribute.VALID_FROM: 0,
    Attribute.VALID_UNTIL: FOREVER,
    Attribute.TTL: 0,
    Attribute.LAST_ACCESS: 0,
    Attribute.ACCESSES: 1,
    Attribute.PRIORITY: 0.5,
}

_ACCESSED = Attribute.LAST_ACCESS.name, Attribute.ACCESSES.name

_LIMITING = Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL
"""A fact with a non-default value in one of these has its own validity window."""


def encode(captured: Capture, yield_now: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """Return the chunks of a snapshot; `yield_now` is called between steps of a few milliseconds.

    The captured state is released, even if not all chunks are read.
    """
    chunks = _encode(captured, yield_now)
    next(chunks)  # a generator that was never started would not release the state
    return chunks


def paced(captured: Capture, yield_in_background: Callable[[], None]) -> Iterator[bytes]:
    """Return the chunks of a snapshot, with a yield after about every millisecond of work."""
    return _paced(encode(captured, yield_in_background), yield_in_background)


def _paced(chunks: Iterator[bytes], yield_in_background: Callable[[], None]) -> Iterator[bytes]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += CHUNK_COST + len(chunk)
        if done >= STRETCH:
            done = 0
            yield_in_background()


def _encode(captured: Capture, yield_now: Callable[[], None]) -> Iterator[bytes]:
    waiting = list(reversed(captured.tenants))
    try:
        yield b""
        keys = {
            "used": captured.keys_used,
            "known": [KEY_CODEC.encode(key) for key in captured.keys],
        }
        first = {"kind": "databases", "databases": captured.databases, "keys": keys}
        if captured.purged or captured.deleted:
            first["erase"] = {"purged": captured.purged, "deleted": captured.deleted}
        if captured.drops:
            first["drops"] = captured.drops
        yield orjson.dumps(first)
        while waiting:
            state = waiting[-1].state()
            yield _head(state, yield_now)
            yield from _episodes(state.episodes)
            used = {
                *chain.from_iterable(state.rule_labels.values()),
                *state.episode_labels.values(),
                *(each.labels for each in state.rule_sets),
            }
            while state.relations:
                yield from _chunks(state.engine, state.relations[-1], yield_now, used)
                state.relations.pop().then.drop()
            waiting.pop()
            state.drop_unused_labels(used)
    finally:
        for tenant in waiting:
            tenant.drop()


def _head(state: TenantState, yield_now: Callable[[], None]) -> bytes:
    rules = []
    for number, rule in enumerate(state.rules, 1):
        rules.append(encode_rule(rule))
        if number % RULE_BATCH == 0:
            yield_now()
    head: dict[str, Any] = {
        "kind": "tenant",
        "db": state.database,
        "tenant": state.name,
        "createdAt": state.created_at,
        "generation": state.generation,
        "seq": state.seq,
        "now": state.now,
        "scopes": state.scopes,
        "rules": rules,
        "phrases": [print_declaration(each) for each in state.declarations],
        "transactions": state.transactions,
        "answered": state.answered,
    }
    if state.chain.count:
        head["chain"] = state.chain.to_json()
    if state.purges:
        head["purges"] = state.purges
    if state.erased:
        head["erased"] = state.erased
    if state.subscriptions:
        head["goals"] = [SUBSCRIPTION_CODEC.encode(each) for each in state.subscriptions]
    if state.rule_sets:
        by_hand: dict[tuple[str | None, Labels], list[ItemKey]] = {}
        for scope, key, labels in state.by_hand:
            by_hand.setdefault((scope, labels), []).append(key)
        head["byHand"] = [
            [scope, encode_item_keys(keys, yield_now), to_json(labels)]
            for (scope, labels), keys in by_hand.items()
        ]
        head["ruleSets"] = []
        for rule_set in state.rule_sets:
            head["ruleSets"].append(encode_rule_set(rule_set, yield_now))
            yield_now()
    if state.rule_labels:
        head["ruleLabels"] = [
            [*key, list(map(to_json, labels))] for key, labels in state.rule_labels.items()
        ]
    if state.rule_forms:
        head["ruleForms"] = [
            [to_json(labels), encode_rule(form)] for labels, form in state.rule_forms
        ]
    if state.episode_labels:
        head["episodeLabels"] = {id: to_json(labels) for id, labels in state.episode_labels.items()}
    return orjson.dumps(head)


def _episodes(episodes: Sequence[Episode]) -> Iterator[bytes]:
    part: list[list[object]] = []
    size = 0
    for episode in episodes:
        part.append(
            [episode.id, episode.speaker, episode.text, episode.at, episode.session, episode.sha256]
            + [episode.agent] * (episode.agent is not None)
        )
        size += len(episode.text)
        if size >= CHUNK_BYTES or len(part) >= CHUNK_ROWS:
            yield orjson.dumps({"kind": "episodes", "episodes": part})
            part, size = [], 0
    if part:
        yield orjson.dumps({"kind": "episodes", "episodes": part})


def _episode(
    id: str,
    speaker: str,
    text: str,
    at: int,
    session: str | None,
    sha256: str,
    agent: str | None = None,  # older snapshots have none
) -> Episode:
    return Episode(id, speaker, text, at, session, sha256, agent=agent)


def _chunks(
    engine: Engine, relation: RelationState, yield_now: Callable[[], None], labels: set[Labels]
) -> Iterator[bytes]:
    """Yield the facts of a relation, and add their labels to `labels`."""
    while not relation.then.settle(SETTLE_ROWS):
        yield_now()
    arity = relation.schema.arity
    used = [attribute for attribute in DETAILS if relation.then.uses(attribute)]
    size = FIRST_ROWS
    for rows, ids in relation.then.pieces([0] * arity, hidden=True):
        start = 0
        while start < len(ids):
            end = min(start + size, len(ids))
            chunk = _facts(
                engine, relation, used, rows[start * arity : end * arity], ids[start:end], labels
            )
            yield chunk
            start = end
            if len(chunk) < CHUNK_BYTES // 2:
                size = min(size * 2, CHUNK_ROWS)
            elif len(chunk) > CHUNK_BYTES:
                size = max(size * CHUNK_BYTES // len(chunk), 1)


def _facts(
    engine: Engine,
    relation: RelationState,
    used: Sequence[Attribute],
    rows: array[int],
    ids: array[int],
    used_labels: set[Labels],
) -> bytes:
    arity = relation.schema.arity
    chunk: dict[str, Any] = {
        "kind": "facts",
        "scope": relation.scope,
        "predicate": relation.schema.predicate,
        "arity": arity,
        "positive": relation.schema.positive,
        "count": len(ids),
        "args": engine.texts_once(rows),
    }
    chunk.update(_unusual_columns(relation, used, ids))
    if relation.metadata is not None:
        keys = (tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids)))
        metadata_by_row = enumerate(map(relation.metadata.get, keys))
        chunk["metadata"] = {str(i): metadata for i, metadata in metadata_by_row if metadata}
    if relation.layer is not None:
        chunk["layer"] = to_json(relation.layer)
    elif relation.labels or relation.stacked:
        own = [tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids))]
        labels: list[tuple[int, Labels]] = []
        if relation.labels:
            numbers = relation.then.attributes(Attribute.LABELS, ids)
            labels = [(i, relation.labels[int(each)]) for i, each in enumerate(numbers) if each]
        chunk["labels"] = {str(i): to_json(each) for i, each in labels}
        stacks = [(i, relation.stacked.get(key)) for i, key in enumerate(own)]
        chunk["stacks"] = {str(i): list(map(to_json, each)) for i, each in stacks if each}
        used_labels.update(each for _, each in labels)
        used_labels.update(each for _, stack in stacks for each in stack or ())
    if Attribute.TTL.name in chunk:
        chunk["endsIncludeTtl"] = True
    limits = {each: chunk[each.name] for each in _LIMITING if each.name in chunk}
    if limits:
        chunk["limited"] = _limited_rows(limits)
    return orjson.dumps(chunk)


def _unusual_columns(
    relation: RelationState, used: Sequence[Attribute], ids: array[int]
) -> Iterator[tuple[str, Sequence[float | None]]]:
    """Yield the name and cells of each attribute in `used` that has an unusual value in a row."""
    for attribute in used:
        values = list(relation.then.attributes(attribute, ids))
        if attribute is Attribute.CONFIDENCE:
            known = [None if math.isnan(value) else value for value in values]
            if known.count(None) < len(known):
                yield attribute.name, known
        elif attribute not in _USUAL or values.count(_USUAL[attribute]) < len(values):
            yield attribute.name, values


def _limited_rows(columns: Mapping[Attribute, Sequence[float]]) -> list[int]:
    """Return the numbers of the rows with an unusual value in one of the validity columns."""
    usual = [_USUAL[attribute] for attribute in columns]
    rows = enumerate(zip(*columns.values(), strict=True))
    return [index for index, values in rows if list(values) != usual]


class Restorer:
    """Rebuilds a catalog from the chunks of a snapshot.

    With `only`, a database and a tenant, other tenants and the keys are left out. Validity is
    judged at the time of the snapshot; with `until`, not after that (epoch milliseconds), and
    accesses of facts are left out.
    """

    def __init__(
        self, catalog: Catalog, only: tuple[str, str] | None = None, until: int | None = None
    ) -> None:
        self._catalog = catalog
        self._only = only
        self._until = until
        self._skips = False
        self._tenant: Tenant | None = None
        self.last = 0
        """The latest time of any tenant, in epoch milliseconds."""

    def feed(self, chunk: bytes) -> None:
        """Restore the next chunk."""
        body = orjson.loads(chunk)
        kind = body["kind"]
        if self._only is not None and self._is_left_out(body, self._only):
            return
        if kind == "databases":
            self._restore_databases(body)
        elif kind == "tenant":
            self._restore_tenant(body)
        elif self._tenant is None:
            raise ValueError("a snapshot has facts before their tenant")
        elif kind == "episodes":
            for episode in body["episodes"]:
                self._tenant.episodes.add(_episode(*episode))
        else:
            if self._until is not None:
                body = {key: value for key, value in body.items() if key not in _ACCESSED}
            _restore(self._tenant, body)

    def _is_left_out(self, body: Mapping[str, Any], only: tuple[str, str]) -> bool:
        """Return True for a chunk of other tenants than `only`, or of the databases.

        The first chunk of a tenant decides for those that follow.
        """
        if body["kind"] == "databases":
            return True
        if body["kind"] == "tenant":
            self._skips = (body["db"], body["tenant"]) != only
            self._catalog.need_database(only[0], 0)
        return self._skips

    def _restore_databases(self, body: Mapping[str, Any]) -> None:
        for database in body["databases"]:
            known = self._catalog.need_database(database["name"], database["createdAt"])
            known.emptied_at = database.get("emptiedAt", 0)
        to_erase = body.get("erase", {})
        self._catalog.purged = to_erase.get("purged", 0)
        self._catalog.deleted = to_erase.get("deleted", 0)
        for name, created_at in body.get("drops", {}).items():
            self._catalog.record_drop(name, created_at)
        keys = body.get("keys")
        if keys and keys["used"]:  # older snapshots have no keys
            self._catalog.keys.change((KEY_CODEC.decode(key) for key in keys["known"]), ())

    def _restore_tenant(self, body: Mapping[str, Any]) -> None:
        """Restore a tenant without its episodes and facts; their chunks follow."""
        tenant = self._catalog.need_tenant(body["db"], body["tenant"], body["createdAt"])
        self._tenant = tenant
        tenant.generation = body["generation"]
        tenant.seq = body.get("seq", 0)
        now: int = body["now"]
        tenant.advance(now if self._until is None else min(now, self._until))
        self.last = max(self.last, now)
        for scope in body.get("scopes", ()):
            tenant.need_partition(scope)
        for rule in body["rules"]:
            tenant.rules.add(decode_rule(rule))
        for declared in body.get("phrases", ()):  # older snapshots have none
            tenant.rules.declare(parse_declaration(declared))
        for scope, id, labels in body.get("ruleLabels", ()):
            tenant.rules.labels[scope, id] = tuple(map(from_json, labels))
            for each in tenant.rules.labels[scope, id]:
                tenant.use_labels(each)
        for labels, rule in body.get("ruleForms", ()):
            form = decode_rule(rule)
            tenant.rules.forms.setdefault((form.scope, form.id), {})[from_json(labels)] = form
        for id, labels in body.get("episodeLabels", {}).items():
            tenant.episode_labels[id] = from_json(labels)
            tenant.use_labels(tenant.episode_labels[id])
        tenant.committed.restore(body.get("transactions", {}).items())
        tenant.answered.restore(body.get("answered", ()))
        if "chain" in body:
            tenant.chain.restore(body["chain"])
        tenant.purges.restore(body.get("purges", ()))
        if "erased" in body:
            tenant.erased.restore(body["erased"])
        tenant.subscriptions.restore(map(SUBSCRIPTION_CODEC.decode, body.get("goals", ())))
        by_hand: dict[str | None, list[HandKey]] = {}
        for scope, keys, *named in body.get("byHand", ()):  # older snapshots name no labels
            own = from_json(*named) if named else NO_LABELS
            by_hand.setdefault(scope, []).extend((key, own) for key in ITEM_KEYS.decode(keys))
        for each in body.get("ruleSets", ()):
            rule_set = decode_rule_set(each)
            keys = by_hand.get(rule_set.scope, ())
            tenant.rule_sets.put(rule_set, [each for each in keys if each[0] in rule_set.items])
            if rule_set.labels:
                tenant.use_labels(rule_set.labels)


def _restore(tenant: Tenant, chunk: Mapping[str, Any]) -> None:
    schema = RelationSchema(chunk["predicate"], chunk["arity"], chunk["positive"])
    stored = tenant.need_partition(chunk["scope"]).need(schema)
    if "layer" in chunk:
        stored = need_layer(tenant, stored, from_json(chunk["layer"]))
    symbols = tenant.engine.intern_many(chunk["args"])
    ids, _ = stored.relation.insert(symbols, chunk["count"])
    if Attribute.TTL.name in chunk and not chunk.get("endsIncludeTtl"):
        chunk = {**chunk, Attribute.VALID_UNTIL.name: _ends_with_ttl(chunk)}
    for attribute in DETAILS:
        values = chunk.get(attribute.name)
        if values is not None:
            if attribute in REAL_ATTRIBUTES:
                values = [float("nan") if value is None else value for value in values]
            stored.relation.set_attribute(attribute, ids, values)
    arity = schema.arity

    def key(index: int) -> RowKey:
        return tuple(symbols[index * arity : (index + 1) * arity])

    for index, metadata in chunk.get("metadata", {}).items():
        stored.metadata[key(int(index))] = metadata  # a tenant under construction has no readers
    known: dict[Labels, array[int]] = {}
    for index, labels in chunk.get("labels", {}).items():
        known.setdefault(from_json(labels), array("I")).append(ids[int(index)])
    for own, labelled in known.items():
        stored.labels.put(labelled, own)
    for index, stack in chunk.get("stacks", {}).items():
        several = tuple(map(from_json, stack))
        stored.stacked[key(int(index))] = several
        tenant.label_sets.update(dict.fromkeys(several, 0))
    tenant.label_sets.update(dict.fromkeys(known, 0))
    if limited := chunk.get("limited"):
        tenant.limit_many(
            stored, [key(index) for index in limited], array("I", [ids[index] for index in limited])
        )


def _ends_with_ttl(chunk: Mapping[str, Any]) -> list[int]:
    """Return the VALID_UNTIL cells of an old chunk, in which they do not include the `ttl` counted
    from creation.
    """
    ends = chunk.get(Attribute.VALID_UNTIL.name) or [FOREVER] * chunk["count"]
    columns = zip(chunk[Attribute.CREATED_AT.name], chunk[Attribute.TTL.name], ends, strict=True)
    return [min(end, created + ttl) if ttl else end for created, ttl, end in columns]
