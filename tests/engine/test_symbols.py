"""Symbols: text to number and back, numeric text, answer order."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import values
from support.examples import examples

from kbplanner.engine.binding import ffi, lib
from kbplanner.engine.engine import Engine
from kbplanner.errors import EngineFault, InvalidInput


def test_symbols_count_from_one_and_are_found_again(engine):
    assert [engine.intern(text) for text in ("a", "b", "a", "")] == [1, 2, 1, 3]
    assert engine.find("b") == 2
    assert engine.find("never") == 0
    assert engine.symbols == 3
    assert engine.text(3) == ""


def test_a_batch_is_the_same_as_one_by_one(engine):
    texts = [f"term {i % 700}" for i in range(2000)] + ["", "é", "日本", "𝄞", "a\0b", "a"]
    symbols = engine.intern_many(texts)
    assert symbols == array("I", [engine.intern(text) for text in texts])
    assert engine.texts(symbols) == texts
    assert engine.texts(array("I")) == []
    assert engine.intern_many([]) == array("I")


def test_long_texts_need_more_room_than_guessed(engine):
    texts = ["x" * 100_000, "y", "ö" * 50_000]
    assert engine.texts(engine.intern_many(texts)) == texts


def test_half_a_surrogate_pair_is_refused(engine):
    for call in (engine.intern, engine.find, lambda text: engine.intern_many(["a", text])):
        with pytest.raises(InvalidInput):
            call("\ud800")
    assert engine.symbols == 0


def test_unknown_symbols_are_a_fault(engine):
    for symbol in (0, 1, 0xFFFFFFFF):
        with pytest.raises(EngineFault):
            engine.text(symbol)
        with pytest.raises(EngineFault):
            engine.texts(array("I", [symbol]))
        with pytest.raises(EngineFault):
            engine.sort(array("I", [symbol]), 1)


INTEGERS = {
    "0": 0, "-0": 0, "7": 7, "-12": -12, "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63),
}  # fmt: skip
REALS = [
    "9223372036854775808", "-9223372036854775809", "123456789012345678901234567890", "1.0", "30.0", "-0.5", "0.1",
    "1e3", "1E3", "1e+3", "1e-3", "0e0", "0.0", "-0.0", "2.5e10", "1e308", "5e-324", "2.2250738585072011e-308",
    "179769313486231580793728971405301e276", "0.000000000000000000000000000000000000000001",
    "0e99999999999999999999", "3" * 400, "-" + "3" * 400 + ".5", "9007199254740993.0",
    "1" + "0" * 2000 + "e-2000", "0." + "0" * 2000 + "1e2001", "3" * 900 + "e-899",
    "1.00000000000000011102230246251565404236316680908203125",
    "1.00000000000000011102230246251565404236316680908203125" + "0" * 900 + "1",
]  # fmt: skip
TEXTS = [
    "", "-", "+5", "007", "00", "-01", "1.", ".5", "1.e5", "1e", "1e+", "1e1.5", "NaN", "inf", "Infinity", " 1", "1 ",
    "1e400", "-1e400", "1e-400", "1e99999999999999999999", "1e-99999999999999999999",
    "1_000", "0x10", "1,5", "--1", "1-", "٣", "1\0", "e5", "-e5", "12a",
]  # fmt: skip


def test_numeric_text(engine):
    for text, value in INTEGERS.items():
        number = engine.number(engine.intern(text))
        assert isinstance(number, int), text
        assert number == value
    for text in REALS:
        number = engine.number(engine.intern(text))
        assert isinstance(number, float), text
        assert number == float(text), text
    for text in TEXTS:
        assert engine.number(engine.intern(text)) is None, text


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_numbers_are_read_as_python_reads_them(text):
    engine = Engine()
    number = engine.number(engine.intern(text))
    plain = text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63
    if values.number(text) is None:
        assert number is None
    else:
        assert number == (int(text) if plain else float(text))
        assert isinstance(number, int) == plain
    engine.close()


def test_answer_order(engine):
    texts = (
        list(INTEGERS)
        + REALS
        + TEXTS
        + ["a", "b", "aa", "abcdefgh", "abcdefghi", "abcdefgz", "é", "z", "\U0001f600", "\uffff"]
    )
    texts += [
        *values.ODD,
        str(2**53),
        str(2**53 + 1),
        f"{2**53}.0",
        "9223372036854775806",
        "9.2233720368547758e18",
        "1e18",
        "-1e18",
    ]
    texts = sorted(set(texts))
    random.Random(3).shuffle(texts)
    expected = sorted(texts, key=values.answer_key)
    assert engine.texts(engine.sort(engine.intern_many(texts), 1)) == expected


def test_rows_are_sorted_by_each_column_in_turn(engine, rows):
    made = [("p", a, b) for a in ("10", "9", "x", "1e1") for b in ("z", "2", "11")]
    random.Random(5).shuffle(made)
    sorted_rows = engine.texts(engine.sort(rows(made), 3))
    firsts = ["9", "10", "1e1", "x"]
    assert sorted_rows == [t for a in firsts for b in ("2", "11", "z") for t in ("p", a, b)]


def test_sorting_nothing_much(engine, rows):
    assert engine.sort(array("I"), 2) == array("I")
    assert engine.sort(array("I"), 0) == array("I")
    same = rows([("a", "b")] * 3)
    assert engine.sort(same, 2) == same


@examples(30)
@given(st.lists(st.tuples(st.text(max_size=9), st.integers(-20, 20)), max_size=60))
def test_sorting_large_and_small(pairs):
    engine = Engine()
    made = [(a, str(b)) for a, b in pairs if not any(0xD800 <= ord(c) < 0xE000 for c in a)]
    got = engine.texts(engine.sort(engine.intern_many([t for row in made for t in row]), 2))
    expected = sorted(made, key=lambda row: list(map(values.answer_key, row)))
    assert got == [t for row in expected for t in row]
    engine.close()


def test_a_million_symbols_are_lean():
    engine = Engine()
    count = 200_000
    before = engine.bytes
    engine.intern_many([f"sym{i}" for i in range(count)])
    assert (engine.bytes - before) / count < 40
    engine.close()


def test_numbers_beyond_the_doubles_are_ordered_by_their_digits(engine):
    large = "1" + "0" * 400
    texts = [
        large,
        f"-{large}",
        "9223372036854775807",
        f"{large}.5",
        f"{large[:-1]}1",
        "1e308",
        "1e400",
        "a",
    ]
    assert engine.texts(engine.sort(engine.intern_many(texts), 1)) == [
        f"-{large}",
        "9223372036854775807",
        "1e308",
        large,
        f"{large}.5",
        f"{large[:-1]}1",
        "1e400",
        "a",
    ]


def test_a_symbol_for_one_use_is_not_found_and_used_again():
    engine = Engine()
    kept = engine.intern("2026-01-01T00:00:00.000Z")

    def reuse(symbol, text):
        out = ffi.new("kb_sym *")
        engine.call(lib.kb_symbol_reuse, symbol, text.encode(), len(text), out)
        return out[0]

    one = reuse(0, "2026-01-01T00:00:00.000Z")
    assert one != kept
    assert engine.find("2026-01-01T00:00:00.000Z") == kept
    assert reuse(one, "2027-01-01T00:00:00.000Z") == one
    assert engine.find("2027-01-01T00:00:00.000Z") == 0
    assert engine.text(one) == "2027-01-01T00:00:00.000Z"
    later = engine.intern("2027-01-01T00:00:00.000Z")
    assert later not in (one, kept)
    assert engine.texts(array("I", [kept, one, later]))[0] == "2026-01-01T00:00:00.000Z"
    for symbol, text in (
        (one, "short"),
        (kept, "2026-01-01T00:00:00.001Z"),
        (99, "x" * 24),
        (0, "7"),
        (0, ""),
    ):
        with pytest.raises(EngineFault):
            reuse(symbol, text)
    assert engine.text(kept) == "2026-01-01T00:00:00.000Z"


@examples(50)
@given(st.lists(st.one_of(st.text(max_size=5), st.integers(0, 3)), max_size=60))
def test_symbols_for_one_use_change_no_other(steps):
    engine = Engine()
    texts, single = {}, []
    out = ffi.new("kb_sym *")
    for number, step in enumerate(steps):
        if isinstance(step, str):
            texts[step] = engine.intern(step)
        else:
            known = single.pop() if single and step else 0
            text = f"instant {number:04}".encode()
            engine.call(lib.kb_symbol_reuse, known, text, len(text), out)
            single.append(out[0])
        assert [engine.find(text) for text in texts] == list(texts.values())
        assert engine.texts(array("I", texts.values())) == list(texts)
