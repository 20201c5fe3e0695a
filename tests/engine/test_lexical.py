"""Text search over posting lists: both engines agree; malformed arrays are rejected."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner._engine import ffi, lib
from kbplanner.engine.engine import Engine
from kbplanner.engine.lexical import EXCLUDED_RANK, Matching
from kbplanner.errors import EngineFault

HOW = 2.2, 0.3, 0.2
WINDOW = 2048


def matching(lists, lengths, *, shown=None, owners=None, ranks=(0,)):
    """Lists of places, heaviest first."""
    words = [(array("I", some), 8.0 / (at + 1)) for at, some in enumerate(lists)]
    most = max((times for some in lists for times in Counter(some).values()), default=1)
    hidden = bytearray(shown if shown is not None else [1] * len(lengths))
    whose = array("I", owners if owners is not None else [0] * len(lengths))
    return Matching(
        words,
        *HOW,
        array("H", lengths),
        hidden,
        whose,
        array("I", ranks),
        min(lengths, default=0),
        max(most, 1),
    )


@st.composite
def collections(draw):
    size = draw(st.integers(1, 40))
    spread = draw(st.sampled_from([1, 100, 400]))  # places far apart are in other windows
    places = [at * spread for at in range(size)]
    total = places[-1] + 1
    lengths, shown, owners = [5] * total, [0] * total, [0] * total
    for place in places:
        lengths[place] = draw(st.integers(1, 6))
        shown[place] = draw(st.sampled_from([1, 1, 1, 0]))
        owners[place] = draw(st.integers(0, 2))
    lists = draw(st.lists(st.lists(st.sampled_from(places), max_size=60).map(sorted), max_size=6))
    lists.sort(key=len)
    ranks = draw(st.permutations([0, 1, draw(st.sampled_from([2, EXCLUDED_RANK]))]))
    return matching(lists, lengths, shown=shown, owners=owners, ranks=ranks)


@given(collections(), st.integers(0, 50), st.sampled_from([0.0, 1.0, 5.0, 9.0, 100.0]))
@examples(100)
def test_both_engines_find_the_same(how, k, minimum):
    how = replace(how, minimum=minimum)
    ours, plain = Engine(), ReferenceEngine()
    places, scores = ours.best_matches(how, k)
    wanted, expected = plain.best_matches(how, k)
    assert list(scores) == pytest.approx(list(expected), rel=1e-12)
    assert list(places) == list(wanted)
    assert ours.having(how) == plain.having(how)


def test_lists_of_common_words_are_looked_up_and_nothing_is_missed():
    size = 20 * WINDOW
    rare = [7, 7, WINDOW + 3, 15 * WINDOW + 9]
    common = [*range(0, size, 2), size - 1]
    everywhere = list(range(size))
    how = matching([rare, common, everywhere], [9] * size)
    how = replace(
        how, words=[(how.words[0][0], 50.0), (how.words[1][0], 1.0), (how.words[2][0], 0.01)]
    )
    for k in (1, 2, 3, 4, 100):
        places, scores = Engine().best_matches(how, k)
        wanted, expected = ReferenceEngine().best_matches(how, k)
        assert list(places) == list(wanted)
        assert list(scores) == list(expected)


def test_nothing_to_find():
    assert Engine().best_matches(matching([], []), 5) == (array("I"), array("d"))
    assert Engine().best_matches(matching([[0]], [1]), 0) == (array("I"), array("d"))
    assert Engine().best_matches(matching([[]], [1]), 5) == (array("I"), array("d"))
    assert Engine().having(matching([], [])) == []


@pytest.mark.parametrize("places", [[3], [0, 9, 1], [0, 5000], [4000, 1]])
def test_lists_that_are_none(places):
    how = matching([places], [1, 1, 1])
    with pytest.raises(EngineFault):
        Engine().best_matches(how, 3)
    if max(places) >= 3:
        with pytest.raises(EngineFault):
            Engine().having(how)


@pytest.mark.parametrize(
    "change",
    [
        {"flat": 0.0},
        {"flat": float("nan")},
        {"slope": -1.0},
        {"scale": -1.0},
        {"words": [(array("I"), -1.0)]},
        {"minimum": -1.0},
        {"minimum": float("nan")},
    ],
)
def test_numbers_that_are_none(change):
    with pytest.raises(EngineFault):
        Engine().best_matches(replace(matching([[0]], [1]), **change), 3)


def test_too_many_words():
    with pytest.raises(EngineFault):
        Engine().best_matches(matching([[0]] * 65, [1]), 3)
    assert list(Engine().best_matches(matching([[0]] * 64, [1]), 3)[0]) == [0]


def test_an_owner_without_a_rank_is_not_asked_for():
    assert list(Engine().best_matches(matching([[0, 1]], [1, 1], owners=[0, 7]), 3)[0]) == [0]


def test_null_pointers_are_refused():
    how, size, counts, null = (
        ffi.new("kb_lexical *"),
        ffi.new("size_t *"),
        ffi.new("uint64_t[]", 4),
        ffi.NULL,
    )
    facts, scores = ffi.new("uint32_t[]", 4), ffi.new("double[]", 4)
    how.flat, how.scale = 1, 1
    assert lib.kb_lexical_best(how, facts, scores, 4, size) == lib.KB_OK
    assert lib.kb_lexical_best(how, null, null, 0, size) == lib.KB_OK
    assert lib.kb_lexical_counts(how, null) == lib.KB_OK
    assert lib.kb_lexical_best(null, facts, scores, 4, size) == lib.KB_MISUSE
    assert lib.kb_lexical_best(how, null, scores, 4, size) == lib.KB_MISUSE
    assert lib.kb_lexical_best(how, facts, null, 4, size) == lib.KB_MISUSE
    assert lib.kb_lexical_best(how, facts, scores, 4, null) == lib.KB_MISUSE
    assert lib.kb_lexical_counts(null, counts) == lib.KB_MISUSE
    how.word_count = 1
    assert lib.kb_lexical_best(how, facts, scores, 4, size) == lib.KB_MISUSE
    how.words = words = ffi.new("kb_posting[]", 1)
    assert lib.kb_lexical_counts(how, null) == lib.KB_MISUSE
    words[0].count = 1
    assert lib.kb_lexical_best(how, facts, scores, 4, size) == lib.KB_MISUSE
    words[0].count, how.fact_count = 0, 1
    assert lib.kb_lexical_best(how, facts, scores, 4, size) == lib.KB_MISUSE
