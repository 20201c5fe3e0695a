"""A goal whose answers are kept and changed by the changes of the stored facts."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kbplanner.engine.backend import NO_ROW, Relation
from kbplanner.evaluate.answers import AnswerReader, with_constants
from kbplanner.evaluate.deferred import DeferredRows
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.follow import follow
from kbplanner.evaluate.loaded import Bind, RunBudget
from kbplanner.evaluate.maintained import NO_ROWS, Changed, FlatRows, MaintainedProgram
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import go_on, yielding
from kbplanner.passes.order import Statistics


def can_be_maintained(run: GoalRun) -> bool:
    """Return True if the rows of a finished run can be kept: its program is one of those that
    `differentiate` knows, and no function failed in it.
    """
    changes = run.goal.changes
    return changes is not None and not run.warnings and changes.components is not None


class MaintainedGoal(AnswerReader):
    """A goal table that is changed instead of evaluated again; `bytes` is its size.

    It takes over the rows of a finished run that `can_be_maintained`, for a goal with the constants
    of `pattern`; the caller closes the run. The relations that `bind` returns must be as the run
    has read them.
    """

    def __init__(
        self, run: GoalRun, pattern: Sequence[int], bind: Bind, statistics: Statistics
    ) -> None:
        engine = run.engine
        super().__init__(engine)
        if run.goal.changes is None:
            raise AssertionError("a goal without programs for its changes")
        self.goal: CompiledGoal = run.goal
        self.stored = self.goal.loaded.base
        self._use_plan(run.goal.loaded)
        self._bind = bind
        self._statistics = statistics
        self._program = MaintainedProgram(engine, run.goal.changes, run.run, self._plan.slots)
        self.bytes = self._program.bytes
        if self._plan.seed is not None:
            self._program.asked(self._plan.slots[self._plan.seed]).insert(*self._seed(pattern))

    def change(
        self,
        changes: Mapping[RelationSchema, Changed],
        budget: RunBudget,
        pattern: Sequence[int] | None = None,
    ) -> Changed:
        """Follow the changes of stored relations, and derive what a goal with the constants of
        `pattern` needs; return the changes of the answer relation.

        Raises BudgetExceeded and Unmaintained; then it can only be closed.
        """
        self._hand_out()
        if pattern is not None and not self.has(pattern):
            seed = self._plan.slots[self._plan.seed or 0]
            changes = {**changes, seed: Changed(self._seed(pattern), NO_ROWS)}
        changed = follow(self._program, changes, self._bind, self._statistics, budget)
        self.bytes = self._program.bytes
        return changed.get(self._plan.slots[self._plan.answer], Changed(NO_ROWS, NO_ROWS))

    def follow(
        self, changes: Mapping[RelationSchema, Changed], budget: RunBudget, pattern: Sequence[int]
    ) -> Changed:
        """Follow the changes of stored relations; return those of the answers of one goal, as whole
        rows.

        Raises BudgetExceeded and Unmaintained; then it can only be closed.
        """
        changed = self.change(changes, budget, pattern)
        return Changed(*(self._answers_among(rows, pattern) for rows in changed))

    def _answers_among(self, rows: FlatRows, pattern: Sequence[int]) -> FlatRows:
        """Return those rows of the answer relation that are answers of a goal, as whole rows."""
        if not rows.number:
            return NO_ROWS
        matching, columns = self._answer_pattern(pattern), self._plan.answer_columns
        if any(matching):
            relation = self.engine.relation(len(matching))
            relation.insert(*rows)
            symbols = relation.match_rows(matching)
            relation.drop()
            rows = FlatRows(symbols, len(symbols) // len(matching))
        return FlatRows(with_constants(rows.symbols, rows.number, pattern, columns), rows.number)

    @property
    def row_bytes(self) -> int:
        """The memory of the kept rows alone."""
        return self._program.row_bytes

    @property
    def steps(self) -> int:
        """The steps of the engine in all changes."""
        return self._program.steps

    @property
    def rows_made(self) -> int:
        """The rows derived in all changes."""
        return self._program.rows_made

    def has(self, pattern: Sequence[int]) -> bool:
        """Return True if the goal with these constants needs no work."""
        if self._plan.seed is None:
            return True
        seed = self._plan.slots[self._plan.seed]
        return self._program.rows[seed].locate(self._seed(pattern).symbols, 1)[0] != NO_ROW

    def ask(
        self,
        pattern: Sequence[int],
        budget: RunBudget,
        first: int | None = None,
        returns_all: bool = False,
        deferred: DeferredRows | None = None,
    ) -> tuple[array[int], int]:
        """Return the answers as `GoalRun.ask` does, of a goal that it `has`."""
        answer_pattern = pattern if self._is_whole else self._answer_pattern(pattern)
        if deferred is not None and first is None and self._defers(answer_pattern):
            return array("I"), self._defer(deferred)
        rows = self._read_answers(answer_pattern, budget, first, returns_all)
        return self._completed(rows, len(answer_pattern), pattern, budget)

    def close(self) -> None:
        """Free the rows, after they were copied for those who still want to read them: no deadline
        ends this, because no other call would free them.
        """
        with yielding(go_on):
            self._hand_out()
        self._program.close()

    def _seed(self, pattern: Sequence[int]) -> FlatRows:
        return FlatRows(array("I", [pattern[index] for index in self._bound]), 1)

    def _answers(self) -> Relation:
        return self._program.rows[self._plan.slots[self._plan.answer]]
