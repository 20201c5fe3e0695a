"""Context windows: what goals rest on comes first, within a budget, without contradictions, and diffs are exact."""

from __future__ import annotations

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.context.request import Bucket, WindowRequest
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.reason.budget import BudgetWanted
from kbcore.state.facts import Fact
from kbplanner.parser import parse_rule
from kbplanner.terms import Atom, Literal, Variable

T0 = 1_700_000_000_000
HOUR = 3_600_000
X, Y = Variable("x"), Variable("y")


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture(params=["c", "python"])
def node(clock, request):
    with runtime(clock=clock, engine=request.param, engine_verify=True) as found:
        yield found


@pytest.fixture
def kb(node):
    return node.knowledge_base()


def tell(kb, predicate, *args, **more):
    kb.assert_facts([Fact(predicate, args, **more)])


def goal(predicate, *args, negated=False):
    return Literal(Atom(predicate, args), negated)


def window(kb, **asked):
    return kb.context(WindowRequest(**asked))


def texts(found):
    return [entry.text for entry in found.entries]


def family(kb):
    for parent, child in (("ann", "bob"), ("bob", "cy"), ("bob", "dee"), ("eve", "fay")):
        tell(kb, "parent", parent, child)
    kb.assert_rules([parse_rule("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).")])


def test_the_most_salient_facts_come_first(kb, clock):
    for name in "abcd":
        tell(kb, "p", name)
        clock.advance(HOUR)
    assert texts(window(kb, max_facts=3)) == ["p(d)", "p(c)", "p(b)"]
    assert texts(window(kb, max_facts=9, predicates=("q",))) == []


def test_being_in_a_window_is_an_access(kb):
    for name in "ab":
        tell(kb, "p", name)
    (first,) = window(kb, max_facts=1).entries
    rows = {row["args"][0]: row["salience"] for row in kb.salient("p")}
    assert rows.pop(first.args[0]) > min(rows.values())


def test_a_session_accesses_a_fact_once_a_generation(kb):
    tell(kb, "p", "a")

    window(kb, session="s")
    once = kb.context_summary().salient[0].salience
    for at in range(5):
        window(kb, session="s", max_facts=2 + at)
        kb.context_diff("s", {"max_facts": 20 + at})
    assert kb.context_summary().salient[0].salience == once
    tell(kb, "q", "b")  # another generation
    window(kb, session="s")
    twice = {entry.text: entry.salience for entry in kb.context_summary().salient}["p(a)"]
    assert twice > once
    window(kb, session="other")
    assert {entry.text: entry.salience for entry in kb.context_summary().salient}["p(a)"] > twice


def test_a_goal_brings_its_answers_and_what_they_rest_on(kb, clock):
    family(kb)
    clock.advance(5 * HOUR)
    for number in range(20):
        tell(kb, "noise", str(number))
    found = window(kb, max_facts=10, goals=[goal("grandparent", "ann", X)])
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


def test_without_room_whole_proofs_come_first(kb):
    family(kb)
    found = window(kb, max_facts=4, goals=[goal("grandparent", "ann", X)], explain=True)
    assert texts(found) == ["grandparent(ann, cy)", "parent(ann, bob)", "parent(bob, cy)", "parent(bob, dee)"] or texts(
        found
    ) == ["grandparent(ann, cy)", "parent(ann, bob)", "parent(bob, cy)", "grandparent(ann, dee)"]
    assert found.cut["goals"][0] | {"partial": []} == {
        "goal": "grandparent(ann, ?x)",
        "answers": 2,
        "whole": 1,
        "cut": {"maxFacts": 1},
        "partial": [],
    }
    small = window(kb, max_facts=2, goals=[goal("grandparent", "ann", X)])
    assert texts(small) == ["grandparent(ann, cy)", "grandparent(ann, dee)"]


def test_an_aggregate_brings_everything_it_was_taken_over(kb):
    for number in range(30):
        tell(kb, "paid", "ann", str(number))
    kb.assert_rules([parse_rule("total(?x, sum(?y)) :- paid(?x, ?y).")])
    found = window(kb, goals=[goal("total", "ann", X)], max_facts=31)
    assert texts(found)[0] == "total(ann, 435)"
    assert sum(entry.category == "goal_relevant" for entry in found.entries) == 31
    less = window(kb, goals=[goal("total", "ann", X)], max_facts=30)
    assert [entry.category for entry in less.entries].count("goal_relevant") == 1


def test_a_goal_without_answers_says_what_is_missing(kb):
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
    assert (absent.text, absent.category, absent.provenance.premises) == ("not p(z)", "goal_relevant", ())
    denied = window(kb, goals=[goal("p", "b", negated=True)]).entries[0]
    assert (denied.text, denied.category, denied.provenance) == ("not p(b)", "goal_relevant", None)
    every = window(kb, goals=[goal("p", X, negated=True)]).entries
    assert [(e.text, e.category) for e in every] == [("not p(b)", "goal_relevant"), ("p(a)", "recent")]
    assert window(kb, goals=[goal("p", "a", negated=True)]).entries[0].category == "recent"


def test_the_same_answer_from_two_goals_counts_once(kb):
    tell(kb, "p", "a")
    found = window(kb, goals=[goal("p", "a"), goal("p", X)])
    assert (texts(found), found.savings) == (["p(a)"], 1)


def test_no_goal_starves_another(kb):
    for number in range(9):
        tell(kb, "p", str(number))
    tell(kb, "q", "a")
    assert "q(a)" in texts(window(kb, max_facts=3, goals=[goal("p", X), goal("q", X)]))


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
    buckets = [Bucket("first", ("p",), 3.0), Bucket("second", ("q",), 1.0), Bucket("none", ("nothing",), 1.0)]
    found = window(kb, max_facts=10, buckets=buckets)
    assert {name: (one.facts_included, one.max_allocation) for name, one in found.buckets.items()} == {
        "first": (6, 6),
        "second": (2, 2),
        "none": (0, 2),
    }
    assert [entry.category for entry in found.entries] == ["first"] * 6 + ["second"] * 2 + ["overflow"] * 2
    many = window(kb, max_facts=3, buckets=[Bucket(f"b{i}") for i in range(5)])
    assert [one.max_allocation for one in many.buckets.values()] == [1, 1, 1, 0, 0]
    assert len(many.entries) == 3


def test_a_minimum_of_salience_is_not_for_what_goals_rest_on(kb, clock):
    family(kb)
    clock.advance(20 * HOUR)
    tell(kb, "p", "new")
    assert texts(window(kb, min_salience=0.5)) == ["p(new)"]
    assert len(window(kb, min_salience=0.9, goals=[goal("grandparent", "ann", X)]).entries) == 5


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


def test_facts_behind_their_summary_are_left_out(kb):
    for number in range(6):
        tell(kb, "visit", "ann", str(number))
    kb.consolidate()
    found = window(kb)
    assert texts(found) == ["visit_consolidated(ann, 6)"]
    assert (found.entries[0].category, found.savings, found.available) == ("consolidated", 6, 7)
    asked = window(kb, goals=[goal("visit", "ann", "3")])
    assert texts(asked) == ["visit(ann, 3)", "visit_consolidated(ann, 6)"]
    assert len(window(kb, predicates=("visit",)).entries) == 6


def test_categories(kb, clock):
    tell(kb, "p", "old")
    clock.advance(6 * 60_000)
    tell(kb, "p", "new")
    tell(kb, "p", "short", ttl=HOUR)
    found = {entry.args[0]: entry.category for entry in window(kb).entries}
    assert found == {"old": "asserted", "new": "recent", "short": "ephemeral"}


def test_what_is_not_valid_now_is_not_there(kb, clock):
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
    found = window(kb, max_facts=3, query="Which colours does Ann like?", explain=True)
    assert texts(found)[:2] == ["favourite_colour(ann, green)", "lives_in(ann, oslo)"]
    assert found.entries[0].why["lexical"] > found.entries[1].why["lexical"] > found.entries[2].why["lexical"] == 0
    assert texts(window(kb, max_facts=1, query="nothing has these words"))[0].startswith("noise")
    goals = [goal("noise", "7")]
    assert texts(window(kb, max_facts=2, query="colours", goals=goals)) == ["noise(7)", "favourite_colour(ann, green)"]


def test_explanations(kb):
    family(kb)
    found = window(kb, max_facts=3, goals=[goal("grandparent", "ann", "cy")], explain=True)
    answer, premise, _ = found.entries
    assert answer.why["reason"] == "answer of grandparent(ann, cy)"
    assert premise.why["reason"] == "grandparent(ann, cy) rests on it"
    assert premise.why["relevance"] == 0.9
    parts = [premise.why[name] for name in ("recency", "frequency", "priority")]
    assert sum(parts) == pytest.approx(premise.why["salience"])
    assert found.cut["notIncluded"] == 2
    assert window(kb, max_facts=2).entries[0].why is None


def test_the_same_request_twice_gives_the_same_window(kb, clock):
    for number in range(50):
        tell(kb, "p", str(number))
        clock.advance(60_000)
    asked = WindowRequest(max_facts=7, include_rules=True)
    first = kb.context(asked)
    assert all(kb.context(asked) == first for _ in range(5))
    clock.advance(60_000)
    assert set(texts(kb.context(asked))) == set(texts(first))


def test_diffs_follow_a_session(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "b", ttl=60_000)
    first = window(kb, session="s", predicates=("p",), max_facts=10)
    tell(kb, "p", "c/d")
    tell(kb, "q", "not asked for")
    clock.advance(60_000)
    found = kb.context_diff("s", {})
    assert found.previous == first.id
    assert [entry.key for entry in found.added] == ["p/c%2Fd"]
    assert [entry.key for entry in found.removed] == ["p/b"]
    assert (found.unchanged, found.refresh) == (1, True)
    again = kb.context_diff("s", {})
    assert (again.previous, again.current, again.unchanged) == (found.current, found.current, 2)
    assert kb.context_diff("s", {"max_facts": 1}).unchanged == 1


def test_sessions_end(kb, node, clock):
    tell(kb, "p", "a")
    window(kb, session="s")
    clock.step(2 * HOUR)  # no time passes on the monotonic clock
    assert kb.context_diff("s", {}).previous is not None
    clock.advance(HOUR)
    assert kb.context_diff("s", {}).previous is None
    window(kb, session="s")
    kb.clear_session("s")
    assert kb.context_diff("s", {}).refresh
    window(kb, session="s")
    for number in range(1000):
        window(kb, session=f"s{number}", max_facts=1)
    assert kb.context_diff("s", {}).current == "none"
    assert kb.context_diff("s0", {}).unchanged == 1
    node.admin().nuke_tenant("default", "default")
    assert kb.context_diff("s0", {}).current == "none"


def test_inside_a_transaction_a_window_has_what_was_written_there(kb, node):
    tell(kb, "p", "a")
    id = node.begin("default", "default")
    for name in "bc":
        with node.in_transaction("default", "default", id) as inside:
            tell(inside, "p", name)
        with node.in_transaction("default", "default", id, writes=False) as inside:
            assert f"p({name})" in texts(window(inside))
    assert texts(window(kb)) == ["p(a)"]


def test_scopes_stay_apart(kb):
    tell(kb, "p", "a")
    tell(kb, "p", "a", scope="s", positive=False)
    assert texts(window(kb)) == ["p(a)"]
    assert texts(window(kb, scope="s")) == ["not p(a)"]
    both = window(kb, scope="*")
    assert [entry.key for entry in both.entries] == ["p/a", "not:p/a@s"]
    assert both.contradictions_found == 0


def test_a_budget_is_met(kb):
    for number in range(60):
        tell(kb, "edge", str(number), str(number + 1))
    rules = ("path(?x, ?y) :- edge(?x, ?y).", "path(?x, ?z) :- path(?x, ?y), edge(?y, ?z).")
    kb.assert_rules([parse_rule(rule) for rule in rules])
    with pytest.raises(BudgetExceeded):
        kb.context(WindowRequest(goals=[goal("path", X, Y)]), wanted=BudgetWanted(rows=10))


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
