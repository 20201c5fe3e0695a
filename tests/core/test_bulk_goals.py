"""Bulk runs of a knowledge base: `kb.bulk` over its own facts and over files."""

from __future__ import annotations

import pytest
from support import bulk

from kbcore import InvalidInput, open_kb

RULES = """
reach(?x, ?y) :- edge(?x, ?y), not ~edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z), not ~edge(?y, ?z).
size(count(*)) :- reach(?x, ?y).
"""


@pytest.fixture
def kb():
    with open_kb() as opened:
        opened.teach(RULES)
        opened.tell_many("edge", [("a", "b"), ("b", "c"), ("c", "d")])
        opened.tell("~edge(c, d). edge(x, y, z). flag().")
        yield opened


@pytest.mark.parametrize("goal", ["reach(?x, ?y)", "reach(a, ?y)", "size(?n)", "edge(?x, ?y, ?z)"])
def test_a_bulk_run_answers_as_ask_does(kb, goal):
    answers = kb.bulk(goal)
    assert set(answers) == set(kb.ask(goal))
    assert len(answers) == len(kb.ask(goal)) > 0


def test_answers_have_the_forms_of_other_answers(kb):
    answers = kb.bulk("reach(a, ?to)")
    assert sorted(answer["to"] for answer in answers.dicts()) == ["b", "c"]
    assert {tuple(row["args"]) for row in answers.rows()} == {("a", "b"), ("a", "c")}
    assert len(kb.bulk("flag()")) == 1


def test_facts_of_files_join_those_of_the_knowledge_base(kb, tmp_path):
    bulk.write(tmp_path / "edge.2.parquet", "SELECT 'c' AS x, 7 AS y")
    bulk.write(tmp_path / "edge.3.parquet", "SELECT 'c' AS x, 8 AS y, 9 AS z")
    assert set(kb.bulk("reach(a, ?y)", facts=tmp_path)) == {("a", n) for n in "bc7"}
    assert len(kb.ask("reach(a, ?y)")) == 2


def test_a_folder_for_the_answers_gives_a_path(kb, tmp_path):
    path = kb.bulk("reach(a, ?y)", out=tmp_path / "out")
    assert path == tmp_path / "out" / "reach.parquet"
    assert set(bulk.read(path)) == {("a", "b"), ("a", "c")}
    assert [each.name for each in path.parent.iterdir()] == ["reach.parquet"]
    with pytest.raises(InvalidInput, match=r"reach\.parquet exists"):
        kb.bulk("reach(a, ?y)", out=tmp_path / "out")


def test_answers_are_stored_once_in_a_scope_or_in_another_knowledge_base(kb):
    for _ in range(2):
        kb.bulk("reach(?x, ?y)", into="derived")
        assert len(kb.query("reach(?x, ?y)", scope="derived")) == 3
    assert len(kb.query("reach(?x, ?y)")) == 0
    with open_kb() as other:
        kb.bulk("reach(?x, ?y)", into=other)
        assert len(other.query("reach(?x, ?y)")) == 3
        with other.transaction() as inside:
            kb.bulk("size(?n)", into=inside)
            assert other.query("size(?n)") == []
        assert other.query("size(?n)") == [("3",)]


def test_rules_and_facts_are_those_of_the_scope(kb):
    kb.tell("edge(s, t)", scope="work")
    kb.teach("own(?x) :- edge(?x, _).", scope="work")
    assert kb.bulk("own(?x)", scope="work") == [("s",)]
    assert kb.bulk("own(?x)") == []


def test_a_fact_that_is_not_valid_now_is_left_out(kb):
    kb.tell("edge(d, e)", valid_from="2999-01-01T00:00:00Z")
    assert kb.bulk("edge(d, ?x)") == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "spork"}, "engine"),
        ({"scope": "*"}, "scope"),
        ({"into": ""}, "into"),
        ({"max_rows": -1}, "max_rows"),
        ({"facts": "/does/not/exist"}, "/does/not/exist"),
    ],
)
def test_options_are_checked(kb, options, problem):
    with pytest.raises(InvalidInput, match=problem):
        kb.bulk("reach(?x, ?y)", **options)


def test_conditions_that_give_values(kb):
    kb.teach("""
        step(?x, ?i) :- edge(?x, ?y), range(0, 3, ?i).
        step(?x, ?part) :- edge(?x, ?y), ?path = concat(?x, "/", ?y), split(?path, "/", ?part).
        first(?x) :- edge(?x, _), member(?x, [a, c, c, none]).
        few(?i) :- step(_, ?i), range(1, 1000000000000, ?i).
        none(?i) :- edge(?x, _), range(?x, 9, ?i).
        deep(?n) :- range(0, 2, ?n).
        deep(?n) :- deep(?m), ?m < 5, ?start = ?m + 1, ?end = ?m + 3, range(?start, ?end, ?n).
    """)
    for goal, count in (
        ("step(?x, ?i)", 15), ("first(?x)", 2), ("few(?i)", 2), ("none(?i)", 0), ("deep(?n)", 7),
    ):  # fmt: skip
        assert set(kb.bulk(goal)) == set(kb.ask(goal))
        assert len(kb.ask(goal)) == count


def test_now_is_the_instant_of_the_run(kb):
    kb.teach("past(?x, ?now) :- due(?x, ?at), ?now = now(), before(?at, ?now).")
    kb.tell('due(a, "2001-01-01"). due(b, "2999-01-01").')
    before, instant, after = (dict(ask("past(?x, ?now)"))["a"] for ask in (kb.ask, kb.bulk, kb.ask))
    assert before <= instant <= after


def test_representatives_of_classes(kb):
    kb.teach("@equivalence same/2. @canonical same/2.")
    kb.tell("same(9, b). same(b, 10). same(zoe, ann).")
    assert set(kb.bulk("canonical(same, ?x, ?y)")) == set(kb.ask("canonical(same, ?x, ?y)"))
    assert ("same", "10", "9") in kb.bulk("canonical(same, ?x, ?y)")


def test_best_values_are_refused(kb):
    kb.teach("dist(?y, min ?d) :- edge(_, ?y), ?d = 1.\nfar(?x) :- dist(?x, ?d), ?d > 3.")
    with pytest.raises(InvalidInput, match="the rules: the best value of a group: dist/2"):
        kb.bulk("far(?x)")


def test_rules_that_a_bulk_run_cannot_evaluate_are_refused(kb):
    kb.teach("win(?x) :- edge(?x, ?y), not win(?y).")
    with pytest.raises(InvalidInput, match="the rules: recursion through negation"):
        kb.bulk("win(?x)")
