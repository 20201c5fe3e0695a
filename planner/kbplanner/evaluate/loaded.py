"""Plans that an engine has verified, and what a caller supplies to run them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kbplanner.compile.build import build
from kbplanner.compile.bytecode import encode
from kbplanner.compile.plan import NOW, Plan
from kbplanner.engine.backend import CompiledPlan, Engine, Offload, Relation, Run, RunLimits, Steps
from kbplanner.errors import EngineFault
from kbplanner.evaluate.race import LimitedSteps
from kbplanner.ir.program import Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.values.instants import instant_text
from kbplanner.pacing import YieldNow, current_yield, go_on, paced
from kbplanner.passes.order import Statistics

Bind = Callable[[RelationSchema], Relation]
"""The relation that holds the asserted facts of a stored schema."""

Drive = Callable[[LimitedSteps], None]
"""Steps a run until it is done; raises BudgetExceeded where it may not continue."""


class RunBudget(Protocol):
    """Budget of a goal: engine limits, the fuel of a first slice in place, and ways to go on."""

    @property
    def limits(self) -> RunLimits:
        """Budgets of the run."""

    @property
    def now(self) -> int | None:
        """The instant of the request, in epoch milliseconds; None where runs have no request."""

    @property
    def fuel(self) -> int:
        """Steps that may be made at once while other work waits."""

    @property
    def offload(self) -> Offload | None:
        """Makes long calls into the engine."""

    def work(self, run: Steps) -> None:
        """Step a run until it is done; raises BudgetExceeded where it may not continue."""

    def finish(self, run: Steps) -> None:
        """Step a paused run until it is done; raises BudgetExceeded where it may not continue."""

    def yield_now(self) -> None:
        """Let other tasks run; called between pieces of long work in Python."""

    def check_answers(self, count: int) -> None:
        """Raise BudgetExceeded if `count` answers are more than may be returned."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPlan:
    """A verified plan, the symbols of its constants, and the sizes of its stored relations when it
    was made.

    `bound` are the positions of the goal's constants. The answers of a plan that is `ordered` are
    the columns of the goal in their order, without its constants if the plan is not `whole`. Runs
    of a plan that is `dated` hold for one instant only.
    """

    plan: Plan
    compiled: CompiledPlan
    params: tuple[int, ...]
    sizes: Mapping[RelationSchema, int]
    base: tuple[RelationSchema, ...] = field(init=False)
    bound: tuple[int, ...] = field(init=False)
    ordered: bool = field(init=False)
    whole: bool = field(init=False)
    dated: bool = field(init=False)
    hides_now: bool = field(init=False)
    one_seed: bool = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        columns = [column for column in plan.answer_columns if column is not None]
        ordered = columns == list(range(len(columns)))
        bound = tuple(index for index, mark in enumerate(plan.adornment) if mark == "b")
        for name, value in (
            ("base", plan.base),
            ("bound", bound),
            ("ordered", ordered),
            ("whole", ordered and not plan.one_seed),
            ("dated", plan.dated),
            ("hides_now", plan.hides_now),
            ("one_seed", plan.one_seed),
        ):
            object.__setattr__(self, name, value)

    def open_run(self, engine: Engine, bind: Bind, limits: RunLimits, now: int | None) -> Run:
        """Start an evaluation over the relations that `bind` returns.

        `now` is the instant of the request, in epoch milliseconds; a dated plan needs it.
        """
        relations = [bind(schema) for schema in paced(self.base, current_yield(), BINDS_PER_YIELD)]
        params = self.params
        if self.dated:
            if now is None:
                raise EngineFault("a plan with now() is run without an instant")
            at, text = self.plan.parameters.index(NOW), instant_text(now)
            if self.hides_now:  # otherwise each request would leave a symbol in the engine
                return engine.open_run(self.compiled, relations, params, limits, (at, text))
            params = (*params[:at], engine.intern(text), *params[at + 1 :])
        return engine.open_run(self.compiled, relations, params, limits)

    def is_outdated(self, statistics: Statistics) -> bool:
        """Return True if any stored relation has ten times, or a tenth of, the rows it had when the
        plan was made.
        """
        for schema, size in self.sizes.items():
            rows = statistics.rows(schema)
            if max(rows, 100) > 10 * max(size, 100) or max(size, 100) > 10 * max(rows, 100):
                return True
        return False


BINDS_PER_YIELD = 100
"""Relations found, or made, between two calls of `yield_now` at the start of a run."""

CONSTANTS_PER_YIELD = 500
"""Constants interned between two calls of `yield_now`: about a millisecond."""


def load(
    engine: Engine, program: Program, statistics: Statistics, yield_now: YieldNow = go_on
) -> LoadedPlan:
    """Build the plan of a rewritten program and load it into an engine.

    `yield_now` is called about once a millisecond.
    """
    plan = build(program, statistics, yield_now)
    return LoadedPlan(
        plan,
        engine.load(encode(plan, yield_now)),
        tuple(
            0 if text == NOW else engine.intern(text)
            for text in paced(plan.parameters, yield_now, CONSTANTS_PER_YIELD)
        ),
        {
            schema: statistics.rows(schema)
            for schema in paced(plan.base, yield_now, CONSTANTS_PER_YIELD)
        },
    )


def bound_columns(plan: Plan, rows: array[int], count: int) -> array[int]:
    """Return the columns of whole rows of a goal that its adornment binds: rows of the plan's
    seed.
    """
    bound = [index for index, mark in enumerate(plan.adornment) if mark == "b"]
    if len(bound) == len(plan.adornment):
        return rows
    seeds = array("I", bytes(4 * count * len(bound)))
    for column, index in enumerate(bound):
        seeds[column :: len(bound)] = rows[index :: len(plan.adornment)]
    return seeds
