"""Contradictions: atoms asserted or derived with both signs, and the choice of the winning sign.

The sign with the higher priority wins, which only a request sets, then a known confidence that is
higher than another by at least SURER, then the newer statement, then the positive sign. Reads do
not decide.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from kbcore.context.ranking import Supply
from kbcore.reason.budget import Budget
from kbcore.state.facts import UNSET_PRIORITY
from kbcore.state.intervals import STATED_KEY
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW, Attribute
from kbtypes.windows import Contradiction

SURER = 0.3
"""Difference of two known confidences from which the higher one decides."""

TOLERANCE = 1e-9
"""Rounding error of a difference of confidences, such as 0.9 - 0.6."""

LISTED = 1000
"""Contradictions that a window lists; all are counted."""

Place = tuple[StoredRelation, int]
"""A stored fact: its relation, and its row id while the read lock is held."""


@dataclass(frozen=True, slots=True)
class Side:
    """The known facts of one sign of an atom, last asserted at `stated_at` (epoch milliseconds)."""

    salience: float
    confidence: float | None
    stated_at: int
    priority: float = UNSET_PRIORITY

    def beats(self, other: Side, positive: bool) -> bool:
        """Return whether this sign wins; `positive` is True if this is the positive sign."""
        if self.priority != other.priority:
            return self.priority > other.priority
        if self.confidence is not None and other.confidence is not None:
            difference = self.confidence - other.confidence
            if abs(difference) > SURER - TOLERANCE:
                return difference > 0
        if self.stated_at != other.stated_at:
            return self.stated_at > other.stated_at
        return positive


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
    tenant: Tenant, supply: Supply, predicates: Container[str] | None, budget: Budget
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
    partition: Partition, predicates: Container[str] | None
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
    priorities = stored.relation.attributes(Attribute.PRIORITY, ids)
    stated = stated_times(stored, ids)
    return [
        Side(
            supplied.fact.score,
            None if math.isnan(confidence) else confidence,
            stated_at,
            priority,
        )
        for supplied, confidence, stated_at, priority in zip(
            supply.placed(stored, ids), confidences, stated, priorities, strict=True
        )
    ]


def stated_times(stored: StoredRelation, ids: array[int]) -> list[int]:
    """Return when facts whose opposite is stored were last asserted, in epoch milliseconds."""
    created = list(map(int, stored.relation.attributes(Attribute.CREATED_AT, ids)))
    if not stored.metadata:
        return created
    arity, symbols = stored.schema.arity, stored.relation.rows(ids)
    return [
        max(
            at,
            stored.metadata.get(tuple(symbols[i * arity : (i + 1) * arity]), {}).get(STATED_KEY, 0),
        )
        for i, at in enumerate(created)
    ]
