"""Windows as text in each format: content, and how facts and rules share `maxTokens`."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.windows import X, family, goal, texts, window

from kbcore.context.text.tokens import tokens
from kbcore.errors import InvalidInput
from kbplanner.syntax.parser import parse_rule


@pytest.mark.parametrize("text_format", ["structured", "natural", "facts"])
def test_the_budget_applies_to_the_text(kb, text_format):
    for number in range(50):
        tell(
            kb, "has_a_long_name_and", f"subject {number}", "an object", confidence=0.123, ttl=HOUR
        )
    kb.assert_rules([parse_rule("near(?x, ?y) :- has_a_long_name_and(?x, ?y).")])
    found = window(kb, max_tokens=200, format=text_format, include_rules=True)
    assert 150 < tokens(len(found.text)) == found.tokens <= 200
    assert len(found.rules) == 1


def test_a_text_that_just_fits(kb):
    tell(kb, "p", "abcdefgh")
    assert window(kb, max_tokens=3).text == "p(abcdefgh)."
    assert len("p(abcdefgh).") == 12
    assert window(kb, max_tokens=2).text == ""


def test_facts_are_grouped_by_goal(kb):
    family(kb)
    tell(kb, "age", "bob", "7")
    lines = window(
        kb, goals=[goal("grandparent", "ann", X), goal("age", "bob", X)], format="facts"
    ).text.splitlines()
    first, second = lines.index("% Goal: grandparent(ann, ?x)"), lines.index("% Goal: age(bob, ?x)")
    assert (first, lines[second + 1]) == (0, "age(bob, 7).")
    assert lines[1:second] == [
        "grandparent(ann, cy).  % because #1, #2",
        "parent(ann, bob).  % #1",
        "parent(bob, cy).  % #2",
        "grandparent(ann, dee).  % because #1, #3",
        "parent(bob, dee).  % #3",
    ]
    assert lines[-2:] == ["% Rules", "grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."]


def test_facts_of_several_scopes_are_labelled(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "a", scope="s")
    assert sorted(window(kb, scope="*", format="facts").text.splitlines()) == [
        "% Base",
        "% Scope s",
        "p(a).",
        "p(a).",
    ]
    assert window(kb, scope="s", format="facts").text == "p(a)."


def test_rules_have_a_reserved_share(kb):
    for number in range(100):
        tell(kb, "p", str(number))
    kb.assert_rules([parse_rule(f"q{number}(?x) :- p(?x).") for number in range(100)])
    found = window(kb, max_tokens=100, include_rules=True)
    rules = sum(len(rule) + 1 for rule in found.rules)
    assert 60 <= rules <= 110  # about a quarter of 400 characters
    assert len(found.text) > 380
    assert not window(kb, max_tokens=100).rules
    few = window(kb, max_tokens=1000, include_rules=True, predicates=("p",))
    assert len(few.entries) == 100


def test_facts_can_use_the_unused_share_of_rules(kb):
    for number in range(100):
        tell(kb, "p", str(number))
    kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
    found = window(kb, max_tokens=100, include_rules=True)
    assert len(found.rules) == 1
    assert len(found.text) > 390


def test_long_facts_do_not_end_the_search_for_short_ones(kb):
    tell(kb, "p", "short")
    for number in range(100):
        tell(kb, "p", f"{number} is much too long")
    assert texts(window(kb, max_tokens=5)) == ["p(short)"]


def test_the_search_for_short_facts_ends(kb):
    for number in range(2000):
        tell(kb, "p", f"{number} is much too long")
    found = window(kb, max_tokens=5, explain=True)
    assert found.entries == ()
    assert found.cut["reasons"] == {"maxTokens": 256}


def test_an_unknown_format(kb):
    with pytest.raises(InvalidInput, match="format"):
        window(kb, format="xml")
