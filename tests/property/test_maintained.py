"""Goals that are kept and changed, after every step of random histories: equal to an evaluation
from the start.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property import test_best_values as best
from property.test_programs import computing_rules, random_rules, rule_set, wide_rules
from support import programs
from support.examples import examples

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.evaluate import follow
from kbplanner.evaluate.evaluate import GoalRun, adornment_of, goal_equalities, goal_pattern
from kbplanner.evaluate.follow import Unmaintained
from kbplanner.evaluate.maintained import Changed, FlatRows
from kbplanner.evaluate.maintained_goal import MaintainedGoal, can_be_maintained
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import ANONYMOUS, Atom, Variable
from kbplanner.syntax.parser import parse_rule

LAYERS = [
    "path(?x, ?y) :- e(?x, ?y).",
    "path(?x, ?z) :- e(?x, ?y), path(?y, ?z).",
    "free(?x, ?y) :- path(?x, ?y), not r(?y), not f(?x, _).",
    "many(?x, count(?y), representative(?y)) :- free(?x, ?y).",
    "whole(sum(?n)) :- many(_, ?n, _).",
    "busy(?x) :- many(?x, ?n, _), ?n > 1.",
    "alone(?x) :- n(?x), not path(?x, _).",
    "pair(?x, ?y) :- path(?x, ?y), path(?y, ?x), not busy(?x).",
    "far(?x, ?z) :- pair(?x, ?y), far(?y, ?z), n(?z).",
    "far(?x, ?y) :- path(?x, ?y), not pair(?x, ?y).",
]
"""Rules with recursion, absence and aggregates over each other."""

X, Y = Variable("x"), Variable("y")
VALUES = [Variable(f"v{column}") for column in range(4)]
ASKED = [
    Atom("free", (X, Y)),
    Atom("many", (X, Y, ANONYMOUS)),
    Atom("many", ("a", X, Y)),
    Atom("whole", (X,)),
    Atom("alone", (X,)),
    Atom("pair", ("b", X)),
    Atom("far", (X, Y)),
    Atom("path", ("a", X)),
]


class Kept:
    """Maintained goals over a world, each beside a fresh evaluation."""

    def __init__(self, world: programs.World) -> None:
        self.world = world
        self.goals: dict = {}
        self.count = 0

    def check(self, goal) -> None:
        world = self.world
        schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
        if schema not in world.rules.derived:
            return
        denied = frozenset(s for s in world.rules.deniable if world.rows(s))
        if world.rules.negative_components(denied):
            return
        pattern = goal_pattern(goal.args, world.engine.intern)
        schema = RelationSchema(
            schema.predicate,
            schema.arity,
            schema.positive,
            restrictions=goal_equalities(pattern),
        )
        compiled = world.cache.get(
            world.rules, schema, adornment_of(goal.args), denied, world, version=1
        )
        budget = programs.Slices(10_000)
        run = GoalRun(world.engine, compiled, world.bind, budget.limits)
        expected = run.ask(pattern, budget)
        key = (id(compiled), tuple(pattern) if compiled.plan.one_seed else ())
        goal = self.goals.get(key)
        if goal is not None:
            try:
                goal.change({}, budget, pattern)
                assert goal.ask(pattern, budget) == expected
                self.count += 1
            except Unmaintained:
                goal.close()
                del self.goals[key]
        elif can_be_maintained(run):
            self.goals[key] = MaintainedGoal(run, pattern, world.bind, world)
            self.goals[key].change({}, budget, pattern)
            assert self.goals[key].ask(pattern, budget) == expected
        run.close()

    def change(self, schema, row, *, is_added) -> None:
        rows, none = FlatRows(row, 1), FlatRows(array("I"), 0)
        changed = Changed(rows, none) if is_added else Changed(none, rows)
        for key, kept in list(self.goals.items()):
            try:
                kept.change({schema: changed}, programs.Slices(10_000))
            except Unmaintained:
                kept.close()
                del self.goals[key]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), programs.facts()),
        st.tuples(st.just("retract"), st.integers(0, 20)),
        st.tuples(st.just("ask"), programs.goals()),
    ),
    min_size=4,
    max_size=20,
)


def play(rules, begin, steps, goals) -> int:
    """Follow the steps; return how many answers of kept goals were compared."""
    engine = Engine()
    world = programs.World(engine, rules)
    world.tell(begin)
    kept, present = Kept(world), list(dict.fromkeys(begin))
    asked = [other for goal in goals for other in (goal, with_constant(goal, "c"))]
    for goal in asked:
        kept.check(goal)
    for verb, what in steps:
        if verb == "ask":
            asked += [what, with_constant(what, "b"), with_constant(what, "zz")]
        elif verb == "tell" and what not in present:
            world.tell([what])
            present.append(what)
            kept.change(*changed(world, what), is_added=True)
        elif verb == "retract" and present:
            fact = present.pop(what % len(present))
            world.retract(fact)
            kept.change(*changed(world, fact), is_added=False)
        for goal in asked:
            kept.check(goal)
    engine.close()
    return kept.count


def with_constant(goal, constant):
    """Return a goal of the same plan: each constant is another one."""
    args = (constant if isinstance(arg, str) else arg for arg in goal.args)
    return Atom(goal.predicate, tuple(args), goal.positive)


def changed(world, fact):
    schema = RelationSchema(fact.predicate, fact.arity, fact.positive)
    return schema, world.engine.intern_many(fact.args)


facts = st.lists(programs.facts(), max_size=14)
goals = st.lists(programs.goals(), min_size=1, max_size=3)


@examples(600)
@given(random_rules, facts, steps, goals)
def test_kept_goals_agree_with_fresh_ones(rules, begin, steps, goals):
    play(rule_set(rules), begin, steps, goals)


@examples(200)
@given(computing_rules, facts, steps, goals)
def test_kept_goals_that_compute(rules, begin, steps, goals):
    play(rule_set(rules), begin, steps, goals)


@examples(200)
@given(wide_rules, facts, steps, goals)
def test_kept_goals_with_wide_rules(rules, begin, steps, goals):
    play(rule_set(rules), begin, steps, goals)


@pytest.mark.parametrize("least", [1, 2000])
@examples(300)
@given(
    st.lists(st.sampled_from(LAYERS), min_size=4, unique=True),
    facts,
    steps,
    st.lists(st.sampled_from(ASKED), min_size=2, max_size=4),
)
def test_kept_goals_over_layers(least, rules, begin, steps, goals):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "MIN_FALLEN", least)
        play(rule_set([parse_rule(rule) for rule in rules]), begin, steps, goals)


REACHED = [
    "anc(?x, ?y) :- e(?x, ?y).",
    "anc(?x, ?z) :- e(?x, ?y), anc(?y, ?z), not r(?y).",
    "near(?x, ?z) :- n(?x), path(?x, ?z).",
    "path(?x, ?y) :- e(?x, ?y).",
    "path(?x, ?z) :- e(?x, ?y), path(?y, ?z).",
    "back(?x, ?z) :- e(?x, ?z).",
    "back(?x, ?z) :- back(?x, ?y), e(?y, ?z).",
]
"""Recursions whose demand is what is reached."""

edges = st.builds(lambda x, y: Atom("e", (x, y)), st.sampled_from("abcd"), st.sampled_from("abcd"))
marks = st.builds(lambda p, x: Atom(p, (x,)), st.sampled_from("nr"), st.sampled_from("abcd"))
reached_steps = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.one_of(edges, edges, marks)),
        st.tuples(st.just("retract"), st.integers(0, 20)),
    ),
    min_size=4,
    max_size=20,
)


@examples(400)
@given(st.lists(edges, min_size=2, max_size=8), reached_steps)
def test_kept_goals_of_rewritten_recursions(begin, steps):
    goals = [Atom(name, ("a", X)) for name in ("anc", "near", "path", "back")]
    goals += [Atom(name, (X, "b")) for name in ("anc", "near", "path", "back")]
    play(rule_set([parse_rule(rule) for rule in REACHED]), begin, steps, goals)


@pytest.mark.parametrize(
    "texts",
    [
        best.ALL_PAIRS,
        ("sg(?x, ?y) :- flat(?x, ?y).", "sg(?x, ?y) :- edge(?x, ?a, _), sg(?a, ?b), sg(?b, ?y)."),
        (
            "odd(?x) :- edge(?y, ?x, _), even(?y).",
            "even(?x) :- zero(?x).",
            "even(?x) :- edge(?y, ?x, _), odd(?y).",
        ),
    ],
)
def test_new_bindings_of_a_recursion_are_derived(texts):
    rules = RuleSet([parse_rule(text) for text in texts])
    predicate, arity = max((schema.predicate, schema.arity) for schema in rules.derived)
    goals = [Atom(predicate, (name, *VALUES[1:arity])) for name in "ab"]
    begin = [Atom("edge", args) for args in (("b", "c", "1"), ("c", "b", "2"))]
    begin += [Atom("flat", ("b", "c")), Atom("zero", ("b",))]
    steps = [
        ("tell", Atom("edge", ("c", "d", "1"))),
        ("tell", Atom("edge", ("b", "a", "1"))),
        ("retract", 0),
    ]
    assert play(rules, begin, steps, goals) > len(steps)


def test_goals_are_kept_and_compared():
    rules = RuleSet([parse_rule(rule) for rule in LAYERS])
    edges = [Atom("e", pair) for pair in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "1"))]
    steps = [("retract", 1), ("tell", Atom("e", ("b", "c"))), ("tell", Atom("f", ("a", "b")))]
    assert play(rules, edges, steps, ASKED) >= len(steps) * len(ASKED)


NODES = st.sampled_from("abcde")
WEIGHTS = st.sampled_from(["0", "1", "2", "3", "2.5", "7", "10"])
BEST_FACTS = st.one_of(
    st.builds(lambda x, y, w: Atom("edge", (x, y, w)), NODES, NODES, WEIGHTS),
    st.builds(lambda x, y, w: Atom("edge", (x, y, w)), NODES, NODES, WEIGHTS),
    st.builds(lambda x: Atom("start", (x,)), NODES),
    st.builds(lambda x: Atom("closed", (x,)), NODES),
    st.builds(lambda x, n: Atom("node", (x, n)), NODES, WEIGHTS),
    st.builds(lambda x, n: Atom("dist", (x, n)), NODES, WEIGHTS),
    st.builds(lambda x, y, s, t: Atom("trip", (x, y, s, t)), NODES, NODES, WEIGHTS, WEIGHTS),
)
BEST_PROGRAMS = [
    best.SHORTEST,
    best.ALL_PAIRS,
    best.RIGHT_LINEAR,
    best.WIDEST,
    best.MINIMAX,
    best.EARLIEST,
    best.LABELS,
    best.MUTUAL,
    (*best.SHORTEST, *best.READERS),
]
best_steps = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), BEST_FACTS), st.tuples(st.just("retract"), st.integers(0, 20))
    ),
    min_size=4,
    max_size=20,
)


@pytest.mark.parametrize("least", [1, 2000])
@examples(400)
@given(st.sampled_from(BEST_PROGRAMS), st.lists(BEST_FACTS, max_size=14), best_steps)
def test_kept_best_values(least, texts, begin, steps):
    rules = rule_set([parse_rule(text) for text in texts])
    names = [Variable(f"v{at}") for at in range(4)]
    goals = [Atom(each.predicate, tuple(names[: each.arity])) for each in rules.derived]
    goals += [
        Atom(each.predicate, (start, *names[1 : each.arity]))
        for each in rules.derived
        for start in "ab"
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "MIN_FALLEN", least)
        play(rules, begin, steps, goals)


def test_the_steps_of_a_change_are_those_of_all_its_programs():
    texts = ["p0(?x) :- n(?x)."] + [f"p{at}(?x) :- p{at - 1}(?x), n(?x)." for at in range(1, 12)]
    world = programs.World(Engine(), RuleSet([parse_rule(text) for text in texts]))
    world.tell([Atom("n", (name,)) for name in "abc"])
    schema, budget = RelationSchema("p11", 1), programs.Slices(10_000)
    compiled = world.cache.get(world.rules, schema, "f", frozenset(), world)
    run = GoalRun(world.engine, compiled, world.bind, budget.limits)
    assert run.ask([0], budget)[1] == len("abc")
    goal = MaintainedGoal(run, [0], world.bind, world)
    run.close()

    def told(name):
        fact = Atom("n", (name,))
        world.tell([fact])
        schema, row = changed(world, fact)
        return {schema: Changed(FlatRows(row, 1), FlatRows(array("I"), 0))}

    goal.change(told("d"), budget)
    steps = goal.steps  # of which each program has a twelfth
    goal.change(told("e"), replace(budget, limits=RunLimits(steps=2 * steps)))
    with pytest.raises(Unmaintained):
        goal.change(told("f"), replace(budget, limits=RunLimits(steps=steps // 3)))
    goal.close()
    world.engine.close()
