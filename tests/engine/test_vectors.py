"""Search for the nearest vectors: both engines agree; malformed arrays are rejected."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.engine.engine import Engine
from kbplanner.engine.vectors import (
    CELL_MAX,
    MAX_DIMENSION,
    NO_POSITION,
    QUERY_MAX,
    NearestSearch,
    Quantized,
    SignSearch,
    StoredVectors,
    quantized,
    sign_words,
    signs_of_query,
)
from kbplanner.errors import EngineFault


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
    kinds = [st.just(NO_POSITION)]
    if vectors:
        kinds.append(st.integers(0, len(vectors) - 1))
    return search, array("I", draw(st.lists(st.one_of(kinds), max_size=30)))


@given(searches(), st.integers(0, 40))
@examples(200)
def test_both_engines_find_the_same(search, k):
    of, positions = search
    found, scores = Engine().nearest(of, positions, k)
    expected, wanted = ReferenceEngine().nearest(of, positions, k)
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
    assert Engine().nearest(empty, array("I", [NO_POSITION]), 5) == (array("I"), array("d"))
    assert Engine().nearest(search_of([[1.0]], [0.5]), array("I", [0]), 0)[0] == array("I")


def test_a_vector_of_zeros_scores_zero():
    _, scores = Engine().nearest(search_of([[0.0, 0.0]], [1.0, 0.0]), array("I", [0]), 1)
    assert list(scores) == [0.0]


@pytest.mark.parametrize("positions", [[1], [0, 7], [NO_POSITION - 1]])
def test_places_without_a_vector(positions):
    with pytest.raises(EngineFault):
        Engine().nearest(search_of([[1.0]], [1.0]), array("I", positions), 3)


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


@st.composite
def stored(draw):
    """Vectors, a centre and positions."""
    dimension = draw(st.sampled_from([1, 3, 63, 64, 65, 130, 256, 384]))
    cells = st.binary(min_size=dimension, max_size=dimension)
    rows = draw(st.lists(cells, min_size=1, max_size=8))
    factors = draw(st.lists(st.floats(0, 1, width=32), min_size=len(rows), max_size=len(rows)))
    middle = draw(st.lists(st.sampled_from([-0.5, 0.0, 0.3]), min_size=1, max_size=3))
    centre = array("d", [middle[n % len(middle)] for n in range(dimension)])
    places = st.one_of(st.just(NO_POSITION), st.integers(0, len(rows) - 1))
    positions = array("I", draw(st.lists(places, max_size=30)))
    vectors = StoredVectors(bytearray(b"".join(rows)), array("f", factors), dimension)
    return vectors, centre, positions


def differing(engine, vectors, centre, positions, most, count):
    """All that an engine says of the signs of vectors, compared with those of the first one."""
    rows, words = len(vectors.factors), sign_words(vectors.dimension)
    sums, signs = array("d", bytes(8 * vectors.dimension)), array("Q", bytes(8 * rows * words))
    for start in range(rows):
        engine.add_vectors(vectors, start, start + 1, sums)
        engine.write_signs(vectors, start, start + 1, centre, signs)
    numbers, counts = array("H", bytes(2 * len(positions))), array("I", bytes(4 * (64 * words + 1)))
    search = SignSearch(signs, signs[:words])
    engine.differing_signs(search, memoryview(positions), memoryview(numbers), counts)
    return sums, signs, numbers, counts, engine.at_most(numbers, most, count)


@given(stored(), st.integers(0, 400), st.integers(0, 40))
@examples(200)
def test_both_engines_compare_signs_alike(of, most, count):
    assert differing(Engine(), *of, most, count) == differing(ReferenceEngine(), *of, most, count)


def test_signs_are_those_of_the_numbers_without_the_centre():
    query = Quantized(array("h", [10, -10, 3] * 30), 0.1)
    cells = bytearray(array("b", [10, -10, 3] * 30).tobytes())
    vectors, centre = StoredVectors(cells, array("f", [0.1]), 90), array("d", [0.5] * 90)
    signs = array("Q", bytes(16))
    Engine().write_signs(vectors, 0, 1, centre, signs)
    assert list(signs) == [
        sum(1 << n for n in range(0, 64, 3)),
        sum(1 << n for n in range(2, 26, 3)),
    ]
    assert signs_of_query(query, centre) == signs


VECTORS = StoredVectors(bytearray(4), array("f", [1.0, 1.0]), 2)
CENTRE = array("d", [0.0, 0.0])


@pytest.mark.parametrize(
    ("vectors", "start", "stop", "centre", "words"),
    [
        (VECTORS, 0, 3, CENTRE, 3),
        (VECTORS, -1, 1, CENTRE, 3),
        (VECTORS, 1, 0, CENTRE, 3),
        (VECTORS, 0, 2, CENTRE, 1),
        (VECTORS, 0, 2, array("d", [0.0]), 2),
        (StoredVectors(bytearray(3), array("f", [1.0, 1.0]), 2), 0, 2, CENTRE, 2),
        (StoredVectors(bytearray(), array("f", [1.0]), 0), 0, 1, array("d"), 2),
    ],
)
def test_arrays_that_do_not_fit_the_vectors(vectors, start, stop, centre, words):
    with pytest.raises(EngineFault):
        Engine().write_signs(vectors, start, stop, centre, array("Q", bytes(8 * words)))


@pytest.mark.parametrize(
    ("positions", "numbers", "counts", "query"),
    [
        ([2], 1, 65, 1),
        ([0, 1], 1, 65, 1),
        ([0], 1, 64, 1),
        ([0], 1, 65, 0),
        ([0], 1, 64 * 129 + 1, 129),
    ],
)
def test_arrays_that_do_not_fit_the_signs(positions, numbers, counts, query):
    search = SignSearch(array("Q", [0, 1]), array("Q", bytes(8 * query)))
    with pytest.raises(EngineFault):
        Engine().differing_signs(
            search,
            memoryview(array("I", positions)),
            memoryview(array("H", bytes(2 * numbers))),
            array("I", bytes(4 * counts)),
        )
