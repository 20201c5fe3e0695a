"""The facts of a partition that were valid at another point in time, for `asOf`."""

from __future__ import annotations

from array import array

from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.engine.backend import Relation
from kbplanner.ir.schema import RelationSchema


class AsOfView:
    """A point-in-time view of a partition.

    Only relations with facts not valid at that time are copied.
    """

    def __init__(self, partition: Partition, at: int, budget: Budget) -> None:
        self._budget = budget
        self._partition = partition
        self._at = at
        self._copies: dict[RelationSchema, Relation] = {}

    def bind(self, schema: RelationSchema) -> Relation:
        """Return the relation to read for a stored schema."""
        if schema not in self._copies:
            stored = self._partition.need(schema)
            rows, ids = valid_rows(stored, [0] * schema.arity, self._at, self._budget)
            counts = stored.relation.counts()
            if len(ids) == counts.live == counts.visible:
                return stored.relation
            self._budget.yield_now()
            copy = self._copies[schema] = stored.relation.copy()
            all_rows, _ = copy.match(
                [0] * schema.arity, hidden=True, yield_now=self._budget.yield_now
            )
            copy.delete(all_rows, counts.live)
            copy.insert(rows, len(ids))
        return self._copies[schema]

    def close(self) -> None:
        """Drop the copied relations."""
        for copy in self._copies.values():
            copy.drop()


def valid_rows(
    stored: StoredRelation, pattern: list[int], at: int, budget: Budget
) -> tuple[array[int], array[int]]:
    """Return the rows that match a pattern and were valid at `at` (epoch milliseconds), and their
    ids.
    """
    arity = stored.schema.arity
    rows, ids = stored.relation.match(pattern, hidden=True, yield_now=budget.yield_now)
    valid, valid_ids = array("I"), array("I")
    for part in budget.slices(len(ids)):
        part_ids = ids[part.start : part.stop]
        part_rows = rows[part.start * arity : part.stop * arity]
        for i, (start, end) in zip(part, stored.windows_at(part_rows, part_ids, at), strict=True):
            if start <= at < end:
                valid.extend(rows[i * arity : (i + 1) * arity])
                valid_ids.append(ids[i])
    return valid, valid_ids
