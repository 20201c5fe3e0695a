"""Decay: eviction of expired facts and of facts with low salience."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kbcore.context.salience import Scores
from kbcore.plug.ports import SalienceScorer
from kbcore.reason.budget import Budget
from kbcore.state.changes import EvictReason
from kbcore.state.deploying import outside_rule_sets
from kbcore.state.facts import Row
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.tenant import Tenant
from kbcore.upkeep.evict import Eviction, UpkeepTarget, evict, expired, still_expired, total
from kbtypes.results import DecayOutcome


def decay(
    target: UpkeepTarget,
    scope: str | None,
    threshold: float,
    scorer: SalienceScorer,
    budget: Budget,
    now: int,
    dry_run: bool,
) -> DecayOutcome:
    """Evict the facts of one partition that expired by `now` or have a salience below `threshold`.

    Facts that are not valid yet stay. Conclusions from evicted facts no longer hold. Raises
    BudgetExceeded before any change.
    """
    tenant = target.find()
    with tenant.lock.read():
        partitions = tenant.partitions(scope)
        expired_parts = [_sorted(tenant, part, budget) for part in expired(partitions)]
        tenant.accesses.settle_shown()
        scores = Scores(tenant, scorer, now, budget)
        faded: list[Eviction] = []
        for partition in partitions:
            for stored in partition.relations():
                ids = scores.below(stored, threshold)
                rows, count = outside_rule_sets(
                    tenant, stored, stored.relation.rows(ids), len(ids), budget.yield_now
                )
                if count:
                    faded.append(_sorted(tenant, Eviction(stored, rows, count), budget))
                budget.check_time()
    listed_rows: list[tuple[StoredRelation, RowKey, Row]] = []
    for evictions, why in ((expired_parts, _since), (faded, _below(scores, threshold))):
        for part in evictions:
            listed_rows.extend(
                _rows(
                    tenant,
                    part,
                    budget,
                    budget.max_answers - len(listed_rows),
                    why if dry_run else None,
                )
            )
    counts, timestamp, listed = (total(expired_parts), total(faded)), now, len(listed_rows)
    truncated = listed == budget.max_answers and listed < sum(counts)
    if not dry_run:
        expired_parts, expired_at = evict(
            target, tenant, expired_parts, EvictReason.EXPIRED, still_expired
        )
        faded, faded_at = evict(
            target, tenant, faded, EvictReason.FADED, _still_faded(scores, threshold)
        )
        timestamp = max(now, expired_at, faded_at)
        if counts != (counts := (total(expired_parts), total(faded))):
            listed_rows = _evicted_rows(listed_rows, [*expired_parts, *faded])
    atoms = [row for _, _, row in listed_rows]
    return DecayOutcome(*counts, atoms, timestamp, dry_run, truncated)


def _sorted(tenant: Tenant, part: Eviction, budget: Budget) -> Eviction:
    return Eviction(
        part.stored,
        tenant.engine.sort(part.rows, part.stored.schema.arity, budget.offload),
        part.count,
    )


def _still_faded(
    scores: Scores, threshold: float
) -> Callable[[Tenant, StoredRelation, array[int], array[int]], list[bool]]:
    """Return a check that keeps facts whose salience rose by an assertion or access since the
    decision.
    """

    def recheck(
        tenant: Tenant, stored: StoredRelation, rows: array[int], ids: array[int]
    ) -> list[bool]:
        tenant.accesses.settle()
        return [score < threshold for score in scores.of(stored, ids)]

    return recheck


_Why = Callable[[StoredRelation, "array[int]"], "Iterator[dict[str, Any]]"]


def _since(stored: StoredRelation, ids: array[int]) -> Iterator[dict[str, Any]]:
    for _, end in stored.windows(ids):
        yield {"reason": EvictReason.EXPIRED.value, "since": end}


def _below(scores: Scores, threshold: float) -> _Why:
    def why(stored: StoredRelation, ids: array[int]) -> Iterator[dict[str, Any]]:
        for parts in scores.parts(stored, ids):
            yield {"reason": EvictReason.FADED.value, "threshold": threshold, **parts}

    return why


def _rows(
    tenant: Tenant, eviction: Eviction, budget: Budget, limit: int, why: _Why | None
) -> Iterator[tuple[StoredRelation, RowKey, Row]]:
    """Yield at most `limit` answer rows; the read lock is held for one slice at a time."""
    stored, arity = eviction.stored, eviction.stored.schema.arity
    for part in budget.slices(min(eviction.count, limit)):
        budget.check_time()
        with tenant.lock.read():
            if stored.gone:
                return
            rows, ids = located(
                stored.relation, eviction.rows[part.start * arity : part.stop * arity], len(part)
            )
            answer_rows = stored.rows(tenant.engine, rows, ids)
            if why is not None:
                for row, reason in zip(answer_rows, why(stored, ids), strict=True):
                    row["why"] = reason
        for index, row in enumerate(answer_rows):
            yield stored, tuple(rows[index * arity : (index + 1) * arity]), row


def _evicted_rows(
    listed: Sequence[tuple[StoredRelation, RowKey, Row]], evictions: Sequence[Eviction]
) -> list[tuple[StoredRelation, RowKey, Row]]:
    """Return the rows of facts that were evicted."""
    evicted: dict[StoredRelation, set[RowKey]] = {}
    for part in evictions:
        arity = part.stored.schema.arity
        keys = (tuple(part.rows[i * arity : (i + 1) * arity]) for i in range(part.count))
        evicted.setdefault(part.stored, set()).update(keys)
    return [item for item in listed if item[1] in evicted.get(item[0], ())]
