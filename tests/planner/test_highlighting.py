"""Kinds of text: every piece of any text has one, and together they are the text."""

from hypothesis import given
from hypothesis import strategies as st

from kbplanner.authoring.highlighting import KIND_OF_TOKEN, TextKind, kinds_of
from kbplanner.syntax.scanner import OPERAND_END, OPERAND_START

PIECES = st.sampled_from(
    ["p(", "?x", ")", ".", ":-", "?-", '"a', '"', "% c\n", "/*", "*/", "\n", " ", "not", "12", "{", "}",
     "test", "=", "[", "]", "é", "“", "@", "'", "\\", "because"]
)  # fmt: skip


def kinds(text):
    return [(text[a:b], kind.name) for a, b, kind in kinds_of(text) if kind is not TextKind.SPACE]


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_the_pieces_are_the_whole_text(text):
    pieces = list(kinds_of(text))
    assert "".join(text[start:end] for start, end, _ in pieces) == text
    assert [start for start, _, _ in pieces[1:]] == [end for _, end, _ in pieces[:-1]]


def test_every_token_that_begins_or_ends_an_operand_has_a_kind():
    assert KIND_OF_TOKEN.keys() >= OPERAND_END | OPERAND_START


def test_a_rule():
    assert kinds("@r1: q(?x) :- p(?x, 3), not r(a). % why") == [
        ("@", "PUNCTUATION"), ("r1", "RULE_NAME"), (":", "PUNCTUATION"),
        ("q", "PREDICATE"), ("(", "PUNCTUATION"), ("?x", "VARIABLE"), (")", "PUNCTUATION"),
        (":-", "DEFINITION"),
        ("p", "PREDICATE"), ("(", "PUNCTUATION"), ("?x", "VARIABLE"), (",", "PUNCTUATION"),
        ("3", "NUMBER"), (")", "PUNCTUATION"), (",", "PUNCTUATION"), ("not", "KEYWORD"),
        ("r", "PREDICATE"), ("(", "PUNCTUATION"), ("a", "NAME"), (")", "PUNCTUATION"),
        (".", "PUNCTUATION"), ("% why", "COMMENT"),
    ]  # fmt: skip


def test_words_have_the_kind_of_their_place():
    assert dict(kinds("p(a) [confidence=0.5]."))["confidence"] == "KEY"
    block = dict(kinds('test "x" with "f" { ?- p(?x) = [b]. ?- q(b) because @r. }'))
    assert [block[word] for word in ("test", "with", "because", "r")] == [
        "KEYWORD", "KEYWORD", "KEYWORD", "RULE_NAME",
    ]  # fmt: skip
    assert dict(kinds("test(with, because)."))["with"] == "NAME"
    assert dict(kinds("p(?x, min ?d) :- q(?x, ?d)."))["min"] == "KEYWORD"
    assert dict(kinds("p(min, max).")) | {"max": "NAME"} == dict(kinds("p(min, max)."))
    assert dict(kinds('@summary p/2 "{0}".'))["summary"] == "KEYWORD"


def test_what_is_no_token_is_a_mistake():
    assert kinds("p(“a”) => b.")[2] == ("“", "MISTAKE")
    assert kinds('p("abc\nq(b).')[-1] == (".", "PUNCTUATION")
    assert [kind for _, kind in kinds("/* open p(a).")] == ["MISTAKE"] * 3
