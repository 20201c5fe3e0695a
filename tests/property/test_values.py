"""Values of constants: the reference, the engine and both against `support.values`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import programs, values
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.aggregates import fold
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.terms import Atom, Variable
from kbplanner.ir.values.comparison import best_of, extreme, kept, order
from kbplanner.ir.values.comparison import test as compare
from kbplanner.ir.values.numbers import answer_key, exact, is_number
from kbplanner.syntax.parser import parse_rule

A, B, C = (Variable(name) for name in "abc")
OPERATORS = [
    *(f"o{index}(?a, ?b) :- v(?a, ?b), ?a {op} ?b." for index, op in enumerate(COMPARISONS)),
    "same(?a, ?b) :- v(?a, _), ?b = ?a, w(?b).",
    "joined(?a, ?b) :- v(?a, _), w(?b), ?a = ?b.",
    "w(?b) :- v(_, ?b).",
]
FOLDS = [
    "least(min(?a)) :- w(?a).",
    "greatest(max(?a)) :- w(?a).",
    "lowest(min ?a) :- w(?a).",
    "highest(max ?a) :- w(?a).",
    "less(?a, ?b, ?c) :- v(?a, ?b), ?c = min(?a, ?b).",
    "more(?a, ?b, ?c) :- v(?a, ?b), ?c = max(?a, ?b).",
    "sum(sum(?a)) :- w(?a).",
    "w(?b) :- v(_, ?b).",
]
pairs = st.lists(st.tuples(values.constants, values.constants), min_size=1, max_size=12)


def world(make, texts, pairs):
    built = programs.World(make(), RuleSet([parse_rule(text) for text in texts]))
    built.tell(Atom("v", pair) for pair in pairs)
    return built


@examples(2000)
@given(values.constants, values.constants)
def test_the_reference_compares_as_the_language_says(a, b):
    assert order(a, b) == values.order(a, b)
    for index, op in enumerate(COMPARISONS):
        assert compare(index, a, b) == values.holds(op, a, b), op
        assert compare(index + 8, a, b) != values.holds(op, a, b), op
    assert exact(a) == values.number(a)
    assert is_number(a) == (values.number(a) is not None)
    assert (answer_key(a) < answer_key(b)) == (values.answer_key(a) < values.answer_key(b))


@examples(150)
@given(pairs)
@pytest.mark.parametrize("make", [Engine, ReferenceEngine])
def test_engines_compare_as_the_language_says(make, pairs):
    built = world(make, OPERATORS, pairs)
    for index, op in enumerate(COMPARISONS):
        expected = {pair for pair in pairs if values.holds(op, *pair)}
        assert built.ask(Atom(f"o{index}", (A, B))) == expected, op
    equal = {(a, b) for a, _ in pairs for _, b in pairs if values.is_equal(a, b)}
    assert built.ask(Atom("same", (A, B))) == equal
    assert built.ask(Atom("joined", (A, B))) == equal


def first_or_last(function, texts):
    choose = min if function == "min" else max
    numbers = [text for text in texts if values.number(text) is not None]
    times = [text for text in texts if values.time(text) is not None]
    if numbers:
        return choose(numbers, key=values.answer_key)
    return choose(times, key=lambda text: (values.time(text), text)) if times else None


@examples(150)
@given(pairs)
@pytest.mark.parametrize("make", [Engine, ReferenceEngine])
def test_least_and_greatest_values(make, pairs):
    texts = [b for _, b in pairs]
    built = world(make, FOLDS, pairs)
    for name, best, function in (("least", "lowest", "min"), ("greatest", "highest", "max")):
        expected = first_or_last(function, texts)
        assert built.ask(Atom(name, (C,))) == (set() if expected is None else {(expected,)})
        keepable = {text for text in map(kept, texts) if text is not None}
        expected = first_or_last(function, keepable)
        assert built.ask(Atom(best, (C,))) == (set() if expected is None else {(expected,)})
    for name, function in (("less", "min"), ("more", "max")):
        made = {(a, b, extreme(function, (a, b))) for a, b in pairs}
        assert built.ask(Atom(name, (A, B, C))) == {row for row in made if row[2] is not None}
    total, _ = fold("sum", sorted(set(texts)))
    assert built.ask(Atom("sum", (C,))) == (set() if total is None else {(total,)})


@examples(500)
@given(st.lists(values.constants, min_size=1, max_size=6), st.sampled_from(["min", "max"]))
def test_the_best_of_constants(texts, function):
    assert best_of(function, texts) == first_or_last(function, texts)
    whole = [text for text in texts if is_number(text) and text.lstrip("-").isdigit()]
    if whole and len(whole) == len(texts):  # whole numbers keep their digits in all of them
        best = first_or_last(function, texts)
        assert int(extreme(function, texts)) == int(best)
        assert int(kept(best)) == int(best)
