"""Atoms as the client reads and writes them, against the parser; tables and HTML."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import values

from kbcore.python_api.answers import python_value as value_of_the_core
from kbcore_client import InvalidInput
from kbcore_client.answers import AnswerSet
from kbcore_client.frames import columns_of
from kbcore_client.proofs import Proof
from kbcore_client.values import python_value, read_atom, written_atom
from kbplanner.errors import KBError
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.parser import parse_atom
from kbplanner.syntax.printer import print_atom
from kbplanner.syntax.textform import atom_from_text

NAMES = st.one_of(
    st.sampled_from(
        ["parent", "a-b", "x:y", "été", "हिन्दी", "a–b", "has space", "it's", 'q"q', "a\\b", "a\nb"]
    ),
    st.text(min_size=1, max_size=6).filter(lambda text: "\0" not in text),
).filter(lambda text: not text.startswith("?"))
TERMS = st.one_of(NAMES, st.integers().map(str), st.sampled_from(["?x", "?y1", "?", "0.5", "-3"]))


def spelled(term: str):
    return Variable(term[1:] or "_") if term.startswith("?") else term


@given(st.sampled_from(["p", "has space", "it's"]), st.lists(TERMS, max_size=4), st.booleans())
def test_the_text_of_any_atom_is_read_as_the_parser_reads_it(predicate, args, positive):
    try:
        text = print_atom(Atom(predicate, tuple(map(spelled, args)), positive))
        parsed = atom_from_text(text)
    except KBError:  # the language has no such constant
        return
    atom = read_atom(text)
    assert atom is not None, text
    assert (atom.predicate, atom.negative) == (parsed.predicate, not parsed.positive)
    assert len(atom.args) == len(parsed.args)
    for arg, variable, term in zip(atom.args, atom.variables, parsed.args, strict=True):
        if isinstance(term, Variable):
            assert variable == (None if term.name == "_" else term.name)
        elif isinstance(arg, str):
            assert (arg, variable) == (term, None)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("p(?x, _, ?, 'a, ?b')", ("x", None, None, None)),
        ('  not p( ?x , "(" ) . % a comment', ("x", None)),
        ("~p(?x, -1.5e3)", ("x", None)),
        ("p", ()),
        ("p()", ()),
    ],
)
def test_variables_of_texts(text, variables):
    atom = read_atom(text)
    assert atom is not None
    assert atom.variables == variables


@pytest.mark.parametrize("text", ["", "p(", "p(?x), q(?x)", "?x > 3", "p(?x) q", "count(?x) = 1"])
def test_texts_that_are_no_atom(text):
    assert read_atom(text) is None


@given(st.one_of(values.constants, st.text(max_size=8), st.floats().map(str), st.just("1" * 5000)))
def test_python_values_are_those_of_the_embedded_interface(text):
    mine, theirs = python_value(text), value_of_the_core(text)
    assert (mine, type(mine)) == (theirs, type(theirs))


PLAIN_OR_NOT = st.sampled_from(["00", "-01.5", "1e05", "not", "div", "mod", "count", "-", "1."])


@given(NAMES | PLAIN_OR_NOT, st.lists(NAMES | PLAIN_OR_NOT, max_size=3))
@example("mod", ["00", "not"])
def test_the_parser_reads_the_goals_that_are_written(predicate, args):
    atom = Atom(predicate, tuple(args))
    assert parse_atom(written_atom(predicate, args)) == atom
    if "".join([predicate, *args]).isascii():
        assert written_atom(predicate, args) == print_atom(atom)


def answers(*rows: tuple[str, ...]) -> AnswerSet:
    return AnswerSet([{"args": list(row)} for row in rows], "p(?x, ?n)", None, "python")


def test_answers_as_tables():
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    table = answers(("a", "1"), ("7", "2.5")).to_arrow()
    assert table.to_pydict() == {"x": ["a", "7"], "n": [1.0, 2.5]}
    assert pyarrow.table(answers(("a", "1"))).to_pydict() == {"x": ["a"], "n": [1]}
    assert answers(("a", "1")).to_polars().rows() == [("a", 1)]
    assert polars.from_arrow(answers(("a", "1")).to_arrow()).rows() == [("a", 1)]
    assert AnswerSet([{"args": []}], "p", None).to_arrow().to_pydict() == {"holds": [True]}


def test_a_goal_without_answers_has_the_columns_of_its_variables(kb):
    goal = "p(?x, _), q(?y, 'a ?z'), ?n = ?x + 1"
    for count in (0, 1):
        found = kb.ask(goal)
        assert len(found) == count
        assert list(found.columns) == ["x", "y", "n"]
        assert list(columns_of(list(found), found.columns)) == ["x", "y", "n"]
        kb.tell("p", ["1", "a"])
        kb.tell("q", ["2", "a ?z"])


class Frame:
    """A data frame as that of pandas gives its rows."""

    def __init__(self, *rows):
        self.rows = rows

    def itertuples(self, index, name):
        assert (index, name) == (False, None)
        return iter(self.rows)


class NaTType:
    """The type of a missing time in pandas."""


def test_dates_and_decimals_in_tables(kb):
    at = datetime(2026, 5, 1, 10, tzinfo=timezone.utc)
    row = (date(2026, 5, 1), Decimal("10.50"), Decimal("1E+3"), at, UUID(int=7))
    kb.tell_frame("paid", Frame(row))
    assert list(kb.ask("paid(?d, ?a, ?b, ?t, ?id)")) == [
        (
            "2026-05-01",
            "10.50",
            "1000",
            "2026-05-01T10:00:00+00:00",
            "00000000-0000-0000-0000-000000000007",
        )
    ]
    for missing in (None, float("nan"), Decimal("NaN"), NaTType()):
        with pytest.raises(InvalidInput, match="row 1, column 0 is missing"):
            kb.tell_frame("seen", Frame(("a",), (missing,)))
    with pytest.raises(InvalidInput, match="row 0, column 0 is a list"):
        kb.tell_frame("seen", Frame(([1],)))


def test_tables_as_facts(kb):
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    frame = polars.DataFrame({"who": ["ann", "bob"], "n": [10, 20]})
    assert kb.tell_frame("salary", frame).asserted == 2
    assert kb.tell_frame("salary", frame.to_arrow()).updated == 2
    assert kb.ask("salary(?who, ?n)", values="python").to_polars().rows() == frame.rows()
    with pytest.raises(InvalidInput, match="row 1, column 0 is missing"):
        kb.tell_frame("salary", pyarrow.table({"who": ["ann", None]}))
    with pytest.raises(InvalidInput, match="frame: must be a data frame"):
        kb.tell_frame("salary", [("ann", 1)])


def test_html_is_escaped():
    evil = "<script>alert(1)</script>"
    shown = AnswerSet([{"args": [evil]}], "p", ["?<x>"])._repr_html_()
    row = {"confidence": None, "createdAt": 1, "validFrom": None, "validUntil": None}
    row |= {"predicate": "p", "args": [evil], "metadata": {}}
    node = {"goal": {"predicate": "p", "args": [evil], "negated": False}}
    node["step"] = {"type": "fact_match", "bodyProofs": None}
    for html in (shown, Proof(row, node)._repr_html_()):
        assert "<script" not in html
        assert "&lt;script&gt;" in html
