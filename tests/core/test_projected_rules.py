"""Rules that are evaluated as joins of two atoms: the same answers, proofs and consequences of
retractions as without.
"""

from __future__ import annotations

import random

import pytest
from support.runtimes import runtime

from kbcore.errors import BudgetExceeded
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Literal
from kbplanner.syntax.parser import parse_goal, parse_rule

NODES = [f"n{i}" for i in range(80)]
SAME_GENERATION = [
    "sg(?x, ?y) :- arc(?a, ?x), arc(?a, ?y), ?x != ?y.",
    "sg(?x, ?y) :- arc(?a, ?x), sg(?a, ?b), arc(?b, ?y).",
]
ABOVE = ["alone(?x) :- arc(?x, ?_), not sg(?x, ?_).", "size(?x, count(?y)) :- sg(?x, ?y)."]


def same_generation(arcs):
    """Return the least relation of the two rules of `sg`."""
    children = {}
    for parent, child in arcs:
        children.setdefault(parent, set()).add(child)
    todo = [(x, y) for own in children.values() for x in own for y in own if x != y]
    found = set(todo)
    while todo:
        a, b = todo.pop()
        for x in children.get(a, ()):
            for y in children.get(b, ()):
                if (x, y) not in found:
                    found.add((x, y))
                    todo.append((x, y))
    return found


@pytest.fixture
def arcs():
    draw = random.Random(7)
    return {(draw.choice(NODES), draw.choice(NODES)) for _ in range(240)}


@pytest.fixture
def kb(arcs):
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(text) for text in SAME_GENERATION])
        kb.assert_facts([Fact("arc", pair) for pair in sorted(arcs)])
        yield kb


def rows(kb, text, limits=None):
    options = AnswerOptions(limit=100_000, request_limits=limits)
    return {tuple(row["args"]) for row in kb.infer(parse_goal(text).literal, options)}


def test_the_plan_shows_the_join(kb):
    assert "join sg#1/2" in kb.plan(parse_goal("sg(?x, ?y)").body)


def test_answers_and_counts_follow_new_facts_and_retractions(kb, arcs):
    draw = random.Random(3)
    for change in ("none", "new", "retracted", "new", "retracted"):
        if change == "new":
            pair = draw.choice(NODES), draw.choice(NODES)
            kb.assert_facts([Fact("arc", pair)])
            arcs.add(pair)
        elif change == "retracted":
            pair = draw.choice(sorted(arcs))
            before = same_generation(arcs)
            arcs.remove(pair)
            outcome = kb.retract_fact("arc", pair)
            assert not outcome.truncated
            assert outcome.cascaded == len(before - same_generation(arcs))
        expected = same_generation(arcs)
        assert len(expected) > 4096, "too few for rows of bits"
        assert rows(kb, "sg(?x, ?y)") == expected
        start = draw.choice(sorted(expected))[0]
        assert rows(kb, f"sg({start}, ?y)") == {pair for pair in expected if pair[0] == start}


def test_negation_and_aggregates_above_it(kb, arcs):
    kb.assert_rules([parse_rule(text) for text in ABOVE])
    expected = same_generation(arcs)
    related = {x for x, _ in expected}
    assert rows(kb, "alone(?x)") == {(a,) for a, _ in arcs if a not in related}
    sizes = {(x, str(sum(pair[0] == x for pair in expected))) for x in related}
    assert rows(kb, "size(?x, ?n)") == sizes


def test_proofs_use_the_rules_as_they_are_written(kb, arcs):
    rules = [parse_rule(text) for text in SAME_GENERATION]
    start, end = max(same_generation(arcs))
    (proof,) = kb.prove(Literal(Atom("sg", (start, end))), proof=ProofOptions(form="dag"))
    steps = [node for node in proof["proof"]["nodes"].values() if node["kind"] == "derived"]
    assert steps
    for node in steps:
        rule = parse_rule(node["rule"]["text"])
        assert rule in rules
        premises = [proof["proof"]["nodes"][premise] for premise in node["premises"]]
        facts = [premise["fact"] for premise in premises if "fact" in premise]
        assert {fact["predicate"] for fact in facts} <= {"arc", "sg", "!="}


def test_a_budget_of_rows_names_the_rule(kb):
    with pytest.raises(BudgetExceeded) as exceeded:
        rows(kb, "sg(?x, ?y)", RequestLimits(rows=3000))
    assert exceeded.value.details["rule"] in SAME_GENERATION
