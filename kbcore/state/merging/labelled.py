"""Merges of facts with labels: each set of labels of a fact by itself.

What a fact has with the labels of the source takes the place of what the target has with the same
labels. Details with other labels stay too, in the order that the decision gives: what wins is
the newest, which a view that admits both shows. A fact of the other sign is removed, or keeps that
of the source away, if its readers may all see the one that wins: if the labels of that dominate.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from kbcore.errors import Conflict
from kbcore.state.changes import MergeScope
from kbcore.state.episodes.evidence import (
    combined,
    evidence_of,
    union,
    with_evidence,
    without_evidence,
)
from kbcore.state.labelling import put_details, remove_details, settle
from kbcore.state.labels import Labels, dominates
from kbcore.state.merging.differences import SIGNS, ScopeDifference, Validity
from kbcore.state.merging.sides import Keep
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, beginning_cell
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, paced

FACTS_PER_YIELD = 50
"""Facts merged between two calls of `yield_now`: about a millisecond."""

Details = dict[Labels, StoredRelation]
"""The relations that have the details of a fact, by its labels; what is stored last comes last."""


def has_labels(difference: ScopeDifference) -> bool:
    """Return True if any fact of a predicate has labels in one of two scopes."""
    return any(
        stored is not None and stored.has_labels
        for pair in difference.signs.values()
        for stored in (pair.source, pair.target)
    )


def refuse_labelled_facts(tenant: Tenant, change: MergeScope, yield_now: YieldNow) -> None:
    """Raise Conflict if a strategy replaces facts with labels by facts of its own: they would have
    no labels.
    """
    for predicate, args, decision in paced(change.others, yield_now, FACTS_PER_YIELD):
        if decision.keep is not Keep.FACTS:
            continue
        for partition in map(tenant.partition, (change.source, change.target)):
            named = () if partition is None else partition.named(predicate, len(args))
            if any(stored.has_labels for stored in named):
                raise Conflict(
                    f"{predicate} has facts with labels, which a strategy does not replace by"
                    " others; it keeps one side or both"
                )


class _Fact(NamedTuple):
    """The details of a fact of one sign in two scopes."""

    source: Details
    target: Details


def merge_labelled(
    tenant: Tenant,
    difference: ScopeDifference,
    target: Partition,
    validity: Validity,
    keep_of: Callable[[RowKey], Keep],
    count: Callable[[bool], None],
) -> None:
    """Merge the facts of one predicate and arity into a partition; `keep_of` returns the decision
    for arguments, and `count` is called for each fact that is stored, with True for a new one.
    """
    keys: dict[RowKey, None] = {}
    for pair in difference.signs.values():
        if pair.source is not None:
            keys.update(dict.fromkeys(_all_rows(pair.source, difference.yield_now)))
    for key in paced(keys, difference.yield_now, FACTS_PER_YIELD):
        facts = {
            sign: _Fact(
                _details(difference.signs[sign].source, key, validity),
                _details(difference.signs[sign].target, key, validity),
            )
            for sign in SIGNS
        }
        _One(tenant, difference, target, key, facts).merge(keep_of(key), count)


class _One:
    """The merge of the facts with the same arguments."""

    def __init__(
        self,
        tenant: Tenant,
        difference: ScopeDifference,
        target: Partition,
        key: RowKey,
        facts: dict[bool, _Fact],
    ) -> None:
        self._tenant = tenant
        self._difference = difference
        self._target = target
        self._key = key
        self._facts = facts
        self._changed = {
            sign: [labels for labels in fact.source if not self._is_equal(fact, labels)]
            for sign, fact in facts.items()
        }

    def merge(self, keep: Keep, count: Callable[[bool], None]) -> None:
        """Merge both signs as a decision says."""
        stored = {sign: list(self._changed[sign]) for sign in SIGNS}
        for sign in SIGNS:
            if keep is Keep.SOURCE:
                self._erase_opposites(sign)
            elif keep is Keep.TARGET:
                stored[sign] = [
                    labels for labels in stored[sign] if not self._gives_way(sign, labels)
                ]
        for sign in SIGNS:
            on_top = keep is not Keep.TARGET or not self._facts[sign].target
            for labels in self._facts[sign].source if on_top else reversed(stored[sign]):
                if labels in stored[sign]:
                    self._put(sign, labels, keep, on_top, count)
                else:
                    self._raise(sign, labels)
            if self._facts[sign].source:
                self._unite_evidence(sign)

    def _is_equal(self, fact: _Fact, labels: Labels) -> bool:
        """Return True if both scopes have the same details with labels, apart from evidence."""
        theirs = fact.target.get(labels)
        if theirs is None:
            return False
        mine = _standing(fact.source[labels], self._key)
        return mine == _standing(theirs, self._key)

    def _erase_opposites(self, sign: bool) -> None:
        """Remove what only the target has of the other sign and what the source outweighs."""
        other = self._facts[not sign]
        gone = [
            labels
            for labels in other.target
            if labels not in other.source
            and any(self._dominates(own, labels) for own in self._changed[sign])
        ]
        if gone:
            schema = RelationSchema(self._difference.predicate, self._difference.arity, not sign)
            remove_details(self._tenant, self._target.writable(schema), self._key, gone)

    def _gives_way(self, sign: bool, labels: Labels) -> bool:
        """Return True if details of the source are not stored beside those of the target."""
        other = self._facts[not sign]
        return labels in self._facts[sign].target or any(
            self._dominates(theirs, labels)
            for theirs in other.target
            if theirs not in other.source or theirs in self._changed[not sign]
        )

    def _dominates(self, labels: Labels, others: Labels) -> bool:
        return dominates(labels, others, self._tenant.rules.dimensions())

    def _put(
        self,
        sign: bool,
        labels: Labels,
        keep: Keep,
        on_top: bool,
        count: Callable[[bool], None],
    ) -> None:
        """Store details of the source in the target."""
        fact = self._facts[sign]
        schema = RelationSchema(self._difference.predicate, self._difference.arity, sign)
        stored = self._target.writable(schema)
        source, theirs = fact.source[labels], fact.target.get(labels)
        spans = () if theirs is None else evidence_of(theirs.metadata.get(self._key, {}))
        before = None
        if keep is Keep.BOTH and theirs is not None:
            before = _cells(theirs, self._key)
        put_details(self._tenant, stored, self._key, labels, source, newest=on_top)
        layer = stored.layers[labels] if self._key in stored.stacked else stored
        if before is not None:
            _combine(self._tenant, layer, self._key, before)
        if spans:
            metadata = layer.metadata.get(self._key, {})
            layer.describe(self._key, with_evidence(metadata, union(evidence_of(metadata), spans)))
        settle(self._tenant, stored, self._key)
        count(not fact.target)

    def _raise(self, sign: bool, labels: Labels) -> None:
        """Show details that both scopes have above the others of the fact."""
        schema = RelationSchema(self._difference.predicate, self._difference.arity, sign)
        stored = self._target.get(schema)
        stack = None if stored is None else stored.stacked.get(self._key)
        if stack is None or labels not in stack or stack[-1] == labels:
            return
        stored = self._target.writable(schema)
        others = (each for each in stack if each != labels)
        stored.stacked[self._key] = (*others, labels)
        settle(self._tenant, stored, self._key)

    def _unite_evidence(self, sign: bool) -> None:
        """Give details that stay in the target the evidence of the source with the same labels."""
        schema = RelationSchema(self._difference.predicate, self._difference.arity, sign)
        stored = self._target.get(schema)
        if stored is None:
            return
        for labels, source in self._facts[sign].source.items():
            spans = evidence_of(source.metadata.get(self._key, {}))
            if not spans or labels not in self._facts[sign].target:
                continue
            stored = self._target.writable(schema)
            layer = stored.layers.get(labels) if self._key in stored.stacked else stored
            if layer is None or layer.relation.locate(array("I", self._key), 1)[0] == NO_ROW:
                continue
            metadata = layer.metadata.get(self._key, {})
            united = union(spans, evidence_of(metadata))
            if united != evidence_of(metadata):
                layer.describe(self._key, with_evidence(metadata, united))
                self._tenant.changed(0, stored)
                settle(self._tenant, stored, self._key)


def _all_rows(stored: StoredRelation, yield_now: YieldNow) -> list[RowKey]:
    arity = stored.schema.arity
    rows, ids = stored.relation.match([0] * arity, hidden=True, yield_now=yield_now)
    return [tuple(rows[i * arity : (i + 1) * arity]) for i in range(len(ids))]


def _details(stored: StoredRelation | None, key: RowKey, validity: Validity) -> Details:
    """Return what counts of a fact."""
    if stored is None or stored.relation.locate(array("I", key), 1)[0] == NO_ROW:
        return {}
    stack = stored.stacked.get(key)
    layers = (
        {stored.labels.get(key): stored}
        if stack is None
        else {labels: stored.layers[labels] for labels in stack}
    )
    return {
        labels: layer
        for labels, layer in layers.items()
        if validity.counts(*next(iter(layer.windows(_ids(layer, key)))))
    }


def _ids(layer: StoredRelation, key: RowKey) -> array[int]:
    return layer.relation.locate(array("I", key), 1)


def _standing(layer: StoredRelation, key: RowKey) -> object:
    ids = _ids(layer, key)
    begin, confidence = (
        layer.relation.attributes(each, ids)[0]
        for each in (Attribute.VALID_FROM, Attribute.CONFIDENCE)
    )
    _, end = next(iter(layer.windows(ids)))
    known = None if confidence != confidence else confidence
    return begin, end, known, without_evidence(layer.metadata.get(key, {}))


class _Cells(NamedTuple):
    """Details of a fact before it is overwritten."""

    created: float
    confidence: float
    start: int
    end: int
    metadata: dict[str, object]


def _cells(layer: StoredRelation, key: RowKey) -> _Cells:
    ids = _ids(layer, key)
    read = layer.relation.attributes
    start, end = next(iter(layer.windows(ids)))
    return _Cells(
        read(Attribute.CREATED_AT, ids)[0],
        read(Attribute.CONFIDENCE, ids)[0],
        start,
        end,
        dict(layer.metadata.get(key, {})),
    )


def _combine(tenant: Tenant, layer: StoredRelation, key: RowKey, before: _Cells) -> None:
    """Combine the details of the source, which a layer has, with those before, as `Keep.BOTH`
    says.
    """
    now = _cells(layer, key)
    created = min(before.created, now.created)
    start, end = min(before.start, now.start), max(before.end, now.end)
    unknown = before.confidence != before.confidence or now.confidence != now.confidence
    begin = beginning_cell(None if start == created else start)
    values: dict[Attribute, float] = {
        Attribute.CREATED_AT: created,
        Attribute.VALID_FROM: begin,
        Attribute.VALID_UNTIL: end,
        Attribute.TTL: 0,
        Attribute.CONFIDENCE: float("nan") if unknown else max(before.confidence, now.confidence),
    }
    for attribute, value in values.items():
        layer.relation.set_attribute(attribute, _ids(layer, key), [value])
    if before.metadata or now.metadata:
        layer.describe(key, combined(before.metadata, now.metadata))
    limited = begin != 0 or end != FOREVER
    if limited or key in layer.limited:
        layer.limited.add(key)
        tenant.limit(layer, key)
        if not limited:
            layer.limited.discard(key)
