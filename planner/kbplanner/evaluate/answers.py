"""The answers of a plan, read from the relation that has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from weakref import WeakSet

from kbplanner.engine.backend import SAME, Engine, Relation
from kbplanner.evaluate.deferred import MIN_DEFERRED, DeferredRows
from kbplanner.evaluate.loaded import LoadedPlan, RunBudget
from kbplanner.pacing import current_yield

EXTRA_SYMBOLS = 1 << 18
"""Extra symbols collected beyond the first answers before the buffer is sorted and cut."""


class AnswerReader(ABC):
    """Reads answers; a subclass has the relation of the answers, in the columns of the plan."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._deferred: WeakSet[DeferredRows] | None = None

    def _use_plan(self, loaded: LoadedPlan) -> None:
        self._plan = loaded.plan
        self._bound = loaded.bound
        self._is_ordered = loaded.ordered
        self._is_whole = loaded.whole

    @abstractmethod
    def _answers(self) -> Relation:
        """Return the relation of the answers."""

    def _answer_pattern(self, pattern: Sequence[int]) -> list[int]:
        columns = self._plan.answer_columns
        answer_pattern = [0] * self._plan.slots[self._plan.answer].arity
        for value, column in zip(pattern, columns, strict=True):
            if column is not None:
                answer_pattern[column] = (
                    SAME | _column(columns, value & ~SAME) if value & SAME else value
                )
        return answer_pattern

    def _read_answers(
        self, answer_pattern: Sequence[int], budget: RunBudget, first: int | None, returns_all: bool
    ) -> array[int]:
        """Return the matching rows of the relation, in the order of its columns."""
        width = len(answer_pattern)
        if first is not None and self._is_ordered and width:
            return self._read_first(answer_pattern, first * width, width, budget)
        rows = self._answers().match_rows(answer_pattern, budget.yield_now)
        if returns_all:
            budget.check_answers(len(rows) // width if width else self._row_count())
        return self.engine.sort(rows, width, budget.offload, in_place=True)

    def _completed(
        self, rows: array[int], width: int, pattern: Sequence[int], budget: RunBudget
    ) -> tuple[array[int], int]:
        """Return rows of the relation as answers, with the constants of the goal."""
        count = len(rows) // width if width else self._row_count()
        if self._is_whole:
            return rows, count
        rows = with_constants(rows, count, pattern, self._plan.answer_columns)
        return rows if self._is_ordered else self.engine.sort(
            rows, len(pattern), budget.offload
        ), count

    def _defers(self, answer_pattern: Sequence[int]) -> bool:
        """Return True if all rows are answers, and many."""
        return (
            self._is_whole
            and bool(answer_pattern)
            and not any(answer_pattern)
            and self._row_count() >= MIN_DEFERRED
        )

    def _defer(self, deferred: DeferredRows) -> int:
        """Leave the answers here until they are read, and return their number."""
        self._deferred = WeakSet() if self._deferred is None else self._deferred
        self._deferred.add(deferred)
        deferred.leave(self)
        return self._row_count()

    def _hand_out(self) -> None:
        """Copy the rows that are still to be read from here, because they may change now."""
        for each in list(self._deferred or ()):
            each.rows()

    def read_rows(self) -> array[int]:
        """Return all rows of a goal that left them here, in answer order."""
        width = self._plan.slots[self._plan.answer].arity
        rows = self._answers().match_rows([0] * width, current_yield())
        return self.engine.sort(rows, width, in_place=True)

    def read_first_rows(self, count: int) -> array[int]:
        """Return the first rows of a goal that left them here, in answer order."""
        width = self._plan.slots[self._plan.answer].arity
        return self._read_first([0] * width, count * width, width)

    def _read_first(
        self,
        answer_pattern: Sequence[int],
        limit: int,
        width: int,
        budget: RunBudget | None = None,
    ) -> array[int]:
        """Return the first `limit` symbols of answers in order; sort and cut the buffer as it
        grows.
        """
        best = array("I")
        offload = None if budget is None else budget.offload
        yield_now = current_yield() if budget is None else budget.yield_now
        for rows, _ in self._answers().pieces(answer_pattern):
            best.extend(rows)
            if len(best) > limit + max(limit, EXTRA_SYMBOLS):
                yield_now()
                best = self.engine.sort(best, width, offload)[:limit]
        return self.engine.sort(best, width, offload)[:limit]

    def _row_count(self) -> int:
        """Return the number of rows of the answer relation; without columns, 1 if it has its
        row.
        """
        return self._answers().counts().visible


def _column(columns: Sequence[int | None], argument: int) -> int:
    column = columns[argument]
    if column is None:
        raise AssertionError("a repeated variable stands for a bound argument")
    return column


def with_constants(
    rows: array[int], count: int, pattern: Sequence[int], columns: Sequence[int | None]
) -> array[int]:
    """Return rows of an answer relation as whole rows of the goal, with its constants."""
    width = sum(1 for column in columns if column is not None)
    wide = array("I", bytes(4 * count * len(pattern)))
    for index, (value, column) in enumerate(zip(pattern, columns, strict=True)):
        wide[index :: len(pattern)] = (
            array("I", [value]) * count if column is None else rows[column::width]
        )
    return wide
