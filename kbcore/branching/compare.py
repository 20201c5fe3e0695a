"""Comparison of two scopes: facts in only one of them, and facts that differ for the same atom."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kbcore.reason.budget import Budget
from kbcore.state.facts import Row
from kbcore.state.merging.differences import SIGNS, ScopeDifference, Validity, cells, differences
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbtypes.results import Modified, ScopeDiff


def compare(tenant: Tenant, source: str | None, target: str | None, budget: Budget) -> ScopeDiff:
    """Return all differences between two scopes (None: the base); raises BudgetExceeded.

    The caller holds the read lock.
    """
    with_facts: list[ScopeDifference] = []
    listed = 0
    added: list[Row] = []
    removed: list[Row] = []
    modified: list[Modified] = []
    unchanged = 0
    for difference in differences(
        tenant.partition(source),
        tenant.partition(target),
        Validity(tenant.at(0)),
        budget.yield_now,
    ):
        for side in difference.signs.values():
            unchanged += side.equal
            listed += sum(
                map(
                    difference.count,
                    (side.only_source, side.only_target, side.modified, side.crossed),
                )
            )
        budget.check_answers(listed)
        budget.yield_now()
        with_facts.append(difference)
    for difference in with_facts:
        for sign in SIGNS:
            side = difference.signs[sign]
            removed.extend(_rows(tenant, difference, side.source, side.only_source, budget))
            added.extend(_rows(tenant, difference, side.target, side.only_target, budget))
        modified.extend(pairs(tenant, difference, budget))
    return ScopeDiff(added, removed, modified, unchanged)


def pairs(tenant: Tenant, difference: ScopeDifference, budget: Budget) -> Iterator[Modified]:
    """Yield the modifications of one predicate and arity: first those with equal sign, then changed
    signs.
    """
    for sign in SIGNS:
        side, other = difference.signs[sign], difference.signs[not sign]
        for rows, after in ((side.modified, side.target), (side.crossed, other.target)):
            source_rows = _rows(tenant, difference, side.source, rows, budget)
            target_rows = _rows(tenant, difference, after, rows, budget)
            for pair in zip(source_rows, target_rows, strict=True):
                yield Modified(*pair)


def _rows(
    tenant: Tenant,
    difference: ScopeDifference,
    stored: StoredRelation | None,
    rows: array[int],
    budget: Budget,
) -> Iterator[Row]:
    """Yield answer rows of a stored relation, in answer order."""
    if stored is None or not rows:
        return
    arity = difference.arity
    ordered = tenant.engine.sort(cells(rows, arity), arity, budget.offload)
    for part in budget.slices(difference.count(rows)):
        part_rows = ordered[part.start * arity : part.stop * arity]
        yield from stored.rows(
            tenant.engine, part_rows, stored.relation.locate(part_rows, len(part))
        )
