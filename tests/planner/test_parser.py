"""Text to statements: the whole grammar, the fast path and the grammar, streams, spans."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.errors import InvalidInput, RuleSyntaxError
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
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
from kbplanner.syntax import parser, reader
from kbplanner.syntax.parser import (
    parse_atom,
    parse_body,
    parse_clause,
    parse_expression,
    parse_goal,
    parse_program,
    parse_rule,
    parse_stream,
    parse_valid,
)
from kbplanner.syntax.plain_goals import plain_goal
from kbplanner.syntax.printer import print_row
from kbplanner.syntax.reader import StatementReader
from kbplanner.syntax.statements import (
    Annotations,
    FactStatement,
    GoalStatement,
    RuleStatement,
    Statement,
    TextSpan,
)

X, Y, Z = Variable("x"), Variable("y"), Variable("z")

FAMILY = """
% family.kb
parent(ann, bob).            parent(bob, "Zoë K.") [confidence=0.9, scope=draft].
ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
@adult: adult(?x) :- age(?x, ?n), ?n >= 18, not ~adult(?x).
~adult(?x) :- ward(?x).
kids(?p, count(?c)) :- parent(?p, ?c).
?- ancestor(ann, ?who).
"""


def facts(text: str) -> list[Atom]:
    return [
        statement.atom for statement in parse_program(text) if isinstance(statement, FactStatement)
    ]


# ---- the grammar ----


def test_a_whole_program() -> None:
    statements = parse_program(FAMILY)
    kinds = [type(statement).__name__[0] for statement in statements]
    assert "".join(kinds) == "FFRRRRRG"
    adult = statements[4]
    assert isinstance(adult, RuleStatement)
    assert adult.rule == Rule(
        Atom("adult", (X,)),
        (
            Literal(Atom("age", (X, Variable("n")))),
            Comparison(">=", Variable("n"), "18"),
            Literal(Atom("adult", (X,), False), True),
        ),
        "adult",
    )
    assert isinstance(statements[5], RuleStatement)
    assert statements[5].rule.head == Atom("adult", (X,), False)
    assert isinstance(statements[6], RuleStatement)
    assert statements[6].rule.head == Atom(
        "kids", (Variable("p"), Aggregate("count", Variable("c")))
    )
    assert isinstance(statements[7], GoalStatement)
    assert statements[7].literal == Literal(Atom("ancestor", ("ann", Variable("who"))))


@pytest.mark.parametrize(
    ("text", "atom"),
    [
        ("p(a, b).", Atom("p", ("a", "b"))),
        ("p.", Atom("p")),
        ("p().", Atom("p")),
        ("~p(a).", Atom("p", ("a",), False)),
        ("not p(a).", Atom("p", ("a",), False)),
        ("not(a).", Atom("a", (), False)),
        ("'not'(a).", Atom("not", ("a",))),
        ("notable(a).", Atom("notable", ("a",))),
        ("'my pred'(a).", Atom("my pred", ("a",))),
        ('"my pred".', Atom("my pred")),
        (
            "p(30, 30.0, 007, -1.5, 1e5, 2.5E-3).",
            Atom("p", ("30", "30.0", "007", "-1.5", "1e5", "2.5E-3")),
        ),
        ("p(not, div, mod, count, sum).", Atom("p", ("not", "div", "mod", "count", "sum"))),
        ("count(a). ", Atom("count", ("a",))),
        ("p(a-b, a:b, x_1, größe, 日本).", Atom("p", ("a-b", "a:b", "x_1", "größe", "日本"))),
        (r'p("a\n\t\r\\\"\' \u00e9\ud83d\ude00").', Atom("p", ("a\n\t\r\\\"' é😀",))),
        ("""p('it\\'s', 'say "x"', "").""", Atom("p", ("it's", 'say "x"', ""))),
        ('p("% # // /* .").', Atom("p", ("% # // /* .",))),
        ("p(\n  a,\n  b\n)\n.", Atom("p", ("a", "b"))),
        ("p(a, % one\n # two\n // three\n /* four. */ b).", Atom("p", ("a", "b"))),
    ],
)
def test_facts(text: str, atom: Atom) -> None:
    assert facts(text) == [atom]


def test_metadata_is_a_json_object_in_quotes() -> None:
    (statement,) = parse_program("""p(a) [metadata='{"n": [1, {"x": null}]}', scope=s].""")
    assert statement.annotations.metadata == {"n": [1, {"x": None}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'[1]'", "metadata is not an object"),
        ("'{\"a\": }'", "metadata is not JSON at character 7"),
        ("'{\"a\": NaN}'", "metadata is not JSON"),
        ("plain", "metadata is not JSON at character 1"),
        ("'{\"a\": 99999999999999999999}'", "holds an integer of more than 64 bits"),
        ("'{\"a\": 1e999}'", "holds inf, which is not a number in JSON"),
        ('\'{"a": "' + 32768 * "x" + "\"}'", "has at most 32768 bytes as JSON"),
        ("'" + '{"a":' * 70 + "1" + "}" * 70 + "'", "is nested more than 64 deep"),
    ],
)
def test_metadata_that_cannot_be_stored_is_refused(value: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program(f"q(b). p(a) [metadata={value}].")
    (error,) = caught.value.errors
    assert error["code"] == "bad-annotation"
    assert error["column"] == 22
    assert message in error["message"]


def test_the_last_statement_may_lack_its_dot() -> None:
    assert len(parse_program("p(a). p(?x) :- q(?x)", final_dot=False)) == 2
    assert len(parse_program("p(a)\n", final_dot=False)) == 1
    with pytest.raises(RuleSyntaxError):
        parse_program("p(a). p(?x) :- q(?x)")
    with pytest.raises(RuleSyntaxError, match="expected"):
        parse_program("p(a) p(b)", final_dot=False)


def test_annotations() -> None:
    text = 'p(a) [confidence=1, ttl=5000, scope="my scope", validFrom=1735689600000, validUntil="2026-01-01T00:00:00Z"].'
    (statement,) = parse_program(text)
    assert isinstance(statement, FactStatement)
    assert statement.annotations == Annotations(
        1.0, 5000, "my scope", 1735689600000, "2026-01-01T00:00:00Z"
    )
    assert parse_rule("p :- q [confidence=0.5, scope=s]") == Rule(
        Atom("p"), (Literal(Atom("q")),), None, 0.5, "s"
    )
    assert parse_rule('@"rule 1": p :- q').name == "rule 1"


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("not q(?x)", Literal(Atom("q", (X,)), True)),
        ("not (q(?x))", Literal(Atom("q", (X,)), True)),
        ("not(q(?x))", Literal(Atom("q", (X,)), True)),
        ("not ~q(?x)", Literal(Atom("q", (X,), False), True)),
        ("not/* c */q", Literal(Atom("q"), True)),
        ("not", Literal(Atom("not"))),
        ("q(_, ?_)", Literal(Atom("q", (ANONYMOUS, ANONYMOUS)))),
        ("?x = a", Comparison("=", X, "a")),
        ("?x!==?y", Comparison("!==", X, Y)),
        ("?x<-5", Comparison("<", X, "-5")),
        ("?z = ?x + ?y * 2", Comparison("=", Z, Apply("+", (X, Apply("*", (Y, "2")))))),
        ("?z = (?x + ?y) * 2", Comparison("=", Z, Apply("*", (Apply("+", (X, Y)), "2")))),
        ("?z = ?x - 1 - 2", Comparison("=", Z, Apply("-", (Apply("-", (X, "1")), "2")))),
        ("?z = ?x-1", Comparison("=", Z, Apply("-", (X, "1")))),
        ("?z = ?x div 2 mod 3", Comparison("=", Z, Apply("mod", (Apply("div", (X, "2")), "3")))),
        ("?z = div div mod", Comparison("=", Z, Apply("div", ("div", "mod")))),
        ("?z = min(?x, ?y)", Comparison("=", Z, Apply("min", (X, Y)))),
        (
            '?z = concat(?x, " ", upper(?y))',
            Comparison("=", Z, Apply("concat", (X, " ", Apply("upper", (Y,))))),
        ),
        ("starts_with(lower(?x), a)", Comparison("starts_with", Apply("lower", (X,)), "a")),
        ("not contains(?x, ?y)", Comparison("contains", X, Y, True)),
        ("length(?x, 3)", Comparison("=", "3", Apply("length", (X,)))),
        ("concat(?x, ?y, ?z)", Comparison("=", Z, Apply("concat", (X, Y)))),
        ("not lower(?x, ?y)", Comparison("!=", Y, Apply("lower", (X,)))),
        ("'max'(?x, 3)", Literal(Atom("max", (X, "3")))),
        ("'count'(?x)", Literal(Atom("count", (X,)))),
        ("count(?x, ?y)", Literal(Atom("count", (X, Y)))),
    ],
)
def test_body_items(text: str, item: object) -> None:
    assert parse_rule(f"p :- {text}.").body == (item,)


def test_aggregates() -> None:
    head = parse_rule(
        "p(?x, count(*), count(?y), sum(?y), min(?y), max(?y), avg(?y)) :- q(?x, ?y)."
    ).head
    assert head.args == (
        X,
        Aggregate("count", None),
        *(Aggregate(f, Y) for f in ("count", "sum", "min", "max", "avg")),
    )


def test_negative_heads() -> None:
    assert (
        parse_rule("~p(?x) :- q(?x).").head
        == parse_rule("not p(?x) :- q(?x).").head
        == Atom("p", (X,), False)
    )


def test_goals() -> None:
    literal = Literal(Atom("p", (X,)))
    for text in ("?- p(?x).", "?- p(?x)", "p(?x).", "p(?x)"):
        assert parse_goal(text).literal == literal
    assert parse_goal("not p(a)").literal == Literal(Atom("p", ("a",)), True)
    assert parse_goal("~p(a)").literal == Literal(Atom("p", ("a",), False))
    assert parse_goal("p(?x), ?x > 3").body == (literal, Comparison(">", X, "3"))
    with pytest.raises(InvalidInput):
        _ = parse_goal("p(?x), ?x > 3").literal
    assert len(parse_program("p(a). ?- p(?x)")) == 2


def test_a_goal_that_was_read_before_is_read_with_the_limits_of_the_call():
    for text in ("p(a, b)", "p(a, ?x), q(?x, b)", "not p(a, b)"):
        for _ in range(2):
            assert parse_body(text) == parse_goal(text).body
            with pytest.raises(RuleSyntaxError):
                parse_body(text, Limits(args=1))
            with pytest.raises(RuleSyntaxError):
                parse_body(text + " q")


RULES = [
    "p(?x) :- q(?x), not r(?x, _).",
    "@named: p(?x, count(?y)) :-\n    q(?x, ?y),\n  ?x > 3 [confidence=0.5].",
    "~p(?x) :- 'a b'(?x, 'c d').",
    "p(é, ?x) :- q(?x) .",
]


@given(
    st.lists(st.sampled_from([*RULES, "p(a).", "% a comment\n", "\n", "  ", "r(b) [ttl=5].", ")"])),
    st.sampled_from(RULES),
)
def test_rules_that_are_known_are_as_if_they_were_read(parts: list[str], other: str) -> None:
    text = " ".join(parts)
    before = parse_program("\n" + other)
    known = {each.text: each for each in before if isinstance(each, RuleStatement)}
    assert len(known) == 1
    read, again = (
        parse_valid(text, max_errors=10, known=known if again else None) for again in (False, True)
    )
    assert read == again


def test_atoms() -> None:
    assert parse_atom("p(?x, _)") == Atom("p", (X, ANONYMOUS))
    assert parse_atom("~p(a).") == parse_atom("not p(a)") == Atom("p", ("a",), False)


def test_expressions() -> None:
    assert parse_expression("?x + 1") == Apply("+", (X, "1"))
    assert parse_expression("a") == "a"
    for text in ("", "?x +", "p(a).", "?x < 3", "a b", "foo(?x)"):
        with pytest.raises(InvalidInput):
            parse_expression(text)


@pytest.mark.parametrize("text", ["", " \n", "% only", "/* only */", "# a\n// b\n", "\ufeff"])
def test_empty_texts(text: str) -> None:
    assert parse_program(text) == []
    with pytest.raises(InvalidInput, match="expected one rule, found 0"):
        parse_rule(text)


def test_several_statements_instead_of_one() -> None:
    with pytest.raises(InvalidInput, match="expected one rule, found 2"):
        parse_rule("p :- q. p :- r.")


# ---- where things are ----


def test_spans() -> None:
    text = "p(a).  q(b).\n/* x\n y */ r(\n c).\nh(?x, ?y) :-\n  b(?x, _),\n  b(?y, _)."
    spans = [statement.span for statement in parse_program(text)]
    assert spans == [
        TextSpan(1, 1, 1, 6),
        TextSpan(1, 8, 1, 13),
        TextSpan(3, 7, 4, 5),
        TextSpan(5, 1, 7, 12),
    ]
    rule = parse_program(text)[-1]
    assert isinstance(rule, RuleStatement)
    assert rule.where("y") == rule.where("?y") == TextSpan(5, 7, 5, 9)
    assert rule.where("_") == rule.where("?") == TextSpan(6, 9, 6, 10)
    assert rule.where("other") == rule.span
    assert [name for name, _, _ in rule.predicates] == ["h", "b", "b"]
    assert rule.text == "h(?x, ?y) :-\n  b(?x, _),\n  b(?y, _)."


# ---- the fast way and the exact way ----

plain_words = st.sampled_from(
    ["a", "not", "div", "count", "min", "contains", "a-b", "a:b", "é", "x1", "is", "and"]
)
constants = st.one_of(
    plain_words,
    st.sampled_from(["30", "-5", "1.5", "1e5", "007"]),
    st.sampled_from(
        [
            '"a b"',
            "'it'",
            '""',
            '"a\\nb"',
            '"."',
            "'%'",
            '"a,b"',
            '"a)"',
            "?x",
            "_",
            "- 5",
            "12a",
            '"x',
        ]
    ),
)
blanks = st.sampled_from(["", " ", "\n", "\t", " % c\n", "/* . */"])


numbers = st.sampled_from(["0", "1", "0.5", "1.0", "1.5", "-1", "007", "1e0", "9" * 16, "9" * 17])
keys = st.sampled_from(["confidence", "ttl", "scope", "validFrom", "validUntil", "metadata", "x"])
notes = st.tuples(keys, blanks, blanks, numbers | constants | st.just("(a, b)")).map(
    lambda parts: "{}{}={}{}".format(*parts)
)


@st.composite
def annotation_texts(draw: st.DrawFn) -> str:
    joined = f"{draw(blanks)},".join(draw(st.lists(notes, min_size=1, max_size=3)))
    return f"[{draw(blanks)}{joined}{draw(blanks)}]{draw(blanks)}"


@st.composite
def fact_texts(draw: st.DrawFn) -> str:
    args = draw(st.lists(constants, max_size=4))
    joined = "".join(
        (f"{draw(blanks)},{draw(blanks)}" if at else "") + arg for at, arg in enumerate(args)
    )
    name = draw(plain_words | st.just("p"))
    sign = draw(st.sampled_from(["", "~", "~ "]))
    noted = draw(st.just("") | annotation_texts())
    atom = f"{sign}{name}({draw(blanks)}{joined}{draw(blanks)})"
    return f"{draw(blanks)}{atom}{draw(blanks)}{noted}.{draw(blanks)}"


class Exact(StatementReader):
    """A reader without the fast path."""

    def _plain_fact(self, start: int) -> FactStatement | None:
        return None


def outcome(
    kind: type[StatementReader], text: str
) -> tuple[list[Statement], list[dict[str, object]]]:
    statement_reader = kind(text, parse_clause, DEFAULT_LIMITS)
    statements = list(statement_reader.statements())
    return statements, [error.as_json() for error in statement_reader.errors]


@given(st.lists(fact_texts(), min_size=1, max_size=4).map("".join))
@examples(400)
def test_the_fast_path_and_the_grammar_agree(text: str) -> None:
    assert outcome(StatementReader, text) == outcome(Exact, text)


@pytest.mark.parametrize(
    "note",
    [
        "confidence=0.25",
        "scope=s, ttl=5",
        "scope='a b'",
        'validFrom="2026-01-01", validUntil=9',
        "confidence=1.0, confidence=1",
        "scope=not",
        "ttl=0",
        "ttl=x",
    ],
)
def test_the_fast_path_and_the_grammar_agree_on_notes(note: str) -> None:
    text = f"~f(a, 'b') [{note}]. f(b)[{note}]."
    assert outcome(StatementReader, text) == outcome(Exact, text)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=3), st.booleans())
def test_the_fast_path_and_the_grammar_agree_on_printed_rows(
    args: list[str], negated: bool
) -> None:
    text = print_row("p", [arg.replace("\0", "") for arg in args], negated) + "."
    assert outcome(StatementReader, text) == outcome(Exact, text)


def read_goal(text: str) -> object:
    """The goal and the pattern that a text is, or the errors."""
    results: list[object] = []
    for parse in (parse_goal, parse_atom):
        try:
            results.append(parse(text))
        except InvalidInput as error:
            results.append((error.message, error.details))
    return results


def agree_on_goals(text: str) -> bool:
    """Compare with the grammar alone; return True if the fast path has read the text."""
    by_default = read_goal(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "plain_goal", lambda text, limits: None)
        assert read_goal(text) == by_default
    return plain_goal(text, DEFAULT_LIMITS) is not None


@given(fact_texts())
@examples(400)
def test_the_fast_path_for_goals_and_the_grammar_agree(text: str) -> None:
    agree_on_goals(text)
    agree_on_goals(text.removesuffix("."))


@given(st.text(alphabet="pq(),. \"'?x_-:1é", max_size=12), st.text("a?_,1-. ", max_size=8))
@examples(400)
def test_the_fast_path_for_goals_and_the_grammar_agree_on_any_text(text: str, inside: str) -> None:
    agree_on_goals(text)
    agree_on_goals(f"p({inside})")


def test_goals_that_the_fast_path_reads() -> None:
    for text in ("p(a)", " p(?x, _, ?_, -1.5e3) . ", "é-b:c('a b', \"it's\", ?X1)", "p(not, div)"):
        assert agree_on_goals(text), text
    long = f"p({'a' * 70_000})", f"{'p' * 300}(a)", f"p({'a,' * 70}a)"
    for text in (
        "p",
        "p()",
        "not(a)",
        "contains(?x, a)",
        "p(a)..",
        "p(a\n)",
        "p(1a)",
        'p("\\n")',
        *long,
    ):
        assert not agree_on_goals(text), text


@given(st.text(alphabet="pq(),. \n\"'\\?x_-:~%/*[]=<1@é", max_size=40))
@examples(500)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        parse_program(text)


# ---- streams ----


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_a_stream_gives_the_same_statements(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MIN_WINDOW_CHARS", 16)
    text = (
        FAMILY
        + "p(3.5). q(\"a. b\", 'c.').\n/* . */ r :- ?x = 3., s(1).".replace("3.,", "3.")
        + FAMILY * 3
    )
    assert list(parse_stream(pieces(text, size))) == parse_program(text)


def position_and_code(error: dict[str, object]) -> str:
    return f"{error['line']}:{error['column']} {error['code']}"


@given(st.lists(fact_texts(), max_size=4).map("".join), st.integers(1, 9), st.integers(1, 40))
@examples(200)
def test_a_stream_may_be_cut_anywhere(text: str, size: int, window: int) -> None:
    expected, errors = outcome(StatementReader, text)
    before = reader.MIN_WINDOW_CHARS
    reader.MIN_WINDOW_CHARS = window
    statements: list[Statement] = []
    stream_errors: list[dict[str, object]] = []
    try:
        statements.extend(parse_stream(pieces(text, size)))
    except InvalidInput as error:
        stream_errors = list((error.details or {})["errors"])
    finally:
        reader.MIN_WINDOW_CHARS = before
    assert sorted(map(position_and_code, stream_errors)) == sorted(map(position_and_code, errors))
    if not errors:
        assert statements == expected


def test_a_stream_is_read_as_it_comes() -> None:
    drawn = 0

    def endless() -> Iterator[str]:
        nonlocal drawn
        while True:
            drawn += 1
            yield "p(a, b).\n" * 1000

    stream = parse_stream(endless())
    for _ in range(10_000):
        next(stream)
    assert drawn <= 20


def test_a_long_file_and_a_long_line() -> None:
    text = "".join(f'parent(n{at}, "node {at}", {at}).\n' for at in range(100_000))
    for whole in (text, text.replace("\n", " ")):
        statements = parse_program(whole)
        assert len(statements) == 100_000
        last = statements[-1]
        assert isinstance(last, FactStatement)
        assert last.atom == Atom("parent", ("n99999", "node 99999", "99999"))
    assert last.span.line == 1


def test_lark_is_loaded_with_the_first_text_that_needs_it() -> None:
    code = """
import sys
from kbplanner.syntax import jsonform, parser
from kbplanner.passes import check
parser.parse_program("p(a). q(b).")
assert "lark" not in sys.modules
parser.parse_rule("p :- q.")
assert "lark" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_an_equivalence_is_short_for_its_rules() -> None:
    written = (
        "same(?y, ?x) :- same(?x, ?y). same(?x, ?z) :- same(?x, ?y), same(?y, ?z)."
        "@'different same/2': contradiction(different, ?x, ?y) :- different(?x, ?y), same(?x, ?y)."
    )
    for text, scope in (("@equivalence same/2.", None), ("@equivalence same/2 [scope=s].", "s")):
        declared = parse_program(text)
        for statement, other in zip(declared, parse_program(written), strict=True):
            assert isinstance(statement, RuleStatement)
            assert isinstance(other, RuleStatement)
            assert statement.rule == replace(other.rule, scope=scope)
            assert statement.predicates[-1][:2] == ("same", 2)
            assert statement.predicates[0][0] == other.rule.head.predicate
    (canonical,) = parse_program("@canonical same/2 [scope=s].")
    (written_rule,) = parse_program(
        "@'canonical same/2': canonical(same, ?x, representative(?y)) :- same(?x, ?y)."
    )
    assert canonical.rule == replace(written_rule.rule, scope="s")
    assert canonical.predicates[0][:2] == ("canonical", 3)
    with pytest.raises(RuleSyntaxError, match="@canonical has no text"):
        parse_program('@canonical same/2 "x".')
    (rule,) = parse_program("@equivalence: p(?x) :- q(?x).")
    assert isinstance(rule, RuleStatement)
    assert rule.rule.name == "equivalence"
    with pytest.raises(RuleSyntaxError, match="found a declaration"):
        parse_rule("@equivalence same/2.")


PROSE = st.sampled_from(
    [
        "mia: I moved to Oslo. ",
        "Nice to meet you, Mia, and thanks for all the help with the move of last week, I mean it",
        "not so fast. ",
        "p(x) :- q(x), r(x), s(x), t(x), u(x), v(x) and then some more words that are no statement. ",
    ]
)


@given(
    st.lists(fact_texts() | PROSE | st.just(FAMILY), max_size=4).map("".join), st.integers(1, 99)
)
@examples(200)
def test_a_stream_without_explanations_has_errors_where_others_have(text: str, size: int) -> None:
    expected, errors = outcome(StatementReader, text)
    statements: list[Statement] = []
    with pytest.raises(InvalidInput) if errors else contextlib.nullcontext():
        statements.extend(parse_stream(pieces(text, size), explained=False))
    assert statements == expected[: len(statements)]
    assert errors or statements == expected


def test_prose_is_read_no_further_than_its_first_words(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    scan = reader.scan_statement

    def scanned(*args: Any) -> tuple[list[reader.Token], int]:
        tokens, end = scan(*args)
        read.append(len(tokens))
        return tokens, end

    monkeypatch.setattr(reader, "scan_statement", scanned)
    with pytest.raises(InvalidInput):
        list(parse_stream(["I moved to the north of Berlin " * 1000], explained=False))
    assert sum(read) == reader.FEW_TOKENS
