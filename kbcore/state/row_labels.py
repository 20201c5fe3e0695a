"""The labels of the facts of a relation: the number of a set of labels in a column of the engine,
so that a fact with labels takes eight bytes more than one without.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kbcore.state.labels import NO_LABELS, Labels
from kbplanner.engine.backend import NO_ROW, Attribute, Relation


class RowLabels:
    """The labels of the rows of a relation; rows without labels have NO_LABELS.

    It is false while no row has labels. The labels of a row are removed before the row is.
    """

    __slots__ = ("_numbers", "_relation", "_sets", "counts")

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._sets: list[Labels] = [NO_LABELS]
        self._numbers: dict[Labels, int] = {NO_LABELS: 0}
        self.counts: dict[int, int] = {}
        """The number of rows that have a set of labels, by the number of the set."""

    def __bool__(self) -> bool:
        return bool(self.counts)

    def copied(self, relation: Relation) -> RowLabels:
        """Return the labels of a copy of the relation."""
        copy = RowLabels(relation)
        copy._sets, copy._numbers = list(self._sets), dict(self._numbers)
        copy.counts = dict(self.counts)
        return copy

    def sets(self) -> list[Labels]:
        """Return the sets of labels in the order of the numbers that the column has."""
        return list(self._sets)

    def used(self) -> set[Labels]:
        """Return the labels that any row has."""
        return {self._sets[number] for number in self.counts}

    def get(self, row: Sequence[int]) -> Labels:
        """Return the labels of a row, by its symbols; also for one that is not stored."""
        if not self.counts:
            return NO_LABELS
        ids = self._relation.locate(array("I", row), 1)
        if ids[0] == NO_ROW:
            return NO_LABELS
        return self._sets[int(self._relation.attributes(Attribute.LABELS, ids)[0])]

    def of(self, ids: array[int]) -> list[Labels]:
        """Return the labels of stored rows, by their ids."""
        if not self.counts:
            return [NO_LABELS] * len(ids)
        sets = self._sets
        return [sets[int(number)] for number in self._relation.attributes(Attribute.LABELS, ids)]

    def put(self, ids: array[int], labels: Labels) -> None:
        """Give stored rows labels, by their ids; NO_LABELS removes those that they have."""
        if not len(ids) or not (labels or self.counts):
            return
        number = self._numbers.get(labels)
        if number is None:
            number = self._numbers[labels] = len(self._sets)
            self._sets.append(labels)
        self._count(ids, -1)
        self._relation.set_attribute(Attribute.LABELS, ids, [number] * len(ids))
        self._count(ids, 1)

    def put_row(self, row: Sequence[int], labels: Labels) -> None:
        """Give a stored row labels, by its symbols."""
        self.put(self._relation.locate(array("I", row), 1), labels)

    def leave(self, rows: array[int], count: int) -> None:
        """Remove the labels of rows that are about to be removed, by their symbols."""
        if self.counts:
            ids = self._relation.locate(rows, count)
            self.put(array("I", [id for id in ids if id != NO_ROW]), NO_LABELS)

    def _count(self, ids: array[int], change: int) -> None:
        for number in self._relation.attributes(Attribute.LABELS, ids) if len(ids) else ():
            if number:
                left = self.counts.get(int(number), 0) + change
                if left:
                    self.counts[int(number)] = left
                else:
                    del self.counts[int(number)]
