"""Relations of the reference engine: rows in a list, ids in a dict."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from kbplanner.backend import FOREVER, NO_ROW, REAL_ATTRIBUTES, SAME, Attribute, RelationCounts
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


class ReferenceRelation:
    """Rows in the order of insertion; None where one was deleted."""

    def __init__(self, arity: int) -> None:
        self.arity = arity
        self.order: list[Row | None] = []
        self.ids: dict[Row, int] = {}
        self.hidden: set[int] = set()
        self.epoch = 0
        self._cells: dict[Attribute, dict[int, int | float]] = {}

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

    def match(self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0) -> tuple[array[int], array[int]]:
        """Rows that match and their ids, in order of id."""
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

    def counts(self) -> RelationCounts:
        """How many rows, and the epoch."""
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
        cells = self._cells.get(attribute, {})
        values = [cells.get(place, _DEFAULTS[attribute]) for place in ids]
        return array("d" if attribute in REAL_ATTRIBUTES else "q", values)

    def copy(self) -> ReferenceRelation:
        """A relation of its own with the same contents."""
        twin = ReferenceRelation(self.arity)
        twin.order, twin.ids, twin.hidden = list(self.order), dict(self.ids), set(self.hidden)
        twin._cells = {attribute: dict(cells) for attribute, cells in self._cells.items()}
        return twin

    def drop(self) -> None:
        """Forget everything."""
        epoch = self.epoch + 1
        self.__init__(self.arity)  # type: ignore[misc]
        self.epoch = epoch  # so that a run that reads it sees that it changed

    def visible(self, low: int, high: int) -> Iterator[Row]:
        """The rows with ids from low up to high that plans see."""
        for place in range(low, min(high, len(self.order))):
            row = self.order[place]
            if row is not None and place not in self.hidden:
                yield row

    def _rows(self, rows: array[int], count: int) -> Iterator[Row]:
        if len(rows) < count * self.arity:
            raise EngineFault("fewer symbols than rows")
        return (tuple(rows[i * self.arity : (i + 1) * self.arity]) for i in range(count))
