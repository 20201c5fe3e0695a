"""Ranking of the stored facts that fill a window.

The rank of a fact that matches the query is 1 + its match as a share of the best match + a small
weight * its salience: text relevance decides and salience breaks ties. The rank of any other fact
is its salience, so it comes after those that match.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

from kbcore.context.capacity import RankedCandidate
from kbcore.context.request import AllBut, WindowRequest
from kbcore.context.salience import Ranked, Scores
from kbcore.state.partition import Partition, StoredRelation
from kbplanner.engine.backend import Attribute
from kbplanner.pacing import in_parts, sorted_in_parts

QUERY_SALIENCE_WEIGHT = 0.1
"""Default weight of salience relative to the match of a query, which is 1 for the best match."""

SHARE_DIGITS = 12
"""Decimal digits of a share of the best match: fewer than rounding can change."""

CANDIDATE_BATCH = 64
"""Number of candidates that are created together."""

MATCHES_PER_YIELD = 500
"""Matches ranked between two calls of `yield_now`: about a millisecond."""

PREDICATE_BATCH = 16
"""Facts per predicate that are ranked first if the number of facts per predicate is limited."""


def admitted(request: WindowRequest, partitions: Sequence[Partition]) -> Container[str] | None:
    """Return the predicates of the stored facts that a window may have; None: all."""
    predicates = request.admitted
    stored = (each.schema.predicate for partition in partitions for each in partition.relations())
    if isinstance(predicates, AllBut) and all(name in predicates for name in stored):
        return None  # facts of all predicates are found faster
    return predicates


Lexical = Mapping[tuple[StoredRelation, int], float]
"""Match of stored facts with a query, by relation and row id: above 0, at most 1; other facts are
absent.
"""


class Supplied(NamedTuple):
    """A stored fact with its match to the query, absolute and as a share of the best match."""

    fact: Ranked
    lexical: float = 0.0
    relevance: float = 0.0
    salience_weight: float = QUERY_SALIENCE_WEIGHT

    @property
    def order(self) -> tuple[float, int]:
        """Return the sort key of facts: highest rank first, then newest."""
        score = self.fact.score
        rank = 1.0 + self.relevance + self.salience_weight * score if self.relevance else score
        return -rank, -self.fact.created_at


@dataclass(slots=True)
class Supply:
    """The facts of some partitions with a salience of at least `minimum`; the caller holds the read
    lock.

    `scores` rank the facts. `present` gives their current salience if the facts are ranked as of
    another time. `salience_weight` is the weight of salience among facts that match the query.
    `indexed` is the share of facts whose words could be found, 0 to 1.
    """

    scores: Scores
    partitions: Sequence[Partition]
    minimum: float
    lexical: Lexical = field(default_factory=dict)
    salience_weight: float = QUERY_SALIENCE_WEIGHT
    present: Scores | None = None
    indexed: float = 1.0
    _best_match: float = field(init=False)

    def __post_init__(self) -> None:
        self._best_match = max(self.lexical.values(), default=0.0)

    def relations(self, predicates: Container[str] | None) -> list[StoredRelation]:
        """Return the relations with visible facts, of some predicates or (None) all, in a fixed
        order.
        """
        return [
            stored
            for partition in self.partitions
            for stored in sorted(
                (
                    r
                    for r in partition.relations()
                    if predicates is None or r.schema.predicate in predicates
                ),
                key=lambda r: (r.schema.predicate, r.schema.arity, not r.schema.positive),
            )
            if stored.relation.counts().visible
        ]

    def available(self, predicates: Container[str] | None) -> int:
        """Return the number of candidate facts."""
        return sum(stored.relation.counts().visible for stored in self.relations(predicates))

    def best(
        self,
        predicates: Container[str] | None,
        first: int,
        full: Callable[[str], bool] | None = None,
        *,
        only_matches: bool = False,
    ) -> Iterator[RankedCandidate]:
        """Yield the facts of some predicates or (None) all, best first.

        `first` is the expected number of facts the caller reads. If `full` is set, it is called
        with a predicate, and no more facts of the predicate are searched for once it returns True.
        With `only_matches`, only facts that match the query are returned.
        """
        relations = self.relations(predicates)
        streams: list[Iterator[Supplied]] = []
        if only_matches:
            pass
        elif full is None:
            streams = [self._stream(relations, first, None)]
        else:
            alike: dict[str, list[StoredRelation]] = {}
            for stored in relations:
                alike.setdefault(stored.schema.predicate, []).append(stored)
            streams = [
                self._stream(batch, min(first, PREDICATE_BATCH), partial(full, name))
                for name, batch in alike.items()
            ]
        # Matches come first, because their rank is above 1 and salience is at most 1. So nothing is
        # ranked by salience for a window that is full of matches.
        others = heapq.merge(*streams, key=lambda supplied: supplied.order)
        facts = chain(self._matched(relations), others)
        seen: set[tuple[StoredRelation, int]] = set()
        batch_size = (
            first if full is None else CANDIDATE_BATCH
        )  # one more would cost another search
        while batch := list(islice(facts, batch_size)):
            batch_size = CANDIDATE_BATCH
            new = []
            for supplied in batch:
                if (where := (supplied.fact.stored, supplied.fact.row_id)) not in seen:
                    seen.add(where)
                    new.append(supplied)
            for part in in_parts(new, self.scores.budget.yield_now, CANDIDATE_BATCH):
                yield from self.candidates(part)

    def candidates(self, supplied: Sequence[Supplied]) -> list[RankedCandidate]:
        """Return candidates for facts, in the same order."""
        rows = self.scores.rows([match.fact for match in supplied])
        return [
            RankedCandidate(
                row,
                match.fact.score,
                match.fact.created_at,
                match.fact,
                lexical=match.lexical,
                relevance=match.relevance,
            )
            for row, match in zip(rows, supplied, strict=True)
        ]

    def placed(self, stored: StoredRelation, ids: array[int]) -> list[Supplied]:
        """Return rows of a relation with their salience, in the same order."""
        created = stored.relation.attributes(Attribute.CREATED_AT, ids)
        rows = zip(self.scores.of(stored, ids), created, ids, strict=True)
        return [self.supplied(Ranked(score, int(at), row_id, stored)) for score, at, row_id in rows]

    def salience_now(self, facts: Iterable[Ranked]) -> dict[tuple[StoredRelation, int], float]:
        """Return the current salience of facts, by relation and row id."""
        groups: dict[StoredRelation, array[int]] = {}
        for fact in facts:
            groups.setdefault(fact.stored, array("I")).append(fact.row_id)
        scores = self.present or self.scores
        return {
            (stored, row_id): score
            for stored, ids in groups.items()
            for row_id, score in zip(ids, scores.of(stored, ids), strict=True)
        }

    def supplied(self, fact: Ranked) -> Supplied:
        """Return a stored fact with its match."""
        match = self.lexical.get((fact.stored, fact.row_id), 0.0)
        return Supplied(
            fact,
            match,
            round(match / self._best_match, SHARE_DIGITS) if match else 0.0,
            self.salience_weight,
        )

    def _salient_now(self, supplied: Sequence[Supplied]) -> Sequence[Supplied]:
        """Return the facts whose current salience is at least the minimum.

        The ranking may be as of an earlier time, when the salience was higher.
        """
        if not self.minimum or self.present is None or self.present.now == self.scores.now:
            return supplied
        now = self.salience_now(match.fact for match in supplied)
        return [
            match for match in supplied if now[match.fact.stored, match.fact.row_id] >= self.minimum
        ]

    def _stream(
        self, relations: Sequence[StoredRelation], first: int, full: Callable[[], bool] | None
    ) -> Iterator[Supplied]:
        done, count = 0, max(first, 1)
        while full is None or not full():
            best = self.scores.most_of(
                ((stored, None) for stored in relations), count, self.minimum
            )
            yield from self._salient_now([self.supplied(fact) for fact in best[done:]])
            if len(best) < count:
                return
            done, count = count, count * 4

    def _matched(self, relations: Iterable[StoredRelation]) -> list[Supplied]:
        """Return the facts that match the query, best first."""
        if not self.lexical:
            return []
        groups: dict[StoredRelation, array[int]] = {stored: array("I") for stored in relations}
        # Newest first, also in one millisecond: whether two writes share one is chance.
        budget = self.scores.budget
        for stored, row_id in sorted(self.lexical, key=itemgetter(1), reverse=True):
            if stored in groups:
                groups[stored].append(row_id)
        matches = [
            match
            for stored, ids in groups.items()
            for part in budget.slices(len(ids), MATCHES_PER_YIELD)
            for match in self.placed(stored, ids[part.start : part.stop])
            if match.fact.score >= self.minimum
        ]
        budget.yield_now()
        return sorted_in_parts(
            self._salient_now(matches), budget.yield_now, lambda match: match.order
        )
