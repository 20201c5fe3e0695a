"""Forks of scopes: reads, writes and deletion."""

from __future__ import annotations

import pytest
from support.forks import RULE, START, names, scoped, told
from support.runtimes import runtime

from kbcore.config import Config
from kbcore.embed import open_kb
from kbcore.errors import AlreadyExists, InvalidInput, NotFound
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS, Atom, Variable
from kbplanner.syntax.parser import parse_rule


def test_a_fork_has_all_facts_and_is_independent(kb, clock):
    kb.assert_facts(
        [
            Fact("p", ("a",), confidence=0.5, metadata={"k": [1]}),
            Fact("p", ("b",), positive=False),
            Fact("p", ("soon",), valid_from=START + 10),
            Fact("p", ("brief",), ttl=5),
            Fact("on", ()),
        ]
    )
    kb.assert_rules([RULE])
    clock.advance(2)
    assert kb.fork_scope(None, "s").copied == 5
    assert kb.scopes() == ["s"]
    both = [
        [{**row, "scope": None} for row in kb.query_rows("p", [ANONYMOUS], scope=scope)]
        for scope in (None, "s")
    ]
    assert both[0] == both[1]
    assert kb.tuples(Atom("q", (Variable("x"),)), AnswerOptions(scope="s")) == [("a",), ("brief",)]
    clock.advance(8)
    assert kb.tuples(Atom("q", (Variable("x"),)), AnswerOptions(scope="s")) == [("a",), ("soon",)]
    kb.assert_facts(
        [Fact("p", ("mine",), scope="s"), Fact("p", ("a",), scope="s", metadata={"k": 2})]
    )
    kb.retract_fact("p", ("soon",), scope="s")
    assert kb.tuples(Atom("q", (Variable("x"),))) == [("a",), ("soon",)]
    assert kb.tuples(Atom("q", (Variable("x"),)), AnswerOptions(scope="s")) == [("a",), ("mine",)]
    assert kb.query_rows("p", ["a"])[0]["metadata"] == {"k": [1]}


def test_rules_of_a_scope_are_forked_and_dropped_with_it(kb):
    told(kb, "s")
    kb.assert_rules([RULE, scoped("only(?x) :- p(?x).", "s")])
    goal = Atom("only", (Variable("x"),))
    kb.fork_scope("s", "t")
    assert kb.tuples(goal, AnswerOptions(scope="t")) == [("a",), ("b",)]
    assert kb.tuples(goal) == []
    kb.drop_scope("s")
    assert [(rule.text, rule.scope) for rule in kb.rules()] == [
        ("q(?x) :- p(?x).", None),
        ("only(?x) :- p(?x).", "t"),
    ]
    assert kb.tuples(goal, AnswerOptions(scope="t")) == [("a",), ("b",)]
    assert kb.scopes() == ["t"]


def test_a_scope_with_rules_only_is_a_scope(kb):
    kb.assert_rules([scoped("r(?x) :- p(?x).", "s")])
    assert kb.scopes() == ["s"]
    with pytest.raises(AlreadyExists):
        kb.fork_scope(None, "s")
    assert kb.fork_scope("s", "t").copied == 0
    assert kb.drop_scope("s") == 0
    assert kb.scopes() == ["t"]


def test_invalid_forks_are_refused(kb):
    for source, target in (("s", "s"), ("*", "s"), (None, "*")):
        with pytest.raises(InvalidInput):
            kb.fork_scope(source, target)
    with pytest.raises(NotFound, match="'nowhere'"):
        kb.fork_scope("nowhere", "s")
    assert kb.fork_scope(None, "s").copied == 0  # the base is there, even if it is empty
    told(kb, "s")
    with pytest.raises(AlreadyExists):
        kb.fork_scope(None, "s")
    assert len(kb.query_rows("p", [ANONYMOUS], scope="s")) == 2
    assert kb.fork_scope(None, "s", overwrite=True).copied == 0
    assert kb.query_rows("p", [ANONYMOUS], scope="s") == []
    with pytest.raises(NotFound):
        kb.drop_scope("nowhere")


def test_a_dropped_scope_has_no_answers(kb):
    kb.assert_rules([RULE, parse_rule("r(?x, ?y) :- p(?x), p(?y).")])
    goals = [(Atom("q", (Variable("x"),)), 2), (Atom("r", (Variable("x"), Variable("y"))), 4)]
    for turn in range(3):
        for goal, _ in goals:
            assert kb.tuples(goal, AnswerOptions(scope="s")) == []
        told(kb, "s")
        for goal, count in goals:
            assert len(kb.tuples(goal, AnswerOptions(scope="s"))) == count
            assert len(kb.infer_json(goal_literal(goal), bytes, AnswerOptions(scope="s"))) > 0
        if turn == 1:
            kb.fork_scope(None, "s", overwrite=True)
            for goal, _ in goals:
                assert kb.tuples(goal, AnswerOptions(scope="s")) == []
        kb.drop_scope("s")


def goal_literal(atom):
    from kbplanner.ir.terms import Literal

    return Literal(atom)


def test_a_scope_read_before_its_first_write_has_answers_after_it(kb):
    kb.assert_rules(
        [RULE, parse_rule("w(?x) :- q(?x), not v(?x)."), parse_rule("v(?x) :- q(?x), not w(?x).")]
    )
    goals = [Atom(name, (Variable("x"),)) for name in ("q", "w")]
    for _ in range(2):
        assert [kb.tuples(goal, AnswerOptions(scope="new")) for goal in goals] == [[], []]
    told(kb, "new")
    assert kb.tuples(goals[0], AnswerOptions(scope="new")) == [("a",), ("b",)]


def test_reading_unknown_scopes_takes_no_memory():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([RULE])
        told(kb)
        engine = node.read_tenant("default", "default").engine
        goal = Atom("q", (Variable("x"),))
        for n in range(20):
            kb.tuples(goal, AnswerOptions(scope=f"warm{n}"))
        before = engine.bytes
        for n in range(300):
            assert kb.tuples(goal, AnswerOptions(scope=f"none{n}")) == []
        assert engine.bytes - before < 20_000


def test_a_dropped_scope_gives_its_memory_back():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([RULE])
        told(kb)
        tenant = node.read_tenant("default", "default")
        before = tenant.engine.bytes
        sizes = []
        for _ in range(3):
            kb.assert_facts([Fact("p", (f"n{i}",), scope="s", ttl=1000) for i in range(5000)])
            kb.tuples(Atom("q", (Variable("x"),)), AnswerOptions(scope="s"))
            kb.fork_scope("s", "t")
            kb.drop_scope("s")
            kb.drop_scope("t")
            sizes.append(tenant.engine.bytes)
        assert sizes[-1] == sizes[0]
        assert sizes[0] - before < 500_000  # the symbols stay
        assert tenant._moments == []


def test_forks_and_merges_in_an_embedded_knowledge_base():
    with open_kb(config=Config()) as kb:
        kb.tell("p", ["a"])
        assert kb.fork("try").copied == 1
        kb.tell("p", ["b"], scope="try")
        assert kb.scopes() == ["try"]
        assert names(kb.diff(None, "try").added) == [["b"]]
        assert kb.merge("try").merged == 1
        assert kb.drop_scope("try") == 2
        assert kb.query("p", ["?x"]) == [("a",), ("b",)]
