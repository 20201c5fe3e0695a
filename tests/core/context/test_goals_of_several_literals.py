"""Goals of several literals and comparisons in context windows."""

from __future__ import annotations

import pytest
from support.engines import tell
from support.windows import family, texts, window

from kbcore import open_kb
from kbcore.context.request import goal_from_text
from kbcore.errors import InvalidInput, UnsafeRule


def joint(text):
    return goal_from_text(text, "goals[0]")


@pytest.fixture
def homes(kb):
    for city, first, last in (("oslo", 2010, 2014), ("rome", 2015, 2019), ("bonn", 2020, 2024)):
        tell(kb, "lived_in", "ann", city, str(first), str(last))
    return kb


def test_comparisons_choose_the_answers(homes):
    goal = joint("lived_in(ann, ?city, ?from, ?to), ?from <= 2017, ?to >= 2017")
    assert texts(window(homes, goals=[goal])) == ["lived_in(ann, rome, 2015, 2019)"]


def test_an_answer_is_what_all_literals_become_with_their_premises(kb):
    family(kb)
    tell(kb, "lives_in", "cy", "rome")
    found = window(kb, goals=[joint("grandparent(ann, ?who), lives_in(?who, ?city)")], explain=True)
    assert texts(found) == [
        "grandparent(ann, cy)",
        "parent(ann, bob)",
        "parent(bob, cy)",
        "lives_in(cy, rome)",
    ]
    assert found.entries[0].provenance.premises == ("parent(ann, bob)", "parent(bob, cy)")
    assert found.rules == ("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).",)
    assert found.cut["goals"] == [
        {
            "goal": "grandparent(ann, ?who), lives_in(?who, ?city)",
            "answers": 1,
            "whole": 1,
            "cut": {},
            "partial": [],
        }
    ]


def test_absence_is_tested_and_not_shown(kb):
    family(kb)
    tell(kb, "away", "dee")
    found = window(kb, goals=[joint("parent(bob, ?who), not away(?who)")])
    assert texts(found) == ["parent(bob, cy)"]


def test_an_answer_that_does_not_fit_is_left_out_whole(kb):
    family(kb)
    tell(kb, "lives_in", "cy", "rome")
    goal = joint("grandparent(ann, ?who), lives_in(?who, ?city)")
    found = window(kb, goals=[goal], max_facts=3, explain=True)
    assert found.cut["goals"][0]["whole"] == 0
    assert "lives_in(cy, rome)" not in texts(found)


def test_without_an_answer_what_matches_a_part_is_shown(kb):
    family(kb)
    goal = joint("grandparent(ann, ?who), lives_in(?who, rome)")
    found = window(kb, goals=[goal], explain=True)
    (miss,) = found.cut["goals"][0]["partial"]
    assert miss["rule"] == ""
    assert len(miss["missing"]) == 1
    assert miss["missing"][0].startswith("lives_in(")


def test_a_goal_without_answers_names_no_rule_of_its_own(kb):
    found = window(kb, goals=[joint("p(?x), q(?x)")])
    assert found.rules == ()
    assert found.entries == ()


def test_changes_follow_the_answers(homes):
    goal = joint("lived_in(ann, ?city, ?from, ?to), ?to >= 2015")
    first = window(homes, goals=[goal], session="s")
    assert len(first.entries) == 2
    tell(homes, "lived_in", "ann", "graz", "2025", "2026")
    changes = homes.context_diff("s", {})
    assert [entry.text for entry in changes.added] == ["lived_in(ann, graz, 2025, 2026)"]


def test_a_goal_of_comparisons_alone_has_no_answers_and_is_refused():
    for text in ("1 < 2, 2 < 3", "not p(a), not q(a)"):
        with pytest.raises(InvalidInput, match="at least one literal"):
            joint(text)


def test_a_variable_that_nothing_binds_is_refused(kb):
    with pytest.raises(UnsafeRule):
        window(kb, goals=[joint("p(?x), ?y > 1")])


def test_goals_are_texts_in_programs():
    with open_kb() as kb:
        kb.tell("paid(ann, 5). paid(ann, 50).")
        window = kb.context(goals="paid(ann, ?sum), ?sum > 10")
        assert [entry.text for entry in window.entries] == ["paid(ann, 50)"]
        with pytest.raises(InvalidInput, match=r"goals\[0\]"):
            kb.context(goals=["1 < 2, 2 < 3"])
