"""Functions, tests and aggregates: the engine against the reference, and both against Python."""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import case_tables, programs
from support.examples import examples

from kbplanner.compile.aggregates import fold
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.operators import AGGREGATES, ARITHMETIC, FUNCTION, FUNCTIONS, SUBSTRING_TESTS
from kbplanner.ir.terms import Aggregate, Apply, Atom, Comparison, Literal, Rule, Variable
from kbplanner.ir.values.compute import compute, text_test
from kbplanner.ir.values.numbers import number, number_text
from kbplanner.ir.values.pattern import compile_pattern, matches
from kbplanner.ir.values.texts import simple_lower, simple_upper
from kbplanner.syntax.parser import parse_rule

A, B, Z = (Variable(name) for name in "abz")
ROW = Atom("v", (A, B))
CASING = Path(__file__).parents[2] / "csrc" / "text" / "casing.c"

doubles = st.integers(0, (1 << 64) - 1).map(
    lambda bits: struct.unpack("d", struct.pack("Q", bits))[0]
)
numeric = st.one_of(
    st.integers(-10, 10).map(str),
    st.integers(-(1 << 63), (1 << 63) - 1).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        [
            "-0",
            "0.0",
            "-0.0",
            "1e400",
            "1e-400",
            "0.1",
            "2.5",
            "-2.5",
            "1E5",
            "12.50",
            "2.675",
            "1e16",
            "1e15",
        ]
    ),
    st.decimals(-1000, 1000, places=2).map(str),
    doubles.map(repr),
    st.integers(-1074, 1023).map(lambda power: repr(2.0**power)),
    st.integers(-(1 << 53), 1 << 53).map(lambda n: repr(n / 8)),
)
strings = st.one_of(
    st.text(max_size=6),
    st.text("aAbBßİıΣςσǅ", max_size=6),
    st.sampled_from(["", "x" * 40_000, "ß" * 20_000, "ȿ" * 30_000]),
)
texts = st.one_of(numeric, numeric, strings.filter(lambda text: "\0" not in text))


def world(*rules):
    return programs.World(Engine(), RuleSet(rules))


@examples(150)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=40))
def test_functions_have_the_same_values_in_both_engines(pairs):
    calls = [
        Apply(name, (A, B, A, B)[: max(1, FUNCTION[name].least) if name in FUNCTION else 2])
        for name in (*ARITHMETIC, *FUNCTIONS)
        if name not in ("capture", "now")
    ]
    calls += [Apply("round", (A, "2")), Apply("round", (A,)), Apply("max", (A, B, "7"))]
    made = world(
        *(
            Rule(Atom(f"f{i}", (A, B, Z)), (Literal(ROW), Comparison("=", Z, call)))
            for i, call in enumerate(calls)
        )
    )
    made.tell(Atom("v", pair) for pair in pairs)
    for i, call in enumerate(calls):
        expected = set()
        for a, b in pairs:
            value = compute(call.function, [{A: a, B: b}.get(arg, arg) for arg in call.args])
            if value is not None:
                expected.add((a, b, value))
        assert made.ask(Atom(f"f{i}", (A, B, Z))) == expected


@examples(100)
@given(
    st.lists(
        st.tuples(st.text("aab1", max_size=4), st.text("ab1", max_size=2)), min_size=1, max_size=30
    ),
    st.booleans(),
)
def test_tests_of_strings(pairs, negated):
    made = world(
        *(
            Rule(Atom("is_" + name, (A, B)), (Literal(ROW), Comparison(name, A, B, negated)))
            for name in SUBSTRING_TESTS
        )
    )
    made.tell(Atom("v", pair) for pair in pairs)
    for op, name in enumerate(SUBSTRING_TESTS):
        expected = {pair for pair in pairs if text_test(op + 8 * negated, *pair)}
        assert made.ask(Atom("is_" + name, (A, B))) == expected


patterns = st.recursive(
    st.sampled_from(
        ["a", "b", ".", "[ab]", "[^a]", r"\d", r"[a-c\d]", "é", "^", "$", r"\.", "[]x-]"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"])
        ).map(lambda two: f"({two[0]}){two[1]}"),
    ),
    max_leaves=6,
)


@examples(400)
@given(patterns, st.lists(st.text("abc1é.\n", max_size=6), min_size=1, max_size=10))
def test_patterns_match_as_those_of_python(pattern, found):
    program = compile_pattern(pattern)
    other = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    made = world(
        Rule(Atom("p", (A,)), (Literal(Atom("v", (A,))), Comparison("matches", A, pattern)))
    )
    made.tell(Atom("v", (text,)) for text in found)
    expected = {(text,) for text in found if other.search(text)}
    assert {(text,) for text in found if matches(program, text)} == expected
    assert made.ask(Atom("p", (A,))) == expected


@examples(150)
@given(
    st.lists(
        st.tuples(st.sampled_from("gh"), st.one_of(numeric, st.text("x", max_size=2))),
        min_size=1,
        max_size=30,
    )
)
def test_aggregates_have_the_same_values_in_both_engines(rows):
    rows = [(group, str(place), text) for place, (group, text) in enumerate(rows)]
    body = (Literal(Atom("v", (A, Variable("i"), B))),)
    made = world(*(Rule(Atom(name, (A, Aggregate(name, B))), body) for name in AGGREGATES[1:]))
    made.tell(Atom("v", row) for row in rows)
    for name in AGGREGATES[1:]:
        expected = set()
        for group in {row[0] for row in rows}:
            value, _ = fold(name, [row[2] for row in rows if row[0] == group])
            if value is not None:
                expected.add((group, value))
        assert made.ask(Atom(name, (A, Z))) == expected


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_a_sum_is_rounded_once(values):
    texts = [repr(value) for value in values]
    found, _ = fold("sum", texts)
    exact = sum((Fraction(number(text)) for text in texts), Fraction())
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf
    if math.isinf(nearest) or (
        all(isinstance(number(text), int) for text in texts) and abs(exact) >= 1 << 63
    ):
        assert found is None
    else:
        assert float(found) == nearest


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_itself(value):
    assert float(number_text(value)) == value
    assert number(number_text(value)) is not None


@pytest.mark.parametrize(
    ("table", "mapping"), [("uppercase", simple_lower), ("lowercase", simple_upper)]
)
def test_the_letters_of_the_engine_are_those_of_unicode(table, mapping):
    source = CASING.read_text(encoding="utf-8")
    rows = re.search(rf"{table}\[\] = {{.*?\n(.*?)\n}};", source, re.S).group(1)
    found = [
        tuple(int(part, 0) for part in item.split(",")) for item in re.findall(r"{([^}]*)}", rows)
    ]
    points = {
        first + i * stride: added for first, count, stride, added in found for i in range(count)
    }
    known = {
        first + i * stride: added
        for first, count, stride, added in case_tables.runs(mapping)
        for i in range(count)
    }
    if unicodedata.unidata_version == "14.0.0":
        assert points == known
    else:  # another version of Unicode knows more pairs, or fewer, but no other ones
        both = points.keys() & known.keys()
        assert {point: points[point] for point in both} == {point: known[point] for point in both}
        assert len(both) > 1300


def test_a_pattern_takes_linear_time():
    made = world(parse_rule('p(?x) :- v(?x), matches(?x, "^(a|a)*(a*)*(a?){30}b$").'))
    made.tell([Atom("v", ("a" * 60_000,)), Atom("v", ("a" * 60_000 + "b",))])
    assert made.ask(Atom("p", (A,))) == {("a" * 60_000 + "b",)}
