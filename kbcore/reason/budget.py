"""What one request may use, and the loop that drives a run within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kbcore.clock import Clock
from kbcore.errors import BudgetExceeded, EngineFault
from kbplanner.backend import Limits, Run, RunState, Steps, Via

FIRST_FUEL = 100_000
"""Steps made in place: a few milliseconds. Most goals end here."""

SLICE_FUEL = 1_000_000
"""Steps of every later slice, made where they hold up nobody; the deadline is looked at between slices."""


SLICE_ROWS = 500
"""Answers turned into Python objects between two pauses."""


@dataclass(slots=True)
class Notes:
    """What may be said about an answer besides its rows.

    `warnings` counts the literals that failed because a function or an aggregate had no value for what it was given: a
    division by zero, a text that is no number, a result too large. How often depends on the order of the work, not whether.
    """

    warnings: int = 0


@dataclass(slots=True)
class Budget:
    """Limits of one request: engine limits, a time limit in milliseconds with its end on the monotonic clock, answers."""

    limits: Limits
    timeout_ms: int
    deadline: float
    max_answers: int
    clock: Clock
    via: Via | None = None
    pause: Callable[[], None] | None = None
    fuel: int = FIRST_FUEL
    notes: Notes = field(default_factory=Notes)

    def slices(self, count: int) -> Iterator[range]:
        """Places 0 .. count-1 in slices of about a millisecond of Python each; others have their turn in between."""
        for start in range(0, count, SLICE_ROWS):
            if start and self.pause is not None:
                self.pause()
            yield range(start, min(start + SLICE_ROWS, count))

    def drive(self, run: Run) -> None:
        """Step a run to its end; raises BudgetExceeded."""
        run.limit(self.limits)
        self.work(run)

    def work(self, run: Steps) -> None:
        """Step a run or a model, whose limits are set, to its end; raises BudgetExceeded."""
        self.finish(run, run.step(self.fuel))

    def finish(self, run: Steps, state: RunState = RunState.PAUSED) -> None:
        """Go on with a run or a model that was left in `state`, to its end; raises BudgetExceeded."""
        while state is not RunState.DONE:
            self.check_time(run)
            if state is RunState.STALE:
                raise EngineFault("a relation changed under the read lock")
            state = run.step(SLICE_FUEL, self.via)

    def check_time(self, run: Steps | None = None) -> None:
        """Raise BudgetExceeded when the time is over; of a run the rule at work is named."""
        if self.clock.monotonic() >= self.deadline:
            rule = None if run is None else str(run.stats().rule)
            said = f"the evaluation met its time limit of {self.timeout_ms} ms"
            raise BudgetExceeded(said, "timeMs", self.timeout_ms, rule)

    def rest(self) -> None:
        """Between two pieces of Python work: raise BudgetExceeded when the time is over, let others have their turn."""
        self.check_time()
        if self.pause is not None:
            self.pause()

    def check_answers(self, count: int) -> None:
        """Raise BudgetExceeded if an answer is too long to be given whole."""
        if count > self.max_answers:
            raise BudgetExceeded(
                f"{count} answers are more than the limit of {self.max_answers}; ask with 'limit'",
                "answers",
                self.max_answers,
            )
