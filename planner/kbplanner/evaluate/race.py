"""Demand and full evaluation of one goal, stepped alternately until the first is done.

Magic sets usually save work, but where demand depends on the answers of a non-linear recursion they
can cost several times the evaluation without demand. No estimate made at planning time
distinguishes these cases, so both plans run: the goal takes at most a constant factor longer than
with the cheaper of the two. Most goals end before the full evaluation is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from kbplanner.engine.backend import Offload, Run, RunLimits, RunState, RunStats, Steps
from kbplanner.errors import BudgetExceeded

HEAD_START_STEPS = 200_000
"""Engine steps that the demand evaluation makes before the full evaluation is opened: one to two
milliseconds.
"""

HEAD_START_SHARE_BESIDE_ROWS = 4
"""The head start is shorter by this factor where the full evaluation works on rows of bits, and
derives several rows in a step.
"""

HEAD_START_STEPS_PER_FACT = 4
"""Further steps of head start for each stored fact the goal can read; a full evaluation reads each
of them at least once.
"""

FULL_TIME_SHARE = 2.0
"""Seconds the full evaluation gets for each second of the demand evaluation."""

FULL_TIME_SHARE_BY_ROWS = 4.0
"""The same where the full evaluation works on rows of bits: its time is bounded by the values of
the relations, and it usually ends first.
"""

FIRST_TURN_STEPS = 25_000
"""Engine steps of the first turn of the demand evaluation beside the full one. Each turn is twice
as long as the one before, so that short races are fair and long ones change turns rarely.
"""


class LimitedSteps(Steps, Protocol):
    """Work whose budgets can be set: a run, or two runs that compete."""

    def limit(self, limits: RunLimits) -> None:
        """Set new budgets, counted from now."""


class Race:
    """The demand run of a goal and its full run, as one piece of work with a `step` method.

    `open_full` opens the full run; `facts` is the number of stored facts that it reads,
    `joins_pairs` True if it can be evaluated by rows of bits. The rows and bytes of both runs
    together stay within `limits`: when they reach them, the full run is closed and the demand run
    goes on alone, within the same limits. `now` returns seconds; without differences in time the
    runs are compared by their steps.
    """

    def __init__(
        self,
        demand: Run,
        open_full: Callable[[], Run],
        limits: RunLimits,
        facts: int,
        now: Callable[[], float] = perf_counter,
        joins_pairs: bool = False,
    ) -> None:
        self._demand = demand
        self._open_full = open_full
        self._limits = limits
        self._now = now
        self._full: Run | None = None
        self._full_is_open = False
        self._full_won = False
        self._dropped_rows = 0
        self._seconds = {True: 0.0, False: 0.0}
        start = demand.stats()
        head_start = HEAD_START_STEPS // (HEAD_START_SHARE_BESIDE_ROWS if joins_pairs else 1)
        self._full_share = FULL_TIME_SHARE_BY_ROWS if joins_pairs else FULL_TIME_SHARE
        self._turn_steps = FIRST_TURN_STEPS
        self._head_start_end = start.steps + head_start + HEAD_START_STEPS_PER_FACT * facts
        self._rows_before = start.rows_made
        self._steps_before = start.steps

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step one of the two runs; DONE when it has reached its end. Raises BudgetExceeded for the
        demand run only.
        """
        demand = self._demand.stats()
        if demand.steps < self._head_start_end:
            return self._demand.step(min(fuel, self._head_start_end - demand.steps), offload)
        if not self._full_is_open:
            self._full_is_open = True
            self._full = self._open_full()
        if self._full is None:
            return self._demand.step(fuel, offload)
        if not self._is_turn_of_full(demand, self._full.stats()):
            turn = min(fuel, self._turn_steps)
            self._turn_steps *= 2
            return self._timed(self._demand, turn, offload)
        try:
            state = self._timed(self._full, fuel, offload)
        except BudgetExceeded:
            self._drop_full()
            return RunState.PAUSED
        if state is RunState.DONE:
            self._full_won = True
        elif self._exceeds(demand, self._full.stats()):
            self._drop_full()
        return state

    def stats(self) -> RunStats:
        """Return the counters of the demand run."""
        return self._demand.stats()

    def limit(self, limits: RunLimits) -> None:
        """Set new budgets for both runs, counted from now."""
        self._limits = limits
        for run in (self._demand, self._full):
            if run is not None:
                run.limit(limits)

    def cancel(self) -> None:
        """Make the step in progress stop soon; may be called from another thread."""
        for run in (self._demand, self._full):
            if run is not None:
                run.cancel()

    def finish(self) -> tuple[Run, int]:
        """Close the run that lost; return the run that holds the answers, and the rows that the
        closed run derived.
        """
        if self._full is None or not self._full_won:
            self.close()
            return self._demand, self._dropped_rows
        rows = self._demand.stats().rows_made - self._rows_before
        self._demand.close()
        winner, self._full = self._full, None
        return winner, rows

    def close(self) -> None:
        """Close the full run, if it is open; the demand run belongs to the caller."""
        self._drop_full()

    def _timed(self, run: Run, fuel: int, offload: Offload | None) -> RunState:
        start = self._now()
        try:
            return run.step(fuel, offload)
        finally:
            self._seconds[run is self._full] += self._now() - start

    def _is_turn_of_full(self, demand: RunStats, full: RunStats) -> bool:
        """Compare seconds; where the clock shows no difference, steps."""
        full_time, demand_time = self._seconds[True], self._seconds[False] * self._full_share
        if full_time != demand_time:
            return full_time < demand_time
        return full.steps <= (demand.steps - self._head_start_end) * self._full_share

    def _exceeds(self, demand: RunStats, full: RunStats) -> bool:
        """Return True if both runs together have used up a limit."""
        limits = self._limits
        rows = demand.rows_made - self._rows_before + full.rows_made
        steps = demand.steps - self._steps_before + full.steps
        used = (
            (rows, limits.rows),
            (demand.bytes + full.bytes, limits.bytes),
            (steps, limits.steps),
        )
        return any(limit and amount >= limit for amount, limit in used)

    def _drop_full(self) -> None:
        if self._full is not None:
            self._dropped_rows += self._full.stats().rows_made
            self._full.close()
            self._full = None
