"""What goals in a partition are evaluated with: now or at another moment, with recursion through negation settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kbcore.reason.as_of import Moment
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.settle import View
from kbplanner.ir.schema import RelationSchema


@contextmanager
def viewed(
    tenant: Tenant,
    partition: Partition,
    rules: RuleSet,
    goals: Iterable[RelationSchema] | None,
    budget: Budget,
    as_of: int | None = None,
    denied: frozenset[RelationSchema] | None = None,
) -> Iterator[View]:
    """A view of rules over a partition for goals on stored schemas (None: any); raises BudgetExceeded.

    `denied` says which explicit negatives have rows, where that is known. The caller holds the tenant's read lock.
    """
    moment = None if as_of is None else Moment(partition, as_of, budget)
    bind = moment.bind if moment else partition.bind
    version = -1 if moment else tenant.version
    try:
        if denied is None:
            denied = frozenset(s for s in rules.deniable if bind(s).counts().visible)
        ask = rules, denied, goals, bind, partition, budget.limits, budget.work, budget.rest
        with tenant.models.view(*ask, scope=partition.name, version=version) as view:
            yield view
    finally:
        if moment:
            moment.close()
