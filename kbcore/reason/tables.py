"""Goal tables: runs kept open, so that a goal asked again costs little more than reading its answers.

A run knows whether what it read has changed. New facts in what it reads positively, and new bindings, are
worked in from where it stands; any other change that may concern what it holds makes it stale and it is dropped.
Correctness never depends on a table: `verify` compares every answer with that of a fresh run.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbcore.errors import EngineFault
from kbcore.reason.budget import Budget, Notes
from kbcore.state.partition import PartitionKey
from kbplanner.engine.backend import Engine, RunState
from kbplanner.evaluate.evaluate import Bind, CompiledGoal, GoalRun

Key = tuple[PartitionKey, CompiledGoal, tuple[int, ...]]
"""Partition, plan, and for a plan that serves one binding only that binding."""


def _key(partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> Key:
    return partition, goal, tuple(pattern) if goal.plan.one_seed else ()


def _keys(partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> list[Key]:
    """The tables that can answer a goal, best first: one that holds all conclusions, then the one of its binding pattern."""
    plans = [goal] if goal.full is None else [goal.full, goal]
    return [_key(partition, plan, pattern) for plan in plans]


LEAST_BYTES = 8192
"""Runs of one binding that are smaller are quicker made anew than kept."""

_STATES = {RunState.DONE: "current", RunState.READY: "continued", RunState.STALE: "stale"}


@dataclass(slots=True)
class TableCounts:
    """How often a goal found a table that was current, one it could continue, a stale one, or none."""

    current: int = 0
    continued: int = 0
    stale: int = 0
    missed: int = 0


class GoalTables:
    """The goal tables of one tenant, at most `max_bytes` of them; those not used for longest go first.

    What is counted here is counted in `every` too, which all tenants share.

    A table is taken out while it is used: a second goal on the same table meanwhile gets a run of its own.
    """

    def __init__(self, engine: Engine, max_bytes: int, verify: bool = False, every: TableCounts | None = None) -> None:
        self._engine = engine
        self._max_bytes = max_bytes
        self._verify = verify
        self._tables: OrderedDict[Key, GoalRun] = OrderedDict()
        self._mutex = threading.Lock()
        self.bytes = 0
        self.counts = TableCounts()
        self._every = every or TableCounts()

    def __len__(self) -> int:
        return len(self._tables)

    def ask(
        self, partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int], bind: Bind, budget: Budget
    ) -> tuple[array[int], int]:
        """Answer a goal in a partition, from a table or with a new run; raises BudgetExceeded."""
        run, found = self._take(_keys(partition, goal, pattern)), None
        made = 0
        if run is not None:
            made = run.rows_made
            try:
                found = run.ask(pattern, budget, bind)
            except BaseException:
                run.close()
                raise
            self._count(run, found is None)
        if run is None or found is None:
            run, made = GoalRun(self._engine, goal, bind, budget.limits), 0
            found = self._fresh(run, pattern, budget)
        budget.rows_made += run.rows_made - made
        if self._verify and found != self.once(goal, pattern, bind, replace(budget, notes=Notes())):
            run.close()
            raise EngineFault("a goal table differs from a fresh evaluation")
        budget.notes.warnings += run.warnings
        self._keep(_key(partition, run.goal, pattern), run)
        return found

    def state(self, partition: PartitionKey, goal: CompiledGoal, pattern: Sequence[int]) -> str:
        """What a goal would find now: a table that is `current`, one that is `continued`, one that is `stale`, or `none`."""
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

    def once(self, goal: CompiledGoal, pattern: Sequence[int], bind: Bind, budget: Budget) -> tuple[array[int], int]:
        """Answer a goal with a run that is not kept."""
        run = GoalRun(self._engine, goal, bind, budget.limits)
        found = self._fresh(run, pattern, budget)
        budget.notes.warnings += run.warnings
        budget.rows_made += run.rows_made
        run.close()
        return found

    def _fresh(self, run: GoalRun, pattern: Sequence[int], budget: Budget) -> tuple[array[int], int]:
        try:
            found = run.ask(pattern, budget)
            if found is None:
                raise EngineFault("a relation changed under the read lock")
            return found
        except BaseException:
            run.close()
            raise

    def _take(self, keys: Sequence[Key]) -> GoalRun | None:
        with self._mutex:
            found = self._pop(keys)
            if found is None:
                self.counts.missed += 1
                self._every.missed += 1
            return found

    def _pop(self, keys: Sequence[Key]) -> GoalRun | None:
        """Remove and return the first table there is."""
        for key in keys:
            found = self._tables.pop(key, None)
            if found is not None:
                self.bytes -= found.bytes
                return found
        return None

    def _count(self, run: GoalRun, stale: bool) -> None:
        if stale:
            self.counts.stale += 1
            self._every.stale += 1
            run.close()
        elif run.worked:
            self.counts.continued += 1
            self._every.continued += 1
        else:
            self.counts.current += 1
            self._every.current += 1

    def _keep(self, key: Key, run: GoalRun) -> None:
        dropped = []
        with self._mutex:
            small = bool(key[2]) and run.bytes < LEAST_BYTES
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
