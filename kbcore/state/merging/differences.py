"""Two partitions compared, predicate by predicate, both signs together.

Facts are paired by sign first. A pair is equal, or modified: another validity, confidence or metadata. Of what is left, a
fact of one side whose opposite is what the other side has is crossed, a modification too. The rest is on one side only.
The engine compares what has no validity window of its own, at memory speed; the others are judged one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

from kbcore.state.partition import Partition, RowKey, StoredRelation
from kbcore.state.standing import Standing
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute
from kbplanner.ir.schema import RelationSchema

SIGNS = (True, False)


@dataclass(slots=True)
class OneSign:
    """The facts of one sign in two partitions: rows, flat, of one alone, of both with other cells, and crossed ones.

    `crossed` are facts of the source; the fact of the other sign is in the target.
    """

    source: StoredRelation | None
    target: StoredRelation | None
    only_source: array[int] = field(default_factory=lambda: array("I"))
    only_target: array[int] = field(default_factory=lambda: array("I"))
    modified: array[int] = field(default_factory=lambda: array("I"))
    crossed: array[int] = field(default_factory=lambda: array("I"))
    equal: int = 0


class Validity(NamedTuple):
    """Which facts count: those valid at a moment, or with `future` also those that will be."""

    at: int
    future: bool = False

    def counts(self, stored: StoredRelation, place: array[int]) -> bool:
        """Whether a fact with a validity window does."""
        start, end = next(stored.windows(place))
        return (self.future or start <= self.at) and self.at < end


@dataclass(slots=True)
class Difference:
    """What two partitions have of one predicate and arity; rows of arity 0 are counted by `count` too."""

    predicate: str
    arity: int
    signs: dict[bool, OneSign]

    def count(self, rows: Sequence[int]) -> int:
        """How many rows a flat list holds; with arity 0 each is one placeholder."""
        return len(rows) // max(self.arity, 1)

    def keys(self, rows: array[int]) -> list[RowKey]:
        """Rows one by one."""
        if not self.arity:
            return [()] * len(rows)
        return list(zip(*[iter(rows)] * self.arity, strict=True))

    def drawn(self, sign: bool, *, source: bool) -> list[RowKey]:
        """Facts of one sign that only one scope has, but whose opposite both have and do not agree on."""
        other = self.signs[not sign].modified
        only = self.signs[sign].only_source if source else self.signs[sign].only_target
        if not other or not only:
            return []
        known = set(self.keys(only))
        return [key for key in self.keys(other) if key in known]

    def conflict_count(self) -> int:
        """How many atoms the two do not agree on; only one that both have with both signs could count twice."""
        counts = [self.count(one.modified) + self.count(one.crossed) for one in self.signs.values()]
        both = [one.modified for one in self.signs.values() if one.modified]
        twice = set(self.keys(both[0])).intersection(self.keys(both[1])) if len(both) == 2 else ()
        return sum(counts) - len(twice)

    def conflicts(self) -> list[RowKey]:
        """The arguments at which the two do not agree, each once."""
        found: dict[RowKey, None] = {}
        for one in self.signs.values():
            found.update(dict.fromkeys(self.keys(one.modified)))
            found.update(dict.fromkeys(self.keys(one.crossed)))
        return list(found)


def differences(source: Partition | None, target: Partition | None, validity: Validity) -> Iterator[Difference]:
    """The differences of two partitions (None: an empty one), by predicate and arity, in this order."""
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
        found = Difference(predicate, arity, signs)
        for sign in SIGNS:
            _cross(found, sign)
        yield found


def standing(stored: StoredRelation, ids: array[int], keys: Sequence[RowKey]) -> list[Standing]:
    """Facts, given their ids and symbols, as strategies see them."""
    read = stored.relation.attributes
    created, confidences = read(Attribute.CREATED_AT, ids), read(Attribute.CONFIDENCE, ids)
    found = []
    for key, at, (start, end), confidence in zip(keys, created, stored.windows(ids), confidences, strict=True):
        sure = None if confidence != confidence else confidence
        until = None if end == FOREVER else end
        found.append(Standing(stored.schema.positive, int(at), start, until, sure, stored.metadata.get(key, {})))
    return found


def cells(rows: array[int], arity: int) -> array[int]:
    """Rows as the engine takes them: of arity 0 a placeholder for each, which is nothing there."""
    return rows if arity else array("I")


def _filled(stored: StoredRelation | None) -> StoredRelation | None:
    return stored if stored is not None and stored.relation.counts().live else None


def _all(stored: StoredRelation) -> tuple[array[int], array[int]]:
    """Every row, hidden ones too, and their ids; of arity 0 a placeholder."""
    rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
    return (rows if stored.schema.arity else array("I", bytes(4 * len(ids)))), ids


def _compare(one: OneSign, arity: int, validity: Validity) -> None:
    """Pair the facts of one sign."""
    source, target = one.source, one.target
    if source is not None and target is not None:
        _compare_cells(one, source, target)
        _compare_metadata(one, source, target, arity)
    elif source is not None:
        one.only_source = _all(source)[0]
    elif target is not None:
        one.only_target = _all(target)[0]
    limited = set().union(*(stored.limited for stored in (source, target) if stored is not None))
    if limited:
        _judge(one, arity, limited, validity)


def _compare_cells(one: OneSign, source: StoredRelation, target: StoredRelation) -> None:
    found = source.relation.compare(target.relation)
    one.only_source, one.only_target = _rows_at(source, found.only_here), _rows_at(target, found.only_there)
    one.modified, one.equal = _rows_at(source, found.modified_here), found.equal


def _rows_at(stored: StoredRelation, ids: array[int]) -> array[int]:
    """The rows with these ids."""
    if not ids:
        return array("I")
    rows, known = _all(stored)
    if len(ids) == len(known):
        return rows
    places: Iterable[int] = ids
    if stored.relation.counts().rows != len(known):
        place_of = dict(zip(known, range(len(known)), strict=True))
        places = [place_of[place] for place in ids]
    width = max(stored.schema.arity, 1)
    picked = array("I", bytes(4 * width * len(ids)))
    for column in range(width):
        picked[column::width] = array("I", map(rows[column::width].__getitem__, places))
    return picked


def _compare_metadata(one: OneSign, source: StoredRelation, target: StoredRelation, arity: int) -> None:
    """Move the pairs that only their metadata tells apart."""
    mine, other = source.metadata, target.metadata
    if mine == other:
        return
    differ = {key for key in mine.keys() | other.keys() if mine.get(key, {}) != other.get(key, {})}
    symbols = array("I", [symbol for key in differ for symbol in key])
    here, there = (stored.relation.locate(symbols, len(differ)) for stored in (source, target))
    known = set(_keys(one.modified, arity))
    for key, a, b in zip(differ, here, there, strict=True):
        if NO_ROW not in (a, b) and key not in known:
            one.modified.extend(key or (0,))
            one.equal -= 1


def _judge(one: OneSign, arity: int, limited: set[RowKey], validity: Validity) -> None:
    """Pair the facts that have a validity window by hand: some do not count, and a `ttl` begins with the assertion."""
    keys = list(limited)
    symbols = array("I", [symbol for key in keys for symbol in key])
    sides = [None if s is None else s.relation.locate(symbols, len(keys)) for s in (one.source, one.target)]
    modified = set(_keys(one.modified, arity))
    here, there = (array("I", [NO_ROW]) * len(keys) if ids is None else ids for ids in sides)
    both = sum(1 for a, b in zip(here, there, strict=True) if NO_ROW not in (a, b))
    one.equal -= both - len(modified & limited)
    for name in ("only_source", "only_target", "modified"):
        rows = getattr(one, name)
        setattr(one, name, flat([key for key in _keys(rows, arity) if key not in limited]))
    for place, key in enumerate(keys):
        mine = _counted(one.source, here[place : place + 1], key, validity)
        other = _counted(one.target, there[place : place + 1], key, validity)
        if mine is not None and other is not None:
            if mine == other:
                one.equal += 1
            else:
                one.modified.extend(key or (0,))
        elif mine is not None:
            one.only_source.extend(key or (0,))
        elif other is not None:
            one.only_target.extend(key or (0,))


def _counted(
    stored: StoredRelation | None, place: array[int], key: RowKey, validity: Validity
) -> tuple[object, ...] | None:
    """What tells a fact from another with the same arguments; None where it is not there or does not count.

    A fact told without a beginning began when it was asserted, whenever that was.
    """
    if stored is None or place[0] == NO_ROW or (key in stored.limited and not validity.counts(stored, place)):
        return None
    confidence = stored.relation.attributes(Attribute.CONFIDENCE, place)[0]
    begins = stored.relation.attributes(Attribute.VALID_FROM, place)[0]
    _, end = next(stored.windows(place))
    return begins, end, None if confidence != confidence else confidence, stored.metadata.get(key, {})


def _cross(found: Difference, sign: bool) -> None:
    """Of what only the source has, take out the facts of a sign whose opposite only the target has."""
    mine, other = found.signs[sign], found.signs[not sign]
    if not mine.only_source or not other.only_target:
        return
    if any(s is not None and s.limited for s in (mine.source, mine.target, other.source, other.target)):
        opposite, own = set(found.keys(other.only_target)), set(found.keys(mine.only_source))
        crossed = [key in opposite for key in found.keys(mine.only_source)]
        gone = [key in own for key in found.keys(other.only_target)]
    else:
        crossed = _in_one(found, mine.only_source, other.target, other.source)
        gone = _in_one(found, other.only_target, mine.source, mine.target)
    mine.crossed = _chosen(mine.only_source, found.arity, crossed)
    mine.only_source = _chosen(mine.only_source, found.arity, [not yes for yes in crossed])
    other.only_target = _chosen(other.only_target, found.arity, [not yes for yes in gone])


def _in_one(
    found: Difference, rows: array[int], there: StoredRelation | None, absent: StoredRelation | None
) -> list[bool]:
    """Which rows one relation has and the other has not."""
    taken, count = cells(rows, found.arity), found.count(rows)
    if there is None:
        return [False] * count
    yes = [place != NO_ROW for place in there.relation.locate(taken, count)]
    if absent is None:
        return yes
    return [a and place == NO_ROW for a, place in zip(yes, absent.relation.locate(taken, count), strict=True)]


def _chosen(rows: array[int], arity: int, wanted: Sequence[bool]) -> array[int]:
    width = max(arity, 1)
    picked = array("I", bytes(4 * width * sum(wanted)))
    for column in range(width):
        picked[column::width] = array("I", compress(rows[column::width], wanted))
    return picked


def _keys(rows: array[int], arity: int) -> list[RowKey]:
    return list(zip(*[iter(rows)] * arity, strict=True)) if arity else [()] * len(rows)


def flat(keys: Iterable[RowKey]) -> array[int]:
    """Rows one after the other; of arity 0 a placeholder for each."""
    return array("I", [symbol for key in keys for symbol in key or (0,)])
