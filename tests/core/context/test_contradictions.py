"""Contradictions in context windows, and who stays."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.windows import X, goal, texts, window

from kbplanner.parser import parse_rule


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


def test_equally_salient_the_surer_then_the_positive_one_stays(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "a", positive=False)
    assert texts(window(kb)) == ["p(a)"]


@pytest.mark.parametrize("resolve", [True, False])
def test_a_conclusion_can_contradict_a_stored_fact(kb, clock, resolve):
    tell(kb, "bird", "tux")
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "flies", "tux", positive=False)
    found = window(kb, goals=[goal("flies", X)], auto_resolve=resolve, explain=True)
    assert (found.contradictions_found, found.resolved) == (1, int(resolve))
    if resolve:
        assert texts(found) == ["not flies(tux)", "bird(tux)"]
        assert found.cut["goals"][0]["cut"] == {"contradicted": 1}
    else:
        assert texts(found) == ["flies(tux)", "bird(tux)", "not flies(tux)"]


def test_a_stored_fact_loses_to_a_conclusion_nobody_asked_for(kb, clock):
    tell(kb, "flies", "tux", positive=False)
    kb.assert_rules([parse_rule("flies(?x) :- bird(?x).")])
    clock.advance(HOUR)
    tell(kb, "bird", "tux")
    found = window(kb)
    assert texts(found) == ["bird(tux)"]
    assert (found.contradictions_found, found.resolved) == (1, 1)
