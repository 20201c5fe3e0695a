"""The facts of a partition as they held at another moment, for `asOf`."""

from __future__ import annotations

from array import array

from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.engine.backend import Relation
from kbplanner.ir.schema import RelationSchema


class Moment:
    """A view of a partition at a time: relations all of whose facts held then serve as they are, others as copies."""

    def __init__(self, partition: Partition, at: int, budget: Budget) -> None:
        self._budget = budget
        self._partition = partition
        self._at = at
        self._copies: dict[RelationSchema, Relation] = {}

    def bind(self, schema: RelationSchema) -> Relation:
        """The relation to read for a stored schema."""
        if schema not in self._copies:
            stored = self._partition.need(schema)
            rows, ids = held(stored, [0] * schema.arity, self._at, self._budget)
            counts = stored.relation.counts()
            if len(ids) == counts.live == counts.visible:
                return stored.relation
            self._budget.rest()
            copy = self._copies[schema] = stored.relation.copy()
            everything, _ = copy.match([0] * schema.arity, hidden=True, rest=self._budget.rest)
            copy.delete(everything, counts.live)
            copy.insert(rows, len(ids))
        return self._copies[schema]

    def close(self) -> None:
        """Give the copies back."""
        for copy in self._copies.values():
            copy.drop()


def held(stored: StoredRelation, pattern: list[int], at: int, budget: Budget) -> tuple[array[int], array[int]]:
    """The rows that match a pattern and held at a moment, and their ids."""
    arity = stored.schema.arity
    rows, ids = stored.relation.match(pattern, hidden=True, rest=budget.rest)
    kept, kept_ids = array("I"), array("I")
    for part in budget.slices(len(ids)):
        some = ids[part.start : part.stop]
        for i, (start, end) in zip(part, stored.windows(some), strict=True):
            if start <= at < end:
                kept.extend(rows[i * arity : (i + 1) * arity])
                kept_ids.append(ids[i])
    return kept, kept_ids
