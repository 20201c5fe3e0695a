"""Messages for authors of rules: their exact text, all errors at once, carets under the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbplanner.errors import RuleSyntaxError
from kbplanner.passes.check import check_statements
from kbplanner.syntax.diagnostics import MAX_ERRORS, padding, width
from kbplanner.syntax.parser import parse_atom, parse_goal, parse_program, parse_rule, parse_stream
from kbplanner.syntax.statements import Statement

GOLDEN = Path(__file__).parent / "golden" / "diagnostics.txt"


def golden_cases() -> list[tuple[str, str, str]]:
    """The cases of the golden file: `=== code`, the text, `---`, what is shown."""
    cases = []
    for block in GOLDEN.read_text(encoding="utf-8").split("=== ")[1:]:
        code, rest = block.split("\n", 1)
        text, shown = rest.split("\n---\n", 1)
        cases.append((code, text, shown.rstrip("\n")))
    return cases


@pytest.mark.parametrize(
    ("code", "text", "shown"), golden_cases(), ids=[text for _, text, _ in golden_cases()]
)
def test_message(code: str, text: str, shown: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        check_statements(parse_program(text))
    assert caught.value.message == shown
    assert caught.value.errors[0]["code"] == code


def errors_of(text: str) -> list[dict[str, object]]:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program(text)
    details = caught.value.details
    assert details is not None
    assert details["errors"] == caught.value.errors
    return caught.value.errors


def test_the_example_of_the_reference() -> None:
    text = "parent(ann, bob).\nancestor(?x, ?y) :- parent(?x, ?y).\n"
    text += "ancestor(?x, ?z) :- parent(?x, ?y) ancestor(?y, ?z).\n"
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program(text)
    assert caught.value.message == (
        'line 3, column 36: expected "," or "." after an atom, found "ancestor"\n'
        "  3 | ancestor(?x, ?z) :- parent(?x, ?y) ancestor(?y, ?z).\n"
        "    |                                    ^^^^^^^^\n"
        "hint: put a comma between body atoms"
    )
    assert caught.value.errors == [
        {
            "line": 3,
            "column": 36,
            "endColumn": 44,
            "code": "syntax",
            "message": 'expected "," or "." after an atom, found "ancestor"',
            "hint": "put a comma between body atoms",
            "source": "ancestor(?x, ?z) :- parent(?x, ?y) ancestor(?y, ?z).",
        }
    ]


def test_all_errors_of_a_text_are_reported_in_order() -> None:
    text = "p(?x).\nq(a) r(b).\nfine(a).\ns(a)\nt(“a”).\nu(?a, ?b).\n"
    errors = [(error["line"], error["column"], error["code"]) for error in errors_of(text)]
    assert errors == [
        (1, 3, "variable-in-fact"),
        (2, 6, "syntax"),
        (4, 5, "missing-period"),
        (5, 3, "smart-quote"),
        (6, 3, "variable-in-fact"),
        (6, 7, "variable-in-fact"),
    ]


def test_unsafe_rules_are_reported_together() -> None:
    text = "p(?x) :- q(?y).\nok(?x) :- q(?x).\n  r(?x) :- q(?x), not s(?z)."
    with pytest.raises(RuleSyntaxError) as caught:
        check_statements(parse_program(text))
    positions = [
        (error["line"], error["column"], error["endColumn"], error["code"])
        for error in caught.value.errors
    ]
    assert positions == [(1, 3, 5, "unsafe"), (3, 25, 27, "unsafe")]


def test_reading_stops_after_many_errors() -> None:
    assert len(errors_of("p(?x).\n" * (MAX_ERRORS + 50))) == MAX_ERRORS


def test_an_unclosed_quote_affects_its_line_only() -> None:
    errors = [
        (error["line"], error["code"]) for error in errors_of('p("a).\nq(a b).\nr("\n).\ns(?x).')
    ]
    assert errors == [
        (1, "unclosed-quote"),
        (2, "syntax"),
        (3, "unclosed-quote"),
        (5, "variable-in-fact"),
    ]


def test_an_unclosed_quote_of_the_other_kind_is_text() -> None:
    (error,) = errors_of("says(bob, 'it's).")
    assert (error["line"], error["column"], error["code"]) == (1, 15, "syntax")


def test_a_goal_may_end_with_the_text_but_not_in_a_comma() -> None:
    (error,) = errors_of("?- p(?x), ")
    assert error["message"] == 'expected an atom after ",", found the end of the text'


def test_unstorable_characters() -> None:
    for text in ('p("\0").', "p(a, 'x\0').", 'p("\ud800").'):
        (error,) = errors_of(text)
        assert error["code"] == "bad-constant"
    (error,) = errors_of("p(\0).")
    assert error["message"] == 'unexpected character "U+0000"'


def test_deep_brackets_are_refused_and_not_crashed_on() -> None:
    for text in (
        "(" * 100_000,
        "p :- ?x = " + "(" * 70 + "1" + ")" * 70 + ".",
        "p(" * 1000 + "a" + ")" * 1000 + ".",
    ):
        assert errors_of(text)[0]["message"] == "brackets nest at most 64 deep"
    (error,) = errors_of("p :- ?x = " + "1 + " * 10_000 + "1.")
    assert error["message"] == "expressions nest at most 64 deep"


def test_a_statement_is_bounded() -> None:
    (error,) = errors_of("p(" + "a," * 50_000 + "a b).")
    assert error["message"] == "a statement has at most 50000 words and signs"
    (error,) = errors_of("p(" + "a, " * 50_000 + "a b). q(c).")
    assert error["message"] == (
        "a statement has at most 65536 characters, not counting those of words, numbers and quoted "
        "texts"
    )
    (error,) = errors_of("p(" + ", ".join(["?x"] * 65) + ") :- q(?x).")
    assert error["message"] == "an atom has at most 64 arguments, this one has 65"
    (error,) = errors_of("p :- " + ", ".join(["q"] * 65) + ".")
    assert error["message"] == "a rule body has at most 64 atoms, this one has 65"
    (error,) = errors_of(f'p("{"ä" * 40_000}").')
    assert error["message"] == "an argument has at most 65536 bytes, this one has 80000"
    (error,) = errors_of(f"{'p' * 256}(a).")
    assert error["message"] == "a predicate has at most 255 characters, this one has 256"


def test_carets_are_under_the_token_after_tabs_and_wide_characters() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program("\tp(\"日本\",\t'e\u0301' x).")
    assert caught.value.message.split("\n")[1:3] == [
        "  1 | \tp(\"日本\",\t'e\u0301' x).",
        "    | \t         \t    ^",
    ]
    assert caught.value.errors[0]["column"] == 15


def test_a_wide_token_gets_a_wide_caret() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program("p(a) 日本.")
    assert caught.value.message.split("\n")[2] == "    |      ^^^^"
    assert (caught.value.errors[0]["column"], caught.value.errors[0]["endColumn"]) == (6, 8)


def test_width_and_padding() -> None:
    assert (width("ab"), width("日本"), width("e\u0301")) == (2, 4, 1)
    assert padding("a\t日e\u0301") == " \t   "


def test_the_gutter_grows_with_the_line_number() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program("\n" * 122 + "p(?x).")
    assert caught.value.message.split("\n")[:3] == [
        'line 123, column 3: a fact has no variables, found "?x"',
        "  123 | p(?x).",
        "      |   ^^",
    ]


def test_a_long_line_is_cut_to_the_part_around_the_error() -> None:
    (error,) = errors_of("p(a). " * 1000 + "q(a b). " + "p(a). " * 1000)
    assert error["column"] == 6005
    source = str(error["source"])
    assert len(source) < 240
    assert source.startswith("…")
    assert source.endswith("…")
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program("p(a). " * 1000 + "q(a b). ")
    _, shown, carets, _ = caught.value.message.split("\n")
    assert shown[carets.index("^")] == "b"


def test_control_characters_do_not_reach_the_terminal() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program("p(\x1b[31m).")
    assert "\x1b" not in caught.value.message


def test_windows_line_ends() -> None:
    (error,) = errors_of("p(a).\r\nq(a b).\r\n")
    assert (error["line"], error["column"], error["source"]) == (2, 5, "q(a b).")


def test_errors_of_a_stream_come_at_its_end_with_their_positions() -> None:
    text = "p(a).\n" * 30_000 + "q(a b).\n" + "p(a).\n" * 30_000 + "r(?x)."
    statements: list[Statement] = []
    with pytest.raises(RuleSyntaxError) as caught:
        statements.extend(parse_stream(text[at : at + 997] for at in range(0, len(text), 997)))
    assert len(statements) == 30_000
    positions = [(error["line"], error["column"]) for error in caught.value.errors]
    assert positions == [(30_001, 5), (60_002, 3)]


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_rule, "p(a).", 'expected a rule: head ":-" body, found a fact'),
        (parse_goal, "p(a) :- q(a).", 'expected "," or "." after an atom, found ":-"'),
        (parse_atom, "p(a) :- q(a).", "expected a single atom, found a rule"),
        (parse_atom, "p(a) [scope=x].", "expected a single atom"),
        (parse_atom, "?- p(a).", "expected a single atom, found a goal"),
    ],
)
def test_the_wrong_kind_of_statement(parse: object, text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse(text)  # type: ignore[operator]
    assert caught.value.errors[0]["message"] == message
