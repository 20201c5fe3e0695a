"""The resource limits of one request, and the loop that steps a run within them.

All long work of a request checks its budget regularly: the engine between slices of fuel, Python
code about once a millisecond (`yield_now`, `slices`, `paced`). A check ends the request if its
deadline has passed or its client has disconnected, and lets other requests run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, TypeVar

from kbcore.clock import Clock
from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.reason.admission import Admission
from kbcore.tracing.spans import TraceSpan
from kbplanner.engine.backend import SLICE, Offload, RunLimits, RunState, Steps
from kbplanner.evaluate.race import LimitedSteps
from kbplanner.pacing import paced
from kbplanner.syntax.diagnostics import counted

if TYPE_CHECKING:
    from kbcore.reason.external.rows import ExternalRows
    from kbcore.reason.predicates import MissingPredicate

T = TypeVar("T")

FIRST_FUEL = 100_000
"""Engine steps of the first slice, run on the calling thread: a few milliseconds.

Most goals end here.
"""

SLICE_FUEL = SLICE
"""Engine steps of every later slice, run off the event loop: one call of the engine.

Between slices the deadline is checked and other users of the engine get access.
"""

SLICE_ROWS = 500
"""Answers converted to Python objects between two calls of `yield_now`."""

ITEMS_AT_ONCE = 5000
"""Items processed by a cheap loop between two calls of `yield_now`."""

COMPILE_SECONDS = 0.01
"""Time for which a goal is compiled although its deadline has passed: most take a millisecond."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits that a request sets for itself. None means the limit of the settings, which is
    also the maximum.

    `timeout_ms` is the inference time in milliseconds, `rows` the number of derived rows, `steps`
    the number of engine steps, `bytes` the memory for derived rows, `answers` the number of
    returned answers.
    """

    timeout_ms: int | None = None
    rows: int | None = None
    steps: int | None = None
    bytes: int | None = None
    answers: int | None = None


NO_LIMITS = RequestLimits()
"""The limits of a request that sets none."""


class Deadline:
    """Callable for long work of a request that has no budget yet, such as reading its text: lets
    other requests run.

    Raises BudgetExceeded after `timeout_ms` milliseconds.
    """

    __slots__ = ("_at", "_clock", "_timeout_ms", "_yield_now")

    def __init__(self, clock: Clock, timeout_ms: int, yield_now: Callable[[], None]) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._at = clock.monotonic() + timeout_ms / 1000
        self._yield_now = yield_now

    def __call__(self) -> None:
        """Let other requests run; raises BudgetExceeded."""
        if self._clock.monotonic() >= self._at:
            message = f"reading the request reached its time limit of {self._timeout_ms} ms"
            raise BudgetExceeded(message, "timeMs", self._timeout_ms)
        self._yield_now()


@dataclass(slots=True)
class Notes:
    """Notes about an answer besides its rows.

    `warnings` counts the literals that failed because a function or an aggregate had no value for
    its arguments: a division by zero, a text that is not a number, a result too large. The exact
    count depends on the evaluation order; whether it is zero does not. `unknown` lists the
    predicates of the goal that have no fact and no rule. `total` is the number of stored facts that
    match, of which an answer may be one page; None if it was not counted.
    """

    warnings: int = 0
    unknown: list[MissingPredicate] = field(default_factory=list)
    total: int | None = None


@dataclass(slots=True)
class Budget:
    """The limits of one request: engine limits, time limit in milliseconds, monotonic times of its
    start and its deadline, number of answers.
    """

    limits: RunLimits
    timeout_ms: int
    begun: float
    deadline: float
    max_answers: int
    clock: Clock
    admission: Admission
    runtime_offload: Offload | None = None
    runtime_yield: Callable[[], None] | None = None
    fuel: int = FIRST_FUEL
    notes: Notes = field(default_factory=Notes)
    max_proof_nodes: int = 0
    proof_nodes: int = 0
    proof_depth: int = 0
    """Rule steps of the deepest proof, if the goal has a span."""
    now: int | None = None
    """The instant of the request, which `now()` in rules returns, in epoch milliseconds."""
    rows_made: int = 0
    """Number of rows derived for this request so far."""
    answers: int = 0
    """Number of answers returned for this request so far."""
    steps: int | None = None
    """Number of engine steps of the goals that share the budget; None if it is that of one."""
    span: TraceSpan | None = None
    """The span of the goal or the window, if it is recorded."""
    external: ExternalRows | None = None
    """The rows of external predicates that the request knows; None before it needs any."""

    def part(self, shares: int) -> Budget:
        """Return a budget with one of `shares` equal parts of the remaining time, and the other
        limits.
        """
        now = self.clock.monotonic()
        deadline = now + (self.deadline - now) / shares
        return replace(self, begun=now, deadline=deadline, rows_made=0)

    def share(self) -> None:
        """Become the budget of several goals, of which none has used anything yet."""
        self.answers = self.proof_nodes = self.rows_made = self.steps = 0

    def next_goal(self, notes: Notes) -> Budget:
        """Return the budget of the next of the goals that share this one: what is left of it."""
        limits = RunLimits(
            _left(self.limits.rows, self.rows_made),
            self.limits.bytes,
            _left(self.limits.steps, self.steps or 0),
        )
        begun = self.clock.monotonic()
        return replace(self, limits=limits, begun=begun, notes=notes, rows_made=0)

    def add(self, goal: Budget) -> None:
        """Count what a goal with a budget of `next_goal` has used."""
        self.rows_made += goal.rows_made
        self.answers, self.proof_nodes = goal.answers, goal.proof_nodes
        self.steps, self.external = goal.steps, goal.external

    def total(self, error: BudgetExceeded) -> BudgetExceeded:
        """Return the error of a goal with a budget of `next_goal` with the limit for all goals."""
        details = error.details or {}
        limits = {"derivedRows": self.limits.rows, "steps": self.limits.steps}
        value = limits.get(limit := str(details.get("limit")))
        return error if value is None else BudgetExceeded.of_run(limit, value, details.get("rule"))

    def offload(self, call: Callable[[], int]) -> int:
        """Run a long call off the event loop.

        Raises BudgetExceeded if the deadline has already passed.
        """
        self.check_time()
        return call() if self.runtime_offload is None else self.runtime_offload(call)

    def slices(self, count: int, size: int = SLICE_ROWS) -> Iterator[range]:
        """Yield 0 .. count-1 as ranges of about a millisecond of Python work each, with calls of
        `yield_now` in between.
        """
        for start in range(0, count, size):
            if start:
                self.yield_now()
            yield range(start, min(start + size, count))

    def paced(self, items: Iterable[T], every: int = ITEMS_AT_ONCE) -> Iterator[T]:
        """Yield the items of a cheap loop, with a call of `yield_now` after every `every` items."""
        return paced(items, self.yield_now, every)

    def keys(self, rows: array[int], count: int, arity: int) -> Iterator[tuple[int, ...]]:
        """Yield flat rows as tuples, with calls of `yield_now` in between."""
        tuples = zip(*[iter(rows)] * arity, strict=True) if arity else repeat((), count)
        return self.paced(islice(tuples, count))

    def release(self) -> None:
        """Release the slot and the rows of external predicates at the end of the request."""
        if self.admission.requested:
            self.admission.release()
        if self.external is not None:
            self.external.close()

    def drive(self, run: LimitedSteps) -> None:
        """Step a run to its end; raises BudgetExceeded."""
        run.limit(self.limits)
        self.work(run)

    def work(self, run: Steps) -> None:
        """Step a run or a model, whose limits are set, to its end; raises BudgetExceeded."""
        self.finish(run, RunState.PAUSED if self.admission.requested else run.step(self.fuel))

    def finish(self, run: Steps, state: RunState = RunState.PAUSED) -> None:
        """Step a run or a model from `state` to its end; raises BudgetExceeded."""
        while state is not RunState.DONE:
            self.check_time(run)
            if state is RunState.STALE:
                raise EngineFault("a relation changed under the read lock")
            self.admission.request(self.deadline - self.clock.monotonic())
            state = self.admission.step(run, SLICE_FUEL, self.runtime_offload)
            self.give_way()

    def check_time(self, run: Steps | None = None) -> None:
        """Raise BudgetExceeded after the deadline, naming the rule in work.

        Or the error that stopped the request.
        """
        self.admission.check()
        if self.clock.monotonic() >= self.deadline:
            rule = None if run is None else str(run.stats().rule)
            message = f"the evaluation reached its time limit of {self.timeout_ms} ms"
            raise BudgetExceeded(message, "timeMs", self.timeout_ms, rule)

    def yield_now(self) -> None:
        """Check the deadline between two pieces of Python work and yield to other requests.

        Raises BudgetExceeded.
        """
        self.check_time()
        if self.admission.is_due():
            self.admission.request(self.deadline - self.clock.monotonic())
        self.give_way()

    def give_way(self) -> None:
        """Yield to other requests without a check of the deadline, such as between two pieces of
        cleaning up.
        """
        if self.runtime_yield is not None:
            self.admission.pause(self.runtime_yield)

    def yield_compiling(self) -> None:
        """Yield as `yield_now` does, between two pieces of the compilation of a goal.

        A request without any time gets COMPILE_SECONDS: it returns the answers of its first slice.
        """
        if self.clock.monotonic() - self.begun >= COMPILE_SECONDS:
            self.yield_now()
        else:
            self.give_way()

    def check_answers(self, count: int) -> None:
        """Raise BudgetExceeded if `count` further answers are more than may be returned."""
        count += self.answers
        if count > self.max_answers:
            raise BudgetExceeded(
                f"{count} answers are more than the limit of {self.max_answers}; ask with 'limit'",
                "answers",
                self.max_answers,
            )

    def show_nodes(self, count: int) -> None:
        """Count proof nodes to be returned.

        Raises BudgetExceeded if the total exceeds `max_proof_nodes`.
        """
        self.proof_nodes += count
        if self.proof_nodes > self.max_proof_nodes:
            raise BudgetExceeded(
                f"the proofs have more than {counted(self.max_proof_nodes, 'node')}; ask with 'limit',"
                " 'proofNodes' or 'proofDepth'",
                "proofNodes",
                self.max_proof_nodes,
            )


def _left(limit: int, used: int) -> int:
    """Return the rest of a limit, of which 0 is none; a limit that is used up leaves 1."""
    return max(limit - used, 1) if limit else 0
