"""Matching of a pattern against stored facts, without rules."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbcore.reason.as_of import valid_rows
from kbcore.reason.budget import Budget
from kbcore.state.facts import Row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.terms import Term


class StoredPattern(NamedTuple):
    """Pattern over the stored facts of a predicate: variables match anything.

    `positive` selects one sign; None selects both.
    """

    predicate: str
    args: Sequence[Term]
    positive: bool | None = None


def matching(
    tenant: Tenant,
    partition: Partition,
    pattern: StoredPattern,
    as_of: int | None,
    budget: Budget,
) -> Iterator[tuple[StoredRelation, array[int], array[int]]]:
    """Yield for each requested sign the stored relation, the rows that match now or at `as_of`, and
    their ids.
    """
    symbols = goal_pattern(pattern.args, tenant.find)
    if symbols is None:
        return
    for stored in partition.named(pattern.predicate, len(pattern.args), pattern.positive):
        if as_of is None:
            rows, ids = stored.relation.match(symbols, yield_now=budget.yield_now)
        else:
            rows, ids = valid_rows(stored, symbols, as_of, budget)
        yield stored, rows, ids


def sorted_rows(
    tenant: Tenant,
    stored: StoredRelation,
    rows: array[int],
    count: int,
    limit: int | None,
    budget: Budget,
) -> list[Row]:
    """Return the first `limit` rows of a stored relation in answer order, as answer rows."""
    arity = stored.schema.arity
    ordered = tenant.engine.sort(rows, arity, budget.offload)
    if limit is not None and limit < count:
        ordered, count = ordered[: limit * arity], limit
    result: list[Row] = []
    for part in budget.slices(count):
        part_rows = ordered[part.start * arity : part.stop * arity]
        result.extend(
            stored.rows(tenant.engine, part_rows, stored.relation.locate(part_rows, len(part)))
        )
    return result
