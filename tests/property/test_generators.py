"""Generators: the engine against the reference evaluator, and both against Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded
from kbplanner.ir.conditions import generate, generator
from kbplanner.ir.terms import Apply, Atom, Literal, Rule, Variable
from kbplanner.passes.check import check_rule
from kbplanner.syntax.jsonform import rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_rule
from kbplanner.syntax.printer import print_rule

A, B, X = (Variable(name) for name in "abx")
ROW = Literal(Atom("v", (A, B)))

numbers = st.one_of(
    st.integers(-6, 6).map(str), st.sampled_from(["0.0", "1.5", "-0", "x", "", "1e1", "07", "９"])
)
texts = st.one_of(st.text("ab,é日𝔸", max_size=9), st.sampled_from(["", ",,"]))
parts = st.one_of(st.text("a,é日", max_size=2), st.sampled_from([",", "", "𝔸"]))
CALLS = [Apply("range", (A, B)), Apply("split", (A, B)), Apply("member", (A, "é", B, "3"))]


def worlds(rules):
    return [programs.World(engine(), RuleSet(rules)) for engine in (Engine, ReferenceEngine)]


@examples(150)
@given(
    st.lists(
        st.one_of(st.tuples(numbers, numbers), st.tuples(texts, parts)), min_size=1, max_size=8
    ),
    st.lists(st.one_of(numbers, parts, texts), min_size=1, max_size=6),
)
def test_values_and_tests_are_the_same_in_both_engines(pairs, elements):
    body = (ROW, Literal(Atom("w", (X,))))
    rules = []
    for i, call in enumerate(CALLS):
        rules.append(Rule(Atom(f"gives{i}", (A, B, X)), (ROW, generator(call, X, False))))
        for negated in (False, True):
            head = Atom(f"tests{i}{negated}", (A, B, X))
            rules.append(Rule(head, (*body, generator(call, X, negated))))
    for rule in rules:
        check_rule(rule)
        assert parse_rule(print_rule(rule)) == rule
        assert rule_from_json(rule_to_json(rule)) == rule
    for made in worlds(rules):
        made.tell([Atom("v", pair) for pair in pairs] + [Atom("w", (one,)) for one in elements])
        for i, call in enumerate(CALLS):
            given_values, holding, failing = set(), set(), set()
            for a, b in pairs:
                values = generate(call.function, [{A: a, B: b}.get(arg, arg) for arg in call.args])
                if values is None:
                    continue
                values = set(values)
                given_values |= {(a, b, text) for text in values}
                holding |= {(a, b, one) for one in elements if one in values}
                failing |= {(a, b, one) for one in elements if one not in values}
            assert made.ask(Atom(f"gives{i}", (A, B, X))) == given_values
            assert made.ask(Atom(f"tests{i}False", (A, B, X))) == holding
            assert made.ask(Atom(f"tests{i}True", (A, B, X))) == failing
            for a, b, x in sorted(given_values)[:3]:
                assert made.ask(Atom(f"gives{i}", (a, b, x))) == {(a, b, x)}
                assert (a, b, x) in made.ask(Atom(f"gives{i}", (A, B, x)))


@pytest.mark.parametrize("engine", [Engine, ReferenceEngine])
def test_a_huge_range_only_costs_what_it_gives(engine):
    texts = [
        "all(?x) :- range(0, 9000000000000000000, ?x).",
        "known(?x) :- w(?x), range(0, 9000000000000000000, ?x).",
        "next(?y) :- w(?x), ?y = ?x + 1, range(0, 9000000000000000000, ?y).",
        "none(?x) :- range(0, 9000000000000000000, ?x), ?x < 0.",
        "few(?x) :- range(0, 9000000000000000000, ?x), member(?x, [a, 5]).",
        "some(?a) :- w(?a), range(0, 9000000000000000000, ?x), member(?x, [a, 5]).",
    ]
    made = programs.World(engine(), RuleSet(map(parse_rule, texts)))
    made.tell([Atom("w", (one,)) for one in ("5", "-1", "x")])
    assert made.ask(Atom("known", (X,))) == {("5",)}
    assert made.ask(Atom("known", ("5",))) == {("5",)}
    assert made.ask(Atom("all", ("123456789",))) == {("123456789",)}
    assert made.ask(Atom("few", (X,))) == {("5",)}
    assert made.ask(Atom("some", (X,))) == {("5",), ("-1",), ("x",)}
    assert made.ask(Atom("next", (X,))) == {("6",), ("0",)}
    for limits in (RunLimits(rows=1000), RunLimits(steps=100_000), RunLimits(bytes=1_000_000)):
        if engine is ReferenceEngine and limits.bytes:
            continue  # the reference engine measures no memory
        with pytest.raises(BudgetExceeded):
            made.ask(Atom("all", (X,)), limits=limits)
    for limits in (RunLimits(steps=100_000), RunLimits(bytes=1_000_000)):
        if engine is Engine or limits.steps:
            with pytest.raises(BudgetExceeded):
                made.ask(Atom("none", (X,)), limits=limits)


def test_a_part_that_is_too_long_for_a_text_is_left_out():
    for made in worlds([parse_rule('p(?x) :- v(?a), split(?a, ",", ?x).')]):
        made.tell([Atom("v", ("é" * 40_000 + ",é",))])
        assert made.ask(Atom("p", (X,))) == {("é",)}


def test_a_list_has_64_elements_and_no_more():
    names = [f"n{i}" for i in range(65)]
    text = f"p(?x) :- member(?x, [{', '.join(names[:64])}])."
    for made in worlds([parse_rule(text), parse_rule(text.replace("p(?x) :-", "q(?x) :- w(?x),"))]):
        made.tell([Atom("w", (name,)) for name in names])
        assert made.ask(Atom("p", (X,))) == {(name,) for name in names[:64]}
        assert made.ask(Atom("q", (X,))) == {(name,) for name in names[:64]}
    with pytest.raises(Exception, match="a list has at most 64 elements, this one has 65"):
        parse_rule(f"p(?x) :- member(?x, [{', '.join(names)}]).")
