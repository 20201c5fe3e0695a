"""Comparison of two partitions, predicate by predicate, both signs together.

Facts are paired by sign first. A pair is equal, or modified: another validity, confidence or
metadata; evidence alone is no difference. Of the remaining facts, a fact of one side whose opposite
is on the other side is crossed, a modification too. All others are on one side only. The engine
compares facts without a validity window at memory speed; facts with a window are compared one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

from kbcore.state.episodes.evidence import without_evidence
from kbcore.state.merging.sides import ConflictingFact
from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute
from kbplanner.ir.schema import RelationSchema

SIGNS = (True, False)


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

    def counts(self, stored: StoredRelation, ids: array[int]) -> bool:
        """Return True if a fact with a validity window counts."""
        start, end = next(stored.windows(ids))
        return (self.future or start <= self.at) and self.at < end


@dataclass(slots=True)
class Difference:
    """The difference of two partitions in one predicate and arity.

    Use `count` for rows of arity 0 too.
    """

    predicate: str
    arity: int
    signs: dict[bool, OneSign]

    def count(self, rows: Sequence[int]) -> int:
        """Count the rows of a flat list; with arity 0 each row is one placeholder."""
        return len(rows) // max(self.arity, 1)

    def keys(self, rows: array[int]) -> list[RowKey]:
        """Return the rows as tuples."""
        if not self.arity:
            return [()] * len(rows)
        return list(zip(*[iter(rows)] * self.arity, strict=True))

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
        twice = set(self.keys(both[0])).intersection(self.keys(both[1])) if len(both) == 2 else ()
        return sum(counts) - len(twice)

    def conflicts(self) -> list[RowKey]:
        """Return the arguments of the conflicts, each once."""
        conflicts: dict[RowKey, None] = {}
        for pair in self.signs.values():
            conflicts.update(dict.fromkeys(self.keys(pair.modified)))
            conflicts.update(dict.fromkeys(self.keys(pair.crossed)))
        return list(conflicts)


def differences(
    source: Partition | None, target: Partition | None, validity: Validity
) -> Iterator[Difference]:
    """Yield the differences of two partitions (None: empty), sorted by predicate and arity."""
    names = {
        (stored.schema.predicate, stored.schema.arity)
        for partition in (source, target)
        for stored in (() if partition is None else partition.relations())
        if stored.relation.counts().live
    }
    for predicate, arity in sorted(names):
        signs = {}
        for sign in SIGNS:
            schema = RelationSchema(predicate, arity, sign)
            mine, other = (None if p is None else p.get(schema) for p in (source, target))
            signs[sign] = OneSign(_filled(mine), _filled(other))
            _compare(signs[sign], arity, validity)
        difference = Difference(predicate, arity, signs)
        for sign in SIGNS:
            _cross(difference, sign)
        yield difference


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
                *(stored.schema.positive, int(at), start, until, sure),
                without_evidence(stored.metadata.get(key, {})),
            )
        )
    return facts


def cells(rows: array[int], arity: int) -> array[int]:
    """Return rows as the engine reads them: without the placeholders of arity 0."""
    return rows if arity else array("I")


def _filled(stored: StoredRelation | None) -> StoredRelation | None:
    return stored if stored is not None and stored.relation.counts().live else None


def _all(stored: StoredRelation) -> tuple[array[int], array[int]]:
    """Return every row, including hidden ones, and the ids; with arity 0 a placeholder per row."""
    rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
    return (rows if stored.schema.arity else array("I", bytes(4 * len(ids)))), ids


def _compare(pair: OneSign, arity: int, validity: Validity) -> None:
    """Pair the facts of one sign."""
    source, target = pair.source, pair.target
    if source is not None and target is not None:
        _compare_cells(pair, source, target)
        _compare_metadata(pair, source, target, arity)
    elif source is not None:
        pair.only_source = _all(source)[0]
    elif target is not None:
        pair.only_target = _all(target)[0]
    limited = set().union(*(stored.limited for stored in (source, target) if stored is not None))
    if limited:
        _judge(pair, arity, limited, validity)


def _compare_cells(pair: OneSign, source: StoredRelation, target: StoredRelation) -> None:
    comparison = source.relation.compare(target.relation)
    pair.only_source, pair.only_target = (
        _rows_at(source, comparison.only_here),
        _rows_at(target, comparison.only_there),
    )
    pair.modified, pair.equal = _rows_at(source, comparison.modified_here), comparison.equal


def _rows_at(stored: StoredRelation, ids: array[int]) -> array[int]:
    """Return the rows with these ids."""
    if not ids:
        return array("I")
    rows, known = _all(stored)
    if len(ids) == len(known):
        return rows
    indices: Iterable[int] = ids
    if stored.relation.counts().rows != len(known):
        index_of = dict(zip(known, range(len(known)), strict=True))
        indices = [index_of[id] for id in ids]
    width = max(stored.schema.arity, 1)
    picked = array("I", bytes(4 * width * len(ids)))
    for column in range(width):
        picked[column::width] = array("I", map(rows[column::width].__getitem__, indices))
    return picked


def _compare_metadata(
    pair: OneSign, source: StoredRelation, target: StoredRelation, arity: int
) -> None:
    """Move pairs that differ only in metadata from equal to modified."""
    mine, other = source.metadata, target.metadata
    if mine == other:
        return
    differ = {
        key
        for key in mine.keys() | other.keys()
        if without_evidence(mine.get(key, {})) != without_evidence(other.get(key, {}))
    }
    symbols = array("I", [symbol for key in differ for symbol in key])
    here, there = (stored.relation.locate(symbols, len(differ)) for stored in (source, target))
    known = set(_keys(pair.modified, arity))
    for key, a, b in zip(differ, here, there, strict=True):
        if NO_ROW not in (a, b) and key not in known:
            pair.modified.extend(key or (0,))
            pair.equal -= 1


def _judge(pair: OneSign, arity: int, limited: set[RowKey], validity: Validity) -> None:
    """Pair the facts that have a validity window one by one.

    A fact may not count, and a `ttl` starts at assertion.
    """
    keys = list(limited)
    symbols = array("I", [symbol for key in keys for symbol in key])
    sides = [
        None if s is None else s.relation.locate(symbols, len(keys))
        for s in (pair.source, pair.target)
    ]
    modified = set(_keys(pair.modified, arity))
    here, there = (array("I", [NO_ROW]) * len(keys) if ids is None else ids for ids in sides)
    both = sum(1 for a, b in zip(here, there, strict=True) if NO_ROW not in (a, b))
    pair.equal -= both - len(modified & limited)
    for name in ("only_source", "only_target", "modified"):
        rows = getattr(pair, name)
        setattr(pair, name, flat([key for key in _keys(rows, arity) if key not in limited]))
    for index, key in enumerate(keys):
        mine = _counted(pair.source, here[index : index + 1], key, validity)
        other = _counted(pair.target, there[index : index + 1], key, validity)
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
    stored: StoredRelation | None, ids: array[int], key: RowKey, validity: Validity
) -> tuple[object, ...] | None:
    """Return what distinguishes a fact from another with the same arguments.

    The result is None for a fact that does not exist or does not count.

    A fact asserted without `validFrom` is valid from its assertion time.
    """
    if (
        stored is None
        or ids[0] == NO_ROW
        or (key in stored.limited and not validity.counts(stored, ids))
    ):
        return None
    confidence = stored.relation.attributes(Attribute.CONFIDENCE, ids)[0]
    begins = stored.relation.attributes(Attribute.VALID_FROM, ids)[0]
    _, end = next(stored.windows(ids))
    return (
        begins,
        end,
        None if confidence != confidence else confidence,
        without_evidence(stored.metadata.get(key, {})),
    )


def _cross(difference: Difference, sign: bool) -> None:
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
    mine.crossed = _chosen(mine.only_source, difference.arity, crossed)
    mine.only_source = _chosen(mine.only_source, difference.arity, [not yes for yes in crossed])
    other.only_target = _chosen(other.only_target, difference.arity, [not yes for yes in gone])


def _in_one(
    difference: Difference,
    rows: array[int],
    present: StoredRelation | None,
    absent: StoredRelation | None,
) -> list[bool]:
    """Return for each row True if the first relation has it and the second has not."""
    engine_rows, count = cells(rows, difference.arity), difference.count(rows)
    if present is None:
        return [False] * count
    yes = [id != NO_ROW for id in present.relation.locate(engine_rows, count)]
    if absent is None:
        return yes
    return [
        a and id == NO_ROW
        for a, id in zip(yes, absent.relation.locate(engine_rows, count), strict=True)
    ]


def _chosen(rows: array[int], arity: int, selected: Sequence[bool]) -> array[int]:
    width = max(arity, 1)
    picked = array("I", bytes(4 * width * sum(selected)))
    for column in range(width):
        picked[column::width] = array("I", compress(rows[column::width], selected))
    return picked


def _keys(rows: array[int], arity: int) -> list[RowKey]:
    return list(zip(*[iter(rows)] * arity, strict=True)) if arity else [()] * len(rows)


def flat(keys: Iterable[RowKey]) -> array[int]:
    """Concatenate rows; with arity 0 a placeholder for each."""
    return array("I", [symbol for key in keys for symbol in key or (0,)])
