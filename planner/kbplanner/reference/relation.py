"""Relations of the reference engine: rows in a list, ids in a dict."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from kbplanner.compile.aggregates import total
from kbplanner.engine import backend
from kbplanner.engine.backend import (
    FOREVER,
    NO_ROW,
    REAL_ATTRIBUTES,
    SAME,
    Attribute,
    Difference,
    RelationCounts,
    Rest,
    Total,
)
from kbplanner.engine.salience import Salience
from kbplanner.errors import EngineFault

Row = tuple[int, ...]

_DEFAULTS: dict[Attribute, int | float] = {
    Attribute.CREATED_AT: 0,
    Attribute.VALID_FROM: 0,
    Attribute.VALID_UNTIL: FOREVER,
    Attribute.TTL: 0,
    Attribute.LAST_ACCESS: 0,
    Attribute.ACCESSES: 1,
    Attribute.PRIORITY: 0.5,
    Attribute.CONFIDENCE: float("nan"),
}

_COMPARED = Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL, Attribute.CONFIDENCE
_SCORED = Attribute.CREATED_AT, Attribute.LAST_ACCESS, Attribute.ACCESSES, Attribute.PRIORITY, Attribute.CONFIDENCE


class ReferenceRelation:
    """Rows in the order of insertion; None where one was deleted."""

    def __init__(self, arity: int, texts: Sequence[str] = ()) -> None:
        self.arity = arity
        self._texts = texts  # of the engine, by symbol
        self.order: list[Row | None] = []
        self.ids: dict[Row, int] = {}
        self.hidden: set[int] = set()
        self.epoch = 0
        self._cells: dict[Attribute, dict[int, Any]] = {}
        self._dropped = False

    def insert(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Add rows; the id of each, and how many were new."""
        ids = array("I")
        before = len(self.order)
        for row in self._rows(rows, count):
            ids.append(self.add(row))
        return ids, len(self.order) - before

    def add(self, row: Row) -> int:
        """Add one row; its id."""
        place = self.ids.setdefault(row, len(self.order))
        if place == len(self.order):
            self.order.append(row)
        return place

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; how many were there."""
        removed = 0
        for row in self._rows(rows, count):
            place = self.ids.pop(row, None)
            if place is not None:
                self.order[place] = None
                self.hidden.discard(place)
                for cells in self._cells.values():
                    cells.pop(place, None)
                removed += 1
        self.epoch += bool(removed)
        return removed

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide or show rows; how many changed."""
        changed = 0
        for row in self._rows(rows, count):
            place = self.ids.get(row)
            if place is not None and (place in self.hidden) != hidden:
                self.hidden.symmetric_difference_update({place})
                changed += 1
        self.epoch += bool(changed)
        return changed

    def locate(self, rows: array[int], count: int) -> array[int]:
        """The id of each row, NO_ROW where it is not there."""
        return array("I", [self.ids.get(row, NO_ROW) for row in self._rows(rows, count)])

    def match(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0, rest: Rest | None = None
    ) -> tuple[array[int], array[int]]:
        """Rows that match and their ids, in order of id."""
        self._open()
        if len(pattern) != self.arity:
            raise EngineFault("the pattern has another arity than the relation")
        found, ids = array("I"), array("I")
        for place, row in enumerate(self.order):
            if row is None or (place in self.hidden and not hidden):
                continue
            wanted = (row[want & ~SAME] if want & SAME else want for want in pattern)
            if all(want in (0, value) for want, value in zip(wanted, row, strict=True)):
                found.extend(row)
                ids.append(place)
                if len(ids) == limit:
                    break
        return found, ids

    def rows(self, ids: array[int]) -> array[int]:
        """The rows with these ids, which are there, in their order."""
        self._open()
        found = array("I")
        for place in ids:
            row = self.order[place] if place < len(self.order) else None
            if row is None:
                raise EngineFault("a row that is not there")
            found.extend(row)
        return found

    def pieces(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0
    ) -> Iterator[tuple[array[int], array[int]]]:
        """What `match` gives, in one piece."""
        yield self.match(pattern, hidden=hidden, limit=limit)

    def total(self, pattern: Sequence[int], column: int | None, rest: Rest | None = None) -> Total:
        """Add up a column of the rows that match."""
        rows, ids = self.match(pattern)
        if column is None:
            return Total(len(ids))
        values = rows[column :: self.arity]
        return total(values, {symbol: self._texts[symbol] for symbol in values})

    def counts(self) -> RelationCounts:
        """How many rows, and the epoch."""
        self._open()
        return RelationCounts(len(self.order), len(self.ids), len(self.ids) - len(self.hidden), self.epoch)

    def distinct(self, columns: Sequence[int]) -> int:
        """Not kept here."""
        return 0

    def set_attribute(self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]) -> None:
        """Write one cell for each id."""
        self._cells.setdefault(attribute, {}).update(zip(ids, values, strict=True))

    def uses(self, attribute: Attribute) -> bool:
        """Whether a cell of this attribute was ever set to something else than the default."""
        default = _DEFAULTS[attribute]
        return any(value != default and value == value for value in self._cells.get(attribute, {}).values())

    def fill_attribute(self, attribute: Attribute, first: int, count: int, value: int | float) -> None:
        """Write one value into a range of ids."""
        self._cells.setdefault(attribute, {}).update(dict.fromkeys(range(first, first + count), value))

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Read one cell for each id."""
        self._open()
        values = [self._cell(attribute, place) for place in ids]
        return array("d" if attribute in REAL_ATTRIBUTES else "q", values)

    def copy(self) -> ReferenceRelation:
        """A relation of its own with the same contents; those deleted are left out."""
        self._open()
        twin = ReferenceRelation(self.arity, self._texts)
        places = {place: twin.add(row) for place, row in enumerate(self.order) if row is not None}
        twin.hidden = {places[place] for place in self.hidden}
        for attribute, cells in self._cells.items():
            twin._cells[attribute] = {places[place]: value for place, value in cells.items() if place in places}
        return twin

    def settle(self, rows: int) -> bool:
        """A copy is whole from the start."""
        self._open()
        return True

    def compare(self, other: backend.Relation) -> Difference:
        """Rows of one alone, rows of both with other cells, and how many are equal."""
        self._open()
        if not isinstance(other, ReferenceRelation) or other.arity != self.arity:
            raise EngineFault("a relation of another engine or arity")
        other._open()
        found = Difference(array("I"), array("I"), array("I"), array("I"), 0)
        equal = 0
        for row, here in self._placed():
            there = other.ids.get(row)
            if there is None:
                found.only_here.append(here)
            elif self._known(here) == other._known(there):
                equal += 1
            else:
                found.modified_here.append(here)
                found.modified_there.append(there)
        found.only_there.extend(there for row, there in other._placed() if row not in self.ids)
        return found._replace(equal=equal)

    def salience(self, ids: array[int], how: Salience) -> array[float]:
        """The score of each row."""
        self._open()
        if not how.is_valid() or any(place >= len(self.order) for place in ids):
            raise EngineFault("weights that are no weights, or a row that was never there")
        return array("d", [how.score(*(self._cell(attribute, place) for attribute in _SCORED)) for place in ids])

    def most_salient(
        self, k: int, how: Salience, minimum: float = 0.0, pattern: Sequence[int] | None = None
    ) -> tuple[array[int], array[float]]:
        """Ids and scores of the rows that match and score highest, best first."""
        if k < 0 or minimum != minimum:
            raise EngineFault("fewer rows than none, or a minimum that is no number")
        _, ids = self.match([0] * self.arity if pattern is None else pattern)
        created = self.attributes(Attribute.CREATED_AT, ids)
        ranked = zip([-score for score in self.salience(ids, how)], [-time for time in created], ids, strict=True)
        best = [(score, place) for score, _, place in sorted(ranked) if -score >= minimum][:k]
        return array("I", [place for _, place in best]), array("d", [-score for score, _ in best])

    def least_salient(self, threshold: float, how: Salience) -> array[int]:
        """Ids of the visible rows that score below a threshold."""
        if threshold != threshold:
            raise EngineFault("a threshold that is no number")
        _, ids = self.match([0] * self.arity)
        return array("I", [place for place, score in zip(ids, self.salience(ids, how), strict=True) if score < threshold])

    def touch(self, ids: array[int], now: int) -> None:
        """An access of each row."""
        self._open()
        if any(place >= len(self.order) for place in ids):
            raise EngineFault("a row that was never there")
        for place in ids:
            for attribute, value in (
                (Attribute.LAST_ACCESS, max(self._cell(Attribute.LAST_ACCESS, place), now)),
                (Attribute.ACCESSES, min(self._cell(Attribute.ACCESSES, place) + 1, FOREVER)),
            ):
                self._cells.setdefault(attribute, {})[place] = value

    def bytes(self) -> int:
        """Not measured here."""
        self._open()
        return 0

    def drop(self) -> None:
        """Forget everything."""
        self._open()
        epoch = self.epoch + 1
        self.__init__(self.arity, self._texts)  # type: ignore[misc]
        self.epoch = epoch  # so that a run that reads it sees that it changed
        self._dropped = True

    def visible(self, low: int, high: int) -> Iterator[Row]:
        """The rows with ids from low up to high that plans see."""
        for place in range(low, min(high, len(self.order))):
            row = self.order[place]
            if row is not None and place not in self.hidden:
                yield row

    def _open(self) -> None:
        if self._dropped:
            raise EngineFault("the relation was dropped")

    def _placed(self) -> Iterator[tuple[Row, int]]:
        return ((row, place) for place, row in enumerate(self.order) if row is not None)

    def _cell(self, attribute: Attribute, place: int) -> Any:
        return self._cells.get(attribute, {}).get(place, _DEFAULTS[attribute])

    def _known(self, place: int) -> list[int | float | None]:
        """The cells that are compared; None for NaN, which then is equal to itself."""
        return [value if value == value else None for value in (self._cell(one, place) for one in _COMPARED)]

    def _rows(self, rows: array[int], count: int) -> Iterator[Row]:
        self._open()
        if len(rows) < count * self.arity:
            raise EngineFault("fewer symbols than rows")
        return (tuple(rows[i * self.arity : (i + 1) * self.arity]) for i in range(count))
