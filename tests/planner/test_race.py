"""Goals on a non-linear recursion through several relations cost at most a small factor more than
without demand.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest
from support import programs

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits, RunState, RunStats
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded, EngineFault
from kbplanner.evaluate import evaluate, race
from kbplanner.evaluate.evaluate import GoalRun, goal_pattern
from kbplanner.evaluate.race import Race
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.passes import rewrite
from kbplanner.passes.magic import demand_can_cost_more
from kbplanner.syntax.parser import parse_goal, parse_program

POINTS_TO = """
points(?x, ?y) :- flow(?x, ?y).
points(?x, ?z) :- points(?x, ?y), points(?y, ?z).
points(?x, ?y) :- through(?x, ?y).
through(?x, ?y) :- load(?x, ?p), points(?p, ?q), store(?q, ?y).
"""
NODES = 150


def rule_set(text: str) -> RuleSet:
    return RuleSet([statement.rule for statement in parse_program(text)])


@pytest.fixture
def world(monkeypatch) -> programs.World:
    """Return facts for POINTS_TO, with a constant clock, so that runs are compared by their
    steps.
    """
    monkeypatch.setattr(evaluate, "Race", partial(Race, now=lambda: 0.0))
    rng = random.Random(14)
    counts = {"flow": NODES * 3 // 2, "load": NODES // 5, "store": NODES // 5}
    points_to = programs.World(Engine(), rule_set(POINTS_TO))
    for name, count in counts.items():
        points_to.tell(
            Atom(name, (f"n{rng.randrange(NODES)}", f"n{rng.randrange(NODES)}"))
            for _ in range(count)
        )
    return points_to


@dataclass(frozen=True)
class Evaluated:
    """Cost of one goal: engine steps of all runs together, rows that the winning run derived."""

    answers: int
    steps: int
    rows: int
    full_won: bool


def evaluated(world: programs.World, text: str, limits: RunLimits = programs.PLENTY) -> Evaluated:
    atom = parse_goal(text).literal.atom
    adornment = evaluate.adornment_of(atom.args)
    goal = world.cache.get(
        world.rules, RelationSchema(atom.predicate, atom.arity), adornment, frozenset(), world
    )
    steps: dict[int, int] = {}
    opened = []
    open_run = world.engine.open_run

    def recording(*args):
        opened.append(open_run(*args))
        return opened[-1]

    def drive(work) -> None:
        state = RunState.PAUSED
        while state is not RunState.DONE:
            state = work.step(10_000)
            for number, opened_run in enumerate(opened):
                with suppress(EngineFault):  # raised for a run that was closed in this step
                    steps[number] = opened_run.stats().steps

    world.engine.open_run = recording
    try:
        run = GoalRun(world.engine, goal, world.bind, limits)
        answers = run.count(goal_pattern(atom.args, world.engine.intern), drive)
        rows = run.run.stats().rows_made
        run.close()
    finally:
        world.engine.open_run = open_run
    return Evaluated(answers, sum(steps.values()), rows, run.goal is goal.full)


def test_an_open_goal_on_a_recursion_of_joins_has_no_demand(world):
    found = evaluated(world, "through(?x, ?y)")
    goal = world.cache.get(world.rules, RelationSchema("through", 2), "ff", frozenset(), world)
    assert found.answers > 0
    assert goal.full is None
    assert not any(goal.plan.demand)


@pytest.mark.parametrize("text", ["points(n1, ?y)", "points(?x, n1)", "points(n1, n2)"])
def test_a_goal_costs_a_small_factor_of_the_full_evaluation(world, monkeypatch, text):
    monkeypatch.setattr(race, "HEAD_START_STEPS", 1000)
    both = evaluated(world, text)
    monkeypatch.setattr(race, "HEAD_START_STEPS", 1 << 60)
    demand = evaluated(world, text)
    monkeypatch.setattr(race, "HEAD_START_STEPS", -(1 << 60))
    monkeypatch.setattr(race, "FULL_TIME_SHARE", 1e9)
    full = evaluated(world, text)
    assert both.answers == demand.answers == full.answers > 0
    assert (both.full_won, demand.full_won, full.full_won) == (True, False, True)
    assert both.steps <= 1.6 * full.steps + 20_000
    assert (
        demand.steps > 0.7 * full.steps
    )  # otherwise demand would not be the slower way in this program


def test_the_full_evaluation_is_not_opened_for_a_short_goal(world):
    world.tell([Atom("flow", ("start", "end"))])
    short = evaluated(world, "points(start, ?y)")
    assert (short.answers, short.full_won) == (1, False)
    assert short.steps < 100


def test_both_runs_together_stay_within_the_budget(world, monkeypatch):
    monkeypatch.setattr(race, "HEAD_START_STEPS", 1 << 60)
    demand = evaluated(world, "points(n1, ?y)")
    monkeypatch.setattr(race, "HEAD_START_STEPS", 1000)
    assert evaluated(world, "points(n1, ?y)").full_won
    # Enough rows for the demand evaluation alone, not for both: the full one is given up.
    limited = evaluated(world, "points(n1, ?y)", RunLimits(rows=demand.rows + 1))
    assert (limited.answers, limited.full_won) == (demand.answers, False)
    with pytest.raises(BudgetExceeded) as raised:
        evaluated(world, "points(n1, ?y)", RunLimits(rows=demand.rows // 4))
    assert raised.value.details["limit"] == "derivedRows"


@pytest.mark.parametrize(
    ("rules", "goal", "adornment", "expected"),
    [
        (POINTS_TO, "points", "bf", True),
        (POINTS_TO, "through", "ff", True),
        ("p(?x, ?y) :- e(?x, ?y). p(?x, ?z) :- e(?x, ?y), p(?y, ?z).", "p", "bf", False),
        ("p(?x, ?y) :- e(?x, ?y). p(?x, ?z) :- p(?x, ?y), e(?y, ?z).", "p", "fb", False),
        ("p(?x, ?y) :- e(?x, ?y). p(?x, ?z) :- p(?x, ?y), p(?y, ?z).", "p", "bf", False),
        (
            "p(?x, ?y) :- e(?x, ?u), e(?y, ?u). p(?x, ?y) :- e(?x, ?u), p(?u, ?v), e(?y, ?v).",
            "p",
            "bf",
            False,
        ),
        (
            "q(?x, ?y) :- e(?x, ?y). q(?x, ?z) :- q(?x, ?y), e(?y, ?z). p(?x, ?z) :- q(?x, ?y), p(?y, ?z).",
            "p",
            "bf",
            False,
        ),
        (
            "p(?x, ?y) :- e(?x, ?y). p(?x, ?z) :- p(?x, ?y), p(?y, ?z), not bad(?y).",
            "p",
            "bf",
            True,
        ),
    ],
)
def test_only_demand_in_a_non_linear_recursion_can_cost_more(rules, goal, adornment, expected):
    program = rewrite(
        rule_set(rules).clauses(frozenset()), RelationSchema(goal, 2).derived, adornment
    )
    assert demand_can_cost_more(program) is expected


def test_rules_that_compute_new_values_without_end_have_no_full_plan(world):
    text = "n(0). n(?y) :- n(?x), n(?z), ?y = ?x + ?z + 1."
    rules = RuleSet(
        [statement.rule for statement in parse_program(text) if hasattr(statement, "rule")]
    )
    goal = world.cache.get(rules, RelationSchema("n", 1), "b", frozenset(), world)
    assert goal.full is None


@dataclass
class FakeRun:
    """A run of `length` steps."""

    length: int
    rows_a_step: int = 0
    steps: int = 0
    closed: bool = False
    cancelled: bool = False
    limits: list[RunLimits] = field(default_factory=list)

    def step(self, fuel, offload=None):
        self.steps = min(self.steps + fuel, self.length)
        return RunState.DONE if self.steps == self.length else RunState.PAUSED

    def stats(self):
        return RunStats(rows_made=self.steps * self.rows_a_step, steps=self.steps)

    def limit(self, limits):
        self.limits.append(limits)

    def cancel(self):
        self.cancelled = True

    def close(self):
        self.closed = True


def raced(
    demand: FakeRun, full: FakeRun, limits: RunLimits = programs.PLENTY
) -> tuple[FakeRun, int]:
    work = Race(demand, lambda: full, limits, 0, now=lambda: 0.0)
    while work.step(100) is not RunState.DONE:
        pass
    return work.finish()


def test_the_first_run_to_end_stays_open_and_the_other_is_closed():
    demand, full = FakeRun(race.HEAD_START_STEPS + 5000, 2), FakeRun(100_000, 3)
    winner, rows = raced(demand, full)
    assert winner is demand
    assert full.closed
    assert not demand.closed
    assert rows == 3 * full.steps
    demand, full = FakeRun(race.HEAD_START_STEPS + 100_000, 2), FakeRun(5000, 3)
    winner, rows = raced(demand, full)
    assert winner is full
    assert demand.closed
    assert not full.closed
    assert rows == 2 * demand.steps
    assert demand.steps <= race.HEAD_START_STEPS + 5000 / race.FULL_TIME_SHARE + 200


def test_a_full_run_by_rows_gets_more_time_and_the_demand_run_short_turns():
    head_start = race.HEAD_START_STEPS // race.HEAD_START_SHARE_BESIDE_ROWS
    demand, full = FakeRun(10_000_000), FakeRun(1_000_000)
    work = Race(demand, lambda: full, programs.PLENTY, 0, now=lambda: 0.0, joins_pairs=True)
    turns: list[int] = []
    state = work.step(head_start)
    while state is not RunState.DONE:
        before = demand.steps
        state = work.step(100_000)
        turns += [demand.steps - before] if demand.steps > before else []
    assert demand.steps <= head_start + full.length / race.FULL_TIME_SHARE_BY_ROWS + turns[-1]
    first = race.FIRST_TURN_STEPS
    assert turns == [min(first << turn, 100_000) for turn in range(len(turns))]
    assert len(turns) > 3


def test_the_full_run_is_closed_when_both_reach_a_limit():
    demand, full = FakeRun(race.HEAD_START_STEPS * 2, 1), FakeRun(race.HEAD_START_STEPS * 3, 1)
    winner, _ = raced(demand, full, RunLimits(rows=race.HEAD_START_STEPS + 9000))
    assert winner is demand
    assert full.closed
    assert full.steps < 10_000


def test_cancel_and_limits_reach_both_runs():
    demand, full = FakeRun(race.HEAD_START_STEPS * 2), FakeRun(race.HEAD_START_STEPS * 2)
    work = Race(demand, lambda: full, RunLimits(), 0, now=lambda: 0.0)
    work.step(race.HEAD_START_STEPS)
    work.step(1)
    work.cancel()
    work.limit(RunLimits(rows=7))
    assert demand.cancelled
    assert full.cancelled
    assert demand.limits == full.limits == [RunLimits(rows=7)]
