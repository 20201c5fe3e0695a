"""Visibility of writes inside and outside a transaction."""

from __future__ import annotations

import pytest
from support.transactions import ANY, REACH, Node

from kbcore.reason.aggregate import AggregateQuery
from kbcore.state.facts import FactRows
from kbplanner.syntax.parser import parse_goal, parse_rule


def test_writes_are_seen_inside_and_not_outside(node):
    node.teach(*REACH)
    node.tell("edge(a, b)", "edge(b, c)")
    inside = node.begin()
    inside.tell("edge(c, d)")
    assert inside.ask("reach(a, ?x)") == [["a", "b"], ["a", "c"], ["a", "d"]]
    assert inside.retract("edge(b, c)").cascaded == 4
    inside.do(lambda kb: kb.assert_rules([parse_rule("reach(?x, z) :- edge(?x, b).")]))
    assert inside.ask("reach(a, ?x)") == [["a", "b"], ["a", "z"]]
    assert node.ask("reach(a, ?x)") == [["a", "b"], ["a", "c"]]
    inside.commit()
    assert node.ask("reach(a, ?x)") == [["a", "b"], ["a", "z"]]
    assert node.ask("edge(?x, ?y)") == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    "goal", ["?- r(a).", "?- r(?x).", "?- p(a).", "?- n(?x).", "?- w(b, ?x).", "?- t(?n)."]
)
@pytest.mark.parametrize("told", [(), ("p(b)",), ("p(a)", "p(b)")])
def test_a_goal_asked_before_a_write_and_again_after_it(node, goal, told):
    rules = (
        "r(?x) :- p(?x).",
        "n(?x) :- q(?x), not p(?x).",
        "w(?x, ?y) :- q(?x), q(?y), not w(?y, ?x), not p(?y).",
        "t(count(?x)) :- p(?x).",
    )
    node.teach(*rules)
    node.tell("q(a)", "q(b)", *told)
    inside, alone = node.begin(), Node()
    alone.teach(*rules)
    alone.tell("q(a)", "q(b)", *told)
    for write in (
        lambda to: to.tell("p(a)"),
        lambda to: to.retract("p(a)"),
        lambda to: to.tell("p(c)"),
    ):
        assert inside.ask(goal) == alone.ask(goal)
        write(inside)
        write(alone)
        assert inside.ask(goal) == alone.ask(goal)


def test_commits_of_others_are_visible_in_unread_relations(node):
    inside = node.begin()
    inside.tell("p(a)")
    node.tell("q(b)")
    assert inside.ask("q(?x)") == [["b"]]


def test_a_copy_is_renewed_when_others_have_written(node):
    inside = node.begin()
    inside.tell("p(a)")
    assert inside.do(lambda kb: kb.query_rows("other", [ANY])) == []
    node.tell("p(b)")
    assert inside.ask("p(?x)") == [["a"], ["b"]]
    inside.commit()


def test_every_kind_of_read_sees_the_writes(node):
    inside = node.begin()
    inside.tell("n(1)", "n(2)")
    inside.do(lambda kb: kb.assert_rules([parse_rule("m(?x) :- n(?x).")]))

    def read(kb):
        assert [row["args"] for row in kb.query_rows("n", [ANY])] == [["1"], ["2"]]
        assert kb.aggregate(AggregateQuery("n", "SUM", arg_index=0)).result == 3
        assert kb.predicates()["totalFacts"] == 2
        assert [rule.text for rule in kb.rules()] == ["m(?x) :- n(?x)."]
        assert (
            b"".join(kb.infer_json(parse_goal("m(?x)").body[0], lambda rows: b"")).count(b'"m"')
            == 2
        )
        assert len(kb.prove(parse_goal("m(?x)").body[0])) == 2
        assert "n(1)" in kb.explain(parse_goal("m(1)").body)

    inside.do(read, writes=False)
    assert node.kb.predicates()["totalFacts"] == 0


def test_facts_keep_their_metadata(node):
    inside = node.begin()
    inside.tell("p(a)", confidence=0.5, metadata={"k": 1}, ttl=1000, scope="s")
    assert inside.do(lambda kb: kb.query_rows("p", [ANY], scope="s"))[0]["metadata"] == {"k": 1}
    node.clock.advance(500)
    inside.commit()
    (row,) = node.kb.query_rows("p", [ANY], scope="s")
    assert (row["confidence"], row["metadata"], row["ttl"]) == (0.5, {"k": 1}, 1000)
    assert row["createdAt"] == node.clock.now_ms()
    node.clock.advance(1000)
    assert node.kb.query_rows("p", [ANY], scope="s") == []


def test_bulk_counts_include_stored_and_staged_facts(node):
    node.tell("p(a)")
    inside = node.begin()
    rows = FactRows("p", 1, ["a", "b", "c"])
    first = inside.do(lambda kb: kb.assert_rows([rows]))
    assert (first.asserted, first.updated) == (2, 1)
    again = inside.do(lambda kb: kb.assert_rows([rows]))
    assert (again.asserted, again.updated) == (0, 3)
    inside.commit()
    assert node.ask("p(?x)") == [["a"], ["b"], ["c"]]


def test_a_commit_is_one_change_set(node):
    before = node.runtime.knowledge_base()._read_tenant().generation if node.ask("p(?x)") else 0
    inside = node.begin()
    for name in "abc":
        inside.tell(f"p({name})")
    inside.commit()
    assert node.runtime.find_tenant("default", "default").generation == before + 1
