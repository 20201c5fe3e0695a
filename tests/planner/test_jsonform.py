"""Rules, atoms and goals as JSON: values that are read, values that are refused, and writing."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.errors import InvalidInput
from kbplanner.ir.operators import BUILTINS
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
from kbplanner.syntax.jsonform import (
    args_from_json,
    atom_from_json,
    goal_from_json,
    item_from_json,
    rule_from_json,
)
from kbplanner.syntax.jsonwriter import atom_to_json, rule_to_json
from kbplanner.syntax.parser import parse_rule
from kbplanner.syntax.printer import print_rule

X, Y, Z = Variable("x"), Variable("y"), Variable("z")
NAMES = "after the question mark: a letter A to Z or _, then letters, digits and _"
NO_AGGREGATE = 'the aggregate "max" is only allowed in a rule head'
P = {"predicate": "p", "args": ["?x"]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30, "30"),
        (30.0, "30"),
        (1.5, "1.5"),
        (-0.0, "0"),
        (1e16, "1e+16"),
        (1e-7, "1e-07"),
        (10**50, "1" + "0" * 50),
        (True, "true"),
        (False, "false"),
        ("007", "007"),
        ("30.0", "30.0"),
        ("", ""),
        (" a\n", " a\n"),
        ("a?x", "a?x"),
    ],
)
def test_constants(value: object, text: str) -> None:
    assert args_from_json([value]) == (text,)


def test_variables() -> None:
    assert args_from_json(["?x", "?", "?_", "?_a1"]) == (X, ANONYMOUS, ANONYMOUS, Variable("_a1"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("a", "args: must be an array"),
        ([None], "args[0]: must be a text, a number or a boolean, not null"),
        (["a", {}], "args[1]: must be a text, a number or a boolean, not an object"),
        ([[]], "args[0]: must be a text, a number or a boolean, not an array"),
        ([math.nan], "args[0]: must be a finite number"),
        ([-math.inf], "args[0]: must be a finite number"),
        ([10**5000], "args[0]: the number is too large; send it as a text"),
        (["\0"], "args[0]: the character NUL is not allowed"),
        (["\udc00"], "args[0]: half a surrogate pair (U+DC00) is not a character"),
        (["a" * 65537], "args[0]: an argument has at most 65536 bytes, this one has 65537"),
        (["a"] * 65, "args: an atom has at most 64 arguments, this one has 65"),
        (
            ["?x y"],
            f'args[0]: "?x y" is not a variable; {NAMES}',
        ),
        (
            ["?1"],
            f'args[0]: "?1" is not a variable; {NAMES}',
        ),
    ],
)
def test_refused_arguments(values: object, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        args_from_json(values)
    assert caught.value.message == message
    field, problem = message.split(": ", 1)
    assert caught.value.details == {"fields": {field: [problem]}}


@pytest.mark.parametrize(
    ("extra", "positive"),
    [
        ({}, True),
        ({"negated": False, "truthVal": True, "polarity": "positive"}, True),
        ({"negated": None, "truthVal": None, "polarity": None}, True),
        ({"negated": True}, False),
        ({"truthVal": False}, False),
        ({"negated": True, "truthVal": True}, False),
        ({"polarity": "negative"}, False),
    ],
)
def test_the_sign_of_an_atom_and_of_a_head(extra: dict[str, object], positive: bool) -> None:
    assert atom_from_json({**P, **extra}) == Atom("p", (X,), positive)
    assert rule_from_json({"head": {**P, **extra}, "body": [P]}).head == Atom("p", (X,), positive)


@pytest.mark.parametrize(
    ("extra", "positive", "negated"),
    [
        ({}, True, False),
        ({"negated": True}, True, True),
        ({"naf": True}, True, True),
        ({"truthVal": False}, True, True),
        ({"polarity": "negative"}, False, False),
        ({"polarity": "negative", "negated": True}, False, True),
    ],
)
def test_the_sign_of_body_atoms_and_goals(
    extra: dict[str, object], positive: bool, negated: bool
) -> None:
    literal = Literal(Atom("p", (X,), positive), negated)
    assert item_from_json({**P, **extra}) == literal
    assert goal_from_json({**P, **extra}) == literal


@pytest.mark.parametrize(
    ("obj", "item"),
    [
        ({"predicate": "<", "args": ["?x", "18"]}, Comparison("<", X, "18")),
        ({"predicate": "<", "args": ["?x", 18]}, Comparison("<", X, "18")),
        ({"predicate": "<", "args": ["?x", "18"], "negated": True}, Comparison(">=", X, "18")),
        ({"predicate": "=", "args": ["?x", "a"], "naf": True}, Comparison("!=", X, "a")),
        ({"predicate": "=", "args": ["?z", "?x + 1"]}, Comparison("=", Z, Apply("+", (X, "1")))),
        ({"predicate": "=", "args": ["?z", "lower(?x)"]}, Comparison("=", Z, Apply("lower", (X,)))),
        (
            {"predicate": "=", "args": ["?z", 'concat(?x, " ", ?y)']},
            Comparison("=", Z, Apply("concat", (X, " ", Y))),
        ),
        ({"predicate": "=", "args": ["?z", "2024-01-01"]}, Comparison("=", Z, "2024-01-01")),
        ({"predicate": "=", "args": ["?z", "a + b"]}, Comparison("=", Z, "a + b")),
        ({"predicate": "=", "args": ["?z", "1 + 2"]}, Comparison("=", Z, "1 + 2")),
        ({"predicate": "=", "args": ["?z", "really?"]}, Comparison("=", Z, "really?")),
        ({"predicate": "=", "args": ["?z", "is it ?x"]}, Comparison("=", Z, "is it ?x")),
        ({"builtin": "contains", "args": ["?x", "a b"]}, Comparison("contains", X, "a b")),
        (
            {"builtin": "contains", "args": ["?x", "a"], "negated": True},
            Comparison("contains", X, "a", True),
        ),
        ({"builtin": "length", "args": ["?x", "?z"]}, Comparison("=", Z, Apply("length", (X,)))),
        ({"builtin": "<", "args": ["?x", 18]}, Comparison("<", X, "18")),
        ({"predicate": "contains", "args": ["?x", "a b"]}, Literal(Atom("contains", (X, "a b")))),
        (
            {"predicate": "contains", "args": ["?x"], "polarity": "negative"},
            Literal(Atom("contains", (X,), False)),
        ),
        ({"predicate": "length", "args": ["?x"]}, Literal(Atom("length", (X,)))),
        ({"predicate": "+", "args": ["?x"]}, Literal(Atom("+", (X,)))),
        ({"predicate": "<", "args": ["?x"], "builtin": False}, Literal(Atom("<", (X,)))),
        ("contains(?x, a)", Comparison("contains", X, "a")),
        ({"text": "'contains'(?x, a)"}, Literal(Atom("contains", (X, "a")))),
        ({"predicate": "count", "args": ["?x"]}, Literal(Atom("count", (X,)))),
        ({"predicate": "my pred", "args": []}, Literal(Atom("my pred"))),
    ],
)
def test_body_items(obj: object, item: object) -> None:
    assert item_from_json(obj) == item


def test_a_rule_with_everything() -> None:
    obj = {
        "head": {"predicate": "total", "args": ["?c", "sum(?v)", "count(*)"], "negated": False},
        "body": [{"predicate": "order", "args": ["?c", "?", "?v"]}],
        "name": "r 1",
        "confidence": 1,
        "scope": "draft",
        "unknown": None,
    }
    rule = rule_from_json(obj)
    head = Atom("total", (Variable("c"), Aggregate("sum", Variable("v")), Aggregate("count", None)))
    body = (Literal(Atom("order", (Variable("c"), ANONYMOUS, Variable("v")))),)
    assert rule == Rule(head, body, "r 1", 1.0, "draft")
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ([], "value: must be an object"),
        ({"body": [P]}, "head: is required"),
        ({"head": P}, "body: is required"),
        ({"head": P, "body": []}, "body: must not be empty: assert the head as a fact instead"),
        ({"head": P, "body": {}}, "body: must be an array of atoms"),
        ({"head": P, "body": [P] * 65}, "body: a rule body has at most 64 atoms, this one has 65"),
        ({"head": P, "body": [P, 3]}, "body[1]: must be an object"),
        ({"head": {"args": []}, "body": [P]}, "head.predicate: is required"),
        ({"head": {"predicate": 3, "args": []}, "body": [P]}, "head.predicate: must be a text"),
        (
            {"head": {"predicate": "", "args": []}, "body": [P]},
            "head.predicate: a predicate needs at least one character",
        ),
        (
            {"head": {"predicate": "p" * 256, "args": []}, "body": [P]},
            "head.predicate: a predicate has at most 255 characters, this one has 256",
        ),
        ({"head": {"predicate": "p"}, "body": [P]}, "head.args: is required"),
        (
            {"head": {"predicate": "p", "args": ["?_"]}, "body": [P]},
            'head.args[0]: a rule head cannot say "any value"; name the variable and use it in the body',
        ),
        (
            {"head": {"predicate": "p", "args": ["sum(*)"]}, "body": [P]},
            'head.args[0]: "*" is only allowed in count(*), not in sum(*)',
        ),
        (
            {"head": {"predicate": "p", "args": ["sum(?_)"]}, "body": [P]},
            "head.args[0]: an aggregate needs a named variable",
        ),
        (
            {"head": P, "body": [P, {"predicate": "q", "args": [None]}]},
            "body[1].args[0]: must be a text, a number or a boolean, not null",
        ),
        ({"head": P, "body": [{**P, "negated": "yes"}]}, "body[0].negated: must be true or false"),
        (
            {"head": P, "body": [{**P, "polarity": "no"}]},
            'body[0].polarity: must be "positive" or "negative"',
        ),
        (
            {"head": P, "body": [{"predicate": "<", "args": ["?x"]}]},
            'body[0].args: "<" takes two arguments, found 1',
        ),
        (
            {"head": P, "body": [{"predicate": "<", "args": ["?x", "?"]}]},
            "body[0].args[1]: an anonymous variable has no value to compare or compute with",
        ),
        (
            {"head": P, "body": [{"predicate": "<", "args": ["?x", "?x +"]}]},
            'body[0].args[1]: "?x +" is neither a variable nor an expression: not an expression',
        ),
        (
            {"head": P, "body": [{"predicate": "<", "args": ["?x", "?x + max(?y)"]}]},
            'body[0].args[1]: "?x + max(?y)" is neither a variable nor an expression: '
            + NO_AGGREGATE,
        ),
        (
            {"head": P, "body": [{"predicate": "<", "args": ["?x", "1"], "polarity": "negative"}]},
            'body[0].polarity: a comparison is not known to be false: use "negated"',
        ),
        (
            {"head": P, "body": [{"builtin": "+", "args": []}]},
            f"body[0].builtin: must be one of {', '.join(BUILTINS)}",
        ),
        (
            {"head": P, "body": [{"builtin": "contains", "predicate": "p", "args": []}]},
            'body[0].builtin: is given beside "predicate"; send one of them',
        ),
        (
            {"head": P, "body": [{"text": "p(a)", "negated": True}]},
            'body[0].text: is complete: leave out "negated"',
        ),
        ({"head": P, "body": [{"text": 3}]}, "body[0].text: must be a text"),
        ({"head": P, "body": [P], "confidence": 2}, "confidence: must be a number from 0 to 1"),
        ({"head": P, "body": [P], "confidence": True}, "confidence: must be a number from 0 to 1"),
        ({"head": P, "body": [P], "name": ""}, "name: must be a text that is not empty"),
        ({"head": P, "body": [P], "scope": "\0"}, "scope: the character NUL is not allowed"),
        ({"head": P, "body": [P], "name": "n" * 256}, "name: must have at most 255 characters"),
    ],
)
def test_refused_rules(obj: object, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rule_from_json(obj)
    assert caught.value.message == message


def test_paths_start_with_the_prefix_of_the_caller() -> None:
    with pytest.raises(InvalidInput, match=r"^rules\[2\]\.body\[0\]\.args\[0\]: "):
        rule_from_json({"head": P, "body": [{"predicate": "q", "args": [None]}]}, "rules[2]")
    with pytest.raises(InvalidInput, match=r"^facts\[1\]\.args\[0\]: "):
        atom_from_json({"predicate": "q", "args": [None]}, "facts[1]")
    with pytest.raises(
        InvalidInput, match=r"^goals\[1\]\.builtin: a builtin has no answers of its own"
    ):
        goal_from_json({"builtin": "<", "args": ["1", "2"]}, "goals[1]")
    with pytest.raises(InvalidInput, match=r"^goals\[1\]: is a builtin"):
        goal_from_json("1 < 2", "goals[1]")
    assert goal_from_json({"predicate": "<", "args": ["1", "2"]}) == Literal(Atom("<", ("1", "2")))


def test_deep_expressions_are_texts_or_refused() -> None:
    for text in ("(" * 30_000 + "?x" + ")" * 30_000, "?x" + " + 1" * 9_000):
        obj = {"predicate": "=", "args": ["?z", text]}
        if text.startswith("?"):
            with pytest.raises(InvalidInput):
                item_from_json(obj)
        else:
            assert item_from_json(obj) == Comparison("=", Z, text)


def test_to_json() -> None:
    assert atom_to_json(Atom("p", (X, ANONYMOUS, "a"), False)) == {
        "predicate": "p",
        "args": ["?x", "?_", "a"],
        "negated": True,
    }
    rule = parse_rule("~p(?x) :- q(?x), not ~r(?x), ?x < 3, ?y = ?x + 1, not contains(?x, a).")
    assert rule_to_json(rule) == {
        "head": {"predicate": "p", "args": ["?x"], "negated": True},
        "body": [
            {"predicate": "q", "args": ["?x"], "negated": False},
            {"predicate": "r", "args": ["?x"], "negated": True, "polarity": "negative"},
            {"predicate": "<", "args": ["?x", "3"], "negated": False},
            {"predicate": "=", "args": ["?y", "?x + 1"], "negated": False},
            {"builtin": "contains", "args": ["?x", "a"], "negated": True},
        ],
    }


# ---- any JSON ----

json_texts = st.one_of(
    st.sampled_from(
        ["?x", "?", "?_", "?y + 1", "a", "count(?x)", "count(*)", "not", "<", "=", "contains", "30"]
    ),
    st.text(max_size=5),
)
json_scalars = st.one_of(json_texts, st.integers(), st.floats(), st.booleans(), st.none())
json_atoms = st.fixed_dictionaries(
    {"predicate": json_texts, "args": st.lists(json_scalars, max_size=3)},
    optional={
        "negated": st.booleans() | st.none(),
        "naf": st.booleans(),
        "truthVal": st.booleans(),
        "polarity": st.sampled_from(["positive", "negative"]),
    },
)
json_rules = st.fixed_dictionaries(
    {"head": json_atoms, "body": st.lists(json_atoms, min_size=1, max_size=3)},
    optional={"name": json_texts, "confidence": st.floats(0, 1), "scope": json_texts},
)


@given(json_rules)
@examples(600)
def test_rules_read_from_json_print_and_parse_back(obj: dict[str, object]) -> None:
    try:
        rule = rule_from_json(obj)
    except InvalidInput:
        return
    assert parse_rule(print_rule(rule)) == rule
    assert rule_from_json(rule_to_json(rule)) == rule
