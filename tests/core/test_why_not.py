"""`TenantKB.why_not`: options, limits, and what random programs do not reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.runtimes import runtime

from kbcore import BudgetExceeded, KnowledgeBase, open_kb
from kbcore.errors import InvalidInput, UnsafeRule
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_item

FAMILY = """
    parent(ann, bob). parent(bob, cy) [confidence=0.5].
    ancestor(?x, ?y) :- parent(?x, ?y).
    ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
"""


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with open_kb() as kb:
        kb.teach(FAMILY)
        yield kb


def missing(result) -> list[str]:
    return [print_item(candidate.missing) for candidate in result.candidates]


def test_a_goal_that_holds_has_no_candidates(kb):
    result = kb.why_not("ancestor(ann, cy)")
    assert (result.holds, result.truth, result.candidates) == (True, "true", ())
    assert result.text == "ancestor(ann, cy) holds."


def test_the_limit_takes_the_first_instance_of_each_rule_first(kb):
    kb.teach("near(?x) :- parent(?x, ?y), home(?y). near(?x) :- parent(?y, ?x), home(?y).")
    result = kb.why_not("near(?x)", limit=3)
    assert missing(result) == ["home(bob)", "home(ann)", "home(cy)"]
    assert missing(kb.why_not("near(?x)", limit=1)) == ["home(bob)"]


def test_scopes_are_explained_separately(kb):
    kb.tell("parent(cy, dee)", scope="draft")
    result = kb.why_not("ancestor(ann, dee)", scope="*", depth=1)
    assert {candidate.scope for candidate in result.candidates} == {None, "draft"}
    assert not kb.why_not("ancestor(cy, dee)").holds
    assert kb.why_not("ancestor(cy, dee)", scope="draft").holds
    assert kb.why_not("ancestor(cy, dee)", scope="*").holds


def test_a_point_in_time(kb):
    kb.tell("parent(cy, dee)", valid_from="2090-01-01T00:00:00Z")
    assert missing(kb.why_not("ancestor(cy, dee)")) == ["parent(cy, dee)", "parent(cy, ?y)"]
    assert kb.why_not("ancestor(cy, dee)", as_of="2091-01-01T00:00:00Z").holds
    late = kb.why_not("ancestor(cy, eve)", as_of="2091-01-01T00:00:00Z")
    assert missing(late) == ["ancestor(dee, eve)", "parent(cy, eve)"]
    near = kb.why_not("parent(cy, eve)", as_of="2091-01-01T00:00:00Z").near_facts
    assert [fact.args for fact in near] == [("cy", "dee")]
    assert not kb.why_not("parent(cy, eve)").near_facts


def test_answers_with_too_little_confidence(kb):
    result = kb.why_not("ancestor(?x, cy)", min_confidence=0.9)
    assert not result.holds
    assert missing(result) == ["0.5 >= 0.9", "0.5 >= 0.9"]
    assert [candidate.bindings for candidate in result.candidates] == [
        {"?x": "ann", "confidence": "0.5"},
        {"?x": "bob", "confidence": "0.5"},
    ]
    assert kb.why_not("ancestor(?x, cy)", min_confidence=0.5).holds
    assert kb.why_not("not ancestor(cy, ann)", min_confidence=0.5).holds


def test_explicit_negatives_block_and_deny(kb):
    kb.tell("~parent(ann, cy)")
    assert kb.why_not("parent(ann, cy)").denied_by.positive is False
    kb.teach("orphan(?x) :- known(?x), not parent(_, ?x).")
    kb.tell("known(cy). known(bob). ~parent(bob, cy).")
    (candidate,) = kb.why_not("orphan(bob)").candidates
    assert candidate.blocked_by.args == ("ann", "bob")
    # `~parent(bob, cy)` denies the only parent, so that nothing blocks the rule any more.
    assert kb.why_not("orphan(cy)").holds


def test_a_missing_premise_is_followed_down(kb):
    (candidate, _) = kb.why_not("ancestor(ann, zoe)", depth=9).candidates
    texts = []
    while candidate is not None:
        texts.append(print_item(candidate.missing))
        candidate = candidate.because
    assert texts == ["ancestor(bob, zoe)", "ancestor(cy, zoe)", "parent(cy, zoe)"]


def test_unknown_predicates_of_goals_and_of_premises(kb):
    (unknown,) = kb.why_not("ancester(ann, ?x)").unknown_predicates
    assert str(unknown) == "ancester/2 (did you mean ancestor/2?)"
    kb.teach("kin(?x, ?y) :- parnt(?x, ?y).")
    result = kb.why_not("kin(ann, bob)")
    assert [each.suggestion for each in result.unknown_predicates] == ["parent/2"]
    assert "did you mean parent/2?" in result.text


def test_values_of_aggregates(kb):
    kb.teach("children(?x, count(?y)) :- parent(?x, ?y).")
    result = kb.why_not("children(ann, 2)")
    assert result.candidates[0].bindings == {"?x": "ann", "count(?y)": "1"}
    assert result.text.endswith("missing: 1 = 2, where count(?y) is 1")
    kb.teach("total(?x, sum(?y)) :- price(?x, ?y).")
    kb.tell("price(a, none)")
    result = kb.why_not("total(a, 3)")
    assert len(result.candidates) == 1


def test_a_search_that_meets_a_limit_is_truncated_and_right(kb):
    kb.tell_many("e", [(str(i), str(j)) for i in range(60) for j in range(60)])
    kb.teach("far(?x) :- tag(?x), e(?a, ?b), e(?c, ?d), e(?b, ?c), lost(?d).")
    kb.tell("tag(a)")
    goal = parse_goal("far(a)").body
    options = AnswerOptions(request_limits=RequestLimits(rows=2000))
    result = kb.kb.why_not(goal, options)
    assert result.truncated
    assert missing(result)[0].startswith("lost(")
    assert len(result.candidates[0].satisfied) == 4
    assert "stopped by its limits" in result.text


def test_a_goal_that_cannot_be_decided_within_the_limits(kb):
    kb.teach("num(?y) :- num(?x), ?y = ?x + 1. odd(?x) :- num(?x), ?x < 0.")
    kb.tell("num(1)")
    with pytest.raises(BudgetExceeded):
        kb.kb.why_not(
            parse_goal("odd(?x)").body, AnswerOptions(request_limits=RequestLimits(rows=500))
        )


def test_a_search_counts_no_accesses():
    saliences = []
    with runtime() as node:
        for searched in (False, True):
            tenant = node.knowledge_base(tenant=f"searched-{searched}")
            tenant.assert_facts([Fact("parent", ("ann", "bob"))])
            if searched:
                tenant.why_not(parse_goal("parent(ann, ?x), parent(?x, ?y)").body)
            saliences.append(
                tenant.salient("parent", [Variable("x"), Variable("y")])[0]["salience"]
            )
    assert saliences[0] == saliences[1]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"limit": 101}, "limit"),
        ({"limit": 0}, "limit"),
        ({"depth": 11}, "depth"),
        ({"depth": 0}, "depth"),
        ({"min_confidence": 2}, "min_confidence"),
    ],
)
def test_bad_arguments(kb, arguments, field):
    with pytest.raises(InvalidInput) as raised:
        kb.why_not("ancestor(ann, ?x)", **arguments)
    assert field in raised.value.details["fields"]


def test_bad_goals(kb):
    with pytest.raises(InvalidInput, match="min_confidence"):
        kb.why_not("parent(ann, ?x), parent(?x, ?y)", min_confidence=0.5)
    with pytest.raises(UnsafeRule):
        kb.why_not("parent(ann, ?x), ?z > 3")
    with pytest.raises(UnsafeRule):
        kb.why_not("not ~parent(ann, ?x)")
    with pytest.raises(InvalidInput, match="offset"):
        TenantKB.why_not(kb.kb, parse_goal("p(a)").body, AnswerOptions(offset=1))
