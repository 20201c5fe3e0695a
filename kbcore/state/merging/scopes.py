"""Apply what happens to scopes as a whole: forked, dropped, merged. It follows from the state and from what was decided."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from kbcore.state.changes import Decision, Delta, DropScope, ForkScope, MergeScope, ScopeChange
from kbcore.state.merging.differences import SIGNS, Difference, Validity, cells, differences, flat
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.standing import Keep, Standing
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER, Attribute
from kbplanner.engine.cells import beginning_cell
from kbplanner.ir.schema import RelationSchema

UNKNOWN = float("nan")


def change_scopes(tenant: Tenant, change: ScopeChange, delta: Delta) -> None:
    """Apply one of them, and write down what really changes."""
    if isinstance(change, ForkScope):
        _fork(tenant, change, delta)
    elif isinstance(change, DropScope):
        delta.details["deleted"] = _drop(tenant, change.scope, delta)
    else:
        _Merge(tenant, change, delta).run()


def _fork(tenant: Tenant, change: ForkScope, delta: Delta) -> None:
    _drop(tenant, change.target, delta)
    delta.details["copied"] = tenant.copy_partition(change.source, change.target).live()
    rules = tenant.writable_rules()
    for stored in () if change.source is None else rules.of(change.source):
        copy = replace(stored, rule=replace(stored.rule, scope=change.target), scope=change.target)
        if rules.add(copy):
            delta.rules_added.append(copy)
    tenant.plan_version += 1


def _drop(tenant: Tenant, scope: str, delta: Delta) -> int:
    """Remove a scope and its rules; how many facts went. A reader never runs beside this: it needs the tenant's lock."""
    known = tenant.partition(scope)
    facts = 0 if known is None else known.live()
    if tenant.lose_partition(scope) is not None:
        delta.dropped.append(scope)
    rules = tenant.writable_rules()
    for stored in rules.of(scope):
        rules.remove(scope, stored.id)
        delta.rules_removed.append(stored)
    return facts


class _Merge:
    """One merge under way."""

    def __init__(self, tenant: Tenant, change: MergeScope, delta: Delta) -> None:
        self._tenant = tenant
        self._change = change
        self._delta = delta
        self._source = tenant.partition(change.source)
        self._target = tenant.need_partition(change.target)
        self._merged = 0

    def run(self) -> None:
        """Bring over what only the source has, and what was decided for each conflict."""
        others: dict[tuple[str, int], dict[RowKey, Decision]] = {}
        for predicate, args, decision in self._change.others:
            key = tuple(self._tenant.engine.find(arg) for arg in args)
            others.setdefault((predicate, len(args)), {})[key] = decision
        conflicts = 0
        for found in differences(self._source, self._target, Validity(self._change.at, future=True)):
            decided = others.get((found.predicate, found.arity), {})
            conflicts += self._one(found, decided)
        self._delta.details.update(merged=self._merged, conflicts=conflicts)

    def _one(self, found: Difference, decided: dict[RowKey, Decision]) -> int:
        """Merge the facts of one predicate and arity; how many conflicts there were."""
        for sign in SIGNS:
            drawn = found.drawn(sign, source=True)
            self._copy(found, sign, _without(found, found.signs[sign].only_source, drawn))
        usual = self._change.usual
        if not decided:
            self._settle(found, usual, None)
        else:
            groups: dict[Keep, set[RowKey]] = {}
            for key in found.conflicts():
                groups.setdefault(decided[key].keep if key in decided else usual, set()).add(key)
            for keep, group in groups.items():
                if keep is not Keep.FACTS:
                    self._settle(found, keep, group)
                    continue
                for key in group:
                    self._replace(found, key, decided[key].facts)
        return found.conflict_count()

    def _settle(self, found: Difference, keep: Keep, group: Collection[RowKey] | None) -> None:
        """Settle conflicts (None: all of them) in the way of SOURCE, TARGET or BOTH."""
        if keep is Keep.TARGET:
            return
        for sign in SIGNS:
            one, other = found.signs[sign], found.signs[not sign]
            drawn = flat(found.drawn(sign, source=True))
            if keep is Keep.SOURCE:
                lost = other.crossed + flat(found.drawn(sign, source=False))
                self._erase(one.target, found, _within(found, lost, group))
                self._copy(found, sign, _within(found, one.modified + one.crossed + drawn, group))
            else:
                self._combine(found, sign, _within(found, one.modified, group))
                self._copy(found, sign, _within(found, one.crossed + drawn, group))

    def _copy(self, found: Difference, sign: bool, rows: array[int]) -> None:
        """Bring facts of the source over as they are; those that are there already become the same."""
        count = found.count(rows)
        source = found.signs[sign].source
        if not count or source is None:
            return
        target = self._target.writable(source.schema)
        places, added = target.relation.insert(cells(rows, found.arity), count)
        ids = source.relation.locate(cells(rows, found.arity), count)
        for attribute in Attribute:
            if source.relation.uses(attribute) or target.relation.uses(attribute):
                target.relation.set_attribute(attribute, places, source.relation.attributes(attribute, ids))
        if source.metadata or target.metadata:
            for key in found.keys(rows):
                target.describe(key, source.metadata.get(key))
        self._noted(target, count, added)
        if source.limited or target.limited:
            for key in found.keys(rows):
                self._limit(target, key, key in source.limited)

    def _combine(self, found: Difference, sign: bool, rows: array[int]) -> None:
        """Make one fact of two of the same sign, as `Keep.BOTH` says."""
        count = found.count(rows)
        source, target = found.signs[sign].source, found.signs[sign].target
        if not count or source is None or target is None:
            return
        target = self._target.writable(target.schema)
        sides = [(stored, stored.relation.locate(cells(rows, found.arity), count)) for stored in (source, target)]
        created = [min(both) for both in _cells(Attribute.CREATED_AT, sides)]
        surest = [UNKNOWN if a != a or b != b else max(a, b) for a, b in _cells(Attribute.CONFIDENCE, sides)]
        windows = zip(*(stored.windows(ids) for stored, ids in sides), strict=True)
        starts, ends = zip(*((min(a[0], b[0]), max(a[1], b[1])) for a, b in windows), strict=True)
        begins = [beginning_cell(None if start == at else start) for start, at in zip(starts, created, strict=True)]
        places = sides[1][1]
        for attribute, values in (
            (Attribute.CREATED_AT, created),
            (Attribute.VALID_FROM, begins),
            (Attribute.VALID_UNTIL, ends),
            (Attribute.TTL, [0] * count),
            (Attribute.CONFIDENCE, surest),
        ):
            target.relation.set_attribute(attribute, places, values)
        self._noted(target, count, 0)
        for key, begin, end in zip(found.keys(rows), begins, ends, strict=True):
            if source.metadata or target.metadata:
                target.describe(key, {**target.metadata.get(key, {}), **source.metadata.get(key, {})})
            self._limit(target, key, begin != 0 or end != FOREVER)

    def _replace(self, found: Difference, key: RowKey, facts: Sequence[Standing]) -> None:
        """Let exactly these facts stand at some arguments."""
        row = flat([key])
        for sign in SIGNS:
            self._erase(found.signs[sign].target, found, row)
        for fact in facts:
            stored = self._target.writable(RelationSchema(found.predicate, found.arity, fact.positive))
            place, added = stored.relation.insert(cells(row, found.arity), 1)
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
                stored.relation.set_attribute(attribute, place, [value])
            stored.describe(key, fact.metadata)
            self._noted(stored, 1, added)
            self._limit(stored, key, begin != 0 or end != FOREVER)

    def _erase(self, stored: StoredRelation | None, found: Difference, rows: array[int]) -> None:
        if stored is None or not rows:
            return
        stored = self._target.writable(stored.schema)
        there, ids = located(stored.relation, cells(rows, found.arity), found.count(rows))
        if not len(ids):
            return
        stored.remove(there, len(ids))
        self._tenant.changed(len(ids), stored)

    def _limit(self, stored: StoredRelation, key: RowKey, limited: bool) -> None:
        """Show or hide a fact as its window says; one without must not stay hidden."""
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


def _cells(attribute: Attribute, sides: Iterable[tuple[StoredRelation, array[int]]]) -> Iterable[tuple[float, float]]:
    mine, other = (stored.relation.attributes(attribute, ids) for stored, ids in sides)
    return zip(mine, other, strict=True)


def _within(found: Difference, rows: array[int], group: Collection[RowKey] | None) -> array[int]:
    return rows if group is None else flat([key for key in found.keys(rows) if key in group])


def _without(found: Difference, rows: array[int], keys: Sequence[RowKey]) -> array[int]:
    if not keys:
        return rows
    gone = set(keys)
    return flat([key for key in found.keys(rows) if key not in gone])
