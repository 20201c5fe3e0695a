"""Windows for a query or for goals: selection by relevance, repeatable for the same request."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.runtimes import runtime
from support.windows import X, family, goal, texts, window

from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.context.text.render import render
from kbcore.errors import InvalidInput
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_rule
from kbtypes.windows import Bucket


def content(found):
    """A window without what may change by time: when it was generated, and salience."""
    entries = [entry._replace(salience=0.0, category="") for entry in found.entries]
    return found.id, entries, found.rules, found.contradictions_found, render(found)


def accessed(kb, predicate):
    """The time since the last access and the access count of each fact, by first argument."""
    found = window(kb, predicates=(predicate,), explain=True, max_facts=100)
    return {
        entry.args[0]: (entry.why["lastAccess"], entry.why["accesses"]) for entry in found.entries
    }


def test_an_old_match_comes_before_a_fresh_fact_that_matches_less(kb, clock):
    tell(kb, "said", "ann", "my favourite drink is green tea")
    clock.advance(6 * HOUR)
    for number in range(20):
        tell(kb, "said", "bob", f"something about a drink, number {number}")
        kb.salient("said", limit=1)
    found = window(kb, query="what is the favourite drink", max_facts=5, explain=True)
    assert found.entries[0].args[0] == "ann"
    assert found.entries[0].why["relevance"] == 1.0
    assert all(0 < entry.why["relevance"] < 1 for entry in found.entries[1:])


def test_salience_breaks_ties_also_among_very_many(kb, clock):
    kb.assert_facts([Fact("likes", ("ann", f"thing number {at}")) for at in range(60)])
    clock.advance(HOUR)
    tell(kb, "likes", "ann", "thing number 7")
    assert (
        texts(window(kb, query="what does ann like", max_facts=2))[0]
        == 'likes(ann, "thing number 7")'
    )
    tell(kb, "likes", "ann", "thing number 59")
    assert set(texts(window(kb, query="what does ann like", max_facts=2))) == {
        'likes(ann, "thing number 7")',
        'likes(ann, "thing number 59")',
    }


@pytest.mark.parametrize(("weight", "first"), [(0.0, "old"), (1.0, "new")])
def test_the_weight_of_salience_is_a_setting(weight, first):
    clock = ManualClock()
    with runtime(clock=clock, query_salience_weight=weight) as node:
        kb = node.knowledge_base()
        tell(kb, "said", "old", "green tea")
        clock.advance(10 * HOUR)
        tell(kb, "said", "new", "green tea with milk")
        assert window(kb, query="green tea").entries[0].args[0] == first


@pytest.mark.parametrize(
    "asked",
    [{}, {"query": "which tea"}, {"goals": [goal("drinks", X)]}, {"buckets": [Bucket("b")]}],
)
def test_the_same_request_gives_the_same_window_at_any_later_time(kb, clock, asked):
    for at in range(12):
        tell(kb, "likes", f"p{at % 5}", f"tea {at}", confidence=0.5 + at / 30)
        kb.salient("likes", [f"p{at % 3}", X], limit=2)
        clock.advance(HOUR // 3)
        tell(kb, "likes", f"p{at % 4}", f"tea {at}", positive=False)
    kb.assert_rules([parse_rule("drinks(?x) :- likes(?x, ?y).")])
    first = window(kb, max_facts=6, **asked)
    assert first.entries
    for pause in (0, 11_000, HOUR, 50 * HOUR):
        clock.advance(pause)
        again = window(kb, max_facts=6, **asked)
        assert content(again) == content(first)
    assert again.generated_at == clock.now_ms()
    assert [e.salience for e in again.entries if e.salience] < [
        e.salience for e in first.entries if e.salience
    ]


def test_a_window_is_not_an_access_time_and_counts_once_after_a_change(kb, clock):
    tell(kb, "likes", "ann", "tea")
    ((told, count),) = accessed(kb, "likes").values()
    for _ in range(30):
        clock.advance(HOUR)
        window(kb, query="tea")
        assert accessed(kb, "likes") == {"ann": (told, count)}
    tell(kb, "other", "fact")
    assert accessed(kb, "likes") == {"ann": (told, count + 1)}


def test_windows_raise_the_access_count_up_to_a_bound(kb, clock):
    tell(kb, "likes", "ann", "tea")
    for at in range(30):
        window(kb, query="tea")
        tell(kb, "other", str(at))
    ((_, count),) = accessed(kb, "likes").values()
    assert count == 10


def test_goals_inside_a_window_are_no_access(kb, clock):
    family(kb)
    before = accessed(kb, "parent")
    clock.advance(HOUR)
    goals = [
        goal("parent", "ann", X),
        goal("grandparent", "ann", X),
        goal("parent", "zed", X),
        goal("parent", X, "cy"),
    ]
    window(kb, goals=goals)
    assert accessed(kb, "parent") == before
    kb.infer(goals[0])
    assert accessed(kb, "parent")["ann"] == (clock.now_ms(), before["ann"][1] + 1)


def test_only_requested_facts_enter(kb):
    family(kb)
    tell(kb, "drinks", "ann", "green tea")
    tell(kb, "noise", "x")
    goals = [goal("grandparent", "ann", "cy")]
    proof = ["grandparent(ann, cy)", "parent(ann, bob)", "parent(bob, cy)"]
    assert texts(window(kb, goals=goals)) == proof
    assert texts(window(kb, query="who drinks tea")) == ['drinks(ann, "green tea")']
    assert texts(window(kb, goals=goals, query="tea")) == [*proof, 'drinks(ann, "green tea")']
    assert texts(window(kb, query="nothing has these words")) == []
    assert texts(window(kb, goals=[goal("unknown", X)])) == []
    for asked in ({"goals": goals}, {"query": "tea"}):
        assert len(window(kb, fill="salience", **asked).entries) == 6 + ("goals" in asked)
    assert len(window(kb).entries) == len(window(kb, fill="salience").entries) == 6
    assert texts(window(kb, fill="none")) == []
    buckets = [Bucket("first", ("noise",)), Bucket("second", ("drinks", "parent"))]
    found = window(kb, query="tea", buckets=buckets)
    assert [(entry.text, entry.category) for entry in found.entries] == [
        ('drinks(ann, "green tea")', "second")
    ]


def test_buckets_beside_goals_ask_for_facts_too(kb):
    family(kb)
    tell(kb, "noise", "x")
    tell(kb, "likes", "ann", "tea")
    asked = {"goals": [goal("parent", "ann", X)], "buckets": [Bucket("taste", ("likes",))]}
    assert texts(window(kb, **asked)) == ["parent(ann, bob)", "likes(ann, tea)"]
    assert texts(window(kb, fill="none", **asked)) == ["parent(ann, bob)"]
    assert len(window(kb, fill="salience", **asked).entries) == 6


def test_a_diff_with_goals_for_a_session_without_drops_the_padding(kb):
    family(kb)
    window(kb, session="s")
    found = kb.context_diff("s", {"goals": [goal("parent", "ann", X)]})
    assert len(found.removed) == 3
    assert found.unchanged == 1


def test_weak_matches_are_cut_at_a_share_of_the_best(kb):
    tell(kb, "said", "ann", "green tea")
    tell(kb, "said", "bob", "tea is something people drink in the afternoon")
    full = window(kb, query="green tea", explain=True)
    weak = full.entries[1].why["relevance"]
    assert len(window(kb, query="green tea", min_relevance=weak - 0.01).entries) == 2
    assert len(window(kb, query="green tea", min_relevance=weak + 0.01).entries) == 1
    assert len(window(kb, query="green tea", min_relevance=1.0).entries) == 1


@pytest.mark.parametrize("form", ["facts", "natural"])
def test_a_question_that_no_fact_covers_has_an_empty_window_that_says_so(kb, form):
    tell(kb, "prefers", "ann", "green tea")
    tell(kb, "lives_in", "ann", "oslo")
    question = "which allergies does ann have"
    assert len(window(kb, query=question, format=form).entries) == 2
    empty = window(kb, query=question, format=form, min_coverage=0.5)
    assert empty.entries == ()
    assert "Nothing relevant to the query is known" in empty.text
    assert render(empty, form) == empty.text
    assert window(kb, query=question, format=form, min_coverage=0.01).text.count("ann") > 0
    assert window(kb, query=question, format=form, min_coverage=0.5, max_tokens=5).text == ""


def test_coverage_counts_the_rarest_words_most_and_the_asker_for_i(kb):
    kb.assert_facts([Fact("knows", ("ann", f"p{at}")) for at in range(30)])
    tell(kb, "prefers", "bob", "tea")
    assert len(window(kb, query="ann", min_coverage=1.0).entries) == 30
    assert not window(kb, query="ann tea", min_coverage=1.0).entries
    assert not window(kb, query="ann unheard", min_coverage=0.5).entries
    assert texts(window(kb, query="ann tea", min_coverage=0.6))[0] == "prefers(bob, tea)"
    assert not window(kb, query="what do I prefer", min_coverage=1.0).entries
    mine = window(kb, query="what do I prefer", asker="bob", min_coverage=1.0)
    assert texts(mine)[0] == "prefers(bob, tea)"
    assert not window(kb, query="what do I prefer", asker="ann", min_coverage=1.0).entries
    assert not window(kb, query="prefer", predicates=("knows",), min_coverage=0.1).entries


def test_an_uncovered_question_beside_goals_and_fill_is_noted(kb):
    tell(kb, "likes", "zed", "fish")
    tell(kb, "lives_in", "ann", "oslo")
    empty = window(
        kb, query="allergies", min_coverage=0.5, goals=[goal("likes", X, X)], format="natural"
    )
    assert empty.text == "Nothing relevant to the query is known."
    filled = window(kb, query="allergies", min_coverage=0.5, fill="salience", format="natural")
    assert filled.text.startswith("Nothing relevant to the query is known.\nOther facts:\n")
    assert len(filled.entries) == 2


def test_matches_of_other_predicates_do_not_displace_requested_ones(kb):
    kb.assert_facts([Fact("noise", (f"tea {at}",)) for at in range(300)])
    tell(kb, "wanted", "a long text in which tea is one of very many words that are said")
    assert len(window(kb, query="tea", predicates=("wanted",), max_facts=5).entries) == 1
    assert "wanted" in [
        e.predicate for e in window(kb, query="tea", max_facts=5, max_per_predicate=2).entries
    ]


def test_first_person_words_are_found(kb):
    tell(kb, "said", "D1:3", "I prefer jasmine")
    tell(kb, "said", "D1:4", "they prefer coffee")
    assert window(kb, query="what do I prefer").entries[0].args[0] == "D1:3"


def test_facts_about_the_asker_come_first(kb, clock):
    tell(kb, "prefers", "ann", "tea")
    clock.advance(24 * HOUR)
    tell(kb, "prefers", "bob", "coffee")
    tell(kb, "lives_in", "ann", "oslo")
    assert texts(window(kb, query="what do I prefer?", asker="bob"))[0] == "prefers(bob, coffee)"
    assert texts(window(kb, query="what do I prefer?", asker="ann"))[0] == "prefers(ann, tea)"
    assert (
        texts(window(kb, query="which drink does one prefer", asker="ann"))[0]
        == "prefers(ann, tea)"
    )
    assert set(texts(window(kb, query="who am I", asker="ann"))) == {
        "prefers(ann, tea)",
        "lives_in(ann, oslo)",
    }
    assert texts(window(kb, query="who am I", asker="nobody known")) == []


def test_facts_about_the_asker_are_found_behind_many_better_matches(kb):
    kb.assert_facts([Fact("said", (f"p{at}", "tea")) for at in range(500)])
    tell(kb, "said", "ann", "tea, in the afternoon")
    assert window(kb, query="who had tea", asker="ann", max_facts=3).entries[0].args[0] == "ann"


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("minRelevance", {"min_relevance": 1.1}),
        ("minCoverage", {"min_coverage": -0.1}),
        ("fill", {"fill": "all"}),
    ],
)
def test_requests_are_checked(kb, field, asked):
    with pytest.raises(InvalidInput, match=field):
        kb.context(WindowRequest(query="tea", **asked))
