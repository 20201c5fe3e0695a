"""Recursion through negation in a knowledge base: three truth values after every write, and
budgets.
"""

from __future__ import annotations

import threading

import pytest
from support.runtimes import runtime, runtime_on

from kbcore.clock import ManualClock
from kbcore.errors import BudgetExceeded
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_goal, parse_rule

T0 = 1_700_000_000_000
WIN = "win(?x) :- move(?x, ?y), not win(?y)."


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture(params=["c", "python"])
def kb(request, clock):
    with runtime_on(request.param, clock=clock, engine_verify=True) as node:
        yield node.knowledge_base()


def moves(kb, text, **more):
    kb.assert_facts([Fact("move", tuple(pair), **more) for pair in text.split()])


def ask(kb, goal, **more):
    (literal,) = parse_goal(goal).body
    return [row["args"][0] for row in kb.infer(literal, AnswerOptions(**more))]


def both(kb, goal, **more):
    """What is true, and what is undefined."""
    (literal,) = parse_goal(goal).body
    rows = kb.infer(literal, AnswerOptions(include_undefined=True, **more))
    undefined = [row["args"][0] for row in rows if row["metadata"].get("truth") == "undefined"]
    true = [row["args"][0] for row in rows if "truth" not in row["metadata"]]
    assert ask(kb, goal, **more) == true
    return true, undefined


def test_a_game_has_won_lost_and_drawn_positions(kb):
    outcome = kb.assert_rules([parse_rule(WIN)], defined=[("move", 2)])
    assert outcome.warnings == (
        (
            "recursion through negation: win/1 (answers follow the well-founded semantics, "
            "includeUndefined shows what is neither true nor false)"
        ),
    )
    moves(kb, "ab bc dd")
    assert both(kb, "win(?x)") == (["b"], ["d"])
    assert both(kb, "not win(a)") == (["a"], [])
    assert both(kb, "not win(b)") == ([], [])
    assert both(kb, "not win(d)") == ([], ["d"])
    assert both(kb, "not win(nowhere)") == (["nowhere"], [])


def test_undefined_values_propagate_through_rules(kb):
    texts = [
        "lost(?x) :- move(?x, _), not win(?x).",
        "near(?x, ?y) :- move(?x, ?y), win(?y).",
        "near(?x, ?z) :- move(?x, ?y), near(?y, ?z).",
        "safe(?x) :- move(?x, _), not near(?x, _).",
        "sure(?x) :- win(?x). sure(?x) :- chosen(?x).",
    ]
    kb.assert_rules(
        [
            parse_rule(WIN),
            *(parse_rule(t + ".") for text in texts for t in text.rstrip(".").split(". ")),
        ]
    )
    moves(kb, "ab bc dd ed fb")
    kb.assert_facts([Fact("chosen", ("d",))])
    assert both(kb, "lost(?x)") == (["a", "f"], ["d", "e"])
    assert both(kb, "near(?x, b)") == (["a", "f"], [])
    assert both(kb, "near(?x, d)") == ([], ["d", "e"])
    assert both(kb, "safe(?x)") == (["b"], ["d", "e"])
    assert both(kb, "sure(?x)") == (["b", "d"], ["e"])
    assert both(kb, "not safe(d)") == ([], ["d"])


def test_a_component_over_one_with_undefined_rows(kb):
    rules = [
        WIN,
        "even(?x) :- step(?x, ?y), not even(?y), not win(?x).",
        "odd(?x) :- step(?x, ?y), even(?y), win(?y).",
    ]
    kb.assert_rules([parse_rule(text) for text in rules])
    moves(kb, "ab bc dd")
    kb.assert_facts([Fact("step", tuple(pair)) for pair in ("ac", "bc", "dc", "ed", "fa", "gf")])
    assert both(kb, "even(?x)") == (["a", "g"], ["d", "e"])
    assert both(kb, "odd(?x)") == ([], ["e"])


def test_answers_follow_every_kind_of_write(kb, clock):
    kb.assert_rules([parse_rule(WIN)])
    moves(kb, "ab bc")
    assert ask(kb, "win(?x)") == ["b"]
    moves(kb, "cd")
    assert ask(kb, "win(?x)") == ["a", "c"]
    kb.retract_fact("move", ("b", "c"))
    assert ask(kb, "win(?x)") == ["a", "c"]
    kb.retract_fact("move", ("c", "d"))
    assert ask(kb, "win(?x)") == ["a"]
    added = kb.assert_rules([parse_rule("move(?x, ?y) :- jump(?x, ?y), not closed(?y).")]).rules[0]
    kb.assert_facts([Fact("jump", ("b", "e"))])
    assert ask(kb, "win(?x)") == ["b"]
    kb.assert_facts([Fact("closed", ("e",), valid_from=T0 + 50, valid_until=T0 + 100)])
    assert [ask(kb, "win(?x)")] + [
        ask(kb, "win(?x)") for _ in range(3) if clock.advance(40) is None
    ] == [
        ["b"],
        ["b"],
        ["a"],
        ["b"],
    ]
    assert ask(kb, "win(?x)", as_of=T0 + 60) == ["a"]
    kb.assert_facts([Fact("win", ("e",))])
    assert ask(kb, "win(?x)") == ["a", "e"]
    kb.assert_facts([Fact("win", ("b",), False)])
    assert both(kb, "not win(b)") == (["b"], [])
    kb.retract_rule(id=added.id)
    assert ask(kb, "win(?x)") == ["a", "e"]


def test_scopes_have_models_of_their_own(kb):
    kb.assert_rules([parse_rule(WIN)])
    moves(kb, "ab")
    moves(kb, "ab bc", scope="s")
    assert (ask(kb, "win(?x)"), ask(kb, "win(?x)", scope="s")) == (["a"], ["b"])
    moves(kb, "cc", scope="s")
    assert both(kb, "win(?x)", scope="s") == ([], ["a", "b", "c"])
    assert ask(kb, "win(?x)") == ["a"]


def test_explicit_negatives_take_part(kb):
    rules = [
        "flies(?x) :- bird(?x), not ~flies(?x).",
        "~flies(?x) :- bird(?x), odd(?x), not flies(?x).",
    ]
    assert "flies/1, ~flies/1" in kb.assert_rules([parse_rule(text) for text in rules]).warnings[0]
    kb.assert_facts([Fact("bird", ("tux",)), Fact("bird", ("tweety",)), Fact("odd", ("tux",))])
    assert both(kb, "flies(?x)") == (["tweety"], ["tux"])
    assert both(kb, "~flies(?x)") == ([], ["tux"])
    kb.assert_facts([Fact("flies", ("tux",), False)])
    assert both(kb, "flies(?x)") == (["tweety"], [])


def test_not_any_of_a_predicate_that_can_be_denied_in_the_same_cycle(kb):
    # `not p(_)` holds where every p is denied: it grows with ~p, which depends on it; so h needs
    # itself and is false.
    rules = [
        "h(?x) :- d(?x), not p(?x, _).",
        "~p(?x, ?y) :- p(?x, ?y), h(?x).",
        "q(?x) :- d(?x), not h(?x), not q(?x).",
    ]
    kb.assert_rules([parse_rule(text) for text in rules])
    kb.assert_facts([Fact("d", ("a",)), Fact("d", ("b",)), Fact("p", ("a", "1"))])
    assert both(kb, "h(?x)") == (["b"], [])
    assert both(kb, "q(?x)") == ([], ["a"])
    kb.assert_facts([Fact("p", ("a", "1"), False)])
    assert both(kb, "h(?x)") == (["a", "b"], [])


def test_an_aggregate_over_something_undefined_is_undefined(kb):
    wins, rich = (
        "wins(?o, count(?x)) :- owner(?o, ?x), win(?x).",
        "rich(?o) :- wins(?o, ?n), ?n >= 2.",
    )
    poor = "poor(?o) :- owner(?o, _), not rich(?o)."
    kb.assert_rules([parse_rule(text) for text in (WIN, wins, rich, poor)])
    moves(kb, "ab cb dd")
    kb.assert_facts(
        [
            Fact("owner", pair)
            for pair in (("ann", "a"), ("ann", "c"), ("bob", "a"), ("bob", "d"), ("cy", "b"))
        ]
    )
    (literal,) = parse_goal("wins(?o, ?n)").body
    assert [row["args"] for row in kb.infer(literal)] == [["ann", "2"]]
    rows = kb.infer(literal, AnswerOptions(include_undefined=True))
    assert [row["args"] for row in rows if "truth" in row["metadata"]] == [
        ["bob", "1"],
        ["bob", "2"],
    ]
    assert both(kb, "wins(ann, ?n)") == (["ann"], [])
    assert both(kb, "rich(?o)") == (["ann"], ["bob"])
    assert both(kb, "poor(?o)") == (["cy"], ["bob"])


def test_true_rows_have_proofs_and_inherit_confidence(kb):
    kb.assert_rules([parse_rule(WIN), parse_rule("happy(?x) :- win(?x).")])
    kb.assert_facts([Fact("move", ("a", "b"), confidence=0.5), Fact("move", ("b", "b"))])
    kb.assert_facts([Fact("move", ("c", "d"), confidence=0.25), Fact("move", ("e", "c"))])
    (row,) = kb.infer(parse_goal("happy(?x)").body[0])
    assert (row["args"], row["confidence"], row["metadata"]) == (
        ["c"],
        0.25,
        {"nonMonotonic": True},
    )
    (shown,) = kb.prove(parse_goal("happy(c)").body[0])
    (win,) = shown["proof"]["step"]["bodyProofs"]
    assert [below["step"]["type"] for below in win["step"]["bodyProofs"]] == [
        "fact_match",
        "negation_as_failure",
    ]
    assert win["step"]["bodyProofs"][1]["step"]["text"] == "not win(d)"
    assert kb.prove(parse_goal("happy(a)").body[0]) == []


def test_conclusions_that_no_longer_hold_after_a_retraction(kb):
    kb.assert_rules(
        [
            parse_rule(WIN),
            parse_rule("reach(?x, ?y) :- move(?x, ?y)."),
            parse_rule("named(?x) :- name(?x)."),
        ]
    )
    moves(kb, "ab bc")
    kb.assert_facts([Fact("name", ("a",))])
    outcome = kb.retract_fact("move", ("b", "c"))
    fell = [(row["predicate"], *row["args"]) for row in outcome.cascaded_atoms]
    assert (outcome.truncated, fell, outcome.newly_derivable) == (
        False,
        [("reach", "b", "c"), ("win", "b")],
        1,
    )
    outcome = kb.retract_fact("name", ("a",))
    assert (outcome.truncated, outcome.cascaded) == (False, 1)


def test_a_goal_of_several_literals_and_its_plan(kb):
    kb.assert_rules([parse_rule(WIN)])
    moves(kb, "ab bc dd")
    body = parse_goal("move(?x, ?y), win(?y), not win(?x)").body
    assert kb.bindings(body, list(body[0].variables())) == [("a", "b")]
    assert "true win/1" in kb.plan(body)
    tenant = kb._read_tenant()
    assert len(tenant.models) == 1  # a goal of its own rule shares the model
    assert "win(b)" in kb.explain(body)


def test_the_longest_chain_is_no_recursion(clock):
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(WIN)])
        count = 100_001
        kb.assert_facts([Fact("move", (f"n{i}", f"n{i + 1}")) for i in range(count)])
        assert len(kb.tuples(parse_goal("win(?x)").body[0].atom)) == count // 2 + 1
        assert kb.infer(parse_goal("win(n0)").body[0])
        assert not kb.infer(parse_goal("win(n1)").body[0])


def test_readers_and_a_writer_at_once_share_models_and_give_memory_back(clock):
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(WIN), parse_rule("lost(?x) :- move(?x, _), not win(?x).")])
        kb.assert_facts([Fact("move", (f"n{i}", f"n{i * 7 % 300}")) for i in range(300)])
        failed: list[BaseException] = []

        def guarded(work):
            try:
                for number in range(30):
                    work(number)
            except BaseException as error:
                failed.append(error)
                raise

        def read(number):
            true, undefined = both_sets(kb)
            assert true.isdisjoint(undefined)

        def write(number):
            kb.assert_facts([Fact("move", (f"n{number}", f"new{number}"))])

        threads = [threading.Thread(target=guarded, args=(work,)) for work in (read, read, write)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        tenant = kb._read_tenant()
        assert len(tenant.models) == 1
        held = tenant.engine.bytes
        for _ in range(20):
            kb.assert_facts([Fact("move", ("n0", "n1"))])
            kb.retract_fact("move", ("n0", "n1"))
            ask(kb, "win(?x)")
        assert tenant.engine.bytes < held + 100_000


def both_sets(kb):
    rows = kb.infer(parse_goal("lost(?x)").body[0], AnswerOptions(include_undefined=True))
    undefined = {row["args"][0] for row in rows if "truth" in row["metadata"]}
    return {row["args"][0] for row in rows} - undefined, undefined


@pytest.mark.parametrize(
    "settings", [{"query_max_rows": 50}, {"query_max_steps": 500}, {"query_max_bytes": 5000}]
)
def test_budgets_are_enforced(clock, settings):
    with runtime(clock=clock, **settings) as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(WIN)])
        kb.assert_facts([Fact("move", (f"n{i}", f"n{i + 1}")) for i in range(200)])
        with pytest.raises(BudgetExceeded):
            ask(kb, "win(?x)")
