"""Counts of profiled runs on random programs: complete sums, and equal counts in both engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunState, Steps
from kbplanner.engine.engine import Engine
from kbplanner.errors import RecursiveAggregate
from kbplanner.evaluate.evaluate import GoalRun, adornment_of, goal_pattern
from kbplanner.evaluate.profiler import StratumProfiler
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.parser import parse_rule

RECURSIONS = [
    parse_rule(text)
    for text in (
        "p(?x, ?z) :- p(?x, ?y), p(?y, ?z).",
        "p(?x, ?z) :- e(?x, ?y), p(?y, ?z).",
        "p(?x, ?z) :- p(?x, ?y), e(?y, ?z).",
        "p(?x, ?z) :- p(?x, ?y), f(?y, ?z), not n(?z).",
        "q(?x, ?z) :- f(?x, ?y), n(?y), q(?y, ?z).",
        "q(?x, ?y) :- p(?x, ?y), e(?y, ?z), f(?z, ?x).",
    )
]

programs_of_rules = st.builds(
    lambda recursions, others: [*recursions, *others],
    st.lists(st.sampled_from(RECURSIONS), max_size=3, unique=True),
    st.lists(
        st.one_of(programs.rules(), programs.rules(), programs.computing_rules()),
        min_size=1,
        max_size=4,
    ),
)


@dataclass
class Watching:
    """Drives a run in slices, with a clock that goes on by one at each look."""

    fuel: int
    steps: int = 0
    watched: StratumProfiler | None = field(default=None)

    def drive(self, run: Steps, strata: int) -> None:
        ticks = count()
        self.watched = StratumProfiler(run, strata, lambda: float(next(ticks)))
        state = RunState.PAUSED
        while state is not RunState.DONE:
            state = self.watched.step(self.fuel)
            self.steps += 1


def analysed(engine, rules, facts, goal, fuel):
    """How many answers a goal has, and the rows made by stratum and by version of a rule."""
    world = programs.World(engine, rules)
    world.tell(facts)
    schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
    pattern = goal_pattern(goal.args, engine.intern)
    denied = frozenset(s for s in rules.deniable if world.rows(s))
    assume(
        not rules.negative_components(denied)
    )  # such components are settled beforehand, by runs of their own
    compiled = world.cache.get(rules, schema, adornment_of(goal.args), denied, NoStatistics())
    run, watching = GoalRun(engine, compiled, world.bind, programs.PLENTY), Watching(fuel)
    answers = run.measure(pattern, lambda one: watching.drive(one, len(compiled.plan.strata)))
    stats, counts, stages = run.run.stats(), run.run.counts(), watching.watched.strata_totals
    assert (
        sum(one.rows_made for one in counts)
        == stats.rows_made
        == sum(stage.rows for stage in stages)
    )
    assert sum(one.rows_read for one in counts) == stats.rows_read
    assert sum(one.probes for one in counts) == stats.probes
    assert sum(stage.rounds for stage in stages) == stats.rounds
    assert sum(stage.seconds for stage in stages) == watching.steps  # each is one stratum's
    assert answers == len(world.ask(goal))
    run.close()
    for one in counts:
        assert one.steps[-1] == one.rows_made <= one.steps[-2]
    return answers, [stage.rows for stage in stages], [one.rows_made for one in counts]


def compare(rules, facts, goals, fuel):
    asked = False
    for goal in goals:
        if RelationSchema(goal.predicate, goal.arity, goal.positive) in rules.derived:
            asked = True
            mine = analysed(Engine(), rules, facts, goal, fuel)
            assert mine == analysed(ReferenceEngine(), rules, facts, goal, fuel)
    assume(asked)


@examples(400)
@given(
    programs_of_rules,
    st.lists(programs.facts(), max_size=20),
    st.lists(programs.goals(), min_size=1, max_size=3),
    st.sampled_from([1, 5, 10_000]),
)
def test_both_engines_count_the_same(rules, facts, goals, fuel):
    """Who makes a row first decides whose it is: the engines agree where no recursion is worked
    value by value.
    """
    assume(naive.stratified(rules))
    try:
        known = RuleSet(rules)
    except RecursiveAggregate:
        assume(False)
    compare(known, facts, goals, fuel)
