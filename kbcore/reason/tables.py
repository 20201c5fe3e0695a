"""Goal tables: cached runs, so that a repeated goal costs little more than reading its rows.

A run detects changes in the relations it read. It continues incrementally after new facts in
relations it reads positively and after new bindings. Any other relevant change makes the run stale,
and it is dropped. Correctness never depends on a table: `verify` compares every answer with that of
a fresh run.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbcore.errors import EngineFault
from kbcore.reason.budget import Budget, Notes
from kbcore.reason.options import DEFAULT_GOAL, GoalOptions
from kbcore.state.partition import PartitionKey
from kbplanner.engine.backend import Engine, RunState
from kbplanner.evaluate.evaluate import CompiledGoal, GoalRun
from kbplanner.evaluate.loaded import Bind

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


def shown(answers: tuple[array[int], int], options: GoalOptions) -> tuple[array[int], int]:
    """Return answers with their rows, also where a table has kept them."""
    deferred = options.deferred
    return answers if deferred is None or not deferred.is_used else (deferred.rows(), answers[1])


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
        self._max_bytes = max_bytes
        self._verify = verify
        self._tables: OrderedDict[Key, GoalRun] = OrderedDict()
        self._mutex = threading.Lock()
        self.bytes = 0
        self.counts = TableCounts()
        self._shared_counts = shared_counts or TableCounts()

    def __len__(self) -> int:
        return len(self._tables)

    def ask(
        self,
        partition: PartitionKey,
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
        if goal.loaded.dated:
            return self.once(goal, pattern, bind, budget, options)
        keys = _keys(partition, goal, pattern)
        run, answers = self._take(keys), None
        rows_before = steps_before = 0
        if run is not None:
            rows_before = run.rows_made
            if budget.steps is not None:
                steps_before = run.run.stats().steps
            try:
                answers = run.ask(
                    pattern, budget, bind, options.first, options.returns_all, options.deferred
                )
            except BaseException:
                run.close()
                raise
            self._count(run, answers is None)
        if run is None or answers is None:
            run = GoalRun(self._engine, goal, bind, budget.limits, budget.now)
            rows_before = steps_before = 0
            answers = self._fresh(run, pattern, budget, options)
        budget.rows_made += run.rows_made - rows_before
        if budget.steps is not None:
            budget.steps += run.run.stats().steps - steps_before
        if self._verify and shown(answers, options) != self.once(
            goal, pattern, bind, replace(budget, notes=Notes()), options._replace(deferred=None)
        ):
            run.close()
            raise EngineFault("a goal table differs from a fresh evaluation")
        budget.notes.warnings += run.warnings
        self._keep(keys[-1] if run.goal is goal else keys[0], run)
        return answers

    def state(self, partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> str:
        """Return the state of the table a goal would use now: `current`, `continued`, `stale` or
        `none`.
        """
        with self._mutex:
            run = self._pop(_keys(partition, goal, pattern))
        if run is None:
            return "none"
        state = run.serves(pattern)
        self._keep(_key(partition, run.goal, pattern), run)
        return _STATES[state]

    def clear(self) -> None:
        """Drop every table."""
        with self._mutex:
            runs = list(self._tables.values())
            self._tables.clear()
            self.bytes = 0
        for run in runs:
            run.close()

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

    def _take(self, keys: Sequence[Key]) -> GoalRun | None:
        with self._mutex:
            run = self._pop(keys)
            if run is None:
                self.counts.missed += 1
                self._shared_counts.missed += 1
            return run

    def _pop(self, keys: Sequence[Key]) -> GoalRun | None:
        """Remove and return the first table that exists."""
        for key in keys:
            run = self._tables.pop(key, None)
            if run is not None:
                self.bytes -= run.bytes
                return run
        return None

    def _count(self, run: GoalRun, stale: bool) -> None:
        if stale:
            self.counts.stale += 1
            self._shared_counts.stale += 1
            run.close()
        elif run.worked:
            self.counts.continued += 1
            self._shared_counts.continued += 1
        else:
            self.counts.current += 1
            self._shared_counts.current += 1

    def _keep(self, key: Key, run: GoalRun) -> None:
        dropped = []
        with self._mutex:
            small = bool(key[2]) and run.bytes < MIN_TABLE_BYTES
            if small or key in self._tables or run.bytes > self._max_bytes:
                dropped.append(run)
            else:
                self._tables[key] = run
                self.bytes += run.bytes
                while self.bytes > self._max_bytes:
                    _, oldest = self._tables.popitem(last=False)
                    self.bytes -= oldest.bytes
                    dropped.append(oldest)
        for oldest in dropped:
            oldest.close()
