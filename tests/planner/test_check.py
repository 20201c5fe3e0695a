"""Checks of rules and facts: safety, reserved names, warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbplanner.errors import InvalidInput, RuleSyntaxError, UnsafeRule
from kbplanner.ir.terms import ANONYMOUS, Aggregate, Atom, Literal, Rule, Variable
from kbplanner.passes.check import check_fact, check_rule, check_statements
from kbplanner.syntax.arity import arity_warnings, edit_distance, nearest_name
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.statements import TextSpan

X = Variable("x")

SAFE = [
    "p(?x) :- q(?x).",
    "p :- not q(a).",
    "p(a) :- 1 < 2.",
    "p(?x) :- ~q(?x).",
    "p(?x) :- q(?x), not r(?x, _).",
    "p(?x) :- q(?x), not ~r(?x).",
    "p(?z) :- ?z = ?x + 1, q(?x).",
    "p(?z) :- ?y + 1 = ?z, q(?x), ?y = ?x * 2.",
    "p(?z) :- ?z = a.",
    "p(?z) :- ?z = ?y, ?y = ?x, q(?x).",
    "p(?x) :- q(?x), ?x > 3, contains(?x, a).",
    "p(?x, count(?y), count(*)) :- q(?x, ?y).",
    "p(?x) :- q(?x, ?x), not contains(?x, a).",
]

UNSAFE = [
    (
        "lonely(?x) :- person(?x), not friend(?x, ?y).",
        "?y",
        'the variable ?y occurs only under "not"',
        'write _ for "any"',
    ),
    (
        "p(?x, ?z) :- q(?x).",
        "?z",
        "the variable ?z of the head is not bound by a positive atom",
        "use ?z in a positive body atom",
    ),
    (
        "p(?x) :- not q(?x).",
        "?x",
        "the variable ?x of the head is not bound by a positive atom",
        "use ?x in a positive body atom",
    ),
    (
        "p(?x) :- q(?x), ?y > 3.",
        "?y",
        "the variable ?y of a comparison is not bound by a positive atom",
        "use ?y in a positive body atom",
    ),
    (
        "p(?x) :- q(?x), contains(?x, ?y).",
        "?y",
        "the variable ?y in contains(...) is not bound by a positive atom",
        "use ?y in a positive body atom",
    ),
    (
        "p(?z) :- ?z == ?x, q(?x).",
        "?z",
        "the variable ?z of the head is not bound by a positive atom",
        "use ?z in a positive body atom",
    ),
    (
        "p(?x) :- ?x = ?y, ?y = ?x.",
        "?x",
        "the variable ?x of the head is not bound by a positive atom",
        "use ?x in a positive body atom",
    ),
    (
        "p(?x) :- ?x = ?x + 1.",
        "?x",
        "the variable ?x of the head is not bound by a positive atom",
        "use ?x in a positive body atom",
    ),
    (
        "p(?a, sum(?z)) :- q(?a).",
        "?z",
        "the variable ?z of the head is not bound by a positive atom",
        "use ?z in a positive body atom",
    ),
    (
        "p(?x, ?z) :- q(?x, Z).",
        "?z",
        "the variable ?z of the head is not bound by a positive atom",
        '"Z" is a constant here: did you mean ?Z?',
    ),
    (
        "p(?x) :- q(X), r(X).",
        "?x",
        "the variable ?x of the head is not bound by a positive atom",
        '"X" is a constant here: did you mean ?X?',
    ),
]


@pytest.mark.parametrize("text", SAFE)
def test_safe(text: str) -> None:
    assert check_rule(parse_rule(text)) == []


@pytest.mark.parametrize(("text", "variable", "message", "hint"), UNSAFE)
def test_unsafe(text: str, variable: str, message: str, hint: str) -> None:
    with pytest.raises(UnsafeRule) as caught:
        check_rule(parse_rule(text))
    assert (caught.value.variable, caught.value.message, caught.value.hint) == (
        variable,
        message,
        hint,
    )
    assert caught.value.details == {"kind": "unsafe", "variable": variable, "hint": hint}


def test_many_equations_are_quick() -> None:
    body = ", ".join(f"?v{at} = ?v{at + 1}" for at in range(63))
    assert check_rule(parse_rule(f"p(?v0) :- {body}, q(?v63).")) == []


def test_an_anonymous_variable_in_a_head() -> None:
    body = (Literal(Atom("q", (X,))),)
    with pytest.raises(UnsafeRule, match='the head has "_"'):
        check_rule(Rule(Atom("p", (ANONYMOUS,)), body))
    with pytest.raises(UnsafeRule, match='the head has "_"'):
        check_rule(Rule(Atom("p", (Aggregate("sum", ANONYMOUS),)), body))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(Atom("p", ("a",)), ()), "a rule needs a body: assert the head as a fact instead"),
        (
            Rule(Atom("p"), (Literal(Atom("q", (Aggregate("sum", X),))),)),
            "an aggregate is only allowed in a rule head",
        ),
        (
            Rule(Atom("p"), (Literal(Atom("q")),), confidence=2.0),
            "confidence: must be a number from 0 to 1",
        ),
        (
            Rule(Atom("p"), (Literal(Atom("q")),) * 65),
            "body: a rule body has at most 64 atoms, this one has 65",
        ),
        (
            Rule(Atom(""), (Literal(Atom("q")),)),
            "predicate: a predicate needs at least one character",
        ),
    ],
)
def test_refused_rules(rule: Rule, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_rule(rule)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("atom", "message"),
    [
        (Atom("p", ("a", X)), 'args[1]: a fact has no variables, found "?x"'),
        (Atom("p", (ANONYMOUS,)), 'args[0]: a fact has no variables, found "_"'),
        (Atom("p", ("a",) * 65), "args: an atom has at most 64 arguments, this one has 65"),
        (Atom("p\0", ()), "predicate: the character NUL is not allowed"),
        (Atom("p", ("\ud800",)), "args[0]: half a surrogate pair (U+D800) is not a character"),
    ],
)
def test_refused_facts(atom: Atom, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_fact(atom)
    assert caught.value.message == message


def test_facts() -> None:
    for predicate in ("p", "count", "abs", "not", "my pred", "min", "matches", "<", "div"):
        check_fact(Atom(predicate, ("a", "", "ö"), False))


def test_upper_case_words_without_any_variable() -> None:
    text = "gp(X, Z) :- parent(X, Y), parent(Y, Z).\np(X) :- q(Y).\np(?x, X) :- q(?x, X)."
    assert check_statements(parse_program(text)) == [
        RuleWarning(
            "looks-like-variable",
            '"X" is a constant here',
            "did you mean ?X?",
            TextSpan(1, 1, 1, 40),
        ),
        RuleWarning(
            "looks-like-variable",
            '"Z" is a constant here',
            "did you mean ?Z?",
            TextSpan(1, 1, 1, 40),
        ),
    ]


def test_statements_not_from_text_are_reported_without_a_position() -> None:
    (statement,) = parse_program("p(a).")
    odd = type(statement)(Atom("p", (X,)), statement.annotations, statement.span)  # type: ignore[call-arg,arg-type]
    with pytest.raises(RuleSyntaxError) as caught:
        check_statements([odd])
    assert caught.value.message == 'line 1, column 1: args[0]: a fact has no variables, found "?x"'


# ---- arity ----


def test_arity_warnings() -> None:
    text = "parent(a, b).\nx(?p) :- parent(?p), parnet(?p, _), stored(?p), new(?p).\n?- stored(?a, ?b), x(?y).\n"
    assert arity_warnings(parse_program(text), {"stored": {2, 3}, "parent": {2}}) == [
        RuleWarning(
            "arity",
            "parent has 1 argument here and 2 elsewhere",
            "predicates of different arity are different predicates",
            TextSpan(2, 10, 2, 16),
        ),
        RuleWarning(
            "unknown-predicate",
            "no facts or rules for parnet/2",
            "did you mean parent/2?",
            TextSpan(2, 22, 2, 28),
        ),
        RuleWarning(
            "arity",
            "stored has 1 argument here and 2 or 3 elsewhere",
            "predicates of different arity are different predicates",
            TextSpan(2, 37, 2, 43),
        ),
        RuleWarning(
            "unknown-predicate", "no facts or rules for new/1", None, TextSpan(2, 49, 2, 52)
        ),
    ]


def test_a_fact_of_a_new_arity_is_warned_about_once() -> None:
    (warning,) = arity_warnings(
        parse_program("parent(a).\nparent(b).\nq :- parent(?x)."), {"parent": {2}}
    )
    assert (warning.code, warning.span) == ("arity", TextSpan(1, 1, 1, 11))


def test_edit_distance() -> None:
    assert edit_distance("parent", "parent") == 0
    assert edit_distance("parnet", "parent") == 1
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "ab") == edit_distance("ab", "") == 2
    assert edit_distance("aa", "aaa") == 1
    assert edit_distance("abab", "ab") == 2
    assert edit_distance("salary_of", "slaary_of") == 1
    assert nearest_name("ab", ["ac", "abc"]) is None
    assert nearest_name("colour", ["color", "colours"]) == "color"
    assert nearest_name("parent", ["apernt", "pernat", "aprent"]) == "aprent"


@given(st.text("abc", max_size=7), st.text("abc", max_size=7), st.integers(0, 2))
def test_a_maximum_distance_changes_only_what_is_above_it(name: str, other: str, most: int) -> None:
    distance, bounded = edit_distance(name, other), edit_distance(name, other, most)
    assert bounded == distance if distance <= most else bounded > most


@given(st.text("abcde", min_size=3, max_size=8), st.lists(st.text("abcde", max_size=8)))
def test_the_nearest_name_is_that_of_all_distances(name: str, others: list[str]) -> None:
    near = [(edit_distance(name, each), each) for each in others]
    best = min(near, default=None)
    expected = best[1] if best and best[0] <= min(2, len(name) // 3) else None
    assert nearest_name(name, others) == expected
