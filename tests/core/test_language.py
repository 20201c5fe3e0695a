"""Texts of facts and rules read without a model."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore.errors import InvalidInput, RuleSyntaxError
from kbcore.language.lenient import read_line
from kbcore.language.reading import Taken, read_statements_of
from kbplanner.syntax.printer import print_row


def read(text: str, scope: str | None = None) -> Taken:
    return read_statements_of(text, scope, lambda: None)


def said(text: str) -> list[str]:
    return [print_row(fact.predicate, fact.args, not fact.positive) for fact in read(text).facts]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("likes(ann, tea)", "likes(ann, tea)"),
        ("  likes( ann ,tea ) . % so she says", "likes(ann, tea)"),
        ("likes(Ann Lee, green tea)", 'likes("Ann Lee", "green tea")'),
        ("not p(a)", "not p(a)"),
        ("~p(a).", "not p(a)"),
        ("- p(a)", "p(a)"),
        ("p()", "p"),
        (r"p('it\'s', \"x\")".replace('\\"', '"'), 'p("it\'s", x)'),
        ("p(-1.5, 2e3)", "p(-1.5, 2e3)"),
        ("'odd name'(a)", "'odd name'(a)"),
    ],
)
def test_a_line(line: str, text: str) -> None:
    atom = read_line(line)
    assert atom is not None
    assert print_row(atom.predicate, [str(arg) for arg in atom.args], not atom.positive) == text
    assert said(line) == [text]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Hello.",
        "Ann (my friend) likes tea",
        "p(a",
        "p(a,)",
        "p(,a)",
        "p(a) b",
        "p('a)",
        "p(?x)",
        "p(_)",
    ],
)
def test_a_line_without_a_fact_stores_nothing(line: str) -> None:
    assert said(line) == []


@given(
    st.lists(
        st.text(min_size=1).filter(lambda t: not any("\ud800" <= c <= "\udfff" for c in t)),
        max_size=4,
    )
)
def test_printed_text_parses_again(args: list[str]) -> None:
    line = print_row("p", args, False)
    atom = read_line(line if args else "p()")
    if "\\u" not in line and "\\r" not in line:  # escapes that only the language itself knows
        assert atom is not None
        assert atom.args == tuple(args)


@given(st.text(alphabet="p(),.'\"\\ ~?:-_%#\n[]ab1"))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    with suppress(InvalidInput):  # a mistake in a rule
        assert all(1 <= line <= text.count("\n") + 1 for line in read(text).unread)


def test_text_of_the_rule_language() -> None:
    taken = read(
        "/* all of it */ parent(ann,\n bob) [confidence=0.9].\n@g: grand(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).\nsunny."
    )
    assert [(fact.predicate, fact.confidence) for fact in taken.facts] == [
        ("parent", 0.9),
        ("sunny", None),
    ]
    assert [rule.name for rule in taken.rules] == ["g"]
    assert taken.unread == []


def test_mixed_text() -> None:
    text = (
        "Hi!\nlikes(ann, tea)\n# why\n\np(?x) :-\n  likes(?x, tea),\n  q(a).\n"
        "Yes.\na(b). c(d).\n?- p(?x).\nw(x) [ttl=1000]"
    )
    taken = read(text)
    assert said(text) == ["likes(ann, tea)", "a(b)", "c(d)", "w(x)"]
    assert [len(rule.body) for rule in taken.rules] == [2]
    assert taken.unread == [1, 8, 10]


def test_a_rule_without_full_stop() -> None:
    assert len(read("Listen:\np(?x) :- q(?x)").rules) == 1


def test_a_fact_stated_twice_counts_once_and_the_last_statement_wins() -> None:
    taken = read("p(a) [confidence=0.2].\np(a) [confidence=0.7].\n~p(a).")
    assert [(fact.positive, fact.confidence) for fact in taken.facts] == [
        (True, 0.7),
        (False, None),
    ]


@pytest.mark.parametrize("name", ["contains", "length", "div", "count"])
def test_a_line_may_state_a_fact_with_the_name_of_a_builtin(name: str) -> None:
    taken = read(f"Hello\n{name}(a, b)")
    assert [(fact.predicate, fact.args) for fact in taken.facts] == [(name, ("a", "b"))]


@pytest.mark.parametrize(
    "text", ["Yes.", "Ann likes tea.", "", "\n\n", "?- p(a).", "# only a comment"]
)
def test_prose_stores_no_facts(text: str) -> None:
    assert not read(text)


def test_errors_in_rules_name_the_line() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        read("Hello\np(?x) :- q(?x")
    assert (caught.value.details or {})["errors"][0]["line"] == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Hello\n'p(a'(b)", "line 2"),
        ("Hello\np(" + "a" * 70_000 + ")", "line 2"),
        ("p(a) [scope=other].", "scope"),
        ("p(" + ", ".join("a" * 65) + ")\nx", "line 1"),
    ],
)
def test_facts_that_cannot_be_stored_are_reported(text: str, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert part in caught.value.message


def test_the_scope_applies_to_facts_and_rules() -> None:
    taken = read("p(a).\nq(?x) :- p(?x).", "s")
    assert [one.scope for one in (*taken.facts, *taken.rules)] == ["s", "s"]


@pytest.mark.parametrize(("start", "end"), [("not", "!"), ("-", "!"), ("p(a)", "x"), ("p(", "[")])
def test_lines_of_blanks_are_read_in_linear_time(start: str, end: str) -> None:
    line = start + " " * 100_000 + end
    begun = time.process_time()
    assert read_line(line) is None
    assert time.process_time() - begun < 1  # trying every way to share the blanks out takes minutes
