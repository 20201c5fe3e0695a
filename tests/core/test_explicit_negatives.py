"""`not ~p` depends only on explicit negatives, not on the order of writes and goals."""

from __future__ import annotations

from itertools import permutations

import pytest

from kbcore.embed import open_kb
from kbplanner.errors import UnsafeRule
from kbplanner.syntax.parser import parse_goal

OPEN = "open(?d) :- door(?d), not ~safe(?d)."
STEPS = [
    lambda kb: kb.tell("door", ["d1"]),
    lambda kb: kb.tell("safe", ["d1"], negated=True),
    lambda kb: kb.tell("safe", ["d1"]),
    lambda kb: list(kb.ask("open(?d)")),
]


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_the_order_of_writes_and_goals_does_not_matter(order):
    with open_kb() as kb:
        kb.teach(OPEN)
        for place in order:
            STEPS[place](kb)
        assert list(kb.ask("open(?d)")) == []
        kb.kb.retract_fact("safe", ("d1",), positive=False)
        assert list(kb.ask("open(?d)")) == [("d1",)]


def test_an_exception_applies_although_the_positive_fact_is_asserted():
    with open_kb() as kb:
        kb.teach("flies(?x) :- bird(?x), not ~flies(?x).")
        kb.teach("~flies(?x) :- penguin(?x).")
        for predicate, who in (
            ("bird", "opus"),
            ("penguin", "opus"),
            ("bird", "tweety"),
            ("flies", "opus"),
        ):
            kb.tell(predicate, [who])
        kb.teach("can(?x) :- bird(?x), not ~flies(?x).")
        assert list(kb.ask("can(?x)")) == [("tweety",)]
        kb.retract("penguin", ["opus"])
        assert list(kb.ask("can(?x)")) == [("opus",), ("tweety",)]


def test_a_rule_that_reads_only_the_negatives_does_not_recurse_through_an_aggregate():
    with open_kb() as kb:
        kb.teach("busy(?x, count(?t)) :- task(?x, ?t), not ~busy(?x, ?t).")
        kb.tell("task", ["ann", "t1"])
        assert list(kb.ask("busy(ann, ?n)")) == [("ann", "1")]


@pytest.mark.parametrize("positive", [False, True])
def test_a_ground_goal_reads_the_negatives_alone(positive):
    goal = parse_goal("not ~p(a)").literal
    with open_kb() as kb:
        if positive:
            kb.tell("p", ["a"])
        (row,) = kb.kb.infer(goal)
        assert row["metadata"]["basis"] == "absence"
        (proof,) = kb.kb.prove(goal)
        assert proof["proof"]["step"]["type"] == "negation_as_failure"
        kb.tell("p", ["a"], negated=True)
        assert kb.kb.infer(goal) == [] == kb.kb.prove(goal)


@pytest.mark.parametrize("text", ["not ~p(?x)", "not ~p(_)"])
def test_a_goal_that_nothing_can_list_is_refused(text):
    goal = parse_goal(text).literal
    with open_kb() as kb:
        kb.tell("p", ["a"])
        for ask in (
            lambda: kb.kb.infer(goal),
            lambda: kb.kb.prove(goal),
            lambda: kb.kb.plan([goal]),
        ):
            with pytest.raises(UnsafeRule, match="only under"):
                ask()
