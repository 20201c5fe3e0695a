"""Cascades of retractions: conclusions that no longer hold after a retraction, and new conclusions.

The method follows Backward/Forward maintenance (Motik et al. 2015), component by component of the
rules (`changes.py`): candidates are derived from what has changed below a component and in it,
and compared with the state after the retraction, and where it is necessary with the state before.
Only what has really changed is followed further.

If a change reaches an aggregate, or a removed fact recursion through negation, all conclusions are
compared (`full_diff`), and also if the work exceeds its budget. If that exceeds its own budget, the
counts are incomplete and marked `truncated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.reason.view import viewed
from kbcore.retraction.changes import ComponentChanges, Unfollowed
from kbcore.retraction.full_diff import compared
from kbcore.retraction.programs import Programs, is_conclusion
from kbcore.retraction.rows import RowSet
from kbcore.state.changes import RemovedFacts
from kbcore.state.facts import Row, conclusion
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits
from kbplanner.evaluate.settle import View
from kbplanner.ir.schema import RelationSchema

MAX_ROWS = 1_000_000
MAX_STEPS = 10_000_000
"""Limits of each run that derives or tests candidates."""

MAX_FULL_ROWS = 1_000_000
MAX_FULL_STEPS = 10_000_000
"""Limits of a comparison of all conclusions."""

MAX_SHOWN = 1000


@dataclass(slots=True)
class Consequences:
    """The number of fallen conclusions, the first of them as rows, and the number of new
    conclusions.

    `truncated` is True if there may be more.
    """

    count: int = 0
    appeared: int = 0
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False


class Cascades:
    """Finder of conclusions that fall with retractions in one tenant, with a cache of compiled
    programs.
    """

    def __init__(self, tenant: Tenant, external: ExternalPredicates | None = None) -> None:
        self._tenant = tenant
        self._external = external
        self._programs = Programs(tenant)

    def close(self) -> None:
        """Drop the compiled programs."""
        self._programs.clear()

    def count(self, removed: Iterable[RemovedFacts], budget: Budget, result: Consequences) -> None:
        """Add the conclusions that fell with removed facts to `result`.

        Conclusions that depend on external predicates are not counted: nothing lists all of them.
        The caller holds the read lock of the state after the retraction.
        """
        stage_budget = _limited(budget, MAX_ROWS, MAX_STEPS)
        full_budget = _limited(budget, MAX_FULL_ROWS, MAX_FULL_STEPS)
        by_scope: dict[str | None, list[RemovedFacts]] = {}
        for change in removed:
            by_scope.setdefault(change.scope, []).append(change)
        for scope, changes in by_scope.items():
            partition = self._tenant.partition(scope)
            rules = self._tenant.rules.visible(scope)
            if self._external is not None:
                rules = self._external.independent(rules)
            removed_schemas = frozenset(change.schema for change in changes)
            if partition is None or (rules.reads | rules.deniable).isdisjoint(removed_schemas):
                continue
            denied = partition.denied(rules.deniable) | (rules.deniable & removed_schemas)
            try:
                with viewed(
                    self._tenant, partition, rules, None, stage_budget, None, denied
                ) as view:
                    self._count_in(
                        _Scope(partition, rules, changes), view, stage_budget, full_budget, result
                    )
            except BudgetExceeded:
                result.truncated = True

    def _count_in(
        self, scope: _Scope, view: View, budget: Budget, full_budget: Budget, result: Consequences
    ) -> None:
        """Add the fallen and the new conclusions of one partition to `result`.

        If they cannot be followed within `budget`, all conclusions are compared within
        `full_budget`. Raises BudgetExceeded.
        """
        changes = ComponentChanges(
            self._tenant, self._programs, scope.rules, view, scope.removed, budget
        )
        try:
            if changes.is_incomplete or not self._followed(changes, budget):
                self._compare(scope, changes, full_budget, result)
            else:
                self._add(scope, changes, result)
        finally:
            changes.close()

    @staticmethod
    def _followed(changes: ComponentChanges, budget: Budget) -> bool:
        """Find the changes of all components; return False if only a comparison can find them.

        Raises BudgetExceeded if no time is left.
        """
        try:
            changes.follow()
        except Unfollowed:
            return False
        except BudgetExceeded:
            budget.check_time()
            return False
        return True

    def _compare(
        self, scope: _Scope, changes: ComponentChanges, budget: Budget, result: Consequences
    ) -> None:
        """Add the differences of all conclusions before and after the removal.

        Over budget, raises BudgetExceeded after the changes that can be followed are added.
        """
        try:
            fallen, appeared = compared(
                self._tenant, scope.partition, scope.rules, scope.removed, budget
            )
        except BudgetExceeded:
            if changes.is_incomplete:
                with suppress(Unfollowed, BudgetExceeded):
                    changes.follow()
            self._add(scope, changes, result)
            raise
        result.appeared += appeared
        for schema, rows in fallen.items():
            self._note(scope, schema, rows, result)

    def _add(self, scope: _Scope, changes: ComponentChanges, result: Consequences) -> None:
        """Add the changes of conclusions."""
        for schema in sorted(filter(is_conclusion, changes.changes), key=str):
            result.appeared += changes.changes[schema].added
            self._note(scope, schema.stored, changes.counted(schema), result)

    def _note(
        self, scope: _Scope, schema: RelationSchema, fallen: RowSet, result: Consequences
    ) -> None:
        """Count fallen conclusions and add the first of them as rows."""
        result.count += fallen.count
        arity, listed = schema.arity, min(fallen.count, MAX_SHOWN - len(result.rows))
        texts = self._tenant.engine.texts(fallen.symbols[: listed * arity])
        result.rows += [
            conclusion(
                schema.predicate,
                schema.positive,
                texts[at * arity : (at + 1) * arity],
                scope.partition.name,
            )
            for at in range(listed)
        ]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A partition, the rules visible in it, and the facts that were removed from it."""

    partition: Partition
    rules: RuleSet
    removed: Sequence[RemovedFacts]


def _limited(budget: Budget, rows: int, steps: int) -> Budget:
    """Return a budget with lower limits of derived rows and of steps."""
    now = budget.limits
    return replace(budget, limits=RunLimits(min(rows, now.rows), now.bytes, min(steps, now.steps)))
