"""Contradictions in context windows, and which fact of a pair is kept."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.windows import X, goal, texts, window

from kbcore.context.text.render import render
from kbplanner.syntax.parser import parse_rule


@pytest.mark.parametrize("resolve", [True, False])
def test_contradictions_that_are_stored(kb, clock, resolve):
    tell(kb, "p", "a")
    clock.advance(HOUR)
    tell(kb, "p", "a", positive=False)
    found = window(kb, auto_resolve=resolve)
    assert texts(found) == (["not p(a)"] if resolve else ["not p(a)", "p(a)"])
    assert (found.contradictions_found, found.resolved) == (1, int(resolve))
    (clash,) = found.contradictions
    assert (clash.predicate, clash.args) == ("p", ("a",))
    assert clash.negative_salience > clash.positive_salience


def test_ties_are_decided_by_confidence_then_sign(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "a", positive=False)
    assert texts(window(kb)) == ["p(a)"]


@pytest.mark.parametrize("resolve", [True, False])
def test_a_conclusion_can_contradict_a_stored_fact(kb, clock, resolve):
    tell(kb, "bird", "tux")
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "flies", "tux", positive=False)
    found = window(
        kb, goals=[goal("flies", X)], auto_resolve=resolve, explain=True, fill="salience"
    )
    assert (found.contradictions_found, found.resolved) == (1, int(resolve))
    if resolve:
        assert texts(found) == ["not flies(tux)", "bird(tux)"]
        assert found.cut["goals"][0]["cut"] == {"contradicted": 1}
    else:
        assert texts(found) == ["flies(tux)", "bird(tux)", "not flies(tux)"]


def test_a_stored_fact_loses_to_an_unrequested_conclusion(kb, clock):
    tell(kb, "flies", "tux", positive=False)
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "bird", "tux")
    found = window(kb)
    assert texts(found) == ["bird(tux)"]
    assert (found.contradictions_found, found.resolved) == (1, 1)


@pytest.mark.parametrize("resolve", [True, False])
def test_an_entry_says_that_its_opposite_is_stored(kb, resolve):
    tell(kb, "p", "a")
    tell(kb, "p", "a", positive=False)
    tell(kb, "p", "b")
    result = window(kb, auto_resolve=resolve)
    marks = {entry.text: entry.contradicted for entry in result.entries}
    assert marks == {"p(a)": True, "p(b)": False, **({} if resolve else {"not p(a)": True})}
    assert "p(a).  % contradicted: the opposite is known too" in render(result)
    assert "p(b)." in render(result)


def test_an_entry_says_that_its_opposite_is_derivable(kb, clock):
    tell(kb, "bird", "tux")
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "flies", "tux", positive=False)
    for asked in ({}, {"goals": [goal("flies", X)]}, {"auto_resolve": False}):
        result = window(kb, fill="salience", **asked)
        assert {entry.text: entry.contradicted for entry in result.entries} == {
            "bird(tux)": False,
            "not flies(tux)": True,
        }
    both = window(kb, goals=[goal("flies", X)], auto_resolve=False, fill="salience")
    assert {entry.text for entry in both.entries if entry.contradicted} == {
        "flies(tux)",
        "not flies(tux)",
    }


def test_a_conclusion_says_that_its_opposite_is_stored(kb, clock):
    tell(kb, "flies", "tux", positive=False)
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "bird", "tux")
    result = window(kb, goals=[goal("flies", X)])
    assert {entry.text: entry.contradicted for entry in result.entries} == {
        "flies(tux)": True,
        "bird(tux)": False,
    }
    assert "flies(tux).  % contradicted: the opposite is known too; because" in render(result)


def test_a_partial_match_says_that_it_is_contradicted(kb):
    tell(kb, "bird", "tux")
    tell(kb, "bird", "tux", positive=False)
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x), light(?x).")])
    for resolve in (True, False):
        result = window(kb, goals=[goal("flies", X)], auto_resolve=resolve)
        assert {entry.text: entry.contradicted for entry in result.entries}["bird(tux)"]


def test_a_new_or_resolved_contradiction_is_a_change(kb):
    tell(kb, "p", "a")
    first = window(kb, session="s")
    tell(kb, "p", "a", positive=False)
    came = kb.context_diff("s", {})
    assert [entry.contradicted for entry in came.added] == [True]
    assert came.current != first.id
    kb.retract_fact("p", ("a",), positive=False)
    assert [entry.contradicted for entry in kb.context_diff("s", {}).added] == [False]
