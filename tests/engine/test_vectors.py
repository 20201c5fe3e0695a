"""Search for the nearest vectors: both engines agree; malformed arrays are rejected."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.engine.engine import Engine
from kbplanner.engine.vectors import (
    CELL_MAX,
    MAX_DIMENSION,
    NO_PLACE,
    QUERY_MAX,
    NearestSearch,
    Quantized,
    quantized,
)
from kbplanner.errors import EngineFault
from kbplanner.reference.engine import ReferenceEngine


def search_of(vectors, query, least=-1e300):
    cells, factors = bytearray(), array("f")
    for vector in vectors:
        each = quantized(array("f", vector), CELL_MAX, "b")
        cells += each.cells.tobytes()
        factors.append(each.factor)
    return NearestSearch(cells, factors, quantized(array("f", query), QUERY_MAX, "h"), least)


numbers = st.floats(-1, 1, width=32)


@st.composite
def searches(draw):
    dimension = draw(st.sampled_from([1, 2, 7, 8, 16, 33]))
    vector = st.lists(numbers, min_size=dimension, max_size=dimension)
    vectors = draw(st.lists(vector, max_size=12))
    search = search_of(vectors, draw(vector), draw(st.sampled_from([-1e300, 0.0, 0.3])))
    kinds = [st.just(NO_PLACE)]
    if vectors:
        kinds.append(st.integers(0, len(vectors) - 1))
    return search, array("I", draw(st.lists(st.one_of(kinds), max_size=30)))


@given(searches(), st.integers(0, 40))
@examples(200)
def test_both_engines_find_the_same(search, k):
    of, places = search
    found, scores = Engine().nearest(of, places, k)
    expected, wanted = ReferenceEngine().nearest(of, places, k)
    assert (list(found), list(scores)) == (list(expected), list(wanted))


def test_scores_are_close_to_those_of_the_numbers():
    vectors = [[0.6, 0.8, 0.0], [-0.6, 0.0, 0.8], [1.0, 0.0, 0.0]]
    found, scores = Engine().nearest(search_of(vectors, vectors[0]), array("I", [0, 1, 2]), 3)
    assert list(found) == [0, 2, 1]
    assert list(scores) == pytest.approx([1.0, 0.6, -0.36], abs=0.01)


def test_the_largest_sums_do_not_overflow():
    cells = array("b", [CELL_MAX]) * MAX_DIMENSION
    query = Quantized(array("h", [-QUERY_MAX]) * MAX_DIMENSION, 1.0)
    search = NearestSearch(bytearray(cells.tobytes()), array("f", [1.0]), query, -1e300)
    _, scores = Engine().nearest(search, array("I", [0]), 1)
    assert list(scores) == [-float(CELL_MAX * QUERY_MAX * MAX_DIMENSION)]


def test_nothing_to_find():
    empty = search_of([], [0.5])
    assert Engine().nearest(empty, array("I"), 5) == (array("I"), array("d"))
    assert Engine().nearest(empty, array("I", [NO_PLACE]), 5) == (array("I"), array("d"))
    assert Engine().nearest(search_of([[1.0]], [0.5]), array("I", [0]), 0)[0] == array("I")


def test_a_vector_of_zeros_scores_zero():
    _, scores = Engine().nearest(search_of([[0.0, 0.0]], [1.0, 0.0]), array("I", [0]), 1)
    assert list(scores) == [0.0]


@pytest.mark.parametrize("places", [[1], [0, 7], [NO_PLACE - 1]])
def test_places_without_a_vector(places):
    with pytest.raises(EngineFault):
        Engine().nearest(search_of([[1.0]], [1.0]), array("I", places), 3)


@pytest.mark.parametrize(
    "query",
    [
        Quantized(array("h"), 1.0),
        Quantized(array("h", [QUERY_MAX + 1]), 1.0),
        Quantized(array("h", [-QUERY_MAX - 1]), 1.0),
        Quantized(array("h", [1]) * (MAX_DIMENSION + 1), 1.0),
    ],
)
def test_queries_that_are_none(query):
    cells = bytearray(MAX_DIMENSION + 1)
    with pytest.raises(EngineFault):
        Engine().nearest(NearestSearch(cells, array("f", [1.0]), query, 0.0), array("I", [0]), 1)


def test_fewer_numbers_than_vectors():
    query = Quantized(array("h", [1, 1]), 1.0)
    with pytest.raises(EngineFault, match="fewer numbers"):
        Engine().nearest(NearestSearch(bytearray(3), array("f", [1, 1]), query, 0.0), array("I"), 1)
