"""Application of the changes of episodes, purges and restored facts to a tenant."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    Delta,
    PurgeMemory,
    RemovedFacts,
    RestoredFact,
    RestoreFacts,
)
from kbcore.state.episodes.erased import ErasedEpisode
from kbcore.state.episodes.evidence import Span, evidence_of, union, with_evidence
from kbcore.state.episodes.purges import PurgeRecord
from kbcore.state.facts import Fact, FactRows
from kbcore.state.labelling import assert_labelled, settle, take_admitted
from kbcore.state.labels import NO_LABELS
from kbcore.state.merging.sides import ConflictingFact
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, Attribute, beginning_cell
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, paced
from kbtypes.episodes import Episode

UNKNOWN = float("nan")

EPISODES_PER_YIELD = 50
FACTS_PER_YIELD = 100
"""Episodes and facts changed between two calls of `yield_now`: about a millisecond."""


def add_episodes(
    tenant: Tenant, change: AddEpisodes, at: int, delta: Delta, yield_now: YieldNow
) -> None:
    """Store episodes; those whose ids are known change nothing."""
    new = 0
    for episode in paced(change.episodes, yield_now, EPISODES_PER_YIELD):
        if tenant.episodes.add(episode.dated(at)):
            new += 1
            if delta.labels:
                tenant.use_labels(delta.labels)
                tenant.episode_labels[episode.id] = delta.labels
    delta.details["episodes"] = delta.details.get("episodes", 0) + new


def add_evidence(tenant: Tenant, change: AddEvidence, delta: Delta, yield_now: YieldNow) -> None:
    """Add evidence to the facts that are stored, where they have the labels of the change."""
    for fact in paced(change.facts, yield_now, FACTS_PER_YIELD):
        partition = tenant.partition(fact.scope)
        stored = None if partition is None else partition.get(fact.schema)
        row = tuple(tenant.engine.find(arg) for arg in fact.args)
        if partition is None or stored is None or 0 in row:
            continue
        if not len(located(stored.relation, array("I", row), 1)[1]):
            continue
        stored = partition.writable(fact.schema)
        layer = stored.layers.get(delta.labels) if row in stored.stacked else stored
        if layer is stored and stored.labels.get(row) != delta.labels:
            continue
        if layer is None or not len(located(layer.relation, array("I", row), 1)[1]):
            continue
        before = layer.metadata.get(row, {})
        new = [each.to_json() for each in fact.evidence if each.episode in tenant.episodes]
        layer.describe(row, with_evidence(before, union(evidence_of(before), new)))
        tenant.changed(0, layer)
        settle(tenant, stored, row)


def purge(
    tenant: Tenant, change: PurgeMemory, delta: Delta, number: int, yield_now: YieldNow
) -> None:
    """Remove facts, episodes with the evidence that names them, and subscriptions to goals; forget
    stored answers and the texts of idempotency keys.
    """
    facts = sum(
        _remove(tenant, rows, delta, number, yield_now)
        for rows in paced(change.rows, yield_now, 20)
    )
    _note_places(tenant, change, yield_now)
    episodes = tenant.episodes.remove(change.episodes, yield_now)
    for episode in paced(episodes, yield_now):
        delta.purged_episodes.add(tenant.episode_labels.pop(episode.id, NO_LABELS))
    if episodes:
        _forget_evidence(tenant, {episode.id for episode in paced(episodes, yield_now)}, yield_now)
    if change.goals:
        tenant.subscriptions.remove(change.goals)
    tenant.answered.forget_texts()
    position = tenant.chain.count
    tenant.purges.note(
        PurgeRecord(change.id, change.by, delta.at, delta.seq, facts, len(episodes), position)
    )
    delta.details["purgedFacts"] = delta.details.get("purgedFacts", 0) + facts
    delta.details["purgedEpisodes"] = delta.details.get("purgedEpisodes", 0) + len(episodes)


def _note_places(tenant: Tenant, change: PurgeMemory, yield_now: YieldNow) -> None:
    """Note the places of the episodes that a purge removes in their sessions."""
    ids = paced(change.episodes, yield_now)
    removed = {id: known for id in ids if (known := tenant.episodes.get(id))}
    if not removed:
        return
    places: dict[str | None, dict[int, Episode]] = {}
    indexes: dict[str | None, int] = {}
    earlier: dict[str | None, Mapping[int, ErasedEpisode]] = {}
    for each in paced(removed.values(), yield_now, EPISODES_PER_YIELD):
        if each.session not in places:
            places[each.session], indexes[each.session] = {}, 0
            earlier[each.session] = tenant.erased.in_session(each.session)
    for episode in paced(tenant.episodes, yield_now, EPISODES_PER_YIELD):
        session = episode.session
        if session not in indexes:
            continue
        while indexes[session] in earlier[session]:
            indexes[session] += 1
        if episode.id in removed:
            places[session][indexes[session]] = episode
        indexes[session] += 1
    tenant.erased.add(change.id, places, yield_now)


def _remove(tenant: Tenant, group: FactRows, delta: Delta, number: int, yield_now: YieldNow) -> int:
    """Remove the stored facts of a group; return their number."""
    partition = tenant.partition(group.scope)
    stored = None if partition is None else partition.get(group.schema)
    if partition is None or stored is None:
        return 0
    arity = group.arity
    symbols, count = array("I"), 0
    for index in paced(range(len(group)), yield_now, FACTS_PER_YIELD):
        row = [tenant.engine.find(arg) for arg in group.args[index * arity : (index + 1) * arity]]
        if 0 not in row:
            symbols.extend(row)
            count += 1
    rows, ids = located(stored.relation, symbols, count)
    if not len(ids):
        return 0
    stored = partition.writable(group.schema)
    rows, ids = located(stored.relation, rows, len(ids))
    if stored.has_labels:
        stacks = list(zip(*[iter(rows)] * arity, strict=True)) or [()]
        rows, count, _ = take_admitted(tenant, stored, stacks, delta, yield_now)
        rows, ids = located(stored.relation, rows, count)
    keys, removed = stored.take(tenant.engine, rows, ids, yield_now)
    tenant.changed(len(ids), stored)
    delta.removed.append(RemovedFacts(stored.schema, stored.scope, keys, removed, number))
    return len(ids)


def _forget_evidence(tenant: Tenant, episodes: set[str], yield_now: YieldNow) -> None:
    """Remove the spans of episodes from the evidence of all facts."""
    everywhere = (
        layer for _, stored in tenant.stored() for layer in (stored, *stored.layers.values())
    )
    for stored in everywhere:
        left: dict[RowKey, list[Span]] = {}
        for row, metadata in paced(stored.metadata.items(), yield_now, FACTS_PER_YIELD):
            spans = evidence_of(metadata)
            others = [span for span in spans if span["episode"] not in episodes]
            if len(others) < len(spans):
                left[row] = others
        for row, others in paced(left.items(), yield_now, FACTS_PER_YIELD):
            stored.describe(row, with_evidence(stored.metadata[row], others))
            tenant.changed(0, stored)


def restore_facts(tenant: Tenant, change: RestoreFacts, delta: Delta, yield_now: YieldNow) -> None:
    """Store facts with exactly these attributes."""
    for fact in paced(change.facts, yield_now, FACTS_PER_YIELD):
        schema = RelationSchema(fact.predicate, len(fact.args), fact.standing.positive)
        stored = tenant.need_partition(fact.scope).writable(schema)
        symbols = tenant.engine.intern_many(fact.args)
        if not (delta.labels or stored.has_labels):
            _restore(tenant, stored, symbols, fact, delta)
            continue

        def insert(
            layer: StoredRelation,
            symbols: array[int],
            facts: Sequence[Fact],
            fact: RestoredFact = fact,
        ) -> None:
            _restore(tenant, layer, symbols, fact, delta)

        own = Fact(fact.predicate, fact.args, fact.standing.positive, fact.scope)
        assert_labelled(tenant, stored, symbols, [own], delta.labels, insert)


def _restore(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], fact: RestoredFact, delta: Delta
) -> None:
    ids, added = stored.insert(symbols, 1)
    begin, end = _describe(stored, ids, fact.standing, fact.ttl)
    if fact.priority is not None:
        stored.relation.set_attribute(Attribute.PRIORITY, ids, [fact.priority])
    row = tuple(symbols)
    metadata = fact.standing.metadata
    known = [span for span in evidence_of(metadata) if span["episode"] in tenant.episodes]
    stored.describe(row, with_evidence(metadata, known))
    tenant.changed(added, stored)
    if begin != 0 or end != FOREVER or row in stored.limited:
        stored.limited.add(row)
        tenant.limit(stored, row)
        if begin == 0 and end == FOREVER:
            stored.limited.discard(row)
    delta.asserted += added
    delta.updated += 1 - added


def _describe(
    stored: StoredRelation, ids: array[int], fact: ConflictingFact, ttl: int | None
) -> tuple[int, int]:
    """Write the attributes of a fact; return the cells of its validity window."""
    end = FOREVER if fact.valid_until is None else fact.valid_until
    begin = beginning_cell(None if fact.valid_from == fact.created_at else fact.valid_from)
    values: dict[Attribute, float] = {
        Attribute.CREATED_AT: fact.created_at,
        Attribute.VALID_FROM: begin,
        Attribute.VALID_UNTIL: end,
        Attribute.TTL: ttl or 0,
        Attribute.CONFIDENCE: UNKNOWN if fact.confidence is None else fact.confidence,
    }
    for attribute, value in values.items():
        stored.relation.set_attribute(attribute, ids, [value])
    return begin, end
