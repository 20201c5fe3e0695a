"""Contradictions: atoms asserted or derived with both signs, and the choice of the winning sign.

The sign with the higher salience wins, then the higher confidence (unknown counts as 1), then the
newer fact, then the positive sign.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbcore.context.ranking import Supply
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute
from kbtypes.windows import Contradiction

LISTED = 1000
"""Contradictions that a window lists; all are counted."""

Place = tuple[StoredRelation, int]
"""A stored fact: its relation, and its row id while the read lock is held."""


@dataclass(frozen=True, slots=True)
class Side:
    """The known facts of one sign of an atom."""

    salience: float
    confidence: float | None
    created_at: int

    def beats(self, other: Side, positive: bool) -> bool:
        """Return whether this sign wins; `positive` is True if this is the positive sign."""
        return self._weight(positive) > other._weight(not positive)

    def _weight(self, positive: bool) -> tuple[float, float, int, bool]:
        return (
            self.salience,
            1.0 if self.confidence is None else self.confidence,
            self.created_at,
            positive,
        )


class Clashes:
    """The contradictions detected for a window.

    `losers` are the stored facts on the losing side, `contested` the stored facts on both sides.
    """

    def __init__(self) -> None:
        self.found = 0
        self.listed: list[Contradiction] = []
        self.losers: set[Place] = set()
        self.contested: set[Place] = set()

    def add(self, predicate: str, args: Sequence[str], positive: Side, negative: Side) -> bool:
        """Record a contradiction and return whether the positive sign wins."""
        self.found += 1
        if len(self.listed) < LISTED:
            self.listed.append(
                Contradiction(predicate, tuple(args), positive.salience, negative.salience)
            )
        return positive.beats(negative, True)


def stored_clashes(
    tenant: Tenant, supply: Supply, predicates: Sequence[str] | None, budget: Budget
) -> Clashes:
    """Return the contradictions among the stored facts of the supply's partitions.

    Each fact of the smaller sign costs one lookup among the facts of the other sign; predicates
    stored with one sign only cost nothing. Raises BudgetExceeded.
    """
    clashes = Clashes()
    for partition in supply.partitions:
        for positive, negative in _pairs(partition, predicates):
            places = _both(tenant, positive, negative, budget)
            if not len(places[0]):
                continue
            sides = _sides(supply, positive, places[0]), _sides(supply, negative, places[1])
            rows, arity = positive.relation.rows(places[0]), positive.schema.arity
            texts = tenant.engine.texts(rows)
            for part in budget.slices(len(places[0])):
                for i in part:
                    stays = clashes.add(
                        positive.schema.predicate,
                        texts[i * arity : (i + 1) * arity],
                        sides[0][i],
                        sides[1][i],
                    )
                    pair = (positive, places[0][i]), (negative, places[1][i])
                    clashes.contested.update(pair)
                    clashes.losers.add(pair[1] if stays else pair[0])
    return clashes


def _pairs(
    partition: Partition, predicates: Sequence[str] | None
) -> Iterator[tuple[StoredRelation, StoredRelation]]:
    """Yield the positive and the negative relation of each predicate that has facts of both
    signs.
    """
    ordered = sorted(partition.relations(), key=lambda r: (r.schema.predicate, r.schema.arity))
    for stored in ordered:
        if stored.schema.positive or not stored.relation.counts().visible:
            continue
        if predicates is not None and stored.schema.predicate not in predicates:
            continue
        other = partition.get(stored.schema.opposite)
        if other is not None and other.relation.counts().visible:
            yield other, stored


def _both(
    tenant: Tenant, positive: StoredRelation, negative: StoredRelation, budget: Budget
) -> tuple[array[int], array[int]]:
    """Return the row ids of the atoms that are in both relations and valid now."""
    fewer, more = sorted((positive, negative), key=lambda r: r.relation.counts().visible)
    rows, ids = fewer.relation.match([0] * fewer.schema.arity, yield_now=budget.yield_now)
    others = more.relation.locate(rows, len(ids))
    at = tenant.at(0)
    here, there = array("I"), array("I")
    for part in budget.slices(len(ids), 5000):
        for i in part:
            if others[i] != NO_ROW and visible(more, others[i], at):
                here.append(ids[i])
                there.append(others[i])
    return (here, there) if fewer is positive else (there, here)


def visible(stored: StoredRelation, row_id: int, at: int) -> bool:
    """Return whether an existing row is valid at a point in time."""
    if not stored.limited:
        return True
    start, end = next(stored.windows(array("I", [row_id])))
    return start <= at < end


def _sides(supply: Supply, stored: StoredRelation, ids: array[int]) -> list[Side]:
    confidences = stored.relation.attributes(Attribute.CONFIDENCE, ids)
    placed = supply.placed(stored, ids)
    return [
        Side(
            supplied.fact.score,
            None if math.isnan(confidence) else confidence,
            supplied.fact.created_at,
        )
        for supplied, confidence in zip(placed, confidences, strict=True)
    ]
