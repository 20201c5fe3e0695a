"""The stored facts a window is filled from, best first, as many as are asked for.

A fact's rank is its salience; one that has words of the query gets on top of it 1, so that it comes before those that have
none, and how well it matches, weighed by LEXICAL_WEIGHT. Among facts that match alike the more salient one comes first.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from kbcore.context.room import Candidate
from kbcore.context.salience import Ranked, Scores
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.backend import Attribute

LEXICAL_WEIGHT = 2.0
"""What a perfect match of the query weighs more than a poor one; salience is at most 1."""

AT_ONCE = 64
"""Facts that are made ready together."""

FEW = 16
"""Facts of a predicate that are looked at first where their number is limited."""

Lexical = Mapping[tuple[StoredRelation, int], float]
"""How well stored facts, by relation and row id, match a query: above 0, at most 1; facts without any of it are missing."""


def relevance(lexical: float) -> float:
    """What a match of the query counts on top of salience."""
    return 1.0 + LEXICAL_WEIGHT * lexical if lexical else 0.0


class Supplied(NamedTuple):
    """A stored fact with its rank, and how well it matches the query."""

    fact: Ranked
    lexical: float = 0.0

    @property
    def order(self) -> tuple[float, int]:
        """What facts are sorted by: the highest rank, then the newest."""
        return -(self.fact.score + relevance(self.lexical)), -self.fact.created_at


@dataclass(slots=True)
class Supply:
    """Facts of some partitions that have a salience of at least `minimum`; the caller holds the read lock."""

    scores: Scores
    partitions: Sequence[Partition]
    minimum: float
    lexical: Lexical = field(default_factory=dict)

    def relations(self, predicates: Sequence[str] | None) -> list[StoredRelation]:
        """Those with facts to be seen, of some predicates or (None) all, always in the same order."""
        chosen = None if predicates is None else frozenset(predicates)
        return [
            stored
            for partition in self.partitions
            for stored in sorted(
                (r for r in partition.relations() if chosen is None or r.schema.predicate in chosen),
                key=lambda r: (r.schema.predicate, r.schema.arity, not r.schema.positive),
            )
            if stored.relation.counts().visible
        ]

    def available(self, predicates: Sequence[str] | None) -> int:
        """How many facts there are to choose from."""
        return sum(stored.relation.counts().visible for stored in self.relations(predicates))

    def best(
        self, predicates: Sequence[str] | None, first: int, full: Callable[[str], bool] | None = None
    ) -> Iterator[Candidate]:
        """The facts of some predicates or (None) all, best first; about `first` of them will be looked at.

        With `full` no more facts of a predicate are searched for once it says so of that predicate.
        """
        relations = self.relations(predicates)
        if full is None:
            streams = [self._stream(relations, first, None)]
        else:
            alike: dict[str, list[StoredRelation]] = {}
            for stored in relations:
                alike.setdefault(stored.schema.predicate, []).append(stored)
            streams = [self._stream(some, min(first, FEW), partial(full, name)) for name, some in alike.items()]
        found = heapq.merge(self._matched(relations), *streams, key=lambda one: one.order)
        seen: set[tuple[StoredRelation, int]] = set()
        at_once = first if full is None else AT_ONCE  # one more would cost another search
        while some := list(islice(found, at_once)):
            at_once = AT_ONCE
            new = []
            for one in some:
                if (where := (one.fact.stored, one.fact.place)) not in seen:
                    seen.add(where)
                    new.append(one)
            yield from self.candidates(new)

    def candidates(self, supplied: Sequence[Supplied]) -> list[Candidate]:
        """Facts made ready for a window, in the same order."""
        rows = self.scores.rows([one.fact for one in supplied])
        return [
            Candidate(row, one.fact.score, one.fact.created_at, one.fact, lexical=one.lexical)
            for row, one in zip(rows, supplied, strict=True)
        ]

    def placed(self, stored: StoredRelation, ids: array[int]) -> list[Supplied]:
        """Rows of a relation with their salience, in the same order."""
        created = stored.relation.attributes(Attribute.CREATED_AT, ids)
        found = zip(self.scores.of(stored, ids), created, ids, strict=True)
        return [
            Supplied(Ranked(score, int(at), place, stored), self.lexical.get((stored, place), 0.0))
            for score, at, place in found
        ]

    def _stream(
        self, relations: Sequence[StoredRelation], first: int, full: Callable[[], bool] | None
    ) -> Iterator[Supplied]:
        done, wanted = 0, max(first, 1)
        while full is None or not full():
            found = self.scores.most_of(((stored, None) for stored in relations), wanted, self.minimum)
            yield from (Supplied(fact, self.lexical.get((fact.stored, fact.place), 0.0)) for fact in found[done:])
            if len(found) < wanted:
                return
            done, wanted = wanted, wanted * 4

    def _matched(self, relations: Iterable[StoredRelation]) -> list[Supplied]:
        """The facts with words of the query, best first."""
        if not self.lexical:
            return []
        known = set(relations)
        groups: dict[StoredRelation, array[int]] = {}
        for stored, place in self.lexical:
            if stored in known:
                groups.setdefault(stored, array("I")).append(place)
        found = [one for stored, ids in groups.items() for one in self.placed(stored, ids)]
        return sorted((one for one in found if one.fact.score >= self.minimum), key=lambda one: one.order)
