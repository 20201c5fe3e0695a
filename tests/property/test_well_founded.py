"""Programs that may recurse through negation: both engines against the naive alternating
fixpoint.
"""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import NEGATED, NONE, Ground
from kbplanner.syntax.parser import parse_rule

FORMS = [
    parse_rule(text)
    for text in (
        "r(?x) :- e(?x, ?y), not r(?y).",
        "r(?x) :- n(?x), not on().",
        "on() :- not r(?_).",
        "p(?x, ?y) :- e(?x, ?y), not q(?y, ?x).",
        "q(?x, ?y) :- f(?x, ?y), not p(?y, ?x).",
        "q(?x, ?z) :- e(?x, ?y), q(?y, ?z), not r(?z).",
        "~p(?x, ?y) :- q(?x, ?y), not p(?x, ?_).",
        "p(?x, ?y) :- f(?x, ?y), not ~p(?x, ?y).",
    )
]

random_rules = st.builds(
    lambda forms, others: [*forms, *others],
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True),
    st.lists(programs.rules().filter(lambda rule: not naive.aggregates(rule)), max_size=3),
)

ENGINES = {"reference": ReferenceEngine, "c": Engine}


@pytest.mark.parametrize("name", ENGINES)
@examples(1000)
@given(
    random_rules,
    st.lists(programs.facts(), max_size=14),
    st.lists(programs.goals(), min_size=1, max_size=4),
)
def test_goals_have_the_answers_of_the_well_founded_model(name, rules, facts, goals):
    world = programs.World(ENGINES[name](), RuleSet(rules))
    world.tell(facts)
    true, possible = naive.well_founded(rules, facts)
    for goal in goals:
        assert world.ask(goal) == naive.answers(true, goal)
        assert world.ask(goal, possible=True) == naive.answers(possible, goal)


@pytest.mark.parametrize("name", ENGINES)
@examples(200)
@given(
    random_rules,
    st.lists(programs.facts(), max_size=8),
    st.lists(
        st.tuples(
            st.sampled_from(["tell", "retract", "ask", "ask"]), programs.facts(), programs.goals()
        ),
        max_size=14,
    ),
)
def test_cached_models_equal_fresh_ones(name, rules, facts, steps):
    world = programs.World(ENGINES[name](), RuleSet(rules))
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
            true, possible = naive.well_founded(rules, present)
            assert world.ask(goal, keep=True) == naive.answers(true, goal)
            assert world.ask(goal, keep=True, possible=True) == naive.answers(possible, goal)


@st.composite
def grounds(draw):
    nodes = draw(st.integers(1, 12))
    literal = st.one_of(
        st.integers(0, nodes - 1),
        st.integers(0, nodes - 1).map(lambda node: node | NEGATED),
        st.just(NONE),
    )
    rules = draw(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.lists(literal, max_size=3)), max_size=30)
    )
    heads, ends, premises = array("I"), array("I"), array("I")
    for head, body in rules:
        heads.append(head)
        premises.extend(body)
        ends.append(len(premises))
    return Ground(nodes, heads, ends, premises)


@examples(2000)
@given(grounds(), st.sampled_from([1, 10_000]))
def test_both_engines_find_the_same_model_of_a_ground_program(ground, fuel):
    found = []
    for engine in (Engine(), ReferenceEngine()):
        model = engine.model(ground, RunLimits())
        while model.step(fuel) is not RunState.DONE:
            pass
        found.append(model.values())
        model.close()
    assert found[0] == found[1]
