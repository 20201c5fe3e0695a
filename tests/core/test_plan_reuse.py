"""Plans depend on the rules they use: other rules leave them as they are."""

from __future__ import annotations

import math

import pytest

import kbcore
from kbcore.retraction import cascade
from kbplanner.evaluate import loaded
from kbplanner.syntax.parser import parse_goal

RULES = """
far(?x, ?y) :- next(?x, ?y).
far(?x, ?z) :- far(?x, ?y), next(?y, ?z).
alone(?x) :- far(?x, ?y), not linked(?x).
linked(?x) :- next(?y, ?x), next(?x, ?z).
win(?x) :- next(?x, ?y), not win(?y).
lost(?x) :- next(?y, ?x), not win(?x).
sure(?x, ?y) :- far(?x, ?y) [confidence=0.5].
many(count(?y)) :- far(?x, ?y).
"""
FACTS = "next(a, b). next(b, c). next(c, d). other(a)."
GOALS = [
    "far(a, ?y)",
    "far(?x, ?y)",
    "alone(?x)",
    "win(?x)",
    "lost(?x)",
    "sure(?x, ?y)",
    "many(?n)",
    "far(?x, ?y), alone(?x)",
]


@pytest.fixture
def kb():
    with kbcore.open_kb() as kb:
        yield kb


@pytest.fixture
def strata(monkeypatch):
    """The strata of the plans that are made."""
    strata = []
    build = loaded.build

    def counted(*args):
        plan = build(*args)
        strata.extend(plan.strata)
        return plan

    monkeypatch.setattr(loaded, "build", counted)
    return strata


def ask_all(kb):
    """The answers of the goals with their proofs."""
    answers = {}
    for text in GOALS:
        body = parse_goal(text).body
        answers[text] = list(kb.ask(text)), kb.kb.explain(body)
    return answers


def repeated(kb, strata):
    """The strata planned for asking again with nothing changed: proofs plan their searches for
    unseen values.
    """
    strata.clear()
    ask_all(kb)
    usual = len(strata)
    assert usual < 5
    strata.clear()
    return usual


@pytest.mark.parametrize(
    "text",
    [
        "unrelated(?x) :- other(?x).",
        "unrelated(?x) :- other(?x), not far(?x, ?_).",
        "unrelated(?x) :- other(?x), win(?x).",
        "@equivalence same/2. same(?x, ?y) :- pair(?x, ?y).",
        "~other(?x) :- gone(?x).",
        "~gone(b).",
        "@key owns(?car, _).",
        "up(?x) :- other(?x), not down(?x). down(?x) :- other(?x), not up(?x).",
        "far(?x, ?x) :- other(?x) [scope=draft].",
    ],
)
def test_an_unrelated_rule_leaves_plans_as_they_are(kb, strata, text):
    kb.teach(RULES + FACTS)
    before = ask_all(kb)
    assert len(strata) > 10
    usual = repeated(kb, strata)
    kb.teach(text)
    assert ask_all(kb) == before
    assert len(strata) == usual


@pytest.mark.parametrize("rules", [RULES, RULES.replace("not win", "linked")])
def test_retractions_keep_their_plans_as_well(kb, strata, rules, monkeypatch):
    # On a slow machine the conclusions would be kept, which makes a plan of its own.
    monkeypatch.setattr(cascade, "MIN_SPENT_SECONDS", math.inf)
    kb.teach(rules + FACTS)
    pair = ("b", "c")
    first = kb.retract("next", pair).cascaded
    assert len(strata) > 5
    kb.tell("next", pair)
    strata.clear()
    kb.teach("unrelated(?x) :- other(?x).")
    assert kb.retract("next", pair).cascaded == first > 5
    assert strata == []


def test_retracting_an_earlier_unrelated_rule_leaves_plans_as_they_are(kb, strata):
    kb.teach("@extra: unrelated(?x) :- other(?x), win(?x)." + RULES + FACTS)
    before = ask_all(kb)
    usual = repeated(kb, strata)
    kb.retract_rule("extra")
    assert ask_all(kb) == before
    assert len(strata) == usual


@pytest.mark.parametrize(
    ("text", "goal", "answers"),
    [
        ("far(?x, ?x) :- other(?x).", "far(a, ?y)", "abcd"),
        ("next(d, ?x) :- other(?x).", "far(d, ?y)", "abcd"),
        ("linked(?x) :- other(?x).", "alone(?x)", ""),
        ("~linked(?x) :- other(?x). linked(?x) :- other(?x).", "alone(?x)", "a"),
        ("linked(a). ~linked(a).", "alone(?x)", "a"),
        ("next(b, d) :- other(?x).", "win(?x)", "bc"),
        ("next(?x, ?y) :- next(?y, ?x) [scope=draft].", "far(a, ?y)", "bcd"),
        ("@equivalence next/2.", "far(a, ?y)", "abcd"),
    ],
)
def test_a_rule_that_a_goal_depends_on_changes_its_answers(kb, text, goal, answers):
    kb.teach(RULES + FACTS)
    ask_all(kb)
    kb.teach(text)
    assert {row[-1] for row in kb.ask(goal)} == set(answers)
    with kbcore.open_kb() as fresh:
        fresh.teach(text + RULES + FACTS)
        assert {name: rows for name, (rows, _) in ask_all(fresh).items()} == {
            name: rows for name, (rows, _) in ask_all(kb).items()
        }


def test_a_rule_of_a_scope_changes_answers_there_only(kb):
    kb.teach(RULES + FACTS)
    kb.fork("draft")
    before = ask_all(kb)
    kb.teach("far(?x, ?x) :- other(?x) [scope=draft].")
    assert ("a", "a") in list(kb.ask("far(?x, ?y)", scope="draft"))
    assert ask_all(kb) == before


def test_proofs_name_the_rules_they_use_after_others_are_retracted(kb):
    kb.teach("@extra: unrelated(?x) :- other(?x), win(?x)." + RULES + FACTS)
    proof = kb.kb.prove(parse_goal("far(a, c)").body[0])
    kb.retract_rule("extra")
    assert kb.kb.prove(parse_goal("far(a, c)").body[0]) == proof
    assert proof[0]["proof"]["step"]["rule"] == "far(?x, ?z) :- far(?x, ?y), next(?y, ?z)."
