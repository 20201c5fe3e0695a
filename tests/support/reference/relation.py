"""Relations of the reference engine: rows in a list, ids in a dict."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kbplanner.compile.aggregates import total
from kbplanner.engine import backend
from kbplanner.engine.backend import (
    FOREVER,
    NO_ROW,
    REAL_ATTRIBUTES,
    SAME,
    Attribute,
    RelationCounts,
    RelationDifference,
    Total,
    YieldNow,
)
from kbplanner.engine.salience import Salience
from kbplanner.errors import EngineFault
from kbplanner.ir.values.comparison import best_of

Row = tuple[int, ...]

_DEFAULTS: dict[Attribute, int | float] = {
    Attribute.CREATED_AT: 0,
    Attribute.VALID_FROM: 0,
    Attribute.VALID_UNTIL: FOREVER,
    Attribute.TTL: 0,
    Attribute.LAST_ACCESS: 0,
    Attribute.ACCESSES: 1,
    Attribute.PRIORITY: 0.5,
    Attribute.LABELS: 0,
    Attribute.CONFIDENCE: float("nan"),
}

_COMPARED = Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL, Attribute.CONFIDENCE
_SCORED = (
    Attribute.CREATED_AT,
    Attribute.LAST_ACCESS,
    Attribute.ACCESSES,
    Attribute.PRIORITY,
    Attribute.CONFIDENCE,
)


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
        """Add rows; return the id of each, and how many are new."""
        ids = array("I")
        before = len(self.order)
        for row in self._rows(rows, count):
            ids.append(self.add(row))
        return ids, len(self.order) - before

    def add(self, row: Row) -> int:
        """Add one row; return its id."""
        index = self.ids.setdefault(row, len(self.order))
        if index == len(self.order):
            self.order.append(row)
        return index

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; return how many existed."""
        removed = 0
        for row in self._rows(rows, count):
            index = self.ids.pop(row, None)
            if index is not None:
                self.order[index] = None
                self.hidden.discard(index)
                for cells in self._cells.values():
                    cells.pop(index, None)
                removed += 1
        self.epoch += bool(removed)
        return removed

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide or show rows; return how many changed."""
        changed = 0
        for row in self._rows(rows, count):
            index = self.ids.get(row)
            if index is not None and (index in self.hidden) != hidden:
                self.hidden.symmetric_difference_update({index})
                changed += 1
        self.epoch += bool(changed)
        return changed

    def locate(self, rows: array[int], count: int) -> array[int]:
        """Return the id of each row, NO_ROW where it does not exist."""
        return array("I", [self.ids.get(row, NO_ROW) for row in self._rows(rows, count)])

    def missing(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Return those of `count` rows that do not exist, in their order, and their number."""
        missing = [row for row in self._rows(rows, count) if row not in self.ids]
        return array("I", [symbol for row in missing for symbol in row]), len(missing)

    def match(
        self,
        pattern: Sequence[int],
        *,
        hidden: bool = False,
        limit: int = 0,
        yield_now: YieldNow | None = None,
    ) -> tuple[array[int], array[int]]:
        """Return the matching rows and their ids, in order of id."""
        self._open()
        if len(pattern) != self.arity:
            raise EngineFault("the pattern has another arity than the relation")
        rows, ids = array("I"), array("I")
        for index, row in enumerate(self.order):
            if row is None or (index in self.hidden and not hidden):
                continue
            values = (row[want & ~SAME] if want & SAME else want for want in pattern)
            if all(want in (0, value) for want, value in zip(values, row, strict=True)):
                rows.extend(row)
                ids.append(index)
                if len(ids) == limit:
                    break
        return rows, ids

    def match_many(
        self, patterns: array[int], count: int, *, hidden: bool = False
    ) -> tuple[array[int], array[int]]:
        """Return the ids of the rows that match each pattern, and the numbers of the patterns."""
        all_ids, numbers = array("I"), array("I")
        for number in range(count):
            pattern = patterns[number * self.arity : (number + 1) * self.arity]
            ids = self.match(pattern, hidden=hidden)[1]
            all_ids.extend(ids)
            numbers.extend([number] * len(ids))
        return all_ids, numbers

    def rows(self, ids: array[int]) -> array[int]:
        """Return the rows with these ids, which must exist, in the given order."""
        self._open()
        rows = array("I")
        for index in ids:
            row = self.order[index] if index < len(self.order) else None
            if row is None:
                raise EngineFault("a row does not exist")
            rows.extend(row)
        return rows

    def match_rows(self, pattern: Sequence[int], yield_now: YieldNow | None = None) -> array[int]:
        """Return the matching rows, in order of id."""
        return self.match(pattern)[0]

    def pieces(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0
    ) -> Iterator[tuple[array[int], array[int]]]:
        """Yield what `match` returns, in one piece."""
        yield self.match(pattern, hidden=hidden, limit=limit)

    def total(
        self, pattern: Sequence[int], column: int | None, yield_now: YieldNow | None = None
    ) -> Total:
        """Add up a column of the rows that match."""
        rows, ids = self.match(pattern)
        if column is None:
            return Total(len(ids))
        values = rows[column :: self.arity]
        return total(values, {symbol: self._texts[symbol] for symbol in values})

    def counts(self) -> RelationCounts:
        """Return the numbers of rows, and the epoch."""
        self._open()
        return RelationCounts(
            len(self.order), len(self.ids), len(self.ids) - len(self.hidden), self.epoch
        )

    def distinct(self, columns: Sequence[int]) -> int:
        """Return 0: not counted here."""
        return 0

    def set_attribute(
        self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]
    ) -> None:
        """Write one cell for each id."""
        self._cells.setdefault(attribute, {}).update(zip(ids, values, strict=True))

    def uses(self, attribute: Attribute) -> bool:
        """Return True if a cell of this attribute was ever set to a value other than the
        default.
        """
        default = _DEFAULTS[attribute]
        return any(
            value != default and value == value for value in self._cells.get(attribute, {}).values()
        )

    def fill_attribute(
        self, attribute: Attribute, first: int, count: int, value: int | float
    ) -> None:
        """Write one value into a range of ids."""
        self._cells.setdefault(attribute, {}).update(
            dict.fromkeys(range(first, first + count), value)
        )

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Read one cell for each id."""
        self._open()
        values = [self._cell(attribute, index) for index in ids]
        return array("d" if attribute in REAL_ATTRIBUTES else "q", values)

    def copy(self) -> ReferenceRelation:
        """Return a relation with the same contents, without deleted rows."""
        self._open()
        twin = ReferenceRelation(self.arity, self._texts)
        places = {index: twin.add(row) for index, row in enumerate(self.order) if row is not None}
        twin.hidden = {places[index] for index in self.hidden}
        for attribute, cells in self._cells.items():
            twin._cells[attribute] = {
                places[index]: value for index, value in cells.items() if index in places
            }
        return twin

    def settle(self, rows: int) -> bool:
        """Return True: a copy is complete from the start."""
        self._open()
        return True

    def compare(self, other: backend.Relation) -> RelationDifference:
        """Compare the rows, and the cells of rows that both have."""
        self._open()
        if not isinstance(other, ReferenceRelation) or other.arity != self.arity:
            raise EngineFault("a relation of another engine or arity")
        other._open()
        difference = RelationDifference(array("I"), array("I"), array("I"), array("I"), 0)
        equal = 0
        for row, own_id in self._placed():
            other_id = other.ids.get(row)
            if other_id is None:
                difference.only_here.append(own_id)
            elif self._known(own_id) == other._known(other_id):
                equal += 1
            else:
                difference.modified_here.append(own_id)
                difference.modified_there.append(other_id)
        difference.only_there.extend(
            other_id for row, other_id in other._placed() if row not in self.ids
        )
        return difference._replace(equal=equal)

    def salience(self, ids: array[int], scoring: Salience) -> array[float]:
        """Return the score of each row."""
        self._open()
        if not scoring.is_valid() or any(index >= len(self.order) for index in ids):
            raise EngineFault("the weights are invalid, or a row does not exist")
        return array(
            "d",
            [
                scoring.score(*(self._cell(attribute, index) for attribute in _SCORED))
                for index in ids
            ],
        )

    def most_salient(
        self, k: int, scoring: Salience, minimum: float = 0.0, pattern: Sequence[int] | None = None
    ) -> tuple[array[int], array[float]]:
        """Return the ids and scores of the matching rows with the highest scores, best first."""
        if k < 0 or minimum != minimum:
            raise EngineFault("k is negative, or the minimum is NaN")
        _, ids = self.match([0] * self.arity if pattern is None else pattern)
        created = self.attributes(Attribute.CREATED_AT, ids)
        ranked = zip(
            [-score for score in self.salience(ids, scoring)],
            [-time for time in created],
            ids,
            strict=True,
        )
        best = [(score, index) for score, _, index in sorted(ranked) if -score >= minimum][:k]
        return array("I", [index for _, index in best]), array("d", [-score for score, _ in best])

    def least_salient(self, threshold: float, scoring: Salience) -> array[int]:
        """Return the ids of the visible rows that score below a threshold."""
        if threshold != threshold:
            raise EngineFault("the threshold is NaN")
        _, ids = self.match([0] * self.arity)
        return array(
            "I",
            [
                index
                for index, score in zip(ids, self.salience(ids, scoring), strict=True)
                if score < threshold
            ],
        )

    def touch(self, ids: array[int], now: int) -> None:
        """Record an access of each row."""
        self._open()
        if any(index >= len(self.order) for index in ids):
            raise EngineFault("a row does not exist")
        for index in ids:
            for attribute, value in (
                (Attribute.LAST_ACCESS, max(self._cell(Attribute.LAST_ACCESS, index), now)),
                (Attribute.ACCESSES, min(self._cell(Attribute.ACCESSES, index) + 1, FOREVER)),
            ):
                self._cells.setdefault(attribute, {})[index] = value

    def bytes(self) -> int:
        """Return 0: memory is not measured here."""
        self._open()
        return 0

    def drop(self) -> None:
        """Remove all rows."""
        self._open()
        epoch = self.epoch + 1
        self.__init__(self.arity, self._texts)  # type: ignore[misc]
        self.epoch = epoch  # so that a run that reads it sees that it changed
        self._dropped = True

    def visible(self, low: int, high: int) -> Iterator[Row]:
        """Yield the rows with ids from low up to high that plans see."""
        for index in range(low, min(high, len(self.order))):
            row = self.order[index]
            if row is not None and index not in self.hidden:
                yield row

    def _open(self) -> None:
        if self._dropped:
            raise EngineFault("the relation was dropped")

    def _placed(self) -> Iterator[tuple[Row, int]]:
        return ((row, index) for index, row in enumerate(self.order) if row is not None)

    def _cell(self, attribute: Attribute, index: int) -> Any:
        return self._cells.get(attribute, {}).get(index, _DEFAULTS[attribute])

    def _known(self, index: int) -> list[int | float | None]:
        """Return the compared cells; None for NaN, which makes NaN equal to itself."""
        return [
            value if value == value else None
            for value in (self._cell(attribute, index) for attribute in _COMPARED)
        ]

    def _rows(self, rows: array[int], count: int) -> Iterator[Row]:
        self._open()
        if len(rows) < count * self.arity:
            raise EngineFault("fewer symbols than rows")
        return (tuple(rows[i * self.arity : (i + 1) * self.arity]) for i in range(count))


class BestRows(ReferenceRelation):
    """Rows of which each group, those that agree in all columns but the last, has one: that with
    the least (`min`) or greatest (`max`) value there, as the aggregate of this name.
    """

    def __init__(self, arity: int, best: str, text: Callable[[int], str]) -> None:
        super().__init__(arity)
        self._best = best
        self._text = text
        self._groups: dict[Row, int] = {}

    def add(self, row: Row) -> int:
        """Add a row if it is better than the row of its group, which it replaces; return the id of
        the group's row.
        """
        group = row[:-1]
        known = self._groups.get(group)
        if known is not None:
            other = self.order[known]
            if other is None or not self._is_better(row[-1], other[-1]):
                return known
            del self.ids[other]
            self.order[known] = None
        self._groups[group] = super().add(row)
        return self._groups[group]

    def _is_better(self, symbol: int, other: int) -> bool:
        text, other_text = self._text(symbol), self._text(other)
        return symbol != other and best_of(self._best, (text, other_text)) == text


class FirstRows(ReferenceRelation):
    """Rows of which those that agree in their first `key` columns have one: the first that was
    added.
    """

    def __init__(self, arity: int, key: int) -> None:
        super().__init__(arity)
        self._key = key
        self._first: dict[Row, int] = {}

    def add(self, row: Row) -> int:
        """Add a row unless one with its key exists; return the id of the row with its key."""
        key = row[: self._key]
        if key not in self._first:
            self._first[key] = super().add(row)
        return self._first[key]


class Classes(ReferenceRelation):
    """Names with the representatives of their classes; adding a pair of names unites their
    classes.
    """

    def __init__(self, arity: int) -> None:
        super().__init__(arity)
        self._members: dict[int, list[int]] = {}
        self._root: dict[int, int] = {}

    def add(self, row: Row) -> int:
        """Unite the classes of two names: those of the smaller class get new rows."""
        for name in row:
            if name not in self._root:
                self._root[name] = name
                self._members[name] = [name]
                super().add((name, name))
        to, other = (self._root[name] for name in row)
        if to != other:
            if len(self._members[to]) < len(self._members[other]):
                to, other = other, to
            for name in self._members[other]:
                self.order[self.ids.pop((name, other))] = None
                super().add((name, to))
                self._root[name] = to
            self._members[to] += self._members.pop(other)
        return self.ids[row[0], to]
