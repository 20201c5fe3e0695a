"""Evaluation of goals: compile a goal's plan once, run it for each binding, read the answers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kbplanner.compile.plan import Plan
from kbplanner.compile.rules import RuleSet, RuleSlice, naming_call
from kbplanner.engine.backend import (
    NO_ROW,
    SAME,
    Engine,
    Relation,
    Run,
    RunLimits,
    RunState,
)
from kbplanner.errors import BudgetExceeded, UnboundArgument
from kbplanner.evaluate.answers import AnswerReader
from kbplanner.evaluate.deferred import DeferredRows
from kbplanner.evaluate.deltas import DeltaPrograms
from kbplanner.evaluate.loaded import Bind, Drive, LoadedPlan, RunBudget, bound_columns, load
from kbplanner.evaluate.race import Race
from kbplanner.ir.program import Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS, Comparison, HeadTerm, Rule, Variable
from kbplanner.lru import LruCache
from kbplanner.pacing import current_yield
from kbplanner.passes import OPTIONAL, rewrite
from kbplanner.passes.magic import demand_can_cost_more
from kbplanner.passes.order import Statistics
from kbplanner.passes.project import joins_pairs, joins_some_pairs
from kbplanner.syntax.printer import print_rule

PlanKey = tuple[RuleSlice, RelationSchema, str, str]
"""The rules that the goal depends on, its relation of conclusions, adornment, and the kind of plan
below.
"""

SINGLE, MANY, FULL = "single", "many", "full"
"""A plan for one binding of the goal at a time, for many bindings in one run, and without
demand.
"""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGoal:
    """A loaded plan for one predicate and binding pattern, and its rules.

    `full` is the same goal without demand, where demand can cost more than it saves; a run then
    tries both. `joins_pairs`: its recursion can be evaluated by rows of bits; `joins_some_pairs`: a
    part of it can. `changes` has the programs that find the changes of its rows.
    """

    loaded: LoadedPlan
    rules: tuple[Rule, ...] = ()
    full: CompiledGoal | None = None
    joins_pairs: bool = False
    joins_some_pairs: bool = False
    changes: DeltaPrograms | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.loaded.plan


@dataclass(slots=True)
class _CachedGoal:
    """A compiled goal, and the version of the facts when it was last used."""

    goal: CompiledGoal
    version: int


class PlanCache:
    """Compiled goals of one engine by the rules they depend on, predicate and adornment.

    A change of other rules leaves them as they are.
    """

    def __init__(self, engine: Engine, capacity: int = 256) -> None:
        self._engine = engine
        self._plans: LruCache[PlanKey, _CachedGoal] = LruCache(capacity)

    def get(
        self,
        rules: RuleSet,
        goal: RelationSchema,
        adornment: str,
        denied: frozenset[RelationSchema],
        statistics: Statistics,
        *,
        version: int = -1,
        many: bool = False,
    ) -> CompiledGoal:
        """Return the plan for a goal on a stored schema with rules, built again when it is
        outdated.

        `goal` may have the restrictions that `goal_equalities` returns; then the plan serves only
        goals with them. While `version` is the same as at the last call, sizes have not changed.
        With `many` the plan answers many bindings in one run, even where one at a time has a better
        plan.
        """
        relation = rules.conclusions(goal)
        slice_ = rules.slice(denied, (relation,))
        relation = replace(relation, restrictions=goal.restrictions)
        return self._get(
            (slice_, relation, adornment, MANY if many else SINGLE), statistics, version
        )

    def _get(self, key: PlanKey, statistics: Statistics, version: int) -> CompiledGoal:
        slice_, relation, adornment, kind = key
        cached = self._plans.get(key)
        if cached is not None and (
            cached.version == version != -1 or not cached.goal.loaded.is_outdated(statistics)
        ):
            cached.version = version
            return cached.goal
        skip = OPTIONAL if kind == MANY else ()
        yield_now = current_yield()
        try:
            program = rewrite(
                slice_.clauses,
                relation,
                adornment,
                statistics,
                skip=skip,
                full=kind == FULL,
                external=slice_.external,
                yield_now=yield_now,
            )
        except UnboundArgument as error:
            raise naming_call(error, slice_.rules) from error
        full = None
        can_be_full = kind != FULL and not program.external
        if (
            can_be_full
            and demand_can_cost_more(program, yield_now)
            and ends_without_demand(program, slice_)
        ):
            full = self._get((slice_, relation, "f" * relation.arity, FULL), statistics, version)
            if "b" not in adornment and full.joins_pairs:
                # Demand has columns, which rows of bits do not, and saves nothing for the goal
                # itself.
                self._plans.put(key, _CachedGoal(full, version))
                return full
        loaded = load(self._engine, program, statistics, yield_now)
        is_full = kind == FULL
        compiled = CompiledGoal(
            loaded,
            slice_.rules,
            full,
            is_full and joins_pairs(program, yield_now),
            is_full and joins_some_pairs(program, yield_now),
            DeltaPrograms(program),
        )
        self._plans.put(key, _CachedGoal(compiled, version))
        return compiled

    def __len__(self) -> int:
        return len(self._plans)


def ends_without_demand(program: Program, rules: RuleSlice) -> bool:
    """Return False if the program recurses through computed values: demand may be the only bound on
    them.
    """
    return rules.endless.isdisjoint(clause.rule for clause in program.clauses)


class GoalRun(AnswerReader):
    """One run of a compiled goal: a goal table while it is open; `bytes` is its size after the last
    goal.

    `warnings` counts the literals that failed in the whole run because a function had no value;
    `rows_made` the rows that rules derived in it, including demand.

    A plan that serves one binding only (`plan.one_seed`) may only be asked with the constants of
    its first `ask`.

    Where the goal also has a plan without demand (`goal.full`), a long goal is evaluated in both
    ways; see `race.py`. If the full evaluation ends first, this object becomes the run of
    `goal.full`: `goal` and `run` change. `now` is the instant of the request, in epoch
    milliseconds; a dated plan needs it, and its run may only be asked at that instant.
    """

    def __init__(
        self,
        engine: Engine,
        goal: CompiledGoal,
        bind: Bind,
        limits: RunLimits,
        now: int | None = None,
    ) -> None:
        super().__init__(engine)
        self.bytes = 0
        self.worked = False
        self.warnings = 0
        self.rows_made = 0
        self._dropped_rows = 0
        self._bind = bind
        self._limits = limits
        self._now = now
        self._use(goal, goal.loaded.open_run(engine, bind, limits, now))

    def _use(self, goal: CompiledGoal, run: Run) -> None:
        """Make this the run of a goal."""
        self.goal = goal
        self.run = run
        self._use_plan(goal.loaded)

    def ask(
        self,
        pattern: Sequence[int],
        budget: RunBudget,
        bind: Bind | None = None,
        first: int | None = None,
        returns_all: bool = False,
        deferred: DeferredRows | None = None,
    ) -> tuple[array[int], int] | None:
        """Return the answers, as whole rows in answer order, and their number; None if the run is
        stale. Many answers of a goal without constants are left in `deferred`, if it is given, in
        place of the rows.

        `pattern` has for each argument a symbol, 0 for a variable of its own, or `SAME | j` for the
        variable of argument j. Every argument that the plan's adornment calls bound must be a
        symbol. `bind` replaces the function that the run was opened with; it returns the same
        relations. `first` is the number of leading answers that suffice; with `returns_all` the
        number of answers is checked before they are sorted. Raises BudgetExceeded.
        """
        self._bind = bind or self._bind
        plan, run = self._plan, self.run
        answer_pattern = pattern if self._is_whole else self._answer_pattern(pattern)
        seed: Sequence[int] | None = None
        if plan.seed is not None:
            bound = self._bound
            is_ground = len(bound) == len(pattern)
            seed = pattern if is_ground else [pattern[index] for index in bound]
        if self._deferred and self.run.check() is not RunState.DONE:
            self._hand_out()
        try:
            state, rows, self.bytes, self.worked, self.warnings, rows_made = run.ask(
                seed, plan.answer, answer_pattern, budget.limits, budget.fuel
            )
            self.rows_made = rows_made + self._dropped_rows
            if state is RunState.STALE:
                return None
            if rows is None:
                if state is not RunState.DONE:
                    self._finish(budget.finish, budget.limits)
                    plan = self._plan
                    answer_pattern = pattern if self._is_whole else self._answer_pattern(pattern)
                self._note_stats()
                if deferred is not None and first is None and self._defers(answer_pattern):
                    return array("I"), self._defer(deferred)
                rows = self._read_answers(answer_pattern, budget, first, returns_all)
        except BudgetExceeded as error:
            raise naming_rule(error, self.goal.rules) from error
        if self._is_whole and answer_pattern:
            return rows, len(rows) // len(answer_pattern)
        return self._completed(rows, len(answer_pattern), pattern, budget)

    def evaluate(self, pattern: Sequence[int], drive: Drive) -> None:
        """Evaluate a goal to its end without reading its answers; `pattern` as in `ask`."""
        self._evaluate(pattern, lambda: self._finish(drive, self._limits))

    def count(self, pattern: Sequence[int], drive: Drive) -> int:
        """Return the number of answers that `ask` would give, evaluated with `drive`; `pattern` as
        there.
        """
        return self._count(pattern, lambda: self._finish(drive, self._limits))

    def measure(self, pattern: Sequence[int], drive: Callable[[Run], None]) -> int:
        """Return the number of answers like `count`, with this plan only: to observe how a run of
        it works.
        """
        return self._count(pattern, lambda: drive(self.run))

    def whole(self, drive: Drive) -> Relation | None:
        """Evaluate a goal without constants and return the relation of its answers.

        The relation lives as long as this run. None if the plan has the columns of the answers in
        another order.
        """
        self._evaluate((), lambda: self._finish(drive, self._limits))
        return self.run.relation(self._plan.answer) if self._is_whole else None

    def _evaluate(self, pattern: Sequence[int], work: Callable[[], None]) -> None:
        if self._plan.seed is not None:
            self.run.seed(array("I", [pattern[index] for index in self._bound]), 1)
        try:
            work()
        except BudgetExceeded as error:
            raise naming_rule(error, self.goal.rules) from error

    def _count(self, pattern: Sequence[int], work: Callable[[], None]) -> int:
        self._evaluate(pattern, work)
        answer_pattern = self._answer_pattern(pattern)
        return (
            len(self._answers().match(answer_pattern)[1])
            if any(answer_pattern)
            else self._row_count()
        )

    def serves(self, pattern: Sequence[int]) -> RunState:
        """Return DONE if the run has the answers of a goal, READY if it can continue, STALE if it
        is useless.
        """
        plan, run = self._plan, self.run
        state = run.check()
        if state is RunState.DONE and plan.seed is not None:
            seed = array("I", [pattern[index] for index in self._bound])
            if run.relation(plan.seed).locate(seed, 1)[0] == NO_ROW:
                return RunState.READY
        return state

    def _finish(self, drive: Drive, limits: RunLimits) -> None:
        """Step the run to its end with `drive`; with a plan without demand, step both until one
        ends.
        """
        full = self.goal.full
        if full is None:
            drive(self.run)
            return
        race = Race(
            self.run,
            lambda: full.loaded.open_run(self.engine, self._bind, limits, self._now),
            limits,
            sum(full.loaded.sizes.values()),
            joins_pairs=full.joins_some_pairs,
        )
        try:
            drive(race)
        except BaseException:
            race.close()
            raise
        winner, dropped_rows = race.finish()
        self._dropped_rows += dropped_rows
        if winner is not self.run:
            self._use(full, winner)

    def _note_stats(self) -> None:
        stats = self.run.stats()
        self.bytes, self.warnings, self.rows_made = (
            stats.bytes,
            stats.warnings,
            stats.rows_made + self._dropped_rows,
        )

    @property
    def steps(self) -> int:
        """The steps of the run so far."""
        return self.run.stats().steps

    def _answers(self) -> Relation:
        return self.run.relation(self._plan.answer)

    def tested(self, rows: array[int], count: int, drive: Drive) -> Relation:
        """Return a relation that has those of `count` ground rows that are answers, and others.

        The plan must be one for many bindings. The relation lives as long as this run.
        """
        plan = self._plan
        if plan.seed is not None:
            self.run.seed(bound_columns(plan, rows, count), count)
        self._finish(drive, self._limits)
        return self.run.relation(self._plan.answer)

    def close(self) -> None:
        """Close the run; while rows are to be read from it, it stays open until the last reader is
        gone.
        """
        if not self._deferred:  # otherwise garbage collection closes it
            self.run.close()


def naming_rule(error: BudgetExceeded, rules: Sequence[Rule]) -> BudgetExceeded:
    """Return the error with the text of the rule instead of its number; None if the compiler made
    the clause.
    """
    details = error.details or {}
    if not (details["rule"] or "").isdigit():
        return error
    number = int(details["rule"])
    text = print_rule(rules[number - 1]) if 0 < number <= len(rules) else None
    return BudgetExceeded(error.message, details["limit"], details["value"], text)


def goal_shape(
    args: Iterable[HeadTerm], symbol: Callable[[str], int]
) -> tuple[list[int], str] | None:
    """Return the match pattern of goal arguments and their adornment: `b` per constant, `f` per
    variable.

    None if a constant has no symbol, so that nothing can match.
    """
    pattern: list[int] = []
    adornment = ""
    variables: list[tuple[int, HeadTerm]] = []
    for index, arg in enumerate(args):
        if isinstance(arg, str):
            number = symbol(arg)
            if not number:
                return None
            pattern.append(number)
            adornment += "b"
        else:
            pattern.append(0)
            adornment += "f"
            variables.append((index, arg))
    if len(variables) > 1:
        first_indexes: dict[HeadTerm, int] = {}
        for index, arg in variables:
            first = first_indexes.setdefault(arg, index)
            if first != index and arg != ANONYMOUS:
                pattern[index] = SAME | first
    return pattern, adornment


def goal_equalities(pattern: Sequence[int]) -> tuple[Comparison, ...]:
    """Return the equalities that a match pattern puts on columns: those of one variable are
    equal.
    """
    return tuple(
        Comparison("==", Variable(str((value & ~SAME) + 1)), Variable(str(index)))
        for index, value in enumerate(pattern, 1)
        if value & SAME
    )


def goal_pattern(args: Iterable[HeadTerm], symbol: Callable[[str], int]) -> list[int] | None:
    """Return the match pattern alone, as in `goal_shape`."""
    shape = goal_shape(args, symbol)
    return None if shape is None else shape[0]


def adornment_of(args: Iterable[HeadTerm]) -> str:
    """Return `b` for each constant and `f` for each variable."""
    return "".join("b" if isinstance(arg, str) else "f" for arg in args)
