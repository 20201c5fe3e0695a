"""Goals in context windows: answers and their premises come first and are complete."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.windows import X, family, goal, texts, window

from kbcore.context.request import ConjunctiveGoal, WindowRequest
from kbcore.context.window import UNPROVED
from kbcore.reason.budget import RequestLimits
from kbplanner.syntax.parser import parse_goal, parse_rule


def test_a_goal_adds_its_answers_and_their_premises(kb, clock):
    family(kb)
    clock.advance(5 * HOUR)
    for number in range(20):
        tell(kb, "noise", str(number))
    found = window(kb, max_facts=10, goals=[goal("grandparent", "ann", X)], fill="salience")
    assert texts(found)[:5] == [
        "grandparent(ann, cy)",
        "parent(ann, bob)",
        "parent(bob, cy)",
        "grandparent(ann, dee)",
        "parent(bob, dee)",
    ]
    assert [entry.category for entry in found.entries] == ["goal_relevant"] * 5 + ["recent"] * 5
    source = found.entries[0].provenance
    assert source.rule == "grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    assert source.premises == ("parent(ann, bob)", "parent(bob, cy)")
    assert found.rules == (source.rule,)
    assert found.goal_driven
    assert found.savings == 1  # parent(ann, bob) is needed twice


def test_complete_proofs_come_first_when_space_is_short(kb):
    family(kb)
    found = window(kb, max_facts=4, goals=[goal("grandparent", "ann", X)], explain=True)
    assert texts(found) == [
        "grandparent(ann, cy)",
        "parent(ann, bob)",
        "parent(bob, cy)",
        "parent(bob, dee)",
    ] or texts(found) == [
        "grandparent(ann, cy)",
        "parent(ann, bob)",
        "parent(bob, cy)",
        "grandparent(ann, dee)",
    ]
    assert found.cut["goals"][0] | {"partial": []} == {
        "goal": "grandparent(ann, ?x)",
        "answers": 2,
        "whole": 1,
        "cut": {"maxFacts": 1},
        "partial": [],
    }
    small = window(kb, max_facts=2, goals=[goal("grandparent", "ann", X)])
    assert texts(small) == ["grandparent(ann, cy)", "grandparent(ann, dee)"]


def test_an_aggregate_adds_all_its_inputs(kb):
    for number in range(30):
        tell(kb, "paid", "ann", str(number))
    kb.assert_rules([parse_rule("total(?x, sum(?y)) :- paid(?x, ?y).")])
    found = window(kb, goals=[goal("total", "ann", X)], max_facts=31)
    assert texts(found)[0] == "total(ann, 435)"
    assert sum(entry.category == "goal_relevant" for entry in found.entries) == 31
    less = window(kb, goals=[goal("total", "ann", X)], max_facts=30)
    assert [entry.category for entry in less.entries].count("goal_relevant") == 1


def test_a_goal_without_answers_reports_near_misses(kb):
    family(kb)
    for number in range(30):
        tell(kb, "noise", str(number))
    found = window(kb, max_facts=5, goals=[goal("grandparent", "eve", X)], explain=True)
    assert texts(found)[0] == "parent(eve, fay)"
    (part,) = found.cut["goals"][0]["partial"]
    assert (part["have"], part["missing"]) == (["parent(eve, fay)"], ["parent(fay, ?z)"])


def test_negated_goals(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "b", positive=False)
    absent = window(kb, goals=[goal("p", "z", negated=True)]).entries[0]
    assert (absent.text, absent.category, absent.provenance.premises) == (
        "not p(z)",
        "goal_relevant",
        (),
    )
    denied = window(kb, goals=[goal("p", "b", negated=True)]).entries[0]
    assert (denied.text, denied.category, denied.provenance) == ("not p(b)", "goal_relevant", None)
    every = window(kb, goals=[goal("p", X, negated=True)], fill="salience").entries
    assert [(e.text, e.category) for e in every] == [
        ("not p(b)", "goal_relevant"),
        ("p(a)", "recent"),
    ]
    assert (
        window(kb, goals=[goal("p", "a", negated=True)], fill="salience").entries[0].category
        == "recent"
    )


def test_the_same_answer_from_two_goals_counts_once(kb):
    tell(kb, "p", "a")
    found = window(kb, goals=[goal("p", "a"), goal("p", X)])
    assert (texts(found), found.savings) == (["p(a)"], 1)


def test_no_goal_starves_another(kb):
    for number in range(9):
        tell(kb, "p", str(number))
    tell(kb, "q", "a")
    assert "q(a)" in texts(window(kb, max_facts=3, goals=[goal("p", X), goal("q", X)]))


def test_min_salience_does_not_apply_to_premises_of_goals(kb, clock):
    family(kb)
    clock.advance(20 * HOUR)
    tell(kb, "p", "new")
    assert texts(window(kb, min_salience=0.5)) == ["p(new)"]
    assert len(window(kb, min_salience=0.9, goals=[goal("grandparent", "ann", X)]).entries) == 5


def test_explanations(kb):
    family(kb)
    found = window(kb, max_facts=3, goals=[goal("grandparent", "ann", "cy")], explain=True)
    answer, premise, _ = found.entries
    assert answer.why["reason"] == "answer of grandparent(ann, cy)"
    assert premise.why["reason"] == "grandparent(ann, cy) depends on it"
    assert premise.why["relevance"] == 0.9
    parts = [premise.why[name] for name in ("recency", "frequency", "priority")]
    assert sum(parts) == pytest.approx(premise.why["salience"])
    assert found.cut["notIncluded"] == 2
    assert window(kb, max_facts=2).entries[0].why is None


REMARK = "Premises are left out, because finding them exceeds the limits"


def chain(kb):
    """Facts in a row, and the paths along them: a goal derives a row for each answer, its proofs
    more.
    """
    texts = "far(?x, ?y) :- next(?x, ?y).", "far(?x, ?z) :- far(?x, ?y), next(?y, ?z)."
    kb.assert_rules([parse_rule(text) for text in texts])
    for number in range(30):
        tell(kb, "next", f"n{number}", f"n{number + 1}")


@pytest.mark.parametrize("form", ["facts", "natural"])
def test_answers_enter_without_premises_that_exceed_the_limits(kb, form):
    chain(kb)
    request = WindowRequest(20, goals=(goal("far", "n0", X),), format=form, explain=True)
    limits = RequestLimits(rows=35)
    found = kb.context(request, request_limits=limits)
    assert texts(found) == sorted(f"far(n0, n{number})" for number in range(1, 31))[:20]
    assert {entry.provenance for entry in found.entries} == {UNPROVED}
    assert found.cut["goals"][0]["answers"] == 20
    assert found.cut["goals"][0]["whole"] == 0
    assert REMARK in found.text
    assert "because ." not in found.text
    whole = kb.context(request)  # the limits of an earlier request do not show
    assert "far(n0, n1)" in texts(whole)
    assert "next(n0, n1)" in texts(whole)
    assert REMARK not in whole.text


def test_answers_that_belong_together_enter_without_premises(kb):
    chain(kb)
    tell(kb, "start", "n0")
    both = ConjunctiveGoal(parse_goal("start(?x), far(?x, n29)").body)
    request = WindowRequest(40, goals=(both,), format="facts")
    found = kb.context(request, request_limits=RequestLimits(rows=64))
    assert texts(found) == ["start(n0)", "far(n0, n29)"]
    assert REMARK in found.text
