"""Candidates by signs: which searches use them, and how they follow the vectors of a store."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore.search.vectors.signs import (
    EXACT_NUMBERS,
    MIN_CANDIDATES,
    MIN_DIMENSION,
    candidate_count,
)
from kbcore.search.vectors.store import VectorStore, entry_of, query_of
from kbplanner.engine.engine import Engine

DIMENSION = 70


def vector(seed):
    draw = random.Random(seed)
    return array("f", [draw.gauss(0.2, 1) for _ in range(DIMENSION)])


def found(store, query, count, pause=lambda: None):
    """The positions of the candidates."""
    store.signs.update(Engine(), store.vectors, pause)
    positions = array("I", range(len(store.factors)))
    return list(store.signs.candidates(Engine(), query, positions, count, pause))


@given(st.lists(st.tuples(st.sampled_from("aaadsq"), st.integers(0, 40)), max_size=60))
@examples(100)
def test_signs_follow_the_vectors(steps):
    store, texts = VectorStore(DIMENSION, 1 << 20), {}
    for verb, number in steps:
        if verb == "a" and number not in texts:
            texts[number] = store.add(entry_of(str(number), vector(number)))
            store.use(texts[number])
        elif verb == "d" and number in texts:
            store.release(texts.pop(number))
            store.drop_unused()
        elif verb == "s":
            store.signs.update(Engine(), store.vectors, lambda: None)
        elif verb == "q" and number in texts:
            # No sign of a stored vector differs from those of the same vector as a query, but for
            # numbers that are rounded to the other side of the mean.
            nearest = found(store, query_of(vector(number)), 1)
            assert texts[number] in nearest


def test_signs_of_removed_vectors_are_erased():
    store = VectorStore(DIMENSION, 1 << 20)
    for number in range(3):
        store.use(store.add(entry_of(str(number), vector(number))))
    store.signs.update(Engine(), store.vectors, lambda: None)
    words = store.signs._bits[2:4]
    assert any(words)
    store.release(1)
    store.drop_unused()
    assert list(store.signs._bits[2:4]) == [0, 0]
    assert len(store.signs._bits) == 6


def test_the_centre_follows_a_store_that_has_doubled():
    store = VectorStore(DIMENSION, 1 << 20)
    sizes = []
    for number in range(40):
        store.use(store.add(entry_of(str(number), vector(number))))
        store.signs.update(Engine(), store.vectors, lambda: None)
        sizes.append(store.signs._centred)
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 32]
    mean = sum(vector(number)[0] for number in range(32)) / 32
    assert store.signs._centre[0] == pytest.approx(mean, abs=0.01)


def test_work_that_was_ended_goes_on_where_it_stopped(monkeypatch):
    monkeypatch.setattr("kbcore.search.vectors.signs.WRITE_ROWS", 4)
    store = VectorStore(DIMENSION, 1 << 20)
    for number in range(10):
        store.use(store.add(entry_of(str(number), vector(number))))

    def stop():
        raise TimeoutError

    for written in (4, 8, 10):
        with pytest.raises(TimeoutError):
            store.signs.update(Engine(), store.vectors, stop)
        assert store.signs._written == written
    calls = []
    store.signs.update(Engine(), store.vectors, lambda: calls.append(1))
    assert calls == []
    assert 9 in found(store, query_of(vector(9)), 1)


def test_positions_with_equally_many_signs_are_candidates_together():
    store = VectorStore(DIMENSION, 1 << 20)
    for number in range(20):
        store.use(store.add(entry_of(str(number), vector(number % 2))))
    assert found(store, query_of(vector(1)), 1) == list(range(1, 20, 2))


@pytest.mark.parametrize(
    ("visible", "dimension", "k", "count"),
    [
        (EXACT_NUMBERS // 384, 384, 10, None),
        (EXACT_NUMBERS // 384 + 1, 384, 10, MIN_CANDIDATES),
        (1_000_000, 384, 512, 8192),
        (100_000, 384, 4096, None),
        (10_000_000, MIN_DIMENSION - 1, 10, None),
    ],
)
def test_few_vectors_are_compared_in_full(visible, dimension, k, count):
    assert candidate_count(visible, dimension, k) == count
