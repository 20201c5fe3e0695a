"""Canonical text: exact forms, and that every text parses back to the printed term."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.ir.operators import AGGREGATES, ARITHMETIC, COMPARISONS, STRING_TESTS
from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Literal,
    Rule,
    Variable,
)
from kbplanner.syntax.parser import parse_atom, parse_goal, parse_program, parse_rule
from kbplanner.syntax.printer import (
    print_atom,
    print_expression,
    print_fact,
    print_item,
    print_row,
    print_rule,
)
from kbplanner.syntax.statements import NO_ANNOTATIONS, Annotations, FactStatement

X, Y = Variable("x"), Variable("y")

# ---- what may be in a rule ----

KEYWORDS = ["length", "lower", "<"]
KEYWORDS += [
    "not",
    "div",
    "mod",
    "count",
    "sum",
    "min",
    "max",
    "contains",
    "abs",
    "and",
    "is",
    "_",
    "?x",
    "?",
    "true",
]
ODD = ["", " ", "\n", "\t", "\r", "\\", '"', "'", "p(a).", "30", "30.0", "-5", "007", "1e5"]
ODD += ["a-b", "a:", "π", "日本", "\u2028"]
texts = st.one_of(
    st.sampled_from(KEYWORDS + ODD),
    st.text(alphabet="abcAB?_-:.0159 ", max_size=6),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)
names = texts.filter(bool)
variables = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}", fullmatch=True).map(Variable)
terms = st.one_of(variables, texts, st.just(ANONYMOUS))
atoms = st.builds(Atom, names, st.lists(terms, max_size=4).map(tuple), st.booleans())
facts = st.builds(Atom, names, st.lists(texts, max_size=4).map(tuple), st.booleans())
leaves = st.one_of(variables.filter(lambda v: not v.anonymous), texts)
calls = {"abs": 1, "round": 2, "concat": 3, "lower": 1, "upper": 1, "length": 1, "min": 2, "max": 2}


def applied(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    operators = st.builds(
        lambda f, a, b: Apply(f, (a, b)), st.sampled_from(ARITHMETIC), inner, inner
    )
    functions = st.sampled_from(sorted(calls)).flatmap(
        lambda name: st.tuples(*[inner] * calls[name]).map(lambda args: Apply(name, args))
    )
    return st.one_of(operators, functions)


expressions = st.recursive(leaves, applied, max_leaves=6)
comparisons = st.one_of(
    st.builds(Comparison, st.sampled_from(COMPARISONS), expressions, expressions),
    st.builds(Comparison, st.sampled_from(STRING_TESTS), expressions, expressions, st.booleans()),
)
literals = st.builds(Literal, atoms, st.booleans())
aggregates = st.one_of(
    st.just(Aggregate("count", None)),
    st.builds(Aggregate, st.sampled_from(AGGREGATES), variables.filter(lambda v: not v.anonymous)),
)
named = st.one_of(texts, variables.filter(lambda v: not v.anonymous))
head_args = st.lists(st.one_of(named, aggregates), max_size=4).map(tuple)
heads = st.builds(Atom, facts.map(lambda fact: fact.predicate), head_args, st.booleans())
rules = st.builds(
    Rule, heads, st.lists(st.one_of(literals, comparisons), min_size=1, max_size=5).map(tuple), st.none() | names,
    st.none() | st.floats(0, 1), st.none() | names,
)  # fmt: skip


@given(rules)
@examples(400)
def test_a_rule_parses_back(rule: Rule) -> None:
    assert parse_rule(print_rule(rule)) == rule


@given(rules)
def test_a_bare_rule_parses_back_without_its_name_and_annotations(rule: Rule) -> None:
    assert parse_rule(print_rule(rule, bare=True)) == Rule(rule.head, rule.body)


@given(atoms)
def test_an_atom_parses_back(atom: Atom) -> None:
    assert parse_atom(print_atom(atom)) == atom


@given(facts)
def test_a_fact_parses_back_in_both_forms(fact: Atom) -> None:
    for text in (
        print_atom(fact),
        print_row(fact.predicate, [str(arg) for arg in fact.args], not fact.positive),
    ):
        (statement,) = parse_program(text + ".")
        assert isinstance(statement, FactStatement)
        assert statement.atom == fact


plain_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | plain_texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_texts, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
instants = st.integers(-8_640_000_000_000_000, 8_640_000_000_000_000)
annotations = st.builds(
    Annotations,
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 1 << 50),
    st.none() | names,
    st.none() | instants | st.just("2025-01-01T00:00:00Z"),
    st.none() | instants,
    st.none() | st.dictionaries(plain_texts, json_values, max_size=3),
)


@given(facts, annotations)
@examples(300)
def test_a_fact_with_annotations_parses_back(fact: Atom, notes: Annotations) -> None:
    (statement,) = parse_program(print_fact(fact, notes))
    assert isinstance(statement, FactStatement)
    assert (statement.atom, statement.annotations) == (fact, notes)


def test_a_fact_as_a_statement() -> None:
    assert print_fact(Atom("p", ("a",), False)) == "~p(a)."
    notes = Annotations(0.5, 60, "s", 0, "2025-01-01T00:00:00Z", {"by": "ann's", "n": [1, None]})
    assert print_fact(Atom("p"), notes) == (
        'p [confidence=0.5, ttl=60, scope=s, validFrom=0, validUntil="2025-01-01T00:00:00Z", '
        """metadata='{"by": "ann\\'s", "n": [1, null]}']."""
    )
    assert print_fact(Atom("p"), NO_ANNOTATIONS) == "p."


@given(literals)
def test_a_goal_parses_back(literal: Literal) -> None:
    assert parse_goal(f"?- {print_item(literal)}.").literal == literal


# ---- exact forms ----


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        (Atom("p", ("a", "b")), "p(a, b)"),
        (Atom("p", ("a", "b"), False), "~p(a, b)"),
        (Atom("p"), "p"),
        (Atom("p", (X, ANONYMOUS)), "p(?x, _)"),
        (Atom("p", ("Zoë K.", "30", "-1.5", "")), 'p("Zoë K.", 30, -1.5, "")'),
        (Atom("p", ("not", "_", "?x")), 'p("not", "_", "?x")'),
        (Atom("p", ("a\nb\t\\\"'\x07",)), 'p("a\\nb\\t\\\\\\"\'\\u0007")'),
        (Atom("my pred", ("a",)), "'my pred'(a)"),
        (Atom("not", ("a",)), "'not'(a)"),
        (Atom("count", ("a",)), "count(a)"),
        (Atom("größe", ("日本",)), "größe(日本)"),
    ],
)
def test_atoms(atom: Atom, text: str) -> None:
    assert print_atom(atom) == text
    assert parse_atom(text) == atom


def test_rows() -> None:
    assert print_row("p", ["a", "b c"], False) == 'p(a, "b c")'
    assert print_row("p", ["a"], True) == "not p(a)"
    assert print_row("p", [], True) == "not p"


def test_rules() -> None:
    body = (Literal(Atom("b1", (X, Y))), Literal(Atom("b2", (Y,)), True))
    assert print_rule(Rule(Atom("head", (X,)), body)) == "head(?x) :- b1(?x, ?y), not b2(?y)."
    noted = Rule(Atom("head", (X,), False), body[:1], "r1", 0.5, "draft")
    assert print_rule(noted) == "@r1: ~head(?x) :- b1(?x, ?y) [confidence=0.5, scope=draft]."
    assert print_rule(noted, bare=True) == "~head(?x) :- b1(?x, ?y)."
    counted = Rule(Atom("n", (X, Aggregate("count", None), Aggregate("sum", Y))), body[:1])
    assert print_rule(counted) == "n(?x, count(*), sum(?y)) :- b1(?x, ?y)."
    assert print_item(Literal(Atom("p", (X,)), True)) == "not p(?x)"


def test_a_body_atom_that_looks_like_a_builtin_is_quoted() -> None:
    assert print_item(Literal(Atom("count", (X,)))) == "'count'(?x)"
    assert print_item(Literal(Atom("contains", (X, Y)))) == "'contains'(?x, ?y)"
    assert print_atom(Atom("contains", ("a", "b"))) == "'contains'(a, b)"
    assert print_row("length", ["a"], False) == "'length'(a)"
    assert print_row("count", ["a"], False) == "count(a)"
    assert print_item(Comparison("contains", X, "a b")) == 'contains(?x, "a b")'


def test_a_comparison_under_not_prints_as_its_opposite() -> None:
    assert print_item(Comparison("<", X, "3", True)) == "?x >= 3"
    assert print_item(Comparison("starts_with", X, "a", True)) == "not starts_with(?x, a)"


def test_expressions_have_the_parentheses_they_need() -> None:
    def plus(a: object, b: object) -> Apply:
        return Apply("+", (a, b))  # type: ignore[arg-type]

    assert print_expression(plus(plus(X, "1"), Y)) == "?x + 1 + ?y"
    assert print_expression(plus(X, plus("1", Y))) == "?x + (1 + ?y)"
    assert (
        print_expression(Apply("*", (plus(X, "1"), Apply("mod", (X, "2")))))
        == "(?x + 1) * (?x mod 2)"
    )
    assert print_expression(Apply("-", (X, "-3"))) == "?x - -3"
    assert (
        print_expression(Apply("concat", (X, " ", Apply("lower", (Y,)))))
        == 'concat(?x, " ", lower(?y))'
    )
