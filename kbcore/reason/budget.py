"""What one request may use, and the loop that drives a run within it.

Whatever takes time for a request looks here again and again: the engine between slices of fuel, Python between pieces of
about a millisecond (`rest`, `slices`, `paced`). Each look can end the request, by its deadline or because nobody waits for
it any more, and lets others have their turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import TYPE_CHECKING, TypeVar

from kbcore.clock import Clock
from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.admission import Turn
from kbplanner.engine.backend import Limits, RunState, Steps, Via
from kbplanner.engine.engine import SLICE
from kbplanner.engine.ground import paced
from kbplanner.evaluate.race import LimitedSteps

if TYPE_CHECKING:
    from kbcore.reason.unknown import UnknownPredicate

T = TypeVar("T")

FIRST_FUEL = 100_000
"""Steps made in place: a few milliseconds. Most goals end here."""

SLICE_FUEL = SLICE
"""Steps of every later slice, made where they hold up nobody: one entry of the engine. The deadline is looked at between
slices, and whoever else waits for the engine gets in."""


SLICE_ROWS = 500
"""Answers turned into Python objects between two pauses."""

ITEMS_AT_ONCE = 5000
"""Items that a loop does little with between two pauses."""

LONG_SECONDS = 0.1
"""A request that has worked in Python for so long counts as a long one."""


@dataclass(frozen=True, slots=True)
class BudgetWanted:
    """Limits a request sets for itself. None leaves that of the settings, and none can be raised above it.

    `timeout_ms` is the time to infer; `rows` that may be derived, `steps` of the engine, `bytes` of derived rows, `answers`
    to be returned.
    """

    timeout_ms: int | None = None
    rows: int | None = None
    steps: int | None = None
    bytes: int | None = None
    answers: int | None = None


@dataclass(slots=True)
class Notes:
    """What may be said about an answer besides its rows.

    `warnings` counts the literals that failed because a function or an aggregate had no value for what it was given: a
    division by zero, a text that is no number, a result too large. How often depends on the order of the work, not whether.
    `unknown` are the predicates of the goal that have no fact and no rule.
    """

    warnings: int = 0
    unknown: list[UnknownPredicate] = field(default_factory=list)


@dataclass(slots=True)
class Budget:
    """Limits of one request: engine limits, a time limit in milliseconds with its end on the monotonic clock, answers."""

    limits: Limits
    timeout_ms: int
    deadline: float
    max_answers: int
    clock: Clock
    turn: Turn
    away: Via | None = None
    pause: Callable[[], None] | None = None
    fuel: int = FIRST_FUEL
    notes: Notes = field(default_factory=Notes)
    max_proof_nodes: int = 0
    proof_nodes: int = 0
    whole: bool = False
    """Whether all answers of the goal at hand will be shown."""
    first: int | None = None
    """How many of its first answers will be looked at; None: all."""
    counts_accesses: bool = True
    """Whether stored answers of goals count as accessed; goals inside a context window do not."""
    rows_made: int = 0
    """Rows that rules made for this request so far."""
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.clock.monotonic()

    def via(self, call: Callable[[], int]) -> int:
        """Make a long call where it holds up nobody, unless the time was over when its turn came."""
        self.check_time()
        return call() if self.away is None else self.away(call)

    def slices(self, count: int, size: int = SLICE_ROWS) -> Iterator[range]:
        """Places 0 .. count-1 in slices of about a millisecond of Python each; others have their turn in between."""
        for start in range(0, count, size):
            if start:
                self.rest()
            yield range(start, min(start + size, count))

    def paced(self, items: Iterable[T], every: int = ITEMS_AT_ONCE) -> Iterator[T]:
        """The items of a loop that does little with each, with a rest after each so many."""
        return paced(items, self.rest, every)

    def keys(self, rows: array[int], count: int, arity: int) -> Iterator[tuple[int, ...]]:
        """Flat rows as tuples, with rests between."""
        tuples = zip(*[iter(rows)] * arity, strict=True) if arity else repeat((), count)
        return self.paced(islice(tuples, count))

    def drive(self, run: LimitedSteps) -> None:
        """Step a run to its end; raises BudgetExceeded."""
        run.limit(self.limits)
        self.work(run)

    def work(self, run: Steps) -> None:
        """Step a run or a model, whose limits are set, to its end; raises BudgetExceeded."""
        self.finish(run, RunState.PAUSED if self.turn.taken else run.step(self.fuel))

    def finish(self, run: Steps, state: RunState = RunState.PAUSED) -> None:
        """Go on with a run or a model that was left in `state`, to its end; raises BudgetExceeded."""
        while state is not RunState.DONE:
            self.check_time(run)
            if state is RunState.STALE:
                raise EngineFault("a relation changed under the read lock")
            self.turn.take(self.deadline - self.clock.monotonic())
            state = self.turn.step(run, SLICE_FUEL, self.away)
            if self.pause is not None:
                self.pause()

    def check_time(self, run: Steps | None = None) -> None:
        """Raise BudgetExceeded when the time is over; of a run the rule at work is named. Raise what stopped the request."""
        self.turn.check()
        if self.clock.monotonic() >= self.deadline:
            rule = None if run is None else str(run.stats().rule)
            said = f"the evaluation met its time limit of {self.timeout_ms} ms"
            raise BudgetExceeded(said, "timeMs", self.timeout_ms, rule)

    def rest(self) -> None:
        """Between two pieces of Python work: raise BudgetExceeded when the time is over, let others have their turn."""
        self.check_time()
        if not self.turn.taken and (now := self.clock.monotonic()) - self.begun >= LONG_SECONDS:
            self.turn.take(self.deadline - now)
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

    def check_whole(self, count: int) -> None:
        """Raise BudgetExceeded before so many answers are sorted, where all of them would be shown and are too many."""
        if self.whole:
            self.check_answers(count)

    def show_nodes(self, count: int) -> None:
        """Count nodes of proofs that will be shown; raises BudgetExceeded where those of all answers are too many."""
        self.proof_nodes += count
        if self.proof_nodes > self.max_proof_nodes:
            raise BudgetExceeded(
                f"the proofs have more than {self.max_proof_nodes} nodes; ask with 'limit', 'proofNodes' or 'proofDepth'",
                "proofNodes",
                self.max_proof_nodes,
            )
