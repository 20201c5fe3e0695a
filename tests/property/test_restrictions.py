"""Calls with repeated variables and comparisons: answers on both engines are those of the naive
evaluator.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import naive, programs
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.program import Program
from kbplanner.ir.terms import Atom, Comparison, Literal, Rule, Variable
from kbplanner.passes.restrict import MAX_VERSIONS, restrict

PASS = import_module("kbplanner.passes.restrict")

NAMES = [Variable(name) for name in "xyz"]

LEVELS = [[("e", 2), ("t", 3), ("n", 1)], [("p", 2), ("s", 3)], [("q", 2), ("r", 1)]]
"""Stored predicates, then two levels of derived ones: each level calls those below it."""


@st.composite
def layered_rules(draw, level: int):
    """A rule that calls predicates of lower levels with few variables, so that most calls repeat
    one.
    """
    below = [predicate for one in LEVELS[:level] for predicate in one]
    terms = st.sampled_from([*NAMES, *NAMES, "a", "1"])
    body = []
    for _ in range(draw(st.integers(1, 2))):
        name, arity = draw(st.sampled_from(below))
        body.append(Literal(Atom(name, tuple(draw(terms) for _ in range(arity)))))
    bound = [name for name in NAMES if any(name in item.variables() for item in body)]
    known = st.sampled_from(bound or ["b"])
    for _ in range(draw(st.integers(0, 2))):
        sides = draw(st.permutations([draw(known), draw(st.sampled_from(["1", "2", "a", "1.0"]))]))
        body.append(Comparison(draw(st.sampled_from(COMPARISONS)), *sides, draw(st.booleans())))
    if bound and draw(st.integers(0, 3)) == 0:
        name, arity = draw(st.sampled_from(below))
        body.append(Literal(Atom(name, tuple(draw(known) for _ in range(arity))), negated=True))
    name, arity = draw(st.sampled_from(LEVELS[level]))
    return Rule(
        Atom(name, tuple(draw(st.one_of(known, known, st.just("a"))) for _ in range(arity))),
        tuple(body),
    )


layered = st.builds(
    lambda low, high: [*low, *high],
    st.lists(layered_rules(1), min_size=1, max_size=3),
    st.lists(layered_rules(2), min_size=1, max_size=3),
)


@pytest.mark.parametrize("most", [1, MAX_VERSIONS])
@pytest.mark.parametrize("engine", [ReferenceEngine, Engine], ids=["reference", "c"])
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    layered,
    st.lists(programs.facts(), max_size=16),
    st.lists(programs.goals(), min_size=1, max_size=4),
)
def test_restricted_rules_have_the_answers_of_the_model(engine, most, rules, facts, goals):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PASS, "MAX_VERSIONS", most)
        world = programs.World(engine(), RuleSet(rules))
        for part in (facts[::2], facts[1::2]):
            world.tell(part)
        model = naive.model(rules, facts)
        for goal in goals:
            assert world.ask(goal, keep=True) == naive.answers(model, goal)


@pytest.mark.parametrize("most", [1, MAX_VERSIONS])
@given(rules=layered)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_version_that_is_called_has_clauses(most, rules):
    compiled = RuleSet(rules)
    for stored in compiled.derived:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PASS, "MAX_VERSIONS", most)
            program = restrict(Program(compiled.clauses(frozenset()), stored.derived))
        heads = program.heads()
        assert program.goal in heads
        for clause in program.clauses:
            for atom in clause.atoms():
                assert atom.schema in heads or atom.schema == atom.schema.stored
