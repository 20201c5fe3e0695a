"""Demand and full evaluation side by side: the answers equal those of the naive evaluator."""

from __future__ import annotations

from functools import partial
from itertools import cycle

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import naive, programs
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.errors import RecursiveAggregate
from kbplanner.evaluate import evaluate, race
from kbplanner.syntax.parser import parse_rule

FORMS = [
    parse_rule(text)
    for text in (
        "p(?x, ?z) :- p(?x, ?y), p(?y, ?z), not r(?y).",
        "p(?x, ?z) :- p(?x, ?y), q(?y, ?z).",
        "q(?x, ?y) :- p(?x, ?y).",
        "q(?x, ?y) :- f(?x, ?u), p(?u, ?v), e(?v, ?y).",
        "s(?x, ?y, ?z) :- p(?x, ?y), q(?y, ?z), s(?x, ?w, ?y).",
        "r(?x) :- p(?x, ?x), r(?y), q(?y, ?x).",
        "p(?x, ?y) :- e(?x, ?y).",
    )
]

some_rules = st.builds(
    lambda forms, others: [*forms, *others],
    st.lists(st.sampled_from(FORMS), min_size=2, max_size=5, unique=True),
    st.lists(programs.rules(), max_size=2),
)

steps = st.lists(
    st.tuples(
        st.sampled_from(["tell", "tell", "retract", "ask", "ask"]),
        programs.facts(),
        programs.goals(),
    ),
    max_size=14,
)


def rule_set(rules):
    assume(naive.stratified(rules))
    try:
        return RuleSet(rules)
    except RecursiveAggregate:
        assume(False)


@pytest.mark.parametrize("engine", [ReferenceEngine, Engine], ids=["reference", "c"])
@pytest.mark.parametrize("every_goal", [False, True], ids=["non-linear", "every goal"])
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    some_rules,
    st.lists(programs.facts(), max_size=14),
    steps,
    st.integers(0, 30),
    st.integers(1, 12),
    st.lists(st.floats(0, 3), min_size=1, max_size=5),
)
def test_answers_do_not_depend_on_which_plan_ends_first(  # noqa: PLR0913 - one argument per strategy
    engine, every_goal, rules, facts, steps, head_start, fuel, ticks
):
    """The lengths of steps and the clock are drawn, so that either run may end first, at any point
    of the other.
    """
    clock = cycle(ticks)
    seconds = 0.0

    def now() -> float:
        nonlocal seconds
        seconds += next(clock)
        return seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race, "HEAD_START_STEPS", head_start)
        patch.setattr(race, "HEAD_START_STEPS_PER_FACT", 0)
        patch.setattr(evaluate, "Race", partial(race.Race, now=now))
        if every_goal:
            patch.setattr(evaluate, "demand_can_cost_more", lambda program, yield_now=None: True)
        world = programs.World(engine(), rule_set(rules))
        world.tell(facts)
        present = set(facts)
        for verb, fact, goal in steps:
            if verb == "tell":
                world.tell([fact])
                present.add(fact)
            elif verb == "retract":
                world.retract(fact)
                present.discard(fact)
            else:
                assert world.ask(goal, keep=True, fuel=fuel) == naive.answers(
                    naive.model(rules, present), goal
                )
