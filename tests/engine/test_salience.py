"""Salience: the formula, the highest and lowest rows, accesses; the same in both engines."""

from __future__ import annotations

import math
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner._engine import ffi, lib
from kbplanner.engine.backend import FOREVER, SAME, Attribute
from kbplanner.engine.engine import Engine
from kbplanner.engine.salience import Salience
from kbplanner.errors import BudgetExceeded, EngineFault

ENGINES = {"reference": ReferenceEngine, "c": Engine}
HOUR = 3_600_000
NOW = 1_700_000_000_000
USUAL = Salience(0.5, 0.3, 0.2, HOUR, NOW)
TIMES = st.one_of(
    st.integers(NOW - 100 * HOUR, NOW + 10), st.sampled_from([0, -1, NOW, -(2**63), 2**63 - 1])
)
CELLS = st.fixed_dictionaries(
    {},
    optional={
        Attribute.CREATED_AT: TIMES,
        Attribute.LAST_ACCESS: TIMES,
        Attribute.ACCESSES: st.one_of(st.integers(0, 120), st.sampled_from([-5, 2**63 - 1])),
        Attribute.PRIORITY: st.one_of(st.floats(0, 1), st.floats()),
        Attribute.CONFIDENCE: st.one_of(st.floats(0, 1), st.just(math.nan), st.floats()),
    },
)
WEIGHTS = st.one_of(st.floats(0, 1), st.floats(0, 1e300))
HOWS = st.builds(
    Salience,
    WEIGHTS,
    WEIGHTS,
    WEIGHTS,
    st.one_of(st.floats(1, 1e9), st.floats(1e-300, 1e300)),
    TIMES,
)


@pytest.fixture(params=ENGINES)
def engine(request):
    one = ENGINES[request.param]()
    one.intern_many([f"s{i}" for i in range(10_000)])
    yield one
    one.close()


def filled(engine, count, cells=()):
    """Rows (1, 1), (1, 2) ..., and cells by row."""
    relation = engine.relation(2)
    relation.insert(
        array("I", [value for i in range(count) for value in (i % 3 + 1, i + 1)]), count
    )
    for attribute in Attribute:
        known = {place: one[attribute] for place, one in enumerate(cells) if attribute in one}
        relation.set_attribute(attribute, array("I", known), list(known.values()))
    return relation


def test_the_formula(engine):
    cells = [
        {},
        {Attribute.CREATED_AT: NOW},
        {Attribute.CREATED_AT: NOW - HOUR},
        {Attribute.CREATED_AT: NOW - 9 * HOUR, Attribute.LAST_ACCESS: NOW - 2 * HOUR},
        {Attribute.CREATED_AT: NOW + 5, Attribute.ACCESSES: 99},
        {Attribute.CREATED_AT: NOW, Attribute.ACCESSES: 9, Attribute.PRIORITY: 1.0},
        {Attribute.CREATED_AT: NOW, Attribute.CONFIDENCE: 0.25},
        {Attribute.CREATED_AT: NOW, Attribute.CONFIDENCE: 0.0, Attribute.ACCESSES: 10**9},
    ]
    relation = filled(engine, len(cells), cells)
    once = math.log(2) / math.log(100) * 0.3
    expected = [
        0.1 + once, 0.6 + once, 0.35 + once, 0.225 + once, 0.9, 0.7 + 0.15, (0.6 + once) / 4, 0.0,
    ]  # fmt: skip
    scores = relation.salience(array("I", range(len(cells))), USUAL)
    assert list(scores) == pytest.approx(expected, rel=1e-12)
    assert list(relation.salience(array("I", [4, 4, 1]), USUAL)) == [
        scores[4],
        scores[4],
        scores[1],
    ]
    heavy = Salience(3, 3, 3, HOUR, NOW)
    assert list(relation.salience(array("I", [1, 6, 7]), heavy)) == [1.0, 0.25, 0.0]


@examples(200)
@given(cells=st.lists(CELLS, min_size=1, max_size=12), how=HOWS)
def test_both_engines_have_the_same_scores(cells, how):
    scores = []
    for make in ENGINES.values():
        engine = make()
        engine.intern_many([str(i) for i in range(20)])
        relation = filled(engine, len(cells), cells)
        scores.append(list(relation.salience(array("I", range(len(cells))), how)))
        engine.close()
    assert scores[0] == pytest.approx(scores[1], rel=1e-12, abs=1e-300)
    assert all(0 <= score <= 1 for score in scores[0])


def ranked(relation, how, ids, minimum=0.0):
    """Return what most_salient must return, from the scores and times of the same engine."""
    scores = relation.salience(ids, how)
    created = relation.attributes(Attribute.CREATED_AT, ids)
    order = sorted(zip([-score for score in scores], [-time for time in created], ids, strict=True))
    return [(place, -score) for score, _, place in order if -score >= minimum]


@examples(200)
@given(
    cells=st.lists(CELLS, max_size=40),
    how=st.one_of(st.just(USUAL), HOWS),
    k=st.integers(0, 50),
    minimum=st.one_of(st.just(0.0), st.floats(-0.5, 1.5), st.just(-math.inf)),
    hidden=st.sets(st.integers(0, 39)),
    gone=st.sets(st.integers(0, 39)),
)
@pytest.mark.parametrize("kind", ENGINES)
def test_the_best_and_the_worst_of_any_rows(kind, cells, how, k, minimum, hidden, gone):
    engine = ENGINES[kind]()
    engine.intern_many([str(i) for i in range(50)])
    relation = filled(engine, len(cells), cells)
    for place in range(len(cells)):
        row = array("I", [place % 3 + 1, place + 1])
        if place in gone:
            relation.delete(row, 1)
        elif place in hidden:
            relation.hide(row, 1, True)
    for pattern in (None, [0, 0], [2, 0], [0, SAME], [2, 5]):
        _, ids = relation.match(pattern or [0, 0])
        found, scores = relation.most_salient(k, how, minimum, pattern)
        assert list(zip(found, scores, strict=True)) == ranked(relation, how, ids, minimum)[:k]
    _, ids = relation.match([0, 0])
    below = [
        place
        for place, score in zip(ids, relation.salience(ids, how), strict=True)
        if score < minimum
    ]
    assert list(relation.least_salient(minimum, how)) == below
    engine.close()


ORDERS = {
    "all alike": lambda draw, i: {},
    "loaded at once": lambda draw, i: {Attribute.CREATED_AT: NOW - HOUR},
    "oldest first": lambda draw, i: {Attribute.CREATED_AT: NOW - (9000 - i) * 1000},
    "newest first": lambda draw, i: {Attribute.CREATED_AT: NOW - i * 1000},
    "any order": lambda draw, i: {Attribute.CREATED_AT: NOW - draw.randrange(9 * HOUR)},
    "so old that all are alike": lambda draw, i: {
        Attribute.CREATED_AT: i * 7919 % 9001,
        Attribute.LAST_ACCESS: i % 5,
    },
    "some accessed": lambda draw, i: {
        Attribute.CREATED_AT: NOW - i * 1000,
        Attribute.LAST_ACCESS: draw.choice([0, 0, NOW - draw.randrange(HOUR)]),
        Attribute.ACCESSES: draw.choice([1, 1, 2, 40, 200]),
    },
    "unsure": lambda draw, i: {
        Attribute.CREATED_AT: NOW - i,
        Attribute.CONFIDENCE: draw.choice([math.nan, 0.5, 1.0, 0.0]),
    },
    "everything": lambda draw, i: {
        Attribute.CREATED_AT: NOW - draw.randrange(9 * HOUR),
        Attribute.LAST_ACCESS: NOW - draw.randrange(HOUR),
        Attribute.ACCESSES: draw.randrange(100),
        Attribute.PRIORITY: draw.random(),
        Attribute.CONFIDENCE: draw.random(),
    },
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (1, 0, 0), (0, 0.3, 0.2), (2, 2, 2)])
def test_the_best_of_many_rows_in_every_order(order, weights):
    """Enough rows that most are dropped without a close look."""
    how = Salience(*weights, HOUR, NOW)
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(9000)])
    draw = random.Random(order)
    relation = filled(engine, 9000, [ORDERS[order](draw, i) for i in range(9000)])
    expected = ranked(relation, how, array("I", range(9000)))
    for k, minimum in (
        (1, 0.0),
        (10, 0.0),
        (10, expected[4][1]),
        (100, 0.0),
        (100, 0.5),
        (5000, 0.0),
        (9999, 0.3),
    ):
        wanted = [pair for pair in expected if pair[1] >= minimum][:k]
        assert list(zip(*relation.most_salient(k, how, minimum), strict=True)) == wanted
    assert len(relation.least_salient(expected[200][1], how)) == sum(
        score < expected[200][1] for _, score in expected
    )
    engine.close()


def test_two_relations_are_merged_by_passing_on_the_worst_that_is_kept(engine):
    ages = [[(i * 7 + at) * 60_000 for i in range(50)] for at in (0, 3)]
    relations = [
        filled(engine, 50, [{Attribute.CREATED_AT: NOW - age} for age in some]) for some in ages
    ]
    _, first = relations[0].most_salient(10, USUAL)
    _, second = relations[1].most_salient(10, USUAL, first[-1])
    assert (
        sorted([*first, *second])[-10:]
        == sorted([*first, *relations[1].most_salient(10, USUAL)[1]])[-10:]
    )
    assert len(second) < 10


def test_an_access_is_later_and_one_more(engine):
    relation = filled(
        engine, 4, [{}, {Attribute.LAST_ACCESS: NOW + 9}, {Attribute.ACCESSES: FOREVER}, {}]
    )
    epoch = relation.counts().epoch
    assert relation.touch(array("I"), NOW) is None
    assert not relation.uses(Attribute.PRIORITY)
    relation.touch(array("I", [0, 1, 2, 0]), NOW)
    everyone = array("I", range(4))
    assert list(relation.attributes(Attribute.LAST_ACCESS, everyone)) == [NOW, NOW + 9, NOW, 0]
    assert list(relation.attributes(Attribute.ACCESSES, everyone)) == [3, 2, FOREVER, 1]
    relation.touch(array("I", [0]), NOW - 50)
    assert list(relation.attributes(Attribute.LAST_ACCESS, array("I", [0]))) == [NOW]
    assert relation.counts().epoch == epoch


@pytest.mark.parametrize(
    "how",
    [
        Salience(-0.1, 0.3, 0.2, HOUR, NOW), Salience(0.5, math.nan, 0.2, HOUR, NOW),
        Salience(0.5, 0.3, math.inf, HOUR, NOW), Salience(0.5, 0.3, 0.2, 0, NOW), Salience(0.5, 0.3, 0.2, -1, NOW),
        Salience(0.5, 0.3, 0.2, math.nan, NOW), Salience(0.5, 0.3, 0.2, math.inf, NOW),
    ],
)  # fmt: skip
def test_weights_that_are_refused(engine, how):
    relation = filled(engine, 3)
    calls = (
        lambda: relation.salience(array("I", [0]), how), lambda: relation.most_salient(1, how),
        lambda: relation.least_salient(1.0, how),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(EngineFault):
            call()


def test_rows_and_limits_that_are_refused(engine):
    relation = filled(engine, 3)
    calls = [
        lambda: relation.salience(array("I", [3]), USUAL), lambda: relation.touch(array("I", [0, 3]), NOW),
        lambda: relation.most_salient(-1, USUAL), lambda: relation.most_salient(1, USUAL, math.nan),
        lambda: relation.most_salient(1, USUAL, 0.0, [0]), lambda: relation.least_salient(math.nan, USUAL),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(EngineFault):
            call()
    assert list(relation.attributes(Attribute.ACCESSES, array("I", [0]))) == [1]
    relation.drop()
    for call in (*calls, lambda: relation.touch(array("I"), NOW)):
        with pytest.raises(EngineFault):
            call()


def test_a_failed_access_changes_nothing():
    engine = Engine()
    engine.intern_many([str(i) for i in range(99)])
    ids = array("I", [0, 5])
    for allocation in (1, 2):
        relation = filled(engine, 20)
        engine.fail_after(allocation)
        with pytest.raises(BudgetExceeded):
            relation.touch(ids, NOW)
        engine.fail_after(0)
        assert list(relation.attributes(Attribute.ACCESSES, ids)) == [1, 1]
        assert list(relation.attributes(Attribute.LAST_ACCESS, ids)) == [0, 0]
        engine.fail_after(1)  # ranking takes no memory, not even for the index of a pattern
        assert list(relation.most_salient(2, USUAL)[0]) == [0, 1]
        assert list(relation.most_salient(2, USUAL, 0.0, [2, 0])[0]) == [1, 4]
        engine.fail_after(0)
        relation.touch(ids, NOW)
        assert list(relation.attributes(Attribute.ACCESSES, ids)) == [2, 2]
    engine.close()


def test_null_arguments_are_misuse():
    """Through the compiled module itself: no call trusts a pointer."""
    null = ffi.NULL
    opened, rel, size, wide = (
        ffi.new("kb_engine **"),
        ffi.new("kb_rel *"),
        ffi.new("size_t *"),
        ffi.new("uint64_t *"),
    )
    how, ids, scores = (
        ffi.new("kb_salience *", (1, 1, 1, 1, 1)),
        ffi.new("uint32_t[]", 4),
        ffi.new("double[]", 4),
    )
    assert lib.kb_engine_open(null, opened) == lib.KB_OK
    engine = opened[0]
    assert lib.kb_relation_new(engine, 1, rel) == lib.KB_OK
    one = rel[0]
    difference = ffi.new("kb_difference *", (ids, ids, ids, null, 4))
    empty = ffi.new("kb_difference *", (ids, ids, ids, ids, 0))
    misuse = [
        lib.kb_relation_bytes(null, one, wide), lib.kb_relation_bytes(engine, one, null),
        lib.kb_relation_bytes(engine, 0, wide),
        lib.kb_relation_copy(null, one, rel), lib.kb_relation_copy(engine, 2**63, rel),
        lib.kb_relation_compare(engine, one, one, null, empty), lib.kb_relation_compare(engine, one, one, wide, null),
        lib.kb_relation_compare(engine, one, one, wide, empty), lib.kb_relation_compare(engine, one, one, wide, difference),
        lib.kb_relation_compare(engine, one, 0, wide, difference), lib.kb_relation_compare(null, one, one, wide, difference),
        lib.kb_salience_scores(engine, one, null, null, 0, null), lib.kb_salience_scores(null, one, how, null, 0, null),
        lib.kb_salience_scores(engine, one, how, null, 1, scores), lib.kb_salience_scores(engine, one, how, ids, 1, null),
        lib.kb_salience_top(engine, one, null, null, 0.0, ids, scores, 4, size),
        lib.kb_salience_top(engine, one, how, null, 0.0, null, scores, 4, size),
        lib.kb_salience_top(engine, one, how, null, 0.0, ids, null, 4, size),
        lib.kb_salience_top(engine, one, how, null, 0.0, ids, scores, 4, null),
        lib.kb_salience_top(engine, one, how, ffi.new("kb_sym[]", [9]), 0.0, ids, scores, 4, size),
        lib.kb_salience_below(engine, one, null, 0.0, wide, ids, 4, size),
        lib.kb_salience_below(engine, one, how, 0.0, null, ids, 4, size),
        lib.kb_salience_below(engine, one, how, 0.0, wide, null, 4, size),
        lib.kb_salience_below(engine, one, how, 0.0, wide, ids, 0, size),
        lib.kb_salience_below(engine, one, how, 0.0, wide, ids, 4, null),
        lib.kb_record_access(engine, one, null, 1, 0),
        lib.kb_record_access(engine, 0, ids, 1, 0),
        lib.kb_record_access(engine, one, ids, 1, 0),
        lib.kb_record_access(null, one, ids, 0, 0),
    ]  # fmt: skip
    assert set(misuse) == {lib.KB_MISUSE}
    assert lib.kb_salience_top(engine, one, how, null, 0.0, null, null, 0, size) == lib.KB_OK
    wide[0] = 2**64 - 1  # a cursor past the end
    assert lib.kb_salience_below(engine, one, how, 0.0, wide, ids, 4, size) == lib.KB_OK
    difference.modified_there = ids
    assert lib.kb_relation_compare(engine, one, one, wide, difference) == lib.KB_OK
    assert (size[0], difference.more, difference.equal) == (0, 0, 0)
    lib.kb_engine_close(engine)


def test_rows_are_found_by_their_ids(engine):
    relation = engine.relation(2)
    one, two, three = (engine.intern(text) for text in "abc")
    relation.insert(array("I", [one, two, two, three, three, one]), 3)
    assert list(relation.rows(array("I", [2, 0, 2]))) == [three, one, one, two, three, one]
    assert list(relation.rows(array("I"))) == []
    relation.delete(array("I", [two, three]), 1)
    for gone in (1, 3):
        with pytest.raises(EngineFault):
            relation.rows(array("I", [0, gone]))
