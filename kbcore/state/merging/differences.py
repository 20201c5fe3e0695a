"""Comparison of two partitions, predicate by predicate, both signs together.

Facts are paired by sign first. A pair is equal, or modified: another validity, confidence or
metadata; evidence alone is no difference. Of the remaining facts, a fact of one side whose opposite
is on the other side is crossed, a modification too. All others are on one side only. The engine
compares facts without a validity window at memory speed; facts with a window are compared one by
one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from typing import NamedTuple

from kbcore.state.episodes.evidence import without_evidence
from kbcore.state.merging.sides import ConflictingFact
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, paced

SIGNS = (True, False)

FACTS_PER_YIELD = 500
"""Facts compared one by one between two calls of `yield_now`: about a millisecond."""

ROWS_PER_YIELD = 1 << 16
"""Rows read from the engine between two calls of `yield_now`: about a millisecond."""


@dataclass(slots=True)
class OneSign:
    """The facts of one sign in two partitions, as flat rows.

    Of one side only, modified, and crossed.

    `crossed` holds facts of the source; the target has the fact of the other sign.
    """

    source: StoredRelation | None
    target: StoredRelation | None
    only_source: array[int] = field(default_factory=lambda: array("I"))
    only_target: array[int] = field(default_factory=lambda: array("I"))
    modified: array[int] = field(default_factory=lambda: array("I"))
    crossed: array[int] = field(default_factory=lambda: array("I"))
    equal: int = 0


class Validity(NamedTuple):
    """The facts that count.

    Those valid at `at`, with `future` also those that become valid later.
    """

    at: int
    future: bool = False

    def counts(self, start: int, end: int) -> bool:
        """Return True if a fact with a validity window [start, end) counts."""
        return (self.future or start <= self.at) and self.at < end


@dataclass(slots=True)
class ScopeDifference:
    """The difference of two partitions in one predicate and arity.

    Use `count` for rows of arity 0 too. `yield_now` is called about once a millisecond in methods
    that read many rows.
    """

    predicate: str
    arity: int
    signs: dict[bool, OneSign]
    yield_now: YieldNow = go_on

    def count(self, rows: Sequence[int]) -> int:
        """Count the rows of a flat list; with arity 0 each row is one placeholder."""
        return len(rows) // max(self.arity, 1)

    def keys(self, rows: array[int]) -> Iterator[RowKey]:
        """Yield the rows as tuples."""
        return paced(_keys(rows, self.arity), self.yield_now)

    def drawn(self, sign: bool, *, source: bool) -> list[RowKey]:
        """Return the facts of one sign that only one scope has, and whose opposite differs between
        the scopes.
        """
        other = self.signs[not sign].modified
        only = self.signs[sign].only_source if source else self.signs[sign].only_target
        if not other or not only:
            return []
        known = set(self.keys(only))
        return [key for key in self.keys(other) if key in known]

    def conflict_count(self) -> int:
        """Count the conflicting atoms; an atom modified in both signs counts once."""
        counts = [
            self.count(pair.modified) + self.count(pair.crossed) for pair in self.signs.values()
        ]
        both = [pair.modified for pair in self.signs.values() if pair.modified]
        if len(both) < 2:
            return sum(counts)
        known = set(self.keys(both[0]))
        return sum(counts) - sum(key in known for key in self.keys(both[1]))

    def conflicts(self) -> list[RowKey]:
        """Return the arguments of the conflicts, each once."""
        conflicts: dict[RowKey, None] = {}
        for pair in self.signs.values():
            conflicts.update((key, None) for key in self.keys(pair.modified))
            conflicts.update((key, None) for key in self.keys(pair.crossed))
        return list(conflicts)


def differences(
    source: Partition | None,
    target: Partition | None,
    validity: Validity,
    yield_now: YieldNow = go_on,
) -> Iterator[ScopeDifference]:
    """Yield the differences of two partitions (None: empty), sorted by predicate and arity.

    `yield_now` is called about once a millisecond.
    """
    names = {
        (stored.schema.predicate, stored.schema.arity)
        for partition in (source, target)
        for stored in (() if partition is None else partition.relations())
        if stored.relation.counts().live
    }
    for predicate, arity in paced(sorted(names), yield_now, RELATIONS_PER_YIELD):
        signs = {}
        for sign in SIGNS:
            schema = RelationSchema(predicate, arity, sign)
            mine, other = (None if p is None else p.get(schema) for p in (source, target))
            signs[sign] = OneSign(_filled(mine), _filled(other))
            _compare(signs[sign], arity, validity, yield_now)
        difference = ScopeDifference(predicate, arity, signs, yield_now)
        for sign in SIGNS:
            _cross(difference, sign)
        yield difference


RELATIONS_PER_YIELD = 20
"""Relations compared between two calls of `yield_now`, if they have few facts: about a
millisecond.
"""


def standing(
    stored: StoredRelation, ids: array[int], keys: Sequence[RowKey]
) -> list[ConflictingFact]:
    """Return facts, from their ids and symbols, in the form that merge strategies read.

    Without their evidence: a merge unites it, whatever a strategy decides.
    """
    read = stored.relation.attributes
    created, confidences = read(Attribute.CREATED_AT, ids), read(Attribute.CONFIDENCE, ids)
    facts = []
    for key, at, (start, end), confidence in zip(
        keys, created, stored.windows(ids), confidences, strict=True
    ):
        sure = None if confidence != confidence else confidence
        until = None if end == FOREVER else end
        facts.append(
            ConflictingFact(
                stored.schema.positive,
                int(at),
                start,
                until,
                sure,
                without_evidence(stored.metadata.get(key, {})),
            )
        )
    return facts


def cells(rows: array[int], arity: int) -> array[int]:
    """Return rows as the engine reads them: without the placeholders of arity 0."""
    return rows if arity else array("I")


def _filled(stored: StoredRelation | None) -> StoredRelation | None:
    return stored if stored is not None and stored.relation.counts().live else None


def _all(stored: StoredRelation, yield_now: YieldNow) -> array[int]:
    """Return every row, including hidden ones; with arity 0 a placeholder per row."""
    rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True, yield_now=yield_now)
    return rows if stored.schema.arity else array("I", bytes(4 * len(ids)))


def _compare(pair: OneSign, arity: int, validity: Validity, yield_now: YieldNow) -> None:
    """Pair the facts of one sign."""
    source, target = pair.source, pair.target
    if source is not None and target is not None:
        _compare_cells(pair, source, target, yield_now)
        _compare_metadata(pair, source, target, arity, yield_now)
    elif source is not None:
        pair.only_source = _all(source, yield_now)
    elif target is not None:
        pair.only_target = _all(target, yield_now)
    limited: set[RowKey] = set()
    for stored in (source, target):
        limited.update(() if stored is None else paced(stored.limited, yield_now))
    if limited:
        _judge(pair, arity, limited, validity, yield_now)


def _compare_cells(
    pair: OneSign, source: StoredRelation, target: StoredRelation, yield_now: YieldNow
) -> None:
    comparison = source.relation.compare(target.relation)
    pair.only_source, pair.only_target = (
        _rows_at(source, comparison.only_here, yield_now),
        _rows_at(target, comparison.only_there, yield_now),
    )
    pair.modified, pair.equal = (
        _rows_at(source, comparison.modified_here, yield_now),
        comparison.equal,
    )


def _rows_at(stored: StoredRelation, ids: array[int], yield_now: YieldNow) -> array[int]:
    """Return the rows with these ids; with arity 0 a placeholder per row."""
    if not stored.schema.arity:
        return array("I", bytes(4 * len(ids)))
    rows = array("I")
    for start in paced(range(0, len(ids), ROWS_PER_YIELD), yield_now, 1):
        rows.extend(stored.relation.rows(ids[start : start + ROWS_PER_YIELD]))
    return rows


def _compare_metadata(
    pair: OneSign, source: StoredRelation, target: StoredRelation, arity: int, yield_now: YieldNow
) -> None:
    """Move pairs that differ only in metadata from equal to modified."""
    mine, other = source.metadata, target.metadata
    differ: dict[RowKey, None] = {}
    for key in paced(chain(mine, other), yield_now, FACTS_PER_YIELD):
        here_metadata, there_metadata = mine.get(key, {}), other.get(key, {})
        if here_metadata is not there_metadata and (
            without_evidence(here_metadata) != without_evidence(there_metadata)
        ):
            differ[key] = None
    if not differ:
        return
    symbols = array("I", [symbol for key in paced(differ, yield_now) for symbol in key])
    here, there = (stored.relation.locate(symbols, len(differ)) for stored in (source, target))
    known = set(paced(_keys(pair.modified, arity), yield_now))
    for key, a, b in paced(zip(differ, here, there, strict=True), yield_now):
        if NO_ROW not in (a, b) and key not in known:
            pair.modified.extend(key or (0,))
            pair.equal -= 1


def _judge(
    pair: OneSign, arity: int, limited: set[RowKey], validity: Validity, yield_now: YieldNow
) -> None:
    """Pair the facts that have a validity window one by one.

    A fact may not count, and a `ttl` starts at assertion.
    """
    keys = list(paced(limited, yield_now))
    symbols = array("I", [symbol for key in paced(keys, yield_now) for symbol in key])
    sides = [
        None if s is None else s.relation.locate(symbols, len(keys))
        for s in (pair.source, pair.target)
    ]
    here, there = (array("I", [NO_ROW]) * len(keys) if ids is None else ids for ids in sides)
    both = sum(NO_ROW not in located for located in paced(zip(here, there, strict=True), yield_now))
    pair.equal -= both - sum(
        key in limited for key in paced(_keys(pair.modified, arity), yield_now)
    )
    for name in ("only_source", "only_target", "modified"):
        unlimited = (
            key for key in paced(_keys(getattr(pair, name), arity), yield_now) if key not in limited
        )
        setattr(pair, name, flat(unlimited))
    for start in paced(range(0, len(keys), FACTS_PER_YIELD), yield_now, 1):
        part = slice(start, start + FACTS_PER_YIELD)
        source = _counted(pair.source, here[part], keys[part], validity)
        target = _counted(pair.target, there[part], keys[part], validity)
        _add_facts(pair, keys[part], source, target)


def _add_facts(
    pair: OneSign,
    keys: Sequence[RowKey],
    source: Sequence[tuple[object, ...] | None],
    target: Sequence[tuple[object, ...] | None],
) -> None:
    """Add facts to a pair, from what `_counted` returns for both sides."""
    for key, mine, other in zip(keys, source, target, strict=True):
        if mine is not None and other is not None:
            if mine == other:
                pair.equal += 1
            else:
                pair.modified.extend(key or (0,))
        elif mine is not None:
            pair.only_source.extend(key or (0,))
        elif other is not None:
            pair.only_target.extend(key or (0,))


def _counted(
    stored: StoredRelation | None, ids: array[int], keys: Sequence[RowKey], validity: Validity
) -> list[tuple[object, ...] | None]:
    """Return for each fact what distinguishes it from another with the same arguments.

    The result is None for a fact that does not exist or does not count.

    A fact asserted without `validFrom` is valid from its assertion time.
    """
    counted: list[tuple[object, ...] | None] = [None] * len(keys)
    if stored is None:
        return counted
    indexes = [index for index, id in enumerate(ids) if id != NO_ROW]
    known = array("I", [ids[index] for index in indexes])
    begins, confidences = (
        stored.relation.attributes(each, known)
        for each in (Attribute.VALID_FROM, Attribute.CONFIDENCE)
    )
    for index, begin, (start, end), confidence in zip(
        indexes, begins, stored.windows(known), confidences, strict=True
    ):
        key = keys[index]
        if key not in stored.limited or validity.counts(start, end):
            counted[index] = (
                begin,
                end,
                None if confidence != confidence else confidence,
                without_evidence(stored.metadata.get(key, {})),
            )
    return counted


def _cross(difference: ScopeDifference, sign: bool) -> None:
    """Move facts of one sign that only the source has, and whose opposite only the target has, to
    `crossed`.
    """
    mine, other = difference.signs[sign], difference.signs[not sign]
    if not mine.only_source or not other.only_target:
        return
    if any(
        s is not None and s.limited for s in (mine.source, mine.target, other.source, other.target)
    ):
        opposite, own = (
            set(difference.keys(other.only_target)),
            set(difference.keys(mine.only_source)),
        )
        crossed = [key in opposite for key in difference.keys(mine.only_source)]
        gone = [key in own for key in difference.keys(other.only_target)]
    else:
        crossed = _in_one(difference, mine.only_source, other.target, other.source)
        gone = _in_one(difference, other.only_target, mine.source, mine.target)
    yield_now = difference.yield_now
    mine.crossed = _chosen(mine.only_source, difference.arity, crossed)
    mine.only_source = _chosen(
        mine.only_source, difference.arity, [not yes for yes in paced(crossed, yield_now)]
    )
    other.only_target = _chosen(
        other.only_target, difference.arity, [not yes for yes in paced(gone, yield_now)]
    )


def _in_one(
    difference: ScopeDifference,
    rows: array[int],
    present: StoredRelation | None,
    absent: StoredRelation | None,
) -> list[bool]:
    """Return for each row True if the first relation has it and the second has not."""
    engine_rows, count = cells(rows, difference.arity), difference.count(rows)
    if present is None:
        return [False] * count
    here = present.relation.locate(engine_rows, count)
    if absent is None:
        return [id != NO_ROW for id in paced(here, difference.yield_now)]
    there = absent.relation.locate(engine_rows, count)
    return [
        a != NO_ROW and b == NO_ROW
        for a, b in paced(zip(here, there, strict=True), difference.yield_now)
    ]


def _chosen(rows: array[int], arity: int, selected: Sequence[bool]) -> array[int]:
    width = max(arity, 1)
    picked = array("I", bytes(4 * width * sum(selected)))
    for column in range(width):
        picked[column::width] = array("I", compress(rows[column::width], selected))
    return picked


def _keys(rows: array[int], arity: int) -> Iterator[RowKey]:
    return zip(*[iter(rows)] * arity, strict=True) if arity else repeat((), len(rows))


def flat(keys: Iterable[RowKey]) -> array[int]:
    """Concatenate rows; with arity 0 a placeholder for each."""
    return array("I", (symbol for key in keys for symbol in key or (0,)))
