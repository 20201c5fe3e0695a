"""Context windows: the most important facts within a budget."""

from __future__ import annotations

import pytest
from support.engines import HOUR, T0, tell
from support.windows import X, Y, goal, texts, window

from kbcore.context.request import WindowRequest
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.reason.budget import RequestLimits
from kbplanner.syntax.parser import parse_rule
from kbtypes.windows import Bucket


def test_the_most_salient_facts_come_first(kb, clock):
    for name in "abcd":
        tell(kb, "p", name)
        clock.advance(HOUR)
    assert texts(window(kb, max_facts=3)) == ["p(d)", "p(c)", "p(b)"]
    assert texts(window(kb, max_facts=9, predicates=("q",))) == []


def test_a_long_fact_is_skipped_and_not_the_end(kb, clock):
    tell(kb, "p", "short")
    clock.advance(HOUR)
    tell(kb, "p", "x" * 200)
    found = window(kb, max_tokens=10, explain=True)
    assert texts(found) == ["p(short)"]
    assert found.cut["reasons"] == {"maxTokens": 1}
    assert found.cut["examples"][0]["reason"] == "maxTokens"


def test_one_predicate_cannot_take_everything(kb, clock):
    tell(kb, "q", "a")
    clock.advance(HOUR)
    for number in range(200):
        tell(kb, "p", str(number))
    found = window(kb, max_facts=10, max_per_predicate=2)
    assert sorted(entry.predicate for entry in found.entries) == ["p", "p", "q"]


def test_buckets_share_the_window(kb):
    for number in range(20):
        tell(kb, "p", str(number))
        tell(kb, "q", str(number))
        tell(kb, "r", str(number))
    buckets = [
        Bucket("first", ("p",), 3.0),
        Bucket("second", ("q",), 1.0),
        Bucket("none", ("nothing",), 1.0),
    ]
    found = window(kb, max_facts=10, buckets=buckets)
    assert {
        name: (one.facts_included, one.max_allocation) for name, one in found.buckets.items()
    } == {
        "first": (6, 6),
        "second": (2, 2),
        "none": (0, 2),
    }
    assert [entry.category for entry in found.entries] == ["first"] * 6 + ["second"] * 2 + [
        "overflow"
    ] * 2
    many = window(kb, max_facts=3, buckets=[Bucket(f"b{i}") for i in range(5)])
    assert [one.max_allocation for one in many.buckets.values()] == [1, 1, 1, 0, 0]
    assert len(many.entries) == 3


def test_summarised_facts_are_left_out(kb):
    for number in range(6):
        tell(kb, "visit", "ann", str(number))
    kb.consolidate()
    found = window(kb)
    assert texts(found) == ["visit_consolidated(ann, 6)"]
    assert (found.entries[0].category, found.savings, found.available) == ("consolidated", 6, 7)
    asked = window(kb, goals=[goal("visit", "ann", "3")], fill="salience")
    assert texts(asked) == ["visit(ann, 3)", "visit_consolidated(ann, 6)"]
    assert len(window(kb, predicates=("visit",)).entries) == 6


def test_categories(kb, clock):
    tell(kb, "p", "old")
    clock.advance(6 * 60_000)
    tell(kb, "p", "new")
    tell(kb, "p", "short", ttl=HOUR)
    found = {entry.args[0]: entry.category for entry in window(kb).entries}
    assert found == {"old": "asserted", "new": "recent", "short": "ephemeral"}


def test_facts_that_are_not_valid_are_left_out(kb, clock):
    tell(kb, "p", "short", ttl=10)
    tell(kb, "p", "later", valid_from=T0 + HOUR)
    tell(kb, "p", "now")
    clock.advance(10)
    found = window(kb)
    assert (texts(found), found.available) == (["p(now)"], 1)


def test_a_query_raises_the_facts_that_have_its_words(kb, clock):
    tell(kb, "favourite_colour", "ann", "green")
    tell(kb, "lives_in", "ann", "oslo")
    clock.advance(10 * HOUR)
    for number in range(50):
        tell(kb, "noise", str(number))
    found = window(
        kb, max_facts=3, query="Which colours does Ann like?", explain=True, fill="salience"
    )
    assert texts(found)[:2] == ["favourite_colour(ann, green)", "lives_in(ann, oslo)"]
    assert (
        found.entries[0].why["lexical"]
        > found.entries[1].why["lexical"]
        > found.entries[2].why["lexical"]
        == 0
    )
    assert texts(window(kb, max_facts=1, query="nothing has these words", fill="salience"))[
        0
    ].startswith("noise")
    goals = [goal("noise", "7")]
    assert texts(window(kb, max_facts=2, query="colours", goals=goals)) == [
        "noise(7)",
        "favourite_colour(ann, green)",
    ]


def test_the_same_request_twice_gives_the_same_window(kb, clock):
    for number in range(50):
        tell(kb, "p", str(number))
        clock.advance(60_000)
    asked = WindowRequest(max_facts=7, include_rules=True)
    first = kb.context(asked)
    assert all(kb.context(asked) == first for _ in range(5))
    clock.advance(60_000)
    assert set(texts(kb.context(asked))) == set(texts(first))


def test_a_window_in_a_transaction_has_its_staged_facts(kb, node):
    tell(kb, "p", "a")
    id = node.begin("default", "default")
    for name in "bc":
        with node.in_transaction("default", "default", id) as inside:
            tell(inside, "p", name)
        with node.in_transaction("default", "default", id, writes=False) as inside:
            assert f"p({name})" in texts(window(inside))
    assert texts(window(kb)) == ["p(a)"]


def test_scopes_are_separate(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "a", scope="s", positive=False)
    assert texts(window(kb)) == ["p(a)"]
    assert texts(window(kb, scope="s")) == ["not p(a)"]
    both = window(kb, scope="*")
    assert [entry.key for entry in both.entries] == ["p/a", "not:p/a@s"]
    assert both.contradictions_found == 0


def test_the_budget_is_respected(kb):
    for number in range(60):
        tell(kb, "edge", str(number), str(number + 1))
    rules = ("path(?x, ?y) :- edge(?x, ?y).", "path(?x, ?z) :- path(?x, ?y), edge(?y, ?z).")
    kb.assert_rules([parse_rule(rule) for rule in rules])
    with pytest.raises(BudgetExceeded):
        kb.context(WindowRequest(goals=[goal("path", X, Y)]), request_limits=RequestLimits(rows=10))


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("maxFacts", {"max_facts": 0}),
        ("maxTokens", {"max_tokens": 0}),
        ("maxFactsPerPredicate", {"max_per_predicate": 0}),
        ("minSalience", {"min_salience": 1.5}),
    ],
)
def test_requests_are_checked(kb, field, asked):
    with pytest.raises(InvalidInput, match=field):
        window(kb, **asked)
