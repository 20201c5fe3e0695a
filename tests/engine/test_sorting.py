"""Answer order of many rows, which are sorted by the ranks of their symbols, and columns of
them.
"""

from __future__ import annotations

import random
from array import array

import pytest

from kbplanner._engine import ffi, lib
from kbplanner.engine.columns import column_of, encoded, rows_of
from kbplanner.engine.engine import Engine
from kbplanner.ir.values.numbers import answer_key


def drawn_texts(draw, kind):
    if kind == "names":
        return [f"a common prefix {draw.randrange(400)}" for _ in range(3)]
    if kind == "numbers":
        return [str(draw.randrange(-50, 50)), f"{draw.randrange(9)}.50", f"{draw.randrange(9)}e1"]
    return [chr(draw.randrange(33, 1200)), "", "x" * draw.randrange(30)]


def drawn_rows(draw, engine, arity, count, kind, spread):
    texts = sorted({text for _ in range(60) for text in drawn_texts(draw, kind)})
    draw.shuffle(texts)
    symbols = []
    for text in texts:
        symbols.append(engine.intern(text))
        engine.intern_many([f"unused {len(symbols)} {n}" for n in range(spread)])
    return array("I", [draw.choice(symbols) for _ in range(arity * count)])


@pytest.mark.parametrize("kind", ["names", "numbers", "odd"])
@pytest.mark.parametrize(("arity", "count"), [(1, 700), (2, 128), (2, 5000), (3, 300), (9, 200)])
@pytest.mark.parametrize("spread", [0, 40])
def test_many_rows_are_sorted(kind, arity, count, spread):
    draw = random.Random(f"{kind} {arity} {count} {spread}")
    engine = Engine()
    rows = drawn_rows(draw, engine, arity, count, kind, spread)
    for column in draw.sample(range(arity), arity // 2):  # columns in which all rows are equal
        rows[column::arity] = array("I", [rows[0]]) * count
    texts = engine.texts(rows)
    made = [tuple(texts[at : at + arity]) for at in range(0, len(texts), arity)]
    made.sort(key=lambda row: [answer_key(text) for text in row])
    ordered = engine.sort(rows, arity)
    assert engine.texts(ordered) == [text for row in made for text in row]
    assert engine.sort(ordered, arity) == ordered
    copy = rows[:]
    assert engine.sort(copy, arity, in_place=True) is copy
    assert copy == ordered != rows


def test_rows_whose_ranks_do_not_fit_in_a_key():
    engine = Engine()
    symbols = engine.intern_many([f"n{n:04}" for n in range(4096)])
    draw = random.Random(8)
    rows = array("I", [draw.choice(symbols) for _ in range(6 * 4096)])
    whole = sorted(tuple(rows[at : at + 6]) for at in range(0, len(rows), 6))
    assert engine.sort(rows, 6) == array("I", [symbol for row in whole for symbol in row])


@pytest.mark.parametrize("spread", [0, 200])
def test_columns_have_each_text_once(spread):
    engine, draw = Engine(), random.Random(spread)
    rows = drawn_rows(draw, engine, 2, 90, "odd", spread)
    texts = engine.texts(rows)
    for first in (0, 1):
        column = column_of(engine, rows, first, 2)
        distinct, codes = column.texts(), array("I", bytes(column.codes))
        assert distinct == list(dict.fromkeys(texts[first::2]))
        assert [distinct[code] for code in codes] == texts[first::2]
        assert len(column) == len(distinct)
        assert column == encoded(texts[first::2])
    made = rows_of(engine, rows, 2)
    assert made.tuples(3, 90) == list(zip(texts[6::2], texts[7::2], strict=True))
    assert rows_of(engine, rows, 2, len).tuples(0, 2) == [
        (len(texts[0]), len(texts[1])),
        (len(texts[2]), len(texts[3])),
    ]
    for start, stop in ((-1, 2), (2, 1), (0, 91)):
        with pytest.raises(ValueError, match="fewer rows"):
            made.tuples(start, stop)


def test_an_empty_column(engine):
    column = column_of(engine, array("I"), 0, 2)
    assert (column.texts(), column.codes, bytes(column.offsets)) == ([], b"", bytes(4))


def test_columns_of_wrong_symbols_are_refused(engine):
    engine.intern_many(["a", "b"])
    handle, size = engine._locked_handle(), ffi.new("size_t *")
    cells, codes = ffi.new("kb_sym[2]", [1, 2]), ffi.new("uint32_t[2]")
    offsets, text = ffi.new("int32_t[3]"), ffi.new("char[2]")
    good = (handle, cells, 1, 2, codes, ffi.new("kb_sym[2]"), size)
    assert lib.kb_column_codes(*good) == lib.KB_OK
    for index, wrong in (
        (0, ffi.NULL),
        (1, ffi.NULL),
        (2, 0),
        (3, 1 << 31),
        (4, ffi.NULL),
        (6, ffi.NULL),
    ):
        assert lib.kb_column_codes(*good[:index], wrong, *good[index + 1 :]) == lib.KB_MISUSE
    for symbol in (0, 3):
        cells[1] = symbol
        assert lib.kb_column_codes(*good) == lib.KB_MISUSE
        assert lib.kb_text_offsets(handle, cells, 2, offsets, size) == lib.KB_MISUSE
        assert lib.kb_texts(handle, cells, 2, text, 2) == lib.KB_MISUSE
    cells[1] = 2
    assert lib.kb_texts(handle, cells, 2, text, 1) == lib.KB_MISUSE
    assert lib.kb_texts(handle, cells, 2, text, 2) == lib.KB_OK
    assert bytes(ffi.buffer(text)) == b"ab"


def test_rows_are_read_whole_and_by_pattern(engine, rows):
    relation = engine.relation(2)
    facts = rows([("a", str(n)) for n in range(300)] + [("b", "1")])
    relation.insert(facts, 301)
    assert relation.match_rows([0, 0]) == facts
    assert relation.match_rows([engine.find("b"), 0]) == facts[-2:]
    relation.hide(facts[:2], 1, True)
    calls = []
    assert relation.match_rows([0, 0], lambda: calls.append(1)) == facts[2:]
    assert calls
