"""The formatter: the same statements, nothing left to change, no comment lost."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbplanner.authoring.blocks import checked_source
from kbplanner.authoring.formatter import format_text
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
)

COMMENTS = (
    "% {}\n",
    "# {} \t\n",
    "// {}.\n",
    "/* {} */",
    "/* {}\n   ?- second (line) */",
    "/*{}\r\n*/",
    "%{} 'a\"\n",
)


@st.composite
def gaps(draw: st.DrawFn, required: bool = False) -> str:
    """White space between two tokens, sometimes with comments."""
    parts = [draw(st.sampled_from(["", " ", "", " ", "  ", "\n", "\t", "\n\n \n", "\r\n"]))]
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 2]))):
        number = draw(st.integers(0, 99999))
        parts.append(draw(st.sampled_from(COMMENTS)).format(f"c{number}"))
        parts.append(draw(st.sampled_from(["", " ", "\n", "\n\n\n"])))
    text = "".join(parts)
    # A comment right behind "/" would begin with that character.
    return f" {text}" if required and not text[:1].isspace() else text


LONG_TEXT = '"a text that takes much room in its line, to have rules broken"'
WORDS = ["ann", "?x", "?y", "?long_name_of_a_variable", "_", "-3", "1e5", "part-of", "größe"]
TERMS = st.sampled_from([*WORDS, '"a b"', "'it is'", r'"\"%"', LONG_TEXT])
CONSTANTS = st.sampled_from(["ann", '"a b. c"', "'// no comment'", "-3", "30", "x_1", "iso:4217"])
NAMES = st.sampled_from([("p",), ("'is member of'",), ("ancestor",), ("'not'",)])


def _separated(groups: list[list[str]]) -> list[str]:
    tokens: list[str] = []
    for index, group in enumerate(groups):
        tokens += [","] * (index > 0) + group
    return tokens


def _term(text: str) -> list[str]:
    return ["-", text[1:]] if text.startswith("-") else [text]


@st.composite
def atoms(draw: st.DrawFn, terms: st.SearchStrategy[str]) -> list[str]:
    args = draw(st.lists(terms, max_size=4))
    name = list(draw(NAMES))
    if not args and draw(st.booleans()):
        return name
    return [*name, "(", *_separated([_term(arg) for arg in args]), ")"]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> list[str]:
    if not depth or draw(st.booleans()):
        return _term(draw(st.sampled_from(["?x", "?y", "3", "-2.5", '"a b"'])))
    kind = draw(st.sampled_from(["operator", "group", "function"]))
    inner = draw(expressions(depth=depth - 1))
    if kind == "group":
        return ["(", *inner, ")"]
    other = draw(expressions(depth=depth - 1))
    if kind == "function":
        return ["concat", "(", *inner, ",", *other, ")"]
    operator = draw(st.sampled_from(["+", "-", "*", "/", "div", "mod"]))
    return ["(", *inner, ")", operator, "(", *other, ")"]


@st.composite
def items(draw: st.DrawFn) -> list[str]:
    kind = draw(st.sampled_from(["atom", "atom", "not", "false", "not false", "compare", "test"]))
    if kind == "compare":
        operator = draw(st.sampled_from(["=", "!=", "==", "!==", "<", "<=", ">", ">="]))
        return [*draw(expressions()), operator, *draw(expressions())]
    if kind == "test":
        return ["contains", "(", *draw(expressions()), ",", '"@"', ")"]
    signs = {"not": ["not"], "false": ["~"], "not false": ["not", "~"]}.get(kind, [])
    return [*signs, *draw(atoms(TERMS))]


BODIES = st.lists(items(), min_size=1, max_size=4).map(_separated)
HEADS = atoms(st.sampled_from(["?x", "?y", "ann", '"a b"']))
COUNTS = st.sampled_from([["count", "(", "*", ")"], ["sum", "(", "?x", ")"], ["?y"]])


@st.composite
def statements(draw: st.DrawFn) -> list[str]:
    kind = draw(
        st.sampled_from(["fact", "fact", "rule", "rule", "goal", "declaration", "aggregate"])
    )
    sign = draw(st.sampled_from([[], [], ["~"], ["not"]]))
    if kind == "fact":
        notes = [[], ["[", "confidence", "=", "0.5", ",", "ttl", "=", "100", "]"]]
        return [*sign, *draw(atoms(CONSTANTS)), *draw(st.sampled_from(notes)), "."]
    if kind == "goal":
        return ["?-", *draw(BODIES), "."]
    if kind == "declaration":
        declared = [
            ["@", "input", "p", "(", "name", ",", "what", ")", '"what is liked"', "."],
            ["@", "input", "p", "(", "name", ":", "text", ",", "n", ":", "number", ")", "."],
            ["fixture", '"f"', "from", '"a b.csv"', "as", "p", "."],
            ["@", "phrase", "p", "/", "2", '"{0} likes {1}"', "[", "scope", "=", "s", "]", "."],
            [
                "@",
                "disjoint",
                "p",
                "/",
                "2",
                ",",
                "'a q'",
                "/",
                "2",
                "[",
                "scope",
                "=",
                "s",
                "]",
                ".",
            ],
            ["@", "disjoint", "cat", ",", "dog", "."],
            ["@", "key", "p", "(", "?x", ",", "_", ")", "."],
            ["@", "total", "p", "(", "?x", ",", "_", ")", ",", "q", "(", "?x", ")", "."],
            ["@", "equivalence", "same", "/", "2", "."],
        ]
        return draw(st.sampled_from(declared))
    if kind == "aggregate":
        return ["kids", "(", *draw(COUNTS), ",", "?z", ")", ":-", *draw(BODIES), "."]
    name = draw(st.sampled_from([[], [], ["@", "r1", ":"], ["@", '"a rule"', ":"]]))
    notes = [[], ["[", "confidence", "=", "0.5", ",", "scope", "=", "draft", "]"]]
    return [*name, *sign, *draw(HEADS), ":-", *draw(BODIES), *draw(st.sampled_from(notes)), "."]


@st.composite
def blocks(draw: st.DrawFn) -> list[str]:
    facts = draw(st.lists(atoms(CONSTANTS), max_size=3))
    inner = [token for fact in facts for token in (*fact, ".")]
    if draw(st.booleans()):
        return ["fixture", '"a fixture"', "{", *inner, "}"]
    answers = ["=", "[", *_separated([_term(each) for each in draw(st.lists(CONSTANTS))]), "]"]
    pairs = ["=", "[", "(", "a", ",", "-", "1", ")", ",", "(", "b", ",", '"c d"', ")", "]"]
    goals = [
        ["?-", "p", "(", "?x", ")", *answers, "."],
        ["?-", "p", "(", "?x", ")", ",", "?x", "=", "?y", *pairs, "."],
        ["?-", "not", "p", "(", "a", ")", "."],
        ["?-", "p", "(", "a", ")", "because", "@", "r", "."],
    ]
    for goal in draw(st.lists(st.sampled_from(goals), min_size=1, max_size=3)):
        inner += goal
    used = draw(st.sampled_from([[], ["with", '"f"'], ["with", '"f"', ",", "'g'"]]))
    return ["test", '"a test"', *used, "{", *inner, "}"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A text with white space and comments between any two tokens."""
    pieces = []
    for tokens in draw(st.lists(st.one_of(statements(), statements(), blocks()), max_size=5)):
        for index, token in enumerate(tokens):
            before = tokens[index - 1] if index else ""
            apart = token in (":", ":-") or (_is_word(before) and _is_word(token))
            apart = apart or before in (".", "/", "not", "div", "mod", ":", "-")
            apart = apart or (token in "=<>:-+*/~" and before[-1:] in list("=<>!:-+*/~?"))
            apart = apart or (token in ("div", "mod", "-", "/") or before in ("<", "="))
            pieces += [draw(gaps(apart)), token]
    pieces.append(draw(gaps()))
    return "".join(pieces)


def _is_word(token: str) -> bool:
    return bool(re.match(r"[\w?]", token[-1:])) or token[:1] in "\"'"


def content(statement: Statement) -> Any:
    """A statement without its position."""
    match statement:
        case FactStatement():
            return statement.atom, statement.annotations
        case RuleStatement():
            return statement.rule
        case GoalStatement():
            return statement.body
        case DeclarationStatement():
            return statement.declaration


def contents(text: str) -> list[Any]:
    """All statements and blocks of a text, without their positions."""
    source = checked_source(text)
    rows: list[Any] = [content(statement) for statement in source.parsed.statements]
    for block in source.blocks:
        rows.append(
            (block.kind, block.name, block.fixtures, [content(each) for each in block.facts])
        )
        rows += [
            (content(each.statement), each.variables, each.answers, each.rule)
            for each in block.expectations
        ]
    return rows


def comments(text: str) -> list[str]:
    return re.findall(r"c\d+", text)


@given(programs())
def test_formatting_keeps_statements_and_comments(text: str) -> None:
    before = contents(text)
    formatted = format_text(text)
    assert contents(formatted) == before
    assert format_text(formatted) == formatted
    assert comments(formatted) == comments(text)
    assert not re.search(
        r"[ \t\r]\n|\n\n\n|^\n|\n\n\Z", re.sub(r"/\*.*?\*/", "c", formatted, flags=re.S)
    )
    assert not formatted or formatted.endswith("\n")
