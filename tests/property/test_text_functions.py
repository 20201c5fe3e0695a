"""Functions of texts: the engine against the reference evaluator, and both against Python."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.errors import InvalidInput
from kbplanner.ir.terms import Apply, Atom, Comparison, Literal, Rule, Variable
from kbplanner.ir.values.compute import compute
from kbplanner.ir.values.pattern import captured, compile_pattern
from kbplanner.ir.values.texts import SPACES
from kbplanner.syntax.parser import parse_rule

A, B, C, D, Z = (Variable(name) for name in "abcdz")
ROW = (A, B, C, D)

texts = st.one_of(
    st.text("ab,é日𝔸 \u3000\u00a0\u001c\n", max_size=8),
    st.text('ab1_-:"\\ \n.eE+', max_size=8),
    st.text(max_size=6).filter(lambda text: "\0" not in text),
    st.sampled_from(["", "ab" * 20_000, "é" * 30_000, "," * 65_536]),
)
parts = st.one_of(st.text("ab,é日", max_size=2), st.sampled_from(["", "𝔸", "ab" * 200]))
numbers = st.one_of(
    st.integers(-2, 6).map(str),
    st.sampled_from(
        ["0", "1.0", "-0", "1e3", "x", "", "9223372036854775807", "99999999999999999999"]
    ),
)
CALLS = [
    Apply("quoted", (A,)),
    Apply("quoted", (C,)),
    Apply("trim", (A,)),
    Apply("substring", (A, C)),
    Apply("substring", (A, C, D)),
    Apply("replace", (A, B, C)),
    Apply("join", (B, A)),
    Apply("join", (B, A, C, D)),
    Apply("jaro_winkler", (A, B)),
    Apply("jaro_winkler", (B, A)),
    Apply("trigram", (A, C)),
    Apply("trigram", (A, A)),
]


def world(*rules, engine=Engine):
    return programs.World(engine(), RuleSet(rules))


def rule_of(name, args, call):
    return Rule(Atom(name, (*args, Z)), (Literal(Atom("v", args)), Comparison("=", Z, call)))


@examples(150)
@given(st.lists(st.tuples(texts, parts, numbers, numbers), min_size=1, max_size=12))
def test_functions_of_texts_have_the_same_values_in_both_engines(rows):
    rules = [rule_of(f"f{i}", ROW, call) for i, call in enumerate(CALLS)]
    worlds = [world(*rules), world(*rules, engine=ReferenceEngine)]
    for made in worlds:
        made.tell(Atom("v", row) for row in rows)
    for i, call in enumerate(CALLS):
        expected = set()
        for row in rows:
            values = dict(zip(ROW, row, strict=True))
            value = compute(call.function, [values[arg] for arg in call.args])
            if value is not None:
                expected.add((*row, value))
        for made in worlds:
            assert made.ask(Atom(f"f{i}", (*ROW, Z))) == expected


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        ("quoted", ("ann",), "ann"),
        ("quoted", ("a-b::c_1",), "a-b::c_1"),
        ("quoted", ("a-:b",), '"a-:b"'),
        ("quoted", ("a-",), '"a-"'),
        ("quoted", ("-1.5e+3",), "-1.5e+3"),
        ("quoted", ("1.",), '"1."'),
        ("quoted", ("not",), '"not"'),
        ("quoted", ("",), '""'),
        ("quoted", ('a "b" \\ \n\x01',), '"a \\"b\\" \\\\ \\n\\u0001"'),
        ("quoted", ("größe",), "größe"),
        ("trim", ("\u3000 a b\n\u2009",), "a b"),
        ("trim", ("\x1f a",), "\x1f a"),
        ("trim", (" \n",), ""),
        ("substring", ("größe", "2"), "öße"),
        ("substring", ("größe", "2", "2"), "öß"),
        ("substring", ("abc", "7"), ""),
        ("substring", ("abc", "1", "99"), "bc"),
        ("substring", ("abc", "-1"), None),
        ("substring", ("abc", "0.5"), None),
        ("substring", ("abc", "1.0"), "bc"),
        ("replace", ("aaa", "aa", "b"), "ba"),
        ("replace", ("aaa", "", "b"), None),
        ("replace", ("日本", "本", ""), "日"),
        ("join", (", ", "a"), "a"),
        ("join", (", ", "a", "", "c"), "a, , c"),
        ("capture", ("a1b22", "([0-9]+)", "1"), "1"),
        ("capture", ("a1b22", "([0-9]+)$", "1"), "22"),
        ("capture", ("key=value", "(\\w+)=(\\w+)", "2"), "value"),
        ("capture", ("key=value", "(\\w+)=(\\w+)", "0"), "key=value"),
        ("capture", ("aaa", "(a+?)", "1"), "a"),
        ("capture", ("b", "(a)|b", "1"), None),
        ("capture", ("c", "(a)|b", "1"), None),
        ("capture", ("", "(x*)", "1"), ""),
        ("capture", ("été 2024", "(\\d{4})", "1"), "2024"),
    ],
)
def test_values(function, args, value):
    assert compute(function, args) == value
    rule = rule_of("f", (A,), Apply(function, (A, *args[1:])))
    for engine in (Engine, ReferenceEngine):
        made = world(rule, engine=engine)
        made.tell([Atom("v", args[:1])])
        assert made.ask(Atom("f", (args[0], Z))) == (
            {(args[0], value)} if value is not None else set()
        )


def test_only_white_space_is_trimmed():
    assert all(char.isspace() for char in SPACES)
    # Python also takes the four separators of ASCII for white space.
    others = {chr(point) for point in range(0x110000) if chr(point).isspace()} - set(SPACES)
    assert others == set("\x1c\x1d\x1e\x1f")


groups = st.recursive(
    st.sampled_from(
        ["a", "b", ".", "[ab]", "[^a]", r"\d", "é", "^", "$", "a+", "b*?", "(a)", "(é?)"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|({two[1]}))"),
        inner.map(lambda one: f"({one})"),
        # A repetition of what may be empty is the one case in which Python and Perl differ.
        st.tuples(
            st.sampled_from(["(a)", "(ab|a)", "(?:a|(b))", "[ab]", r"(\d)", "é"]),
            st.sampled_from(
                ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,3}?"]
            ),
        ).map("".join),
    ),
    max_leaves=6,
)


@examples(400)
@given(groups, st.lists(st.text("abc1é.\n", max_size=7), min_size=1, max_size=8), st.data())
def test_groups_are_those_of_python(pattern, found, data):
    other = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    group = data.draw(st.integers(0, other.groups))
    program = compile_pattern(pattern, group)
    expected = {}
    for text in found:
        match = other.search(text)
        if match is not None and match.group(group) is not None:
            expected[text] = match.group(group)
    assert {
        text: value for text in found if (value := captured(program, text)) is not None
    } == expected
    made = world(rule_of("p", (A,), Apply("capture", (A, pattern, str(group)))))
    made.tell(Atom("v", (text,)) for text in found)
    assert made.ask(Atom("p", (A, Z))) == set(expected.items())


def test_a_group_is_found_in_linear_time():
    made = world(parse_rule('p(?z) :- v(?x), ?z = capture(?x, "(a|a)*(a*)*(a?){30}(b)$", 4).'))
    made.tell([Atom("v", ("a" * 20_000,)), Atom("v", ("a" * 20_000 + "b",))])
    assert made.ask(Atom("p", (Z,))) == {("b",)}


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("capture(?x, ?x, 1)", "the pattern of capture(...) has to be a constant"),
        ("capture(?x, a, ?x)", "the group of capture(...) has to be a number: 0, 1, 2, ..."),
        ("capture(?x, a, b)", "the group of capture(...) has to be a number: 0, 1, 2, ..."),
        ("capture(?x, '(a)(b)', 3)", 'the pattern "(a)(b)" has no group 3: it has 2'),
        ("concat(capture(?x, '(a', 1), b)", '"(" without ")"'),
    ],
)
def test_what_capture_refuses(call, problem):
    from kbplanner.passes.check import check_rule

    with pytest.raises(InvalidInput, match=re.escape(problem)):
        check_rule(parse_rule(f"p(?z) :- v(?x), ?z = {call}."))
