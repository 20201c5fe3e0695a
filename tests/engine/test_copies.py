"""Copies of relations, comparisons of two relations, freed memory; the same in both engines."""

from __future__ import annotations

import math
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

from engine import assembler as asm
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded, EngineFault
from kbplanner.pacing import yielding

ENGINES = {"reference": ReferenceEngine, "c": Engine}
CELLS = (Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL, Attribute.CONFIDENCE)
OTHERS = (Attribute.CREATED_AT, Attribute.LAST_ACCESS, Attribute.ACCESSES, Attribute.PRIORITY)


@pytest.fixture(params=ENGINES)
def engine(request):
    one = ENGINES[request.param]()
    one.intern_many([f"s{i}" for i in range(40_000)])
    yield one
    one.close()


def flat(rows):
    return array("I", [value for row in rows for value in row])


def filled(engine, rows):
    relation = engine.relation(2)
    relation.insert(flat(rows), len(rows))
    return relation


def everything(relation):
    """Row to what is known of it, in the order of the ids."""
    arity = relation.arity
    rows, ids = relation.match([0] * arity, hidden=True)
    _, seen = relation.match([0] * arity)
    cells = [relation.attributes(attribute, ids) for attribute in Attribute]
    return {
        tuple(rows[i * arity : i * arity + arity]): (
            place in set(seen) if len(ids) < 200 else None,
            [None if column[i] != column[i] else column[i] for column in cells],
        )
        for i, place in enumerate(ids)
    }


def marked(engine, count, gone):
    """A relation with every attribute set somewhere, hidden rows, and deleted ones."""
    draw = random.Random(count)
    rows = [(i % 7 + 1, i + 1) for i in range(count)]
    relation = filled(engine, rows)
    for attribute in Attribute:
        ids = array("I", draw.sample(range(count), count // 2))
        relation.set_attribute(attribute, ids, [draw.randrange(1, 1000) for _ in ids])
    relation.hide(flat(rows[: count // 10]), count // 10, True)
    deleted = draw.sample(rows, gone)
    relation.delete(flat(deleted), gone)
    return relation, [row for row in rows if row not in set(deleted)]


@pytest.mark.parametrize(
    ("count", "gone"), [(20, 0), (150, 0), (150, 3), (150, 60), (150, 150), (150, 140)]
)
def test_a_copy_has_the_same_rows_in_the_same_order(engine, count, gone):
    relation, rows = marked(engine, count, gone)
    copy = relation.copy()
    seen = everything(relation)
    assert everything(copy) == seen
    assert list(everything(copy)) == list(seen) == rows
    counts, were = copy.counts(), relation.counts()
    assert (counts.live, counts.visible) == (were.live, were.visible)
    assert counts.rows <= were.rows
    for row in rows[::5]:
        assert list(copy.match([0, row[1]], hidden=True)[0]) == list(row)
    assert NO_ROW not in copy.locate(flat(rows), len(rows))
    ids, added = copy.insert(flat([*rows, (9, 9), (9, 10)]), len(rows) + 2)
    assert added == 2
    assert list(copy.attributes(Attribute.ACCESSES, ids[-2:])) == [1, 1]
    assert everything(relation) == seen
    relation.delete(flat(rows), len(rows))
    assert len(everything(copy)) == len(rows) + 2


def test_a_copy_leaves_the_dead_behind_where_there_are_many(engine):
    relation = filled(engine, [(1, i + 1) for i in range(1000)])
    relation.delete(flat([(1, i + 1) for i in range(0, 800, 2)]), 400)
    assert relation.copy().counts().rows == 600


@pytest.mark.parametrize("arity", [0, 1, 3, 64])
def test_copies_of_every_arity(engine, arity):
    draw = random.Random(arity)
    relation = engine.relation(arity)
    assert relation.copy().counts().rows == 0
    rows = list(
        dict.fromkeys(tuple(draw.randrange(1, 9) for _ in range(arity)) for _ in range(100))
    )
    relation.insert(flat(rows), len(rows))
    relation.delete(flat(rows[: len(rows) // 3]), len(rows) // 3)
    copy = relation.copy()
    assert everything(copy) == everything(relation)
    assert (0, len(everything(copy))) == (
        len(relation.compare(copy).only_here),
        relation.compare(copy).equal,
    )


def test_what_a_run_has_derived_can_be_copied():
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(200)])
    run = engine.open_run(
        engine.load(asm.closure()), [filled(engine, [(i, i + 1) for i in range(1, 100)])]
    )
    assert run.step(1 << 30) == RunState.DONE
    made = run.relation(1)
    copy = made.copy()
    assert copy.compare(made).equal == copy.counts().live == 99 * 100 // 2
    assert made.bytes() > 0
    run.close()
    assert copy.insert(array("I", [150, 151]), 1)[1] == 1
    engine.close()


ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), unique=True, max_size=25)
VALUES = st.sampled_from(
    [
        (0, 0),
        (1, 5),
        (2, FOREVER),
        (3, math.nan),
        (3, 0.5),
        (3, 0.0),
        (3, -0.0),
        (0, 7),
        (1, FOREVER),
    ]
)


@examples(150)
@given(
    here=ROWS,
    there=ROWS,
    gone=ROWS,
    cells=st.lists(st.tuples(st.booleans(), st.integers(0, 24), VALUES), max_size=30),
)
@pytest.mark.parametrize("kind", ENGINES)
def test_any_two_relations_compared(kind, here, there, gone, cells):
    engine = ENGINES[kind]()
    engine.intern_many([str(i) for i in range(9)])
    sides = [filled(engine, here), filled(engine, there)]
    for side, place, (number, value) in cells:
        if place < sides[side].counts().rows:
            sides[side].set_attribute(CELLS[number], array("I", [place]), [value])
    for relation in sides:
        relation.delete(flat(gone), len(gone))
    one, other = (everything(relation) for relation in sides)
    rows = [dict(zip(relation.locate(flat(side), len(side)), side, strict=True))
            for relation, side in zip(sides, (one, other), strict=True)]  # fmt: skip
    found = sides[0].compare(sides[1])
    assert [rows[0][i] for i in found.only_here] == [row for row in one if row not in other]
    assert [rows[1][i] for i in found.only_there] == [row for row in other if row not in one]
    changed = [rows[0][i] for i in found.modified_here]
    assert changed == [rows[1][i] for i in found.modified_there]
    known = {row: [one[row][1][attribute] for attribute in CELLS] for row in one}
    assert changed == [
        row for row in one if row in other and known[row] != [other[row][1][a] for a in CELLS]
    ]
    assert found.equal == len(one.keys() & other.keys()) - len(changed)
    assert sides[0].compare(sides[0]).equal == len(one)
    engine.close()


def test_what_is_not_compared_and_hidden_rows(engine):
    relation = filled(engine, [(1, 2), (2, 3), (3, 4)])
    copy = relation.copy()
    for attribute in OTHERS:
        copy.fill_attribute(attribute, 0, 3, 17)
    copy.hide(flat([(1, 2)]), 1, True)
    assert relation.compare(copy) == (array("I"), array("I"), array("I"), array("I"), 3)
    assert relation.compare(engine.relation(2))[0] == array("I", [0, 1, 2])
    assert engine.relation(2).compare(relation)[1] == array("I", [0, 1, 2])


def test_many_differences_come_in_pieces(engine):
    """More than the buffers of one call hold, in every list."""
    rows = [(i % 90 + 1, i + 1) for i in range(30_000)]
    relation = filled(engine, rows)
    copy = relation.copy()
    relation.delete(flat(rows[::3]), 10_000)
    copy.delete(flat(rows[1::3]), 10_000)
    order = rows[::2]
    random.Random(3).shuffle(order)
    other = filled(engine, order)
    copy.set_attribute(Attribute.TTL, copy.locate(flat(rows[2:9000:3]), 3000), [5] * 3000)
    found = relation.compare(copy)
    assert [len(ids) for ids in found[:4]] == [10_000, 10_000, 3000, 3000]
    assert found.equal == 7000
    assert list(found.modified_there) == list(copy.locate(flat(rows[2:9000:3]), 3000))
    assert [relation.compare(other).equal, len(relation.compare(other).only_there)] == [
        10_000,
        5000,
    ]


def test_a_comparison_of_many_rows_gives_way():
    """Rows in another order, of which either side lacks some: each is looked up, some at a time."""
    engine, turns = Engine(), []
    engine.intern_many([f"s{i}" for i in range(2000)])
    rows = [(i % 500 + 1, i // 500 + 1) for i in range(200_000)]
    order = rows[50_000:] + [(i % 500 + 1, i // 500 + 1000) for i in range(50_000)]
    random.Random(5).shuffle(order)
    one, other = engine.relation(2), engine.relation(2)
    for start in range(0, 200_000, 50_000):
        for relation, all_rows in (one, rows), (other, order):
            relation.insert(flat(all_rows[start : start + 50_000]), 50_000)
    with yielding(lambda: turns.append(1)):
        difference = one.compare(other)
    assert [difference.equal, len(difference.only_here), len(difference.only_there)] == [
        150_000,
        50_000,
        50_000,
    ]
    assert len(turns) >= 400_000 // (1 << 16)
    turns.clear()
    with yielding(lambda: turns.append(1)):
        assert one.compare(one).equal == 200_000
    assert len(turns) == 200_000 // (1 << 16)


def test_what_cannot_be_compared(engine):
    relation = filled(engine, [(1, 2)])
    stranger = type(engine)()
    for other in (
        engine.relation(1),
        ReferenceEngine().relation(2) if isinstance(engine, Engine) else Engine().relation(2),
    ):
        with pytest.raises(EngineFault):
            relation.compare(other)
    gone = engine.relation(2)
    gone.drop()
    for one, other in ((relation, gone), (gone, relation)):
        with pytest.raises(EngineFault):
            one.compare(other)
    stranger.close()


def test_a_dropped_relation_is_refused_for_good(engine):
    relation = filled(engine, [(1, 2)])
    relation.drop()
    for _ in range(600):  # places are used again; the old name must never mean another
        filled(engine, [(3, 4)]).drop()
    last = [filled(engine, [(3, 4)]) for _ in range(3)]
    row = array("I", [1, 2])
    calls = [
        relation.counts, relation.copy, relation.drop, relation.bytes, lambda: relation.insert(row, 1),
        lambda: relation.match([0, 0]), lambda: relation.locate(row, 1), lambda: relation.delete(row, 1),
        lambda: relation.attributes(Attribute.TTL, array("I")), lambda: relation.touch(array("I"), 5),
        lambda: relation.compare(last[0]), lambda: last[0].compare(relation),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(EngineFault):
            call()
    assert [one.counts().live for one in last] == [1, 1, 1]


def test_runs_whose_relation_was_dropped(engine):
    relation = filled(engine, [(i + 1, i + 2) for i in range(50)])
    words = asm.closure()
    runs = [engine.open_run(engine.load(words), [relation], (), RunLimits()) for _ in range(3)]
    assert runs[0].step(1 << 20) == RunState.DONE
    made = runs[0].relation(1).counts().live
    relation.drop()
    filled(engine, [(7, 7)])  # takes the place
    assert [run.check() for run in runs] == [RunState.STALE] * 3
    assert runs[0].relation(1).counts().live == made
    for run in runs:
        with pytest.raises(EngineFault):
            run.relation(0).counts()
        run.close()


def test_a_relation_is_not_dropped_under_a_paused_run():
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(99)])
    relation = filled(engine, [(i + 1, i + 2) for i in range(50)])
    run = engine.open_run(engine.load(asm.closure()), [relation])
    assert run.step(10) == RunState.PAUSED
    with pytest.raises(EngineFault, match="paused"):
        relation.drop()
    with pytest.raises(EngineFault, match="paused"):
        relation.delete(array("I", [1, 2]), 1)
    copy = relation.copy()  # reading is allowed
    assert relation.compare(copy).equal == 50
    run.close()
    relation.drop()
    copy.drop()
    engine.close()


def test_bytes_are_those_that_come_back():
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(5000)])
    spare = [engine.relation(1) for _ in range(20)]
    for relation in spare:
        relation.drop()
    empty = engine.bytes
    relation, _ = marked(engine, 4000, 100)
    relation.match([0, 5])
    relation.match([3, 0])
    held = relation.bytes()
    assert engine.bytes - empty == held
    copy = relation.copy()
    assert 0 < copy.bytes() < held  # no room to grow, no indexes
    assert engine.bytes - empty == held + copy.bytes()
    relation.drop()
    assert engine.bytes - empty == copy.bytes()
    copy.drop()
    assert engine.bytes == empty
    engine.close()


def test_each_allocation_of_a_copy_or_comparison_fails_once():
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(5000)])
    for gone in (0, 1500):
        relation, _ = marked(engine, 4000, gone)
        before, held = everything(relation), engine.bytes
        n = 0
        while True:
            n += 1
            engine.fail_after(n)
            try:
                copy = relation.copy()
                break
            except BudgetExceeded:
                engine.fail_after(0)
            assert (everything(relation), engine.bytes) == (before, held)
        engine.fail_after(0)
        assert n > 9
        assert everything(copy) == before
    engine.close()
