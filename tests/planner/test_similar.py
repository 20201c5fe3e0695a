"""Similarity of two texts: published values, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.ir.values.similar import MAX_SIMILAR, jaro_winkler, trigram

names = st.text("abcd é", max_size=12)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Winkler's examples, as published.
        ("MARTHA", "MARHTA", "0.9611"),
        ("DWAYNE", "DUANE", "0.84"),
        ("DIXON", "DICKSONX", "0.8133"),
        ("JONES", "JOHNSON", "0.8324"),
        ("ABC", "XYZ", "0"),
        ("same", "same", "1"),
        ("", "", "1"),
        ("a", "", "0"),
        # Below 0.7 the prefix does not count.
        ("abcdefgh", "abxxxxxx", "0.5"),
    ],
)
def test_jaro_winkler(first, second, expected):
    assert jaro_winkler(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # As `similarity` of pg_trgm for lower-case texts; case counts here.
        ("word", "two words", "0.3636"),
        ("ann smith", "smith ann", "1"),
        ("anna", "ann", "0.5"),
        ("Ann", "ann", "0.1429"),
        ("", " ", "1"),
        ("", "a", "0"),
    ],
)
def test_trigram(first, second, expected):
    assert trigram(first, second) == expected


@examples(200)
@given(names, names)
def test_similarity_is_symmetric_and_between_0_and_1(first, second):
    for function in (jaro_winkler, trigram):
        assert 0 <= float(function(first, second)) <= 1
        assert function(first, first) == "1"
    assert trigram(first, second) == trigram(second, first)


def test_long_texts_have_no_value():
    assert jaro_winkler("a" * MAX_SIMILAR, "a") is not None
    assert trigram("a" * MAX_SIMILAR, "a") is not None
    assert jaro_winkler("a" * (MAX_SIMILAR + 1), "a") is None
    assert trigram("a", "a" * (MAX_SIMILAR + 1)) is None
