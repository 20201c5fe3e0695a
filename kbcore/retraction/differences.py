"""The differences that changed facts make in the conclusions of one scope."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.retraction.changes import ComponentChanges, Unfollowed
from kbcore.retraction.programs import Programs, is_conclusion
from kbcore.retraction.rows import Difference, RowSet
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema


def differences(
    tenant: Tenant,
    programs: Programs,
    partition: Partition,
    rules: RuleSet,
    facts: Mapping[RelationSchema, Difference],
    budget: Budget,
    goal: RelationSchema | None = None,
) -> dict[RelationSchema, Difference] | None:
    """Return the conclusions that changed facts change, by their stored schema; with `goal` only
    those that this predicate depends on.

    None if they cannot be found from the changes: one reaches an aggregate, or recursion through
    negation. The caller holds the lock of the state after the change. Raises BudgetExceeded.
    """
    denied = partition.denied(rules.deniable) | (rules.deniable & frozenset(facts))
    goals = None if goal is None else (goal,)
    with viewed(tenant, partition, rules, goals, budget, None, denied) as view:
        changes = ComponentChanges(tenant, programs, rules, view, facts, budget, goal)
        try:
            if changes.is_incomplete:
                return None
            changes.follow()
            return {
                schema.stored: Difference(
                    _joined(each.new, schema.arity), _joined(each.fallen, schema.arity)
                )
                for schema, each in changes.changes.items()
                if is_conclusion(schema)
            }
        except Unfollowed:
            return None
        finally:
            changes.close()


def _joined(parts: Sequence[RowSet], arity: int) -> RowSet:
    symbols = array("I")
    for rows in parts:
        symbols.extend(rows.symbols)
    return RowSet(symbols, sum(rows.count for rows in parts), arity)
