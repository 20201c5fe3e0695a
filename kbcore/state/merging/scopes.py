"""Application of scope changes: fork, drop and merge.

The result depends only on the state and the decisions.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kbcore.state.changes import Decision, Delta, DropScope, ForkScope, MergeScope, ScopeChange
from kbcore.state.episodes.evidence import Span, combined, evidence_of, union, with_evidence
from kbcore.state.merging.differences import (
    SIGNS,
    ScopeDifference,
    Validity,
    cells,
    differences,
    flat,
)
from kbcore.state.merging.labelled import has_labels, merge_labelled
from kbcore.state.merging.sides import ConflictingFact, Keep
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.rulebook import ParsedRule
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import DETAILS, FOREVER, NO_ROW, Attribute, beginning_cell
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, paced, sorted_in_parts

UNKNOWN = float("nan")

RULES_PER_YIELD = 100
"""Rules copied or removed between two calls of `yield_now`: about a millisecond."""

FACTS_PER_YIELD = 200
"""Facts copied, combined or removed between two calls of `yield_now`: about a millisecond."""


def change_scopes(
    tenant: Tenant, change: ScopeChange, delta: Delta, yield_now: YieldNow = go_on
) -> None:
    """Apply a scope change and record its effect; the caller holds the tenant's write lock.

    `yield_now` is called about once a millisecond, while the change is applied in part.
    """
    if isinstance(change, ForkScope):
        _fork(tenant, change, delta, yield_now)
    elif isinstance(change, DropScope):
        delta.details["deleted"] = _drop(tenant, change.scope, delta, yield_now)
    else:
        _Merge(tenant, change, delta, yield_now).run()


def _fork(tenant: Tenant, change: ForkScope, delta: Delta, yield_now: YieldNow) -> None:
    _drop(tenant, change.target, delta, yield_now)
    copy_of_facts = tenant.copy_partition(change.source, change.target, yield_now)
    delta.details["copied"] = copy_of_facts.live()
    rules = tenant.writable_rules()
    source_rules = () if change.source is None else rules.of(change.source)
    for stored in paced(source_rules, yield_now, RULES_PER_YIELD):
        copy = _in_scope(stored, change.target)
        forms = [(each, _in_scope(form, change.target)) for each, form in rules.forms_of(stored)]
        added = [rules.add(form, labels) for labels, form in forms]
        if any(added):
            delta.note_rule("rules_added", copy, forms, ())
    declarations = () if change.source is None else rules.declarations_of(change.source)
    for declared in paced(declarations, yield_now, RULES_PER_YIELD):
        rules.declare(replace(declared.declaration, scope=change.target))
    if change.source is not None and tenant.rule_sets:
        tenant.writable_rule_sets().fork(change.source, change.target, yield_now)
    tenant.plan_version += 1


def _in_scope(stored: ParsedRule, scope: str) -> ParsedRule:
    return replace(stored, rule=replace(stored.rule, scope=scope), scope=scope)


def _drop(tenant: Tenant, scope: str, delta: Delta, yield_now: YieldNow) -> int:
    """Remove a scope and its rules and return the number of its facts."""
    known = tenant.partition(scope)
    facts = 0 if known is None else known.live()
    if tenant.lose_partition(scope, yield_now) is not None:
        delta.dropped.append(scope)
    rules = tenant.writable_rules()
    for stored in paced(rules.of(scope), yield_now, RULES_PER_YIELD):
        forms = rules.forms_of(stored)
        rules.remove(scope, stored.id)
        delta.note_rule("rules_removed", stored, forms, ())
    for declared in paced(rules.declarations_of(scope), yield_now, RULES_PER_YIELD):
        rules.withdraw(scope, declared.id)
        delta.declarations_removed.append(declared)
    if tenant.rule_sets:
        tenant.writable_rule_sets().drop_scope(scope, yield_now)
    return facts


class _Merge:
    """The run of one merge."""

    def __init__(
        self, tenant: Tenant, change: MergeScope, delta: Delta, yield_now: YieldNow
    ) -> None:
        self._yield_now = yield_now
        self._tenant = tenant
        self._change = change
        self._delta = delta
        self._source = tenant.partition(change.source)
        self._target = tenant.need_partition(change.target)
        self._merged = 0

    def run(self) -> None:
        """Copy the facts that only the source has, and apply the decision of each conflict."""
        others: dict[tuple[str, int], dict[RowKey, Decision]] = {}
        for predicate, args, decision in paced(
            self._change.others, self._yield_now, FACTS_PER_YIELD
        ):
            key = tuple(self._tenant.engine.find(arg) for arg in args)
            others.setdefault((predicate, len(args)), {})[key] = decision
        conflicts = 0
        for difference in differences(
            self._source, self._target, Validity(self._change.at, future=True), self._yield_now
        ):
            decided = others.get((difference.predicate, difference.arity), {})
            conflicts += self._merge_relation(difference, decided)
        self._delta.details.update(merged=self._merged, conflicts=conflicts)

    def _merge_relation(self, difference: ScopeDifference, decided: dict[RowKey, Decision]) -> int:
        """Merge the facts of one predicate and arity; return the number of conflicts."""
        if has_labels(difference):

            def count(is_new: bool) -> None:
                self._merged += 1
                self._delta.asserted += is_new
                self._delta.updated += not is_new

            merge_labelled(
                self._tenant,
                difference,
                self._target,
                Validity(self._change.at, future=True),
                lambda key: decided[key].keep if key in decided else self._change.usual,
                count,
            )
            return difference.conflict_count()
        evidence = {sign: _evidence(difference, sign) for sign in SIGNS}
        conflicts = self._merge_facts(difference, decided)
        for sign, spans in evidence.items():
            self._support(difference, sign, spans)
        return conflicts

    def _support(
        self, difference: ScopeDifference, sign: bool, evidence: Mapping[RowKey, Sequence[Span]]
    ) -> None:
        """Give facts of one sign that the target has now the evidence of both scopes."""
        stored = self._target.get(RelationSchema(difference.predicate, difference.arity, sign))
        if not evidence or stored is None:
            return
        rows = flat(paced(evidence, self._yield_now))
        ids = stored.relation.locate(cells(rows, difference.arity), len(evidence))
        located_evidence = zip(evidence.items(), ids, strict=True)
        for (key, spans), id in paced(located_evidence, self._yield_now, FACTS_PER_YIELD):
            if id == NO_ROW:
                continue  # the strategy removed it
            metadata = stored.metadata.get(key, {})
            united = union(spans, evidence_of(metadata))
            if united != evidence_of(metadata):
                stored = self._target.writable(stored.schema)
                stored.describe(key, with_evidence(metadata, united))
                self._tenant.changed(0, stored)

    def _merge_facts(self, difference: ScopeDifference, decided: dict[RowKey, Decision]) -> int:
        """Copy the facts that only the source has, and settle the conflicts; return their
        number.
        """
        for sign in SIGNS:
            drawn = difference.drawn(sign, source=True)
            self._copy(
                difference, sign, _without(difference, difference.signs[sign].only_source, drawn)
            )
        usual = self._change.usual
        if not decided:
            self._settle(difference, usual, None)
        else:
            groups: dict[Keep, set[RowKey]] = {}
            for key in difference.conflicts():
                groups.setdefault(decided[key].keep if key in decided else usual, set()).add(key)
            for keep, group in groups.items():
                if keep is not Keep.FACTS:
                    self._settle(difference, keep, group)
                    continue
                for key in paced(group, self._yield_now, DECISIONS_PER_YIELD):
                    self._replace(difference, key, decided[key].facts)
        return difference.conflict_count()

    def _settle(
        self, difference: ScopeDifference, keep: Keep, group: Collection[RowKey] | None
    ) -> None:
        """Settle conflicts (None: all of them) as SOURCE, TARGET or BOTH says."""
        if keep is Keep.TARGET:
            return
        for sign in SIGNS:
            pair, other = difference.signs[sign], difference.signs[not sign]
            drawn = flat(difference.drawn(sign, source=True))
            if keep is Keep.SOURCE:
                lost = other.crossed + flat(difference.drawn(sign, source=False))
                self._erase(pair.target, difference, _within(difference, lost, group))
                self._copy(
                    difference,
                    sign,
                    _within(difference, pair.modified + pair.crossed + drawn, group),
                )
            else:
                self._combine(difference, sign, _within(difference, pair.modified, group))
                self._copy(difference, sign, _within(difference, pair.crossed + drawn, group))

    def _copy(self, difference: ScopeDifference, sign: bool, rows: array[int]) -> None:
        """Copy facts of the source with their attributes.

        Facts already in the target are overwritten.
        """
        source = difference.signs[sign].source
        if source is not None and rows:
            target = self._target.writable(source.schema)
            for part in self._parts(difference, rows):
                self._copy_part(difference, source, target, part)

    def _parts(self, difference: ScopeDifference, rows: array[int]) -> Iterator[array[int]]:
        """Yield rows in parts that take about a millisecond to write."""
        size = FACTS_PER_YIELD * max(difference.arity, 1)
        for start in range(0, len(rows), size):
            self._yield_now()
            yield rows[start : start + size]

    def _copy_part(
        self,
        difference: ScopeDifference,
        source: StoredRelation,
        target: StoredRelation,
        rows: array[int],
    ) -> None:
        count = difference.count(rows)
        ids_in_target, added = target.insert(cells(rows, difference.arity), count)
        ids = source.relation.locate(cells(rows, difference.arity), count)
        for attribute in DETAILS:
            if source.relation.uses(attribute) or target.relation.uses(attribute):
                target.relation.set_attribute(
                    attribute, ids_in_target, source.relation.attributes(attribute, ids)
                )
        if source.metadata or target.metadata:
            for key in difference.keys(rows):
                target.describe(key, source.metadata.get(key))
        self._noted(target, count, added)
        if source.limited or target.limited:
            for key in difference.keys(rows):
                self._limit(target, key, key in source.limited)

    def _combine(self, difference: ScopeDifference, sign: bool, rows: array[int]) -> None:
        """Combine the two facts of the same sign at each row, as `Keep.BOTH` says."""
        source, target = difference.signs[sign].source, difference.signs[sign].target
        if source is not None and target is not None and rows:
            target = self._target.writable(target.schema)
            for part in self._parts(difference, rows):
                self._combine_part(difference, source, target, part)

    def _combine_part(
        self,
        difference: ScopeDifference,
        source: StoredRelation,
        target: StoredRelation,
        rows: array[int],
    ) -> None:
        count = difference.count(rows)
        sides = [
            (stored, stored.relation.locate(cells(rows, difference.arity), count))
            for stored in (source, target)
        ]
        created = [min(both) for both in _cells(Attribute.CREATED_AT, sides)]
        surest = [
            UNKNOWN if a != a or b != b else max(a, b)
            for a, b in _cells(Attribute.CONFIDENCE, sides)
        ]
        windows = zip(*(stored.windows(ids) for stored, ids in sides), strict=True)
        starts, ends = zip(*((min(a[0], b[0]), max(a[1], b[1])) for a, b in windows), strict=True)
        begins = [
            beginning_cell(None if start == at else start)
            for start, at in zip(starts, created, strict=True)
        ]
        ids_in_target = sides[1][1]
        for attribute, values in (
            (Attribute.CREATED_AT, created),
            (Attribute.VALID_FROM, begins),
            (Attribute.VALID_UNTIL, ends),
            (Attribute.TTL, [0] * count),
            (Attribute.CONFIDENCE, surest),
        ):
            target.relation.set_attribute(attribute, ids_in_target, values)
        self._noted(target, count, 0)
        for key, begin, end in zip(difference.keys(rows), begins, ends, strict=True):
            if source.metadata or target.metadata:
                target.describe(
                    key, combined(target.metadata.get(key, {}), source.metadata.get(key, {}))
                )
            self._limit(target, key, begin != 0 or end != FOREVER)

    def _replace(
        self, difference: ScopeDifference, key: RowKey, facts: Sequence[ConflictingFact]
    ) -> None:
        """Replace the facts at one tuple of arguments with exactly these facts."""
        row = flat([key])
        for sign in SIGNS:
            self._erase(difference.signs[sign].target, difference, row)
        for fact in facts:
            stored = self._target.writable(
                RelationSchema(difference.predicate, difference.arity, fact.positive)
            )
            ids, added = stored.insert(cells(row, difference.arity), 1)
            end = FOREVER if fact.valid_until is None else fact.valid_until
            begin = beginning_cell(None if fact.valid_from == fact.created_at else fact.valid_from)
            values: dict[Attribute, float] = {
                Attribute.CREATED_AT: fact.created_at,
                Attribute.VALID_FROM: begin,
                Attribute.VALID_UNTIL: end,
                Attribute.TTL: 0,
                Attribute.CONFIDENCE: UNKNOWN if fact.confidence is None else fact.confidence,
            }
            for attribute, value in values.items():
                stored.relation.set_attribute(attribute, ids, [value])
            stored.describe(key, fact.metadata)
            self._noted(stored, 1, added)
            self._limit(stored, key, begin != 0 or end != FOREVER)

    def _erase(
        self, stored: StoredRelation | None, difference: ScopeDifference, rows: array[int]
    ) -> None:
        if stored is None or not rows:
            return
        stored = self._target.writable(stored.schema)
        for part in self._parts(difference, rows):
            stored_rows, ids = located(
                stored.relation, cells(part, difference.arity), difference.count(part)
            )
            if len(ids):
                stored.remove(stored_rows, len(ids))
                self._tenant.changed(len(ids), stored)

    def _limit(self, stored: StoredRelation, key: RowKey, limited: bool) -> None:
        """Show or hide a fact as its window says; a fact without a window must not stay hidden."""
        if limited or key in stored.limited:
            stored.limited.add(key)
            self._tenant.limit(stored, key)
            if not limited:
                stored.limited.discard(key)

    def _noted(self, stored: StoredRelation, count: int, added: int) -> None:
        self._tenant.changed(count, stored)
        self._merged += count
        self._delta.asserted += added
        self._delta.updated += count - added


DECISIONS_PER_YIELD = 20
"""Facts written one by one, as a strategy decided, between two calls of `yield_now`: about a
millisecond.
"""


def _evidence(difference: ScopeDifference, sign: bool) -> dict[RowKey, list[Span]]:
    """Return the evidence, of both scopes, of facts that both have."""
    pair = difference.signs[sign]
    if pair.source is None or pair.target is None:
        return {}
    here, there = pair.source.metadata, pair.target.metadata
    yield_now = difference.yield_now
    with_evidence_keys = {
        key
        for key in paced(chain(here, there), yield_now, FACTS_PER_YIELD)
        if evidence_of(here.get(key, {})) or evidence_of(there.get(key, {}))
    }
    if not with_evidence_keys:
        return {}
    keys = sorted_in_parts(with_evidence_keys, yield_now)
    rows = cells(flat(paced(keys, yield_now)), difference.arity)
    one_sided = {
        key
        for one_sided_rows in (pair.only_source, pair.only_target, pair.crossed)
        for key in difference.keys(one_sided_rows)
    }
    both = zip(
        keys,
        *(side.relation.locate(rows, len(keys)) for side in (pair.source, pair.target)),
        strict=True,
    )
    return {
        key: union(evidence_of(there.get(key, {})), evidence_of(here.get(key, {})))
        for key, *ids in paced(both, yield_now, FACTS_PER_YIELD)
        if NO_ROW not in ids and key not in one_sided
    }


def _cells(
    attribute: Attribute, sides: Iterable[tuple[StoredRelation, array[int]]]
) -> Iterable[tuple[float, float]]:
    mine, other = (stored.relation.attributes(attribute, ids) for stored, ids in sides)
    return zip(mine, other, strict=True)


def _within(
    difference: ScopeDifference, rows: array[int], group: Collection[RowKey] | None
) -> array[int]:
    return rows if group is None else flat(key for key in difference.keys(rows) if key in group)


def _without(difference: ScopeDifference, rows: array[int], keys: Sequence[RowKey]) -> array[int]:
    if not keys:
        return rows
    gone = set(keys)
    return flat(key for key in difference.keys(rows) if key not in gone)
