"""The level of labels that the answers of a predicate require."""

from __future__ import annotations

from typing import Any

import pytest
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.errors import Conflict, Forbidden, InvalidInput, RuleSyntaxError
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbplanner.syntax.parser import parse_body, parse_declaration
from kbplanner.syntax.printer import print_declaration

DECLARED = """
@levels trust: web < tool < user.
@requires pay(?invoice, ?account) trust >= user.
pay(?invoice, ?account) :- invoice(?invoice, ?firm), account(?firm, ?account), not blocked(?firm).
invoice(inv1, acme). invoice(inv2, bolt).
account(acme, de01).
account(bolt, fr02) [trust=tool].
"""


@pytest.fixture
def kb() -> Any:
    with kbcore.open_kb() as opened:
        opened.teach(DECLARED)
        yield opened


def names(kb: kbcore.KnowledgeBase, goal: str) -> list[str]:
    return sorted(" ".join(map(str, answer)) for answer in kb.ask(goal))


def test_a_declaration_is_read_and_printed() -> None:
    for text in ("@requires pay(?who, ?sum) trust >= user.", "@requires stop trust >= user."):
        assert print_declaration(parse_declaration(text)) == text
    assert print_declaration(parse_declaration("@requires p(_) trust >= user.")) == (
        "@requires p(_) trust >= user."
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@requires pay(?a, ?b) trust > user.", '">="'),
        ("@requires pay(?a, ?a) trust >= user.", "different"),
        ("@requires pay(a) trust >= user.", "variables"),
        ("@requires pay(?a).", "a predicate with variables, the name of levels"),
        ("@requires pay(?a) trust >= user [scope=s].", "whole tenant"),
    ],
)
def test_a_mistake_in_a_declaration(kb: Any, text: str, problem: str) -> None:
    with pytest.raises(RuleSyntaxError, match=problem):
        kb.teach(text)


def test_the_level_must_be_declared(kb: Any) -> None:
    for text in ("@requires p(?x) trust >= owner.", "@requires p(?x) care >= high."):
        with pytest.raises(InvalidInput, match="no @levels"):
            kb.teach(text)
    kb.teach("@levels care: low < high. @requires p(?x) care >= high.")
    with pytest.raises(InvalidInput, match="no @levels"):
        kb.retract_rule("@care labels")
    kb.retract_rule("@p/1 requires")
    kb.retract_rule("@care labels")


def test_an_answer_below_is_not_given(kb: Any) -> None:
    kb.viewed(labels={"trust": "web"}).tell("account(acme, xx99). blocked(acme).")
    assert names(kb, "pay(?invoice, ?account)") == ["inv1 de01"]
    assert names(kb.viewed({"trust": "tool"}), "pay(?invoice, ?account)") == ["inv1 de01"]
    assert names(kb, "account(?firm, ?account)") == ["acme de01", "acme xx99", "bolt fr02"]
    assert not kb.ask("pay(inv1, xx99)")
    assert not kb.ask("pay(inv2, fr02)")
    assert kb.ask("not pay(inv2, fr02)")
    assert kb.prove("pay(inv2, fr02)") == []
    assert len(kb.prove("pay(inv1, ?x)")) == 1


def test_why_not_names_the_level(kb: Any) -> None:
    why = kb.why_not("pay(inv2, fr02)")
    assert why.falls_short == "pay(inv2, fr02) follows at level tool; user is required"
    assert why.falls_short in why.text
    assert kb.explain("pay(inv2, fr02)") == why.falls_short
    assert kb.why_not("pay(inv2, other)").falls_short is None
    assert kb.viewed({"trust": "user"}).why_not("pay(inv2, fr02)").falls_short is None


def test_what_is_asked_otherwise_is_refused(kb: Any) -> None:
    for ask in (
        lambda: kb.ask_many(["pay(?x, ?y)"]),
        lambda: kb.deploy(
            "invoice(inv4, acme).",
            name="n",
            dry_run=True,
            impact_goals=["invoice(?x, _), not pay(?x, de01)"],
        ),
    ):
        with pytest.raises(InvalidInput, match="pay/2 requires trust >= user"):
            ask()
    with kb.transaction() as transaction:
        assert names(transaction, "pay(?x, ?y)") == names(kb, "pay(?x, ?y)")


def test_a_goal_with_several_atoms_follows_at_the_level(kb: Any) -> None:
    kb.viewed(labels={"trust": "web"}).tell("invoice(inv1, other). blocked(acme).")
    user = kb.viewed({"trust": "user"})
    goal = "pay(?x, ?y), invoice(?x, ?z)"
    assert names(kb, goal) == names(user, goal) == ["inv1 de01 acme"]
    assert names(kb, "invoice(?x, ?z), not pay(?x, de01)") == names(
        user, "invoice(?x, ?z), not pay(?x, de01)"
    )
    with kb.transaction() as transaction:
        assert names(transaction, goal) == ["inv1 de01 acme"]


def test_a_goal_with_several_requirements_follows_at_all_levels(kb: Any) -> None:
    kb.teach("@levels care: low < high. @requires seen(?x) care >= high. seen(?x) :- note(?x).")
    kb.tell("note(inv1) [care=low]")
    kb.tell("note(inv2)")
    assert names(kb, "seen(?x), invoice(?x, _)") == ["inv2"]
    assert names(kb, "seen(?x), pay(?x, _)") == []


def test_a_window_with_such_a_goal_is_of_the_level(kb: Any) -> None:
    kb.viewed(labels={"trust": "web"}).tell("account(acme, xx99). invoice(inv9, acme).")
    user = kb.viewed({"trust": "user"})
    seen, expected = kb.context(goals=["pay(?x, ?y)"]), user.context(goals=["pay(?x, ?y)"])
    assert seen.text == expected.text
    assert "xx99" not in seen.text
    assert "de01" in seen.text
    kb.context(goals=["invoice(?x, ?y)"], session="s")
    kb.context(goals=["pay(?x, ?y)"], session="s")
    kb.tell("invoice(inv7, acme)")
    change = kb.context_diff("s")
    assert any("inv7" in str(each) for each in change.added)
    assert not any("inv9" in str(each) for each in change.added)
    kb.clear_session("s")
    assert kb.kb.last_window("s") is None


def test_a_standing_goal_is_kept_at_the_level(kb: Any) -> None:
    web = kb.viewed(labels={"trust": "web"})
    for id, keep in (("memory", None), ("durable", DurableSubscription())):
        found = kb.kb.subscribe_goal(parse_body("pay(?x, ?y)"), id=id, keep=keep)
        assert [row["args"] for row in found.answers] == [["inv1", "de01"]]
        web.tell("account(acme, xx99). blocked(acme).")
        since = found.event_id
        assert kb.kb.goal_changes(id, since) == []
        kb.tell(f"invoice({id}, acme)")
        (change,) = kb.kb.goal_changes(id, since)
        assert [row["args"] for row in change.appeared] == [[id, "de01"]]
        assert kb.kb.standing_goal(id).id == id
        assert len(kb.kb.goal_answers(id).answers) == len(names(kb, "pay(?x, ?y)"))
        assert [goal.id for goal in kb.kb.standing_goals()] == [id]
        tool = kb.viewed({"trust": "tool"})
        assert tool.kb.standing_goal(id).id == id  # asks it at the same level
        assert kb.kb.end_goal(id)
        assert not kb.kb.end_goal(id)
        kb.retract(f"invoice({id}, acme)")


def test_rules_that_read_it_require_as_much(kb: Any) -> None:
    rule = "due(?x) :- pay(?x, _)."
    with pytest.raises(InvalidInput, match="pay/2 requires trust >= user, so a rule reads it"):
        kb.teach(rule)
    with pytest.raises(InvalidInput, match="pay/2 requires"):
        kb.teach("@requires due(?x) trust >= tool. " + rule)
    with pytest.raises(InvalidInput, match="pay/2 requires"):
        kb.deploy(rule, name="small")
    with pytest.raises(InvalidInput, match="pay/2 requires"), kb.transaction() as transaction:
        transaction.teach(rule)
    kb.teach("@requires due(?x) trust >= user. " + rule)
    assert names(kb, "due(?x)") == ["inv1"]


def test_facts_and_rules_below_are_not_stored(kb: Any) -> None:
    web = kb.viewed(labels={"trust": "web"})
    for write in (
        lambda: web.tell("pay(inv3, x)"),
        lambda: web.tell_many("pay", [("inv3", "x")]),
        lambda: web.teach("pay(?x, a) :- invoice(?x, _)."),
        lambda: kb.tell("pay(inv3, x) [trust=tool]"),
    ):
        with pytest.raises(Forbidden) as refused:
            write()
        assert refused.value.details == {"dimension": "trust"}
    kb.tell("pay(inv3, x)")
    assert names(kb, "pay(inv3, ?x)") == ["inv3 x"]


def test_a_requirement_is_not_declared_over_what_is_below(kb: Any) -> None:
    kb.tell("vote(ann) [trust=web]")
    with pytest.raises(Conflict, match="facts below are stored"):
        kb.teach("@requires vote(?who) trust >= user.")
    kb.teach("won(?x) :- poll(?x) [trust=web].")
    with pytest.raises(Conflict, match="rules below are stored"):
        kb.teach("@requires won(?who) trust >= user.")
    with pytest.raises(InvalidInput, match="poll/1 requires"):
        kb.teach("@requires poll(?who) trust >= user.")
    kb.kb.subscribe_goal(parse_body("stop(?x)"))
    with pytest.raises(Conflict, match="a standing goal asks it"):
        kb.teach("@requires stop(?who) trust >= user.")
    assert [each.id for each in kb.requirements()] == ["@pay/2 requires"]


def test_a_requirement_meets_the_standing_goals_of_views(kb: Any) -> None:
    kb.teach("@groups team: hr, eng.")
    eng, user = kb.viewed({"team": ["eng"]}), kb.viewed({"trust": "user"})
    body = parse_body("vote(?x), not won(?x)")
    for goal in ({}, {"keep": DurableSubscription()}):
        eng.kb.subscribe_goal(body, id="g", **goal)
        with pytest.raises(Conflict, match="a standing goal asks it"):
            kb.teach("@requires won(?who) trust >= user.")
        eng.kb.end_goal("g")
    user.kb.subscribe_goal(body, id="g")  # sees nothing below that
    kb.teach("@requires won(?who) trust >= user.")


def test_a_requirement_of_now_holds_for_earlier_states() -> None:
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.teach("@levels trust: web < user. won(?x) :- poll(?x).")
        kb.tell("poll(ann) [trust=web]")
        earlier = clock.now_ms()
        clock.advance(1000)
        assert names(kb.known_at(earlier), "won(?x)") == ["ann"]
        kb.teach("@requires won(?who) trust >= user.")
        clock.advance(1000)
        for ask in (
            lambda then: then.ask("won(?x)").count(),
            lambda then: then.ask("poll(?x), won(?x)").count(),
            lambda then: then.prove("won(?x)"),
            lambda then: then.context(goals=["won(?x)"]),
        ):
            with pytest.raises(InvalidInput, match="won/1 requires trust >= user"):
                ask(kb.known_at(earlier))


def test_a_requirement_survives_a_restart_and_a_dump(tmp_path: Any) -> None:
    with kbcore.open_kb(path=str(tmp_path)) as kb:
        kb.teach(DECLARED)
        dump = kb.dump()
    with kbcore.open_kb(path=str(tmp_path)) as kb, kbcore.open_kb() as copy:
        copy.load(dump)
        for each in (kb, copy):
            assert names(each, "pay(?x, ?y)") == ["inv1 de01"]
            assert each.dump() == dump


def test_a_condition_of_sql_is_of_the_level(kb: Any) -> None:
    kb.teach("@requires may(?who) trust >= user. may(?who) :- person(?who), not barred(?who).")
    kb.tell("barred(ann) [trust=web]. barred(bob).")
    text = kb.sql("may(?who)", ["people=person(name)"])
    assert "bob" in text
    assert "ann" not in text
