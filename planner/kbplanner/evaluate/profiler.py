"""Profiling of a run stratum by stratum: time and rows of each.

The engine has no clock. It pauses where a stratum ends, so that every step is work in one stratum,
whose time is the difference of the clock before and after the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kbplanner.engine.backend import Offload, Run, RunState, RunStats


@dataclass(slots=True)
class StratumTotals:
    """Totals of one stratum: seconds on the clock, including waits, rounds, new rows."""

    seconds: float = 0.0
    rounds: int = 0
    rows: int = 0


class StratumProfiler:
    """The steps of a run that has not begun; `now` returns seconds."""

    def __init__(self, run: Run, strata: int, now: Callable[[], float]) -> None:
        run.profile()
        self._run = run
        self._now = now
        self.strata_totals = [StratumTotals() for _ in range(strata)]

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Work for about `fuel` steps, in one stratum."""
        before, start = self._run.stats(), self._now()
        state = self._run.step(fuel, offload)
        end, after = self._now(), self._run.stats()
        if self.strata_totals:
            stage = self.strata_totals[before.component % len(self.strata_totals)]
            stage.seconds += end - start
            stage.rounds += after.rounds - before.rounds
            stage.rows += after.rows_made - before.rows_made
        return state

    def stats(self) -> RunStats:
        """Return the counters of the run."""
        return self._run.stats()

    def cancel(self) -> None:
        """Stop the current step soon; may be called from another thread."""
        self._run.cancel()
