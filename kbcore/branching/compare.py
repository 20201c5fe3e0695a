"""Two scopes compared: rows that one alone has, and pairs that say something else of the same atom."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from kbcore.reason.budget import Budget
from kbcore.state.facts import Row
from kbcore.state.merging.differences import SIGNS, Difference, Validity, cells, differences
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Modified:
    """A fact of the source and the fact of the target in its place: another sign, confidence, validity or metadata."""

    before: Row
    after: Row


@dataclass(slots=True)
class ScopeDiff:
    """What leads from a source scope to a target scope, by predicate and arity, each in answer order.

    `added` are facts of the target alone, `removed` of the source alone; `unchanged` counts those that are the same in both.
    Only facts that are valid now count.
    """

    added: list[Row] = field(default_factory=list)
    removed: list[Row] = field(default_factory=list)
    modified: list[Modified] = field(default_factory=list)
    unchanged: int = 0


def compare(tenant: Tenant, source: str | None, target: str | None, budget: Budget) -> ScopeDiff:
    """The differences between two scopes (None: the base), whole; raises BudgetExceeded. The read lock is held."""
    found: list[Difference] = []
    listed = 0
    outcome = ScopeDiff()
    for one in differences(tenant.partition(source), tenant.partition(target), Validity(tenant.at(0))):
        for side in one.signs.values():
            outcome.unchanged += side.equal
            listed += sum(map(one.count, (side.only_source, side.only_target, side.modified, side.crossed)))
        budget.check_answers(listed)
        budget.rest()
        found.append(one)
    for one in found:
        for sign in SIGNS:
            side = one.signs[sign]
            outcome.removed.extend(_rows(tenant, one, side.source, side.only_source, budget))
            outcome.added.extend(_rows(tenant, one, side.target, side.only_target, budget))
        outcome.modified.extend(pairs(tenant, one, budget))
    return outcome


def pairs(tenant: Tenant, found: Difference, budget: Budget) -> Iterator[Modified]:
    """The modifications of one predicate and arity: another thing said with the same sign, then another sign."""
    for sign in SIGNS:
        side, other = found.signs[sign], found.signs[not sign]
        for rows, after in ((side.modified, side.target), (side.crossed, other.target)):
            mine = _rows(tenant, found, side.source, rows, budget)
            theirs = _rows(tenant, found, after, rows, budget)
            for pair in zip(mine, theirs, strict=True):
                yield Modified(*pair)


def _rows(
    tenant: Tenant, found: Difference, stored: StoredRelation | None, rows: array[int], budget: Budget
) -> Iterator[Row]:
    """Rows of a stored relation in answer order, as they are shown."""
    if stored is None or not rows:
        return
    arity = found.arity
    ordered = tenant.engine.sort(cells(rows, arity), arity, budget.via)
    for part in budget.slices(found.count(rows)):
        some = ordered[part.start * arity : part.stop * arity]
        yield from stored.rows(tenant.engine, some, stored.relation.locate(some, len(part)))
