"""Goal tables: cached runs, so that a repeated goal costs little more than reading its rows.

A run detects changes in the relations it read. It continues incrementally after new facts in
relations it reads positively and after new bindings. Any other relevant change makes the run stale:
the goal is evaluated again, and its table is then maintained where that is possible, so that the
next changes are followed instead. Correctness never depends on a table: `verify` compares every
answer with that of a fresh run.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.budget import Budget, Notes
from kbcore.reason.maintained_table import MaintainedTable, is_worth_following
from kbcore.reason.options import DEFAULT_GOAL, GoalOptions
from kbcore.state.partition import Partition, PartitionKey
from kbcore.tracing.spans import TraceSpan, span
from kbplanner.engine.backend import Engine, RunState
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.loaded import Bind
from kbplanner.evaluate.maintained_goal import can_be_maintained
from kbplanner.lru import LruCache

GoalTable = GoalRun | MaintainedTable

Key = tuple[PartitionKey, CompiledGoal, tuple[int, ...]]
"""Partition, plan, and the binding if the plan serves only one binding."""


def _key(partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> Key:
    return partition, goal, tuple(pattern) if goal.loaded.one_seed else ()


def _keys(partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> list[Key]:
    """Return the keys of tables that can answer a goal: all conclusions first, then its binding
    pattern.
    """
    own = _key(partition, goal, pattern)
    return [own] if goal.full is None else [_key(partition, goal.full, pattern), own]


MIN_TABLE_BYTES = 8192
"""Smaller runs of a single binding are not cached: evaluating them again is faster."""

_STATES = {RunState.DONE: "current", RunState.READY: "continued", RunState.STALE: "stale"}


def _state_of(table: GoalTable) -> str:
    """Return how a table has answered: `current`, `maintained` or `continued`."""
    if not table.worked:
        return "current"
    return "maintained" if isinstance(table, MaintainedTable) else "continued"


def _describe(span: TraceSpan, state: str, rows_read: int) -> None:
    """Say in the span of a goal where its answers are from; rows read of a new run only."""
    span.set("kbcore.goal.table", state)
    if rows_read:
        span.set("kbcore.goal.rows_read", rows_read)


def shown(answers: tuple[array[int], int], options: GoalOptions) -> tuple[array[int], int]:
    """Return answers with their rows, also where a table has kept them."""
    deferred = options.deferred
    return answers if deferred is None or not deferred.is_used else (deferred.rows(), answers[1])


def _leading(
    answers: tuple[array[int], int], pattern: Sequence[int], options: GoalOptions
) -> tuple[array[int], int]:
    """Return those answers that are read: a small run returns all of them at once."""
    rows, count = answers
    if options.first is None or count <= options.first:
        return answers
    return rows[: options.first * len(pattern)], options.first


SIZE_OF_KEPT = 2
"""The memory of kept rows, in that of the run that they come from, at most about this."""

MAX_RESTS = 256
"""Goals whose last failures to follow changes are known."""

MAX_REST = 64
"""Evaluations after which such a goal is maintained again, at most."""


class _Rest(NamedTuple):
    """Evaluations that a goal is left alone, and how many of them are past."""

    length: int = 0
    past: int = 0


@dataclass(slots=True)
class TableCounts:
    """Lookup counts of goal tables: current, continued incrementally, stale, or missing."""

    current: int = 0
    continued: int = 0
    stale: int = 0
    missed: int = 0


class GoalTables:
    """The goal tables of one tenant, at most `max_bytes` in total, evicted least recently used
    first.

    Every count is also added to `shared_counts`, which all tenants share.

    A table is removed from the cache while it is in use: a second goal that needs the same table at
    that time gets a new run.
    """

    def __init__(
        self,
        engine: Engine,
        max_bytes: int,
        verify: bool = False,
        shared_counts: TableCounts | None = None,
    ) -> None:
        self._engine = engine
        self.max_bytes = max_bytes
        self._verify = verify
        self._tables: OrderedDict[Key, GoalTable] = OrderedDict()
        self._rests: LruCache[CompiledGoal, _Rest] = LruCache(MAX_RESTS)
        self._mutex = threading.Lock()
        self.bytes = 0
        self.counts = TableCounts()
        self._shared_counts = shared_counts or TableCounts()
        self.kept_bytes = 0
        """The memory of standing goals and conclusions that follow changes: at most as much as that
        of all tables.
        """

    def has_room_to_keep(self, bytes: int) -> bool:
        """Return True if the rows of a run of this size may be kept beside goal tables."""
        return self.kept_bytes + SIZE_OF_KEPT * bytes <= self.max_bytes

    def count_kept(self, bytes: int) -> bool:
        """Add to this memory; return False if it is more than may be taken now."""
        with self._mutex:
            self.kept_bytes += bytes
            return self.kept_bytes <= self.max_bytes

    def __len__(self) -> int:
        return len(self._tables)

    def ask(
        self,
        partition: Partition,
        goal: CompiledGoal,
        pattern: Sequence[int],
        bind: Bind,
        budget: Budget,
        options: GoalOptions = DEFAULT_GOAL,
    ) -> tuple[array[int], int]:
        """Answer a goal in a partition, from a table or with a new run; raises BudgetExceeded.

        A plan with `now()` always gets a run of its own: its answers hold for the instant of the
        request.
        """
        if budget.span is None:
            return self._ask(partition, goal, pattern, bind, budget, options)
        with span("engine") as evaluation:
            if budget.steps is None:
                budget.steps = 0
            steps, rows_made = budget.steps, budget.rows_made
            answers = self._ask(partition, goal, pattern, bind, budget, options)
            if evaluation is not None:
                evaluation.set("kbcore.engine.steps", budget.steps - steps)
                evaluation.set("kbcore.engine.rows_derived", budget.rows_made - rows_made)
                evaluation.set("kbcore.engine.answers", answers[1])
            return answers

    def _ask(
        self,
        partition: Partition,
        goal: CompiledGoal,
        pattern: Sequence[int],
        bind: Bind,
        budget: Budget,
        options: GoalOptions,
    ) -> tuple[array[int], int]:
        if goal.loaded.dated:
            return self.once(goal, pattern, bind, budget, options)
        keys = _keys(partition.key, goal, pattern)
        table, answers = self._take(keys), None
        rows_before = steps_before = 0
        if table is not None:
            rows_before = table.rows_made
            if budget.steps is not None:
                steps_before = table.steps
            try:
                answers = (
                    table.ask(pattern, budget, options)
                    if isinstance(table, MaintainedTable)
                    else table.ask(
                        pattern, budget, bind, options.first, options.returns_all, options.deferred
                    )
                )
            except BaseException:
                table.close()
                raise
            self._count(table, answers is None)
        if table is None or answers is None:
            run = GoalRun(self._engine, goal, bind, budget.limits, budget.now)
            rows_before = steps_before = 0
            answers = self._fresh(run, pattern, budget, options)
            if budget.span is not None:
                _describe(budget.span, "evaluated", run.run.stats().rows_read)
            table = self._following(table, run, pattern, partition)
        elif budget.span is not None:
            _describe(budget.span, _state_of(table), 0)
        budget.rows_made += table.rows_made - rows_before
        if budget.steps is not None:
            budget.steps += table.steps - steps_before
        if self._verify and _leading(shown(answers, options), pattern, options) != _leading(
            self.once(
                goal, pattern, bind, replace(budget, notes=Notes()), options._replace(deferred=None)
            ),
            pattern,
            options,
        ):
            table.close()
            raise EngineFault("a goal table differs from a fresh evaluation")
        budget.notes.warnings += table.warnings
        self._keep(keys[-1] if table.goal is goal else keys[0], table)
        return answers

    def state(self, partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> str:
        """Return the state of the table a goal would use now: `current`, `continued`, `stale` or
        `none`.
        """
        with self._mutex:
            table = self._pop(_keys(partition, goal, pattern))
        if table is None:
            return "none"
        state = _STATES[table.serves(pattern)]
        self._keep(_key(partition, table.goal, pattern), table)
        return state

    def maintained_bytes(self) -> tuple[int, int]:
        """Return the memory of the tables that follow changes, and that of their rows alone."""
        with self._mutex:
            tables = [each for each in self._tables.values() if isinstance(each, MaintainedTable)]
            return sum(each.bytes for each in tables), sum(each.row_bytes for each in tables)

    def clear(self) -> None:
        """Drop every table."""
        with self._mutex:
            tables = list(self._tables.values())
            self._tables.clear()
            self.bytes = 0
        for table in tables:
            table.close()

    def once(
        self,
        goal: CompiledGoal,
        pattern: Sequence[int],
        bind: Bind,
        budget: Budget,
        options: GoalOptions = DEFAULT_GOAL,
    ) -> tuple[array[int], int]:
        """Answer a goal with a run that is not cached."""
        run = GoalRun(self._engine, goal, bind, budget.limits, budget.now)
        answers = self._fresh(run, pattern, budget, options._replace(deferred=None))
        budget.notes.warnings += run.warnings
        budget.rows_made += run.rows_made
        if budget.span is not None:
            _describe(budget.span, "evaluated", run.run.stats().rows_read)
        if budget.steps is not None:
            budget.steps += run.run.stats().steps
        run.close()
        return answers

    def _fresh(
        self, run: GoalRun, pattern: Sequence[int], budget: Budget, options: GoalOptions
    ) -> tuple[array[int], int]:
        try:
            answers = run.ask(
                pattern, budget, None, options.first, options.returns_all, options.deferred
            )
            if answers is None:
                raise EngineFault("a relation changed under the read lock")
            return answers
        except BaseException:
            run.close()
            raise

    def _following(
        self,
        before: GoalTable | None,
        run: GoalRun,
        pattern: Sequence[int],
        partition: Partition,
    ) -> GoalTable:
        """Return the table to keep of a finished run, in place of one that was stale.

        Goals whose changes cost too much are left alone for some time.
        """
        if (
            before is None
            or run.bytes > self.max_bytes // SIZE_OF_KEPT
            or not (can_be_maintained(run) and (self._verify or is_worth_following(run)))
        ):
            return run
        rest = self._rests.get(run.goal) or _Rest()
        if isinstance(before, MaintainedTable):
            rest = _Rest(min(max(2 * rest.length, 2), MAX_REST), 0)
        if rest.past < rest.length:
            self._rests.put(run.goal, _Rest(rest.length, rest.past + 1))
            return run
        self._rests.put(run.goal, rest)
        try:
            table = MaintainedTable(run, pattern, partition)
        except BudgetExceeded:  # the answers are there
            return run
        run.close()
        return table

    def _take(self, keys: Sequence[Key]) -> GoalTable | None:
        with self._mutex:
            table = self._pop(keys)
            if table is None:
                self.counts.missed += 1
                self._shared_counts.missed += 1
            return table

    def _pop(self, keys: Sequence[Key]) -> GoalTable | None:
        """Remove and return the first table that exists."""
        for key in keys:
            table = self._tables.pop(key, None)
            if table is not None:
                self.bytes -= table.bytes
                return table
        return None

    def _count(self, table: GoalTable, stale: bool) -> None:
        if stale:
            self.counts.stale += 1
            self._shared_counts.stale += 1
            table.close()
        elif table.worked:
            self.counts.continued += 1
            self._shared_counts.continued += 1
        else:
            self.counts.current += 1
            self._shared_counts.current += 1

    def _keep(self, key: Key, table: GoalTable) -> None:
        dropped = []
        with self._mutex:
            small = bool(key[2]) and table.bytes < MIN_TABLE_BYTES
            if small or key in self._tables or table.bytes > self.max_bytes:
                dropped.append(table)
            else:
                self._tables[key] = table
                self.bytes += table.bytes
                while self.bytes > self.max_bytes:
                    _, oldest = self._tables.popitem(last=False)
                    self.bytes -= oldest.bytes
                    dropped.append(oldest)
        for oldest in dropped:
            oldest.close()
