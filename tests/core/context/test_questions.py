"""Goals that the query of a window means."""

from __future__ import annotations

import pytest
from support.engines import tell
from support.windows import family, goal, texts, window

from kbcore import BudgetExceeded, Config, open_kb
from kbplanner.syntax.parser import parse_rule


def teach(kb, *rules):
    kb.assert_rules([parse_rule(rule) for rule in rules])


@pytest.mark.parametrize(
    "question",
    [
        "who is the grandparent of dee?",
        "Who are Dee's grandparents?",
        "tell me about grandparents of ann, please",
        "grandparent cy",
    ],
)
def test_rules_answer_a_question_in_words(kb, question):
    family(kb)
    answer = window(kb, query=question)
    assert texts(answer)[0].startswith("grandparent(ann, ")
    assert "parent(ann, bob)" in texts(answer)
    assert not answer.rules


def test_a_question_without_answer_names_no_goal(kb):
    family(kb)
    answer = window(kb, query="who is the grandparent of ann and eve's cat?", format="natural")
    assert not answer.notes
    assert texts(answer)[0].startswith("grandparent(ann, ")
    empty = window(kb, query="who is the grandparent of fay?", format="natural")
    assert not empty.notes
    assert texts(empty) == ["parent(eve, fay)"]


def test_the_text_has_no_headings_for_goals_that_the_query_means(kb):
    tell(kb, "likes", "ann", "tea")
    teach(kb, "enjoys(?x, ?y) :- likes(?x, ?y).", "wants(?x, ?y) :- likes(?x, ?y).")
    answer = window(kb, query="what does ann enjoy and want?", format="natural")
    assert len({each.goal for each in answer.entries if each.goal}) > 1
    assert [line.partition(" because")[0] for line in answer.text.splitlines()] == [
        "ann enjoys tea",
        "ann wants tea",
    ]


def test_all_words_of_a_predicate_are_asked_for(kb):
    tell(kb, "works", "ann", "acme")
    teach(kb, "pays_taxes_in(?x, ?y) :- works(?x, ?y).")
    assert "pays_taxes_in(ann, acme)" in texts(window(kb, query="where does ann pay taxes?"))
    assert "pays_taxes_in(ann, acme)" not in texts(window(kb, query="what does ann pay?"))


def test_a_constant_of_several_words_and_the_asker(kb):
    tell(kb, "works", "Ann Lee", "big_acme")
    teach(kb, "colleague(?x, ?y) :- works(?x, ?f), works(?y, ?f), ?x != ?y.")
    tell(kb, "works", "bob", "big_acme")
    colleague = 'colleague(bob, "Ann Lee")'
    assert colleague in texts(window(kb, query="is Ann Lee a colleague of another person?"))
    assert colleague in texts(window(kb, query="who is my colleague?", asker="bob"))
    assert colleague not in texts(window(kb, query="who is my colleague?"))


def test_goals_of_the_request_are_the_only_ones(kb):
    family(kb)
    answer = window(
        kb, query="who is the grandparent of dee?", goals=(goal("parent", "ann", "bob"),)
    )
    assert not any(text.startswith("grandparent") for text in texts(answer))


def test_answers_take_at_most_half_of_the_window(kb):
    for number in range(40):
        tell(kb, "likes", "ann", f"thing{number}")
    teach(kb, "enjoys(?x, ?y) :- likes(?x, ?y).")
    answer = window(kb, query="what does ann enjoy, and what does she like?", max_facts=20)
    assert sum(text.startswith("enjoys") for text in texts(answer)) == 5  # each with its premise
    assert len(answer.entries) == 20


def test_a_rule_that_cannot_be_asked_so_is_left_out(kb):
    tell(kb, "age", "ann", "40")
    teach(kb, "older(?x, ?n) :- age(?x, ?a), ?n = ?a + 1.", "far(?x, ?y) :- far(?y, ?x).")
    answer = window(kb, query="how old, older or far is ann?")
    assert "older(ann, 41)" in texts(answer)


def test_a_guess_beyond_the_limits_leaves_the_window_as_it_was():
    config = Config(storage_backend="memory", query_max_rows=50)
    with open_kb(config=config) as kb:
        for number in range(300):
            kb.tell(f"edge(n{number}, n{number + 1})")
        before = kb.context(query="which trips does n0 make by edge?", explain=True).text
        kb.teach("trip(?a, ?c) :- trip(?a, ?b), trip(?b, ?c). trip(?a, ?b) :- edge(?a, ?b).")
        with pytest.raises(BudgetExceeded):
            list(kb.ask("trip(?a, ?b)"))
        assert kb.context(query="which trips does n0 make by edge?").text == before
