"""Salience of stored facts at a point in time, computed by the configured scorer.

The engine computes the built-in formula over the attribute columns in one scan. A scorer with its
own formula is a Python function called once per fact: a million facts take seconds, in slices that
yield to other requests.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from kbcore.plug.ports import FactUse, SalienceScorer
from kbcore.reason.budget import Budget
from kbcore.state.facts import Row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.engine.salience import Salience
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.terms import Term

_READ = (
    Attribute.CREATED_AT,
    Attribute.LAST_ACCESS,
    Attribute.ACCESSES,
    Attribute.PRIORITY,
    Attribute.CONFIDENCE,
)


class Ranked(NamedTuple):
    """A stored fact with its salience, relation, creation time, and row id (valid under the read
    lock).
    """

    score: float
    created_at: int
    row_id: int
    stored: StoredRelation


class Scores:
    """The salience of a tenant's facts at `now` (epoch milliseconds). The caller holds the read
    lock.

    Pending accesses are applied first.
    """

    def __init__(self, tenant: Tenant, scorer: SalienceScorer, now: int, budget: Budget) -> None:
        self._tenant = tenant
        self._scorer = scorer
        self.budget = budget
        self.now = now
        self.how: Salience | None = None
        weights = scorer.weights
        if weights is not None:
            self.how = Salience(
                weights.recency, weights.frequency, weights.priority, weights.half_life_ms, now
            )
        tenant.accesses.settle()

    def of(self, stored: StoredRelation, ids: array[int]) -> array[float]:
        """Return the salience of each row of a relation."""
        if self.how is not None:
            return stored.relation.salience(ids, self.how)
        scores = array("d")
        for part in self.budget.slices(len(ids)):
            scores.extend(
                self._scorer.score(fact, self.now)
                for fact in _uses(stored, ids[part.start : part.stop])
            )
        return scores

    def below(self, stored: StoredRelation, threshold: float) -> array[int]:
        """Return the ids of the visible rows whose salience is below a threshold."""
        if self.how is not None:
            return stored.relation.least_salient(threshold, self.how)
        _, ids = stored.relation.match([0] * stored.schema.arity)
        return array(
            "I", [row_id for score, _, row_id in self._each(stored, ids) if score < threshold]
        )

    def most(
        self,
        partitions: Iterable[Partition],
        predicate: str | None,
        args: Sequence[Term] | None,
        k: int,
        minimum: float,
    ) -> list[Ranked]:
        """Return at most `k` visible facts with the highest salience, none below `minimum`.

        The facts are those of one predicate or (None) of all, and match `args` or (None) have any
        arity. Facts of equal salience are ordered by creation, newest first, then by partition,
        predicate, arity, sign, and order of assertion.
        """
        return self.most_of(
            chain.from_iterable(self._asked(p, predicate, args) for p in partitions), k, minimum
        )

    def most_of(
        self, asked: Iterable[tuple[StoredRelation, list[int] | None]], k: int, minimum: float = 0.0
    ) -> list[Ranked]:
        """Return the same as `most` for the rows of some relations that match a pattern each (None:
        all).

        Once `k` facts are collected, facts with a score below the lowest of them are not requested.
        """
        relations: list[StoredRelation] = []
        best: list[tuple[float, float, int, int]] = []
        for stored, pattern in asked:
            ids, scores = self._most(stored, pattern, k, minimum)
            if not len(ids):
                continue
            number = len(relations)
            relations.append(stored)
            created = stored.relation.attributes(Attribute.CREATED_AT, ids)
            rows = zip(scores, created, ids, strict=True)
            best += [(-score, -at, number, row_id) for score, at, row_id in rows]
            if len(best) >= k:
                best.sort()
                del best[k:]
                minimum = max(minimum, -best[-1][0]) if best else minimum
        best.sort()
        return [
            Ranked(-score, int(-at), row_id, relations[number])
            for score, at, number, row_id in best
        ]

    def parts(self, stored: StoredRelation, ids: array[int]) -> Iterator[dict[str, Any]]:
        """Yield the components of each row's salience: each weighted part, and the confidence."""
        for fact, score in zip(_uses(stored, ids), self.of(stored, ids), strict=True):
            components: dict[str, Any] = {"salience": score}
            if self.how is not None:
                cells = fact.created_at, fact.last_access, fact.accesses, fact.priority, math.nan
                for part in ("recency", "frequency", "priority"):
                    others: dict[str, Any] = {
                        name: 0.0 for name in ("recency", "frequency", "priority") if name != part
                    }
                    components[part] = replace(self.how, **others).score(*cells)
            yield {
                **components,
                "confidence": fact.confidence,
                "lastAccess": fact.last_access,
                "accesses": fact.accesses,
            }

    def rows(self, ranked: Sequence[Ranked]) -> list[Row]:
        """Return the facts in output form with their salience, in the same order."""
        groups: dict[StoredRelation, list[int]] = {}
        for index, fact in enumerate(ranked):
            groups.setdefault(fact.stored, []).append(index)
        result: list[Row] = [{}] * len(ranked)
        for stored, places in groups.items():
            for part in self.budget.slices(len(places)):
                chunk = places[part.start : part.stop]
                ids = array("I", [ranked[index].row_id for index in chunk])
                rows = stored.relation.rows(ids)
                for index, row in zip(
                    chunk, stored.rows(self._tenant.engine, rows, ids), strict=True
                ):
                    result[index] = {**row, "salience": ranked[index].score}
        return result

    def touch(self, ranked: Sequence[Ranked]) -> None:
        """Count one access, now, for each fact."""
        groups: dict[StoredRelation, array[int]] = {}
        for fact in ranked:
            groups.setdefault(fact.stored, array("I")).append(fact.row_id)
        for stored, ids in groups.items():
            self._tenant.accesses.count(stored, ids, self.now)

    def show(self, ranked: Sequence[Ranked]) -> None:
        """Count facts as included in a context window; this does not change their access time."""
        groups: dict[StoredRelation, array[int]] = {}
        for fact in ranked:
            groups.setdefault(fact.stored, array("I")).append(fact.row_id)
        for stored, ids in groups.items():
            self._tenant.accesses.show(stored, ids)

    def _asked(
        self, partition: Partition, predicate: str | None, args: Sequence[Term] | None
    ) -> Iterator[tuple[StoredRelation, list[int] | None]]:
        arity = None if args is None else len(args)
        if predicate is None:
            relations = sorted(
                partition.relations(),
                key=lambda r: (r.schema.predicate, r.schema.arity, not r.schema.positive),
            )
        else:
            relations = partition.named(predicate, arity)
        pattern = None if args is None else goal_pattern(args, self._tenant.engine.find)
        for stored in relations:
            if arity in (None, stored.schema.arity) and (args is None or pattern is not None):
                yield stored, pattern if pattern is not None and any(pattern) else None

    def _most(
        self, stored: StoredRelation, pattern: list[int] | None, k: int, minimum: float
    ) -> tuple[array[int], array[float]]:
        if self.how is not None:
            return stored.relation.most_salient(k, self.how, minimum, pattern)
        _, ids = stored.relation.match(pattern or [0] * stored.schema.arity)
        ranked = (
            (-score, -at, row_id)
            for score, at, row_id in self._each(stored, ids)
            if score >= minimum
        )
        best = heapq.nsmallest(k, ranked)
        return array("I", [row_id for _, _, row_id in best]), array(
            "d", [-score for score, _, _ in best]
        )

    def _each(self, stored: StoredRelation, ids: array[int]) -> Iterator[tuple[float, int, int]]:
        """Yield score, creation time and id of each row by a custom formula; raises
        BudgetExceeded.
        """
        for part in self.budget.slices(len(ids)):
            self.budget.check_time()
            chunk = ids[part.start : part.stop]
            for fact, row_id in zip(_uses(stored, chunk), chunk, strict=True):
                yield self._scorer.score(fact, self.now), fact.created_at, row_id


def _uses(stored: StoredRelation, ids: array[int]) -> Iterator[FactUse]:
    schema = stored.schema
    columns = (stored.relation.attributes(attribute, ids) for attribute in _READ)
    for created, last, accesses, priority, confidence in zip(*columns, strict=True):
        known = None if math.isnan(confidence) else confidence
        yield FactUse(
            schema.predicate,
            schema.positive,
            stored.scope,
            int(created),
            int(last or created),
            int(accesses),
            priority,
            known,
        )
