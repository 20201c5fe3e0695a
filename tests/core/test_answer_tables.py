"""Answers as tables of columns, without the libraries that read them."""

from __future__ import annotations

from array import array

import pytest

from kbcore import open_kb
from kbcore.columns.flatbuffers import Scalar, Structs, encode
from kbplanner.engine.columns import arrow_schema, arrow_stream


@pytest.fixture
def kb():
    with open_kb() as kb:
        kb.tell_many("edge", [("a", "b"), ("b", "c"), ("c", "ö")])
        kb.tell_many("weight", [("a", 1), ("b", 20), ("c", 3)])
        kb.teach("path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z).")
        yield kb


def test_a_table_has_a_column_for_each_variable(kb):
    table = kb.ask("path(?from, ?to)").arrow()
    assert (table.column_names, table.num_rows) == (["from", "to"], 6)
    assert repr(table) == "AnswerTable(from, to; 6 rows)"
    assert kb.ask("path(a, ?to)").arrow().column_names == ["to"]
    assert kb.ask("edge(?x, ?y), weight(?y, ?w)").arrow().column_names == ["x", "y", "w"]
    assert kb.query("edge(?y, ?x)").arrow().column_names == ["y", "x"]
    assert kb.ask("path(?x, _)").arrow().column_names == ["x"]
    assert kb.ask("path(a, c)").arrow().column_names == ["holds"]
    assert kb.ask("path(c, a)").arrow().num_rows == 0


def test_capsules_are_made_without_a_library(kb):
    answers = kb.ask("path(?from, ?to)")
    assert "arrow_array_stream" in repr(answers.__arrow_c_stream__())
    assert "arrow_schema" in repr(answers.arrow().__arrow_c_schema__())


@pytest.mark.parametrize(
    "column",
    [
        (),
        ("x", "i", False, 0, [], None),
        ("x", "i", False, 0, (None, "text"), None),
        ("x", "i", False, 0, (None,) * 4, None),
        ("x", "i", False, 0, (None, b""), ("u", 0)),
        ("x", "i", False, 0, (None, b""), ("u", 0, (None, 1, b""))),
    ],
)
def test_malformed_columns_are_refused(column):
    with pytest.raises((TypeError, ValueError)):
        arrow_stream([column], 0)
    with pytest.raises((TypeError, ValueError)):
        arrow_stream([("good", "i", False, 0, (None, b""), None), column], 0)
    assert "arrow_schema" in repr(arrow_schema([]))


def test_many_answers_are_the_same_in_every_form(kb):
    kb.tell_many("pair", [(f"n{n % 50}", n) for n in range(2500)])
    answers = kb.query("pair(?x, ?n)")
    tuples = list(answers)
    assert len(tuples) == 2500
    assert tuples == answers[:] == [answers[n] for n in range(2500)]
    assert answers.dicts()[7] == {"x": tuples[7][0], "n": tuples[7][1]}
    typed = kb.query("pair(?x, ?n)", values="python")
    assert list(typed) == [(name, int(n)) for name, n in tuples]
    assert typed[5:7] == [(name, int(n)) for name, n in tuples[5:7]]


def test_equal_names_are_one_object(kb):
    kb.tell_many("pair", [("hub", n) for n in range(2500)])
    assert len({id(name) for name, _ in list(kb.query("pair(?x, ?n)"))}) == 1


def test_a_buffer_of_tables():
    data = encode((None, Scalar("b", 7), "text", [(Scalar("q", 9),), ()], Structs([(1, 2)])))
    words = array("I", data)
    root = words[0]
    assert root % 8 == 0
    assert data[root - words[root // 4] :][:4] == array("H", [14, 20]).tobytes()
    assert b"text\0" in data
    assert array("q", [9]).tobytes() in data
    assert array("q", [1, 2]).tobytes() in data
