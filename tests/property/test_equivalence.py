"""Equivalence relations, which goals evaluate by classes: both engines against the naive evaluator,
with retractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.proofs import Checker
from support.reference.engine import ReferenceEngine
from support.runtimes import runtime_on

from kbcore.node.runtime import Runtime
from kbcore.proofs import prover
from kbcore.proofs.shapes import ProofOptions
from kbcore.state.facts import Fact
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.ir.schema import Role
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.syntax.parser import parse_rule

NUMBER = count()
ENGINES = {"reference": ReferenceEngine, "c": Engine}

CLOSED = ("same(?y, ?x) :- same(?x, ?y).", "same(?x, ?z) :- same(?x, ?y), same(?y, ?z).")
PROGRAMS = {
    "facts": CLOSED,
    "rules": (*CLOSED, "same(?x, ?y) :- alias(?x, ?y).", "same(?x, ?x) :- thing(?x)."),
    "the other order": (
        "same(?x, ?z) :- same(?y, ?z), same(?x, ?y).",
        CLOSED[0],
        "same(?x, ?x) :- same(?x, _).",
        "same(?x, ?y) :- alias(?x, ?y), not thing(?x).",
    ),
    "congruence": (
        *CLOSED,
        "same(?x, ?y) :- alias(?x, ?y).",
        "same(?u, ?v) :- part(?x, ?u), part(?y, ?v), same(?x, ?y).",
    ),
    "readers": (
        *CLOSED,
        "same(?x, ?y) :- alias(?x, ?y).",
        "friend(?x, ?z) :- part(?x, ?y), same(?y, ?z).",
        "friend(?x, ?y) :- same(?x, a), thing(?y), not same(?y, ?x).",
        "kinds(?x, count(?y)) :- same(?x, ?y), thing(?y).",
        "link(?x, ?z) :- link(?x, ?y), same(?y, ?z).",
        "link(?x, ?y) :- part(?x, ?y).",
    ),
    "representatives": (
        *CLOSED,
        "same(?x, ?x) :- thing(?x).",
        "first(?x, representative(?y)) :- same(?x, ?y).",
        "friend(?n, ?m) :- part(?x, ?y), first(?x, ?n), first(?y, ?m).",
        "kinds(?n, count(?x)) :- first(?x, ?n).",
        "link(?x, ?n) :- part(?x, ?y), first(?y, ?n), not first(?n, ?x).",
    ),
    "closures": (
        CLOSED[0],
        "same(?x, ?z) :- same(?y, ?z), same(?x, ?y).",
        "same(?x, ?y) :- link(?x, ?y), part(?x, ?y).",
        "link(?x, ?z) :- link(?x, ?y), link(?y, ?z).",
        "link(?x, ?y) :- alias(?x, ?y).",
        "link(?x, ?z) :- part(?x, ?y), link(?y, ?z), not thing(?z).",
        "link(?x, ?x) :- link(_, ?x).",
    ),
    "two": (
        *CLOSED,
        "other(?y, ?x) :- other(?x, ?y).",
        "other(?x, ?z) :- other(?x, ?y), other(?y, ?z).",
        "same(?x, ?y) :- alias(?x, ?y).",
        "other(?x, ?y) :- same(?x, ?z), part(?z, ?y).",
    ),
}
ASKED = [
    ("same", 2),
    ("same", 2),
    ("friend", 2),
    ("kinds", 2),
    ("other", 2),
    ("link", 2),
    ("first", 2),
]

names = st.sampled_from("abcdef92")
facts = st.one_of(
    *[
        st.builds(lambda x, y, p=p: Atom(p, (x, y)), names, names)
        for p in ("alias", "same", "part")
    ],
    st.builds(lambda x: Atom("thing", (x,)), names),
)
goals = st.builds(
    lambda name, x, y: Atom(name[0], (x, y)),
    st.sampled_from(ASKED),
    st.one_of(names, st.just(Variable("x"))),
    st.one_of(names, st.sampled_from([Variable("x"), Variable("y"), Variable("_")])),
)
steps = st.lists(
    st.tuples(st.sampled_from(["tell", "tell", "retract", "ask", "ask", "ask"]), facts, goals),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("name", ENGINES)
@examples(400)
@given(
    st.sampled_from(sorted(PROGRAMS.values())),
    st.lists(facts, max_size=14),
    steps,
    st.booleans(),
    st.sampled_from([1, 5, 10_000]),
)
def test_goals_have_the_pairs_of_the_closure(name, texts, begin, steps, keep, fuel):
    programs.check_history(ENGINES[name](), texts, begin, steps, keep=keep, fuel=fuel)


def test_goals_are_evaluated_by_classes():
    for texts in PROGRAMS.values():
        rules = RuleSet(map(parse_rule, texts))
        world = programs.World(Engine(), rules)
        (schema, *_) = (s for s in rules.derived if s.predicate == "same")
        for marks in ("ff", "bf", "fb", "bb"):
            plan = world.cache.get(rules, schema, marks, frozenset(), world).plan
            assert any(slot.role is Role.CLASSES for slot in plan.slots)


@pytest.mark.parametrize(
    "texts",
    [
        CLOSED[:1],
        CLOSED[1:],
        ("same(?x, ?x) :- same(?x, ?x).", CLOSED[1]),
        (CLOSED[0], "same(?x, ?z) :- same(?x, ?y), same(?z, ?y)."),
        (CLOSED[0], "same(?x, ?z) :- same(?x, ?y), same(?y, ?z), thing(?y)."),
        (*CLOSED, "same(?x, ?y) :- n(?x), ?y = ?x + 1.", "n(?x) :- n(?y), ?x = ?y + 1."),
    ],
)
def test_other_rules_are_left_as_they_are(texts):
    rules = RuleSet(map(parse_rule, texts))
    world = programs.World(Engine(), rules)
    (schema, *_) = (s for s in rules.derived if s.predicate == "same")
    plan = world.cache.get(rules, schema, "bf", frozenset(), world).plan
    assert all(slot.role is not Role.CLASSES for slot in plan.slots)


def test_large_classes_take_a_row_for_each_name():
    world = programs.World(Engine(), RuleSet(map(parse_rule, (*CLOSED, PROGRAMS["rules"][2]))))
    pairs = [(f"n{c}-{i // 2}", f"n{c}-{i}") for c in range(20) for i in range(1, 60)]
    world.tell(Atom("alias", pair) for pair in pairs)
    assert len(world.ask(Atom("same", (Variable("x"), Variable("y"))))) == 20 * 60 * 60
    assert len(world.ask(Atom("same", ("n7-59", Variable("y"))), keep=True)) == 60
    ((_, run),) = world.kept.items()
    assert (
        run.run.stats().rows_made < 20 * 60 * 6
    )  # names change their class at most log2(60) times


def test_a_class_has_one_group_for_its_representative():
    texts = (*CLOSED, "first(?x, representative(?y)) :- same(?x, ?y).")
    world = programs.World(Engine(), RuleSet(map(parse_rule, texts)))
    world.tell(Atom("same", (f"n{c}-0", f"n{c}-{i}")) for c in range(20) for i in range(1, 60))
    first = world.ask(Atom("first", (Variable("x"), Variable("y"))), keep=True)
    assert first == {(f"n{c}-{i}", f"n{c}-0") for c in range(20) for i in range(60)}
    ((_, run),) = world.kept.items()
    assert run.run.stats().rows_made < 20 * 60 * 10


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_on(request.param) as runtime:
        yield runtime


@examples(60)
@given(
    st.sampled_from(sorted(PROGRAMS.values())),
    st.lists(facts, min_size=1, max_size=9, unique=True),
    goals,
    st.booleans(),
)
def test_proofs_and_counts_of_retractions(runtime, texts, begin, goal, lowest):
    rules = [parse_rule(text) for text in texts]
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    kb.assert_rules(rules)
    kb.assert_facts([Fact(fact.predicate, fact.args) for fact in begin])
    checker = Checker(rules, begin, lowest=lowest)
    rows = kb.infer(Literal(goal))
    limits = prover.LOWEST_LIMITS if lowest else RunLimits(rows=1)
    with mock.patch.object(prover, "LOWEST_LIMITS", limits):
        found = kb.prove(Literal(goal), proof=ProofOptions(form="dag", nodes=10_000))
        trees = kb.prove(Literal(goal), proof=ProofOptions(nodes=200))
    assert [proof["result"] for proof in found] == rows
    for proof, tree in zip(found, trees, strict=True):
        checker.dag(proof, 10_000)
        checker.tree(tree, 200, 100)
    gone, rest = begin[0], begin[1:]
    before, after = (
        {(name, row) for name, rows in naive.model(rules, known).items() for row in rows}
        for known in (begin, rest)
    )
    outcome = kb.retract_fact(gone.predicate, gone.args)
    told = {(naive.key(fact), fact.args) for fact in begin}
    assert outcome.cascaded == len(before - after - told)
    assert not outcome.truncated
