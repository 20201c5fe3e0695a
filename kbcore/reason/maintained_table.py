"""Goal tables that follow the changes of the stored facts instead of being evaluated again."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.partition import Partition, RowJournal, RowKey
from kbplanner.engine.backend import RunState
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.follow import Unmaintained
from kbplanner.evaluate.maintained import Changed, FlatRows
from kbplanner.evaluate.maintained_goal import MaintainedGoal
from kbplanner.ir.schema import RelationSchema

STEPS_OF_COMPONENT = 10_000
"""Steps of an evaluation, for each component of its program, from which on it takes longer than to
follow a change.
"""

MAX_COST = 2
"""A change may take one of this many of the steps of the evaluation."""

MIN_STEPS = 20_000
"""Steps that a change may always take: less than a millisecond."""


def is_worth_following(run: GoalRun) -> bool:
    """Return True if a finished run took longer than changes of its rows are expected to take."""
    changes = run.goal.changes
    components = () if changes is None else changes.components or ()
    return run.steps >= STEPS_OF_COMPONENT * max(len(components), 1)


class MaintainedTable:
    """A goal table with the answers after the last change that it has seen; `bytes` is its size.

    It takes over the rows of a finished run, which the caller closes. The caller holds the read
    lock.
    """

    def __init__(self, run: GoalRun, pattern: Sequence[int], partition: Partition) -> None:
        self._kept = MaintainedGoal(run, pattern, partition.bind, partition)
        self._most_steps = max(run.run.stats().steps // MAX_COST, MIN_STEPS)
        self._journals: dict[RelationSchema, RowJournal] = {
            schema: partition.need(schema).journal(needs_all=False) for schema in self._kept.stored
        }
        self.worked = False
        self.warnings = 0
        self._first_rows = run.rows_made
        self._first_steps = run.run.stats().steps

    @property
    def rows_made(self) -> int:
        """The rows derived so far, in the evaluation and in the changes."""
        return self._first_rows + self._kept.rows_made

    @property
    def steps(self) -> int:
        """The steps so far, in the evaluation and in the changes."""
        return self._first_steps + self._kept.steps

    @property
    def goal(self) -> CompiledGoal:
        """The goal."""
        return self._kept.goal

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        return self._kept.bytes

    @property
    def row_bytes(self) -> int:
        """The memory of the kept rows alone."""
        return self._kept.row_bytes

    def ask(
        self, pattern: Sequence[int], budget: Budget, options: GoalOptions
    ) -> tuple[array[int], int] | None:
        """Return the answers as `GoalRun.ask` does; None if it cannot follow the changes, or only
        at a cost like that of an evaluation.

        Raises BudgetExceeded.
        """
        self.worked = False
        if not self._follow(pattern, budget):
            return None
        return self._kept.ask(pattern, budget, options.first, options.returns_all, options.deferred)

    def serves(self, pattern: Sequence[int]) -> RunState:
        """Return DONE if it has the answers of a goal, READY if it has to follow changes, STALE if
        some of them are lost.
        """
        if any(journal.is_lost for journal in self._journals.values()):
            return RunState.STALE
        is_current = not any(journal.count for journal in self._journals.values())
        return RunState.DONE if is_current and self._kept.has(pattern) else RunState.READY

    def close(self) -> None:
        """Free the rows."""
        self._journals.clear()
        self._kept.close()

    def _follow(self, pattern: Sequence[int], budget: Budget) -> bool:
        """Apply the changes since the last goal, and the demand of this one."""
        changes: dict[RelationSchema, Changed] = {}
        for schema, journal in self._journals.items():
            if journal.is_lost:
                return False
            if journal.count:
                added, removed = journal.take()
                if added or removed:
                    changes[schema] = Changed(_rows(added), _rows(removed))
        if not changes and self._kept.has(pattern):
            return True
        self.worked = True
        steps = min(self._most_steps, budget.limits.steps or self._most_steps)
        within = replace(budget, limits=replace(budget.limits, steps=steps))
        try:
            self._kept.change(changes, within, pattern)
        except BudgetExceeded:
            budget.check_time()
            return False
        except Unmaintained:
            return False
        return True


def _rows(keys: list[RowKey]) -> FlatRows:
    return FlatRows(array("I", chain.from_iterable(keys)), len(keys))
