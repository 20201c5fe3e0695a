"""Cached runs after changes of base relations: current results, or marked as stale."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.evaluate.evaluate import GoalRun, PlanCache, goal_shape
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Variable
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.parser import parse_program

RULES = """
path(?x, ?y) :- edge(?x, ?y).
path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).
free(?x, ?y) :- path(?x, ?y), not shut(?y), not blocked(?x, ?y).
blocked(?x, ?y) :- path(?x, ?y), wall(?y, ?w), path(?w, ?x).
many(?x, count(?y)) :- free(?x, ?y).
twin(?x, ?y) :- path(?x, ?y), path(?y, ?x), edge(?y, ?y).
far(?x, ?y) :- edge(n1, ?x), ?y = ?x, free(?x, ?y).
"""
GOALS = [("path", 2), ("free", 2), ("many", 2), ("twin", 2), ("blocked", 2), ("far", 2)]
NAMES = [f"n{i}" for i in range(5)]
arguments = st.sampled_from(NAMES)
writes = st.tuples(
    st.sampled_from(["there or not", "hide", "show"]),
    st.sampled_from([("edge", 2), ("edge", 2), ("shut", 1), ("wall", 2)]),
    arguments,
    arguments,
)
asks = st.tuples(st.just("ask"), st.sampled_from(GOALS), arguments, st.none() | arguments)


class Unlimited:
    """A run budget without limits."""

    limits, fuel, offload = RunLimits(), 1_000_000, None

    @staticmethod
    def finish(run):
        assert run.step(1_000_000) is RunState.DONE


@examples(250)
@given(
    st.integers(0, 1 << 16),
    st.integers(4, 12),
    st.lists(st.one_of(writes, asks, asks), max_size=40),
)
def test_a_cached_run_agrees_with_a_fresh_one(seed, size, steps):
    rng, engine = random.Random(seed), Engine()
    rules = RuleSet([statement.rule for statement in parse_program(RULES)])
    plans, kept = PlanCache(engine), {}
    stored: dict = {}

    def bind(schema):
        if schema not in stored:
            stored[schema] = engine.relation(schema.arity)
        return stored[schema]

    def change(verb, schema, names):
        row, relation = engine.intern_many(names[: schema.arity]), bind(schema)
        if verb == "there or not":
            if not relation.delete(row, 1):
                relation.insert(row, 1)
        else:
            relation.hide(row, 1, verb == "hide")

    for schema in (RelationSchema("edge", 2), RelationSchema("shut", 1), RelationSchema("wall", 2)):
        for _ in range(size):
            change("there or not", schema, [rng.choice(NAMES), rng.choice(NAMES)])

    def ask(goal, pattern):
        place = (goal, tuple(pattern) if goal.plan.one_seed else ())
        run, _ = kept.get(place, (None, None))
        found = None if run is None else run.ask(pattern, Unlimited)
        fresh = GoalRun(engine, goal, bind, RunLimits())
        expected = fresh.ask(pattern, Unlimited)
        assert found in (None, expected)
        if found is not None:
            fresh.close()
            return
        if run is not None:
            run.close()
        kept[place] = fresh, pattern

    for verb, (name, arity), first, second in steps:
        schema = RelationSchema(name, arity)
        if verb == "ask":
            shape = goal_shape(
                [first, second if second and name != "many" else Variable("y")], engine.intern
            )
            ask(plans.get(rules, schema, shape[1], frozenset(), NoStatistics()), shape[0])
            continue
        change(verb, schema, [first, second])
        for (goal, _), (_, pattern) in list(kept.items()):
            ask(goal, pattern)
    for run, _ in kept.values():
        run.close()
    engine.close()
