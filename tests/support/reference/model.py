"""Well-founded models in Python: the textbook alternating fixpoint, the oracle of the tests.

Van Gelder, "The alternating fixpoint of logic programs with negation" (1993): what follows when
only known falsehoods count as absent is true; what does not follow even when everything not known
to be true counts as absent is false.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kbplanner.engine.backend import Offload, RunLimits, RunState, RunStats, Truth
from kbplanner.engine.ground import NEGATED, NONE, Ground
from kbplanner.errors import BudgetExceeded, Cancelled


class ReferenceModel:
    """See `backend.Model`."""

    def __init__(self, ground: Ground, limits: RunLimits) -> None:
        self._nodes = ground.nodes
        self._limits = limits
        self._steps = 0
        self._cancelled = False
        self._true: set[int] = set()
        self._possible: set[int] = set(range(ground.nodes))
        self._instances: list[tuple[int, list[int], list[int]]] = []
        for i, head in enumerate(ground.heads):
            premises = [premise for premise in ground.of(i) if premise != NONE]
            positive = [premise for premise in premises if not premise & NEGATED]
            self._instances.append(
                (head, positive, [premise & ~NEGATED for premise in premises if premise & NEGATED])
            )
        self._work: Iterator[None] = self._alternate()

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps."""
        for _ in range(max(fuel, 1)):
            if next(self._work, self) is self:
                return RunState.DONE
        return RunState.PAUSED

    def values(self) -> bytes:
        """Return a `Truth` for each node."""
        return bytes(
            Truth.TRUE
            if n in self._true
            else Truth.UNDEFINED
            if n in self._possible
            else Truth.FALSE
            for n in range(self._nodes)
        )

    def stats(self) -> RunStats:
        """Return the counters so far."""
        return RunStats(steps=self._steps)

    def cancel(self) -> None:
        """Stop the current step."""
        self._cancelled = True

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _alternate(self) -> Iterator[None]:
        while True:
            possible = yield from self._least(self._true)
            true = yield from self._least(possible)
            if true == self._true and possible == self._possible:
                return
            self._true, self._possible = true, possible

    def _least(self, assumed: set[int]) -> Generator[None, None, set[int]]:
        """Return the least set closed under the instances, where exactly the nodes not `assumed`
        are absent.
        """
        closed: set[int] = set()
        usable = [
            (head, positive)
            for head, positive, negative in self._instances
            if assumed.isdisjoint(negative)
        ]
        while True:
            grown = len(closed)
            for head, positive in usable:
                self._tick()
                yield
                if closed.issuperset(positive):
                    closed.add(head)
            if len(closed) == grown:
                return closed

    def _tick(self) -> None:
        self._steps += 1
        if self._cancelled:
            raise Cancelled("the evaluation was stopped")
        if self._limits.steps and self._steps > self._limits.steps:
            raise BudgetExceeded.of_run("steps", self._limits.steps)
