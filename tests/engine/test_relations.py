"""Relations: ids, hidden and deleted rows, indexes, patterns, attributes, handles."""

from __future__ import annotations

import math
import random
from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.examples import examples

from kbplanner.engine.backend import FOREVER, NO_ROW, SAME, Attribute
from kbplanner.engine.engine import Engine
from kbplanner.errors import EngineFault


def test_rows_are_a_set_with_ids_in_order_of_insertion(engine, rows):
    relation = engine.relation(2)
    ids, added = relation.insert(rows([("a", "b"), ("b", "c"), ("a", "b")]), 3)
    assert (list(ids), added) == ([0, 1, 0], 2)
    ids, added = relation.insert(rows([("b", "c"), ("c", "d")]), 2)
    assert (list(ids), added) == ([1, 2], 1)
    assert list(relation.locate(rows([("c", "d"), ("d", "c")]), 2)) == [2, NO_ROW]
    asked = rows([("d", "c"), ("c", "d"), ("d", "d"), ("a", "b")])
    assert relation.missing(asked, 4) == (rows([("d", "c"), ("d", "d")]), 2)
    assert relation.missing(asked, 1) == (rows([("d", "c")]), 1)
    assert relation.missing(asked, 0) == (rows([]), 0)
    counts = relation.counts()
    assert (counts.rows, counts.live, counts.visible, counts.epoch) == (3, 3, 3, 0)


@pytest.mark.parametrize("hidden", [False, True])
def test_many_patterns_match_what_each_of_them_matches(engine, hidden):
    relation = engine.relation(3)
    draw = random.Random(3)
    symbols = engine.intern_many([f"s{i}" for i in range(8)])
    flat = array("I", [draw.choice(symbols) for _ in range(3 * 300)])
    relation.insert(flat, 300)
    relation.delete(flat[:30], 10)
    relation.hide(flat[30:60], 10, True)
    patterns = [[0, 0, 0], *([draw.choice([0, *symbols]) for _ in range(3)] for _ in range(50))]
    flat = array("I", [symbol for pattern in patterns for symbol in pattern])
    ids, numbers = relation.match_many(flat, len(patterns), hidden=hidden)
    expected = [
        (id, number)
        for number, pattern in enumerate(patterns)
        for id in relation.match(pattern, hidden=hidden)[1]
    ]
    assert list(zip(ids, numbers, strict=True)) == expected
    assert len(expected) > 100  # more than one call of the engine returns
    assert relation.match_many(array("I"), 0) == (array("I"), array("I"))


def test_texts_are_looked_up_together(engine):
    (known,) = engine.intern_many(["é"])
    assert list(engine.find_many(["a", "é", "é"])) == [0, known, known]
    assert list(engine.find_many([])) == []
    assert engine.find("a") == 0


@pytest.mark.parametrize("arity", [0, 1, 2, 3, 7, 64])
def test_every_arity(engine, arity):
    relation = engine.relation(arity)
    symbols = engine.intern_many([f"s{i}" for i in range(20)])
    draw = random.Random(arity)
    made = [tuple(draw.choice(symbols) for _ in range(arity)) for _ in range(300)]
    flat = array("I", [symbol for row in made for symbol in row])
    ids, added = relation.insert(flat, len(made))
    assert added == len(set(made))
    assert [made[list(ids).index(i)] for i in ids] == made
    assert relation.locate(flat, len(made)) == ids
    assert relation.missing(flat, len(made)) == (array("I"), 0)
    assert engine.relation(arity).missing(flat, len(made)) == (flat, len(made))
    found, found_ids = relation.match([0] * arity)
    assert list(found_ids) == list(range(added))
    assert len(found) == added * arity
    assert relation.delete(flat, len(made)) == added
    assert relation.counts().live == 0


def test_what_is_refused(engine, rows):
    with pytest.raises(EngineFault):
        engine.relation(65)
    relation = engine.relation(2)
    row = rows([("a", "b")])
    for bad in (array("I", [1, 0]), array("I", [1, 3]), array("I", [0x80000001, 1])):
        with pytest.raises(EngineFault):
            relation.insert(bad, 1)
    with pytest.raises(EngineFault):
        relation.insert(row, 2)
    with pytest.raises(EngineFault):
        relation.match([0])
    with pytest.raises(EngineFault):
        relation.match([SAME | 0, 0])
    with pytest.raises(EngineFault):
        relation.match([99, 0])
    with pytest.raises(EngineFault):
        relation.index([2])
    with pytest.raises(EngineFault):
        relation.index([])
    assert relation.counts().rows == 0


def test_a_deleted_row_comes_back_as_a_new_one(engine, rows):
    relation = engine.relation(2)
    relation.insert(rows([("a", "b"), ("b", "c")]), 2)
    assert relation.delete(rows([("a", "b"), ("a", "b"), ("x", "y")]), 3) == 1
    assert relation.counts().epoch == 1
    assert list(relation.locate(rows([("a", "b")]), 1)) == [NO_ROW]
    ids, added = relation.insert(rows([("a", "b")]), 1)
    assert (list(ids), added) == ([2], 1)
    assert relation.delete(rows([("x", "y")]), 1) == 0
    assert relation.counts().epoch == 1


def test_hidden_rows_keep_their_place(engine, rows, read):
    relation = engine.relation(2)
    relation.insert(rows([("a", "b"), ("b", "c")]), 2)
    assert relation.hide(rows([("a", "b"), ("x", "y")]), 2, True) == 1
    assert relation.hide(rows([("a", "b")]), 1, True) == 0
    counts = relation.counts()
    assert (counts.rows, counts.live, counts.visible, counts.epoch) == (2, 2, 1, 1)
    assert read(relation) == [("b", "c")]
    assert list(relation.match([0, 0], hidden=True)[1]) == [0, 1]
    assert list(relation.match([engine.find("a"), 0])[1]) == []
    assert list(relation.match(rows([("a", "b")]))[1]) == []
    assert list(relation.match(rows([("a", "b")]), hidden=True)[1]) == [0]
    assert list(relation.locate(rows([("a", "b")]), 1)) == [0]
    assert list(relation.insert(rows([("a", "b")]), 1)[0]) == [0]
    assert relation.counts().visible == 1
    assert relation.hide(rows([("a", "b")]), 1, False) == 1
    assert relation.counts().epoch == 2
    assert read(relation) == [("a", "b"), ("b", "c")]
    relation.hide(rows([("a", "b")]), 1, True)
    assert relation.delete(rows([("a", "b")]), 1) == 1
    counts = relation.counts()
    assert (counts.live, counts.visible) == (1, 1)


def test_patterns(engine):
    symbols = engine.intern_many([str(i) for i in range(10)])
    made = [(a, b, c) for a in symbols for b in symbols for c in symbols if (a + b + c) % 3]
    relation = engine.relation(3)
    relation.insert(array("I", [s for row in made for s in row]), len(made))
    a, b, c = symbols[1], symbols[2], symbols[4]
    patterns = [
        (0, 0, 0), (a, 0, 0), (0, b, 0), (0, 0, c), (a, b, 0), (a, 0, c), (0, b, c), (a, b, c), (a, b, b),
        (0, SAME | 0, 0), (0, 0, SAME | 0), (0, 0, SAME | 1), (0, SAME | 0, SAME | 1), (a, SAME | 0, 0),
        (a, 0, SAME | 1),
    ]  # fmt: skip
    for _ in range(2):  # the second time through indexes
        for pattern in patterns:
            expected = [
                i
                for i, row in enumerate(made)
                if all(
                    p == 0 or v == (row[p & ~SAME] if p & SAME else p)
                    for p, v in zip(pattern, row, strict=True)
                )
            ]
            found, ids = relation.match(pattern)
            assert list(ids) == expected
            assert [tuple(found[i * 3 : i * 3 + 3]) for i in range(len(ids))] == [
                made[i] for i in expected
            ]
            assert list(relation.match(pattern, limit=5)[1]) == expected[:5]


def test_indexes_are_kept_current(engine):
    relation = engine.relation(2)
    symbols = engine.intern_many([f"s{i}" for i in range(2000)])
    assert relation.distinct([0]) == 0
    relation.index([0])
    relation.index([1])
    relation.index([0, 1])
    draw = random.Random(7)
    model: dict[tuple[int, int], None] = {}
    for _ in range(60):
        batch = [
            (draw.choice(symbols[: draw.choice((5, 50, 2000))]), draw.choice(symbols[:40]))
            for _ in range(100)
        ]
        relation.insert(array("I", [s for row in batch for s in row]), len(batch))
        model.update(dict.fromkeys(batch))
        gone = draw.sample(sorted(model), min(len(model), draw.choice((1, 40, 120))))
        assert relation.delete(array("I", [s for row in gone for s in row]), len(gone)) == len(gone)
        for row in gone:
            del model[row]
        for column in (0, 1):
            for value in draw.sample(list(symbols[:60]), 5):
                found, _ = relation.match([value, 0] if column == 0 else [0, value])
                pairs = sorted(zip(found[::2], found[1::2], strict=True))
                assert pairs == sorted(row for row in model if row[column] == value)
    assert relation.counts().live == len(model)


def test_distinct_keys(engine, facts):
    relation = facts([("a", "x"), ("a", "y"), ("b", "x")])
    relation.index([0])
    relation.index([0, 1])
    assert (relation.distinct([0]), relation.distinct([1]), relation.distinct([0, 1])) == (2, 2, 3)


def test_one_key_asserted_and_retracted_for_ever(engine, rows):
    """The list of one key must not grow with its history, or looking it up would slow down for
    ever.
    """
    relation = engine.relation(2)
    relation.insert(rows([(f"k{i}", "v") for i in range(3000)]), 3000)
    relation.index([0])
    row = rows([("k7", "v")])
    before = engine.bytes
    for _ in range(2500):
        assert relation.delete(row, 1) == 1
        relation.insert(row, 1)
    assert engine.bytes < before + 120_000
    assert len(relation.match([engine.find("k7"), 0])[1]) == 1


def test_the_dead_leave_when_they_outnumber_the_living(engine, rows, read):
    relation = engine.relation(2)
    made = [(f"a{i}", f"b{i % 7}") for i in range(100)]
    relation.insert(rows(made), 100)
    relation.index([1])
    relation.fill_attribute(Attribute.CREATED_AT, 0, 100, 5)
    relation.set_attribute(
        Attribute.PRIORITY, array("I", range(100)), [i / 100 for i in range(100)]
    )
    relation.hide(rows(made[90:91]), 1, True)
    relation.delete(rows(made[:60]), 60)
    counts = relation.counts()
    assert (counts.rows, counts.live, counts.visible) == (40, 40, 39)
    assert read(relation) == sorted(made[60:90] + made[91:])
    ids = relation.locate(rows(made[60:]), 40)
    assert list(ids) == list(range(40))
    assert list(relation.attributes(Attribute.PRIORITY, ids)) == [i / 100 for i in range(60, 100)]
    new, _ = relation.insert(rows([("new", "b1")]), 1)
    assert list(relation.attributes(Attribute.CREATED_AT, new)) == [0]
    assert list(relation.attributes(Attribute.PRIORITY, new)) == [0.5]
    assert (
        len(relation.match([0, engine.find("b1")])[1])
        == len([r for r in made[60:] if r[1] == "b1"]) + 1
    )


def test_attributes_have_defaults_until_they_are_set(engine, facts):
    relation = facts([("a", "b"), ("b", "c"), ("c", "d")])
    ids = array("I", [0, 2])
    held = engine.bytes
    defaults = {
        Attribute.CREATED_AT: 0, Attribute.VALID_FROM: 0, Attribute.VALID_UNTIL: FOREVER, Attribute.TTL: 0,
        Attribute.LAST_ACCESS: 0, Attribute.ACCESSES: 1, Attribute.PRIORITY: 0.5,
    }  # fmt: skip
    for attribute, value in defaults.items():
        assert list(relation.attributes(attribute, ids)) == [value, value]
    assert all(math.isnan(value) for value in relation.attributes(Attribute.CONFIDENCE, ids))
    assert engine.bytes == held
    relation.set_attribute(Attribute.CONFIDENCE, ids, [0.25, 1.0])
    relation.set_attribute(Attribute.CREATED_AT, ids, [-1, 2**62])
    relation.fill_attribute(Attribute.ACCESSES, 1, 2, 9)
    assert list(relation.attributes(Attribute.CONFIDENCE, ids)) == [0.25, 1.0]
    assert math.isnan(relation.attributes(Attribute.CONFIDENCE, array("I", [1]))[0])
    assert list(relation.attributes(Attribute.CREATED_AT, ids)) == [-1, 2**62]
    assert list(relation.attributes(Attribute.ACCESSES, array("I", [0, 1, 2]))) == [1, 9, 9]
    for bad in (array("I", [3]), array("I", [NO_ROW])):
        with pytest.raises(EngineFault):
            relation.attributes(Attribute.TTL, bad)
        with pytest.raises(EngineFault):
            relation.set_attribute(Attribute.TTL, bad, [1])
    with pytest.raises(EngineFault):
        relation.fill_attribute(Attribute.TTL, 2, 2, 1)
    with pytest.raises(EngineFault):
        relation.set_attribute(Attribute.TTL, ids, [1])


def test_attributes_grow_with_the_rows(engine, rows):
    relation = engine.relation(1)
    relation.insert(rows([("a",)]), 1)
    relation.set_attribute(Attribute.TTL, array("I", [0]), [7])
    relation.insert(rows([(f"b{i}",) for i in range(5000)]), 5000)
    assert sum(relation.attributes(Attribute.TTL, array("I", range(5001)))) == 7


def test_a_copy_is_a_relation_of_its_own(engine, rows, read):
    relation = engine.relation(2)
    made = [(f"a{i}", "b") for i in range(50)]
    relation.insert(rows(made), 50)
    relation.index([0])
    relation.hide(rows(made[3:4]), 1, True)
    relation.delete(rows(made[4:5]), 1)
    relation.set_attribute(Attribute.TTL, array("I", [9]), [9])
    copy = relation.copy()
    relation.delete(rows(made[:20]), 20)
    relation.insert(rows([("z", "z")]), 1)
    assert copy.counts().live == 49
    assert list(copy.attributes(Attribute.TTL, copy.locate(rows(made[9:10]), 1))) == [9]
    assert list(copy.match([engine.find("a9"), 0])[1]) == [9]
    assert read(copy) == sorted(made[:3] + made[5:])
    copy.insert(rows([("y", "y")]), 1)
    assert ("y", "y") not in read(relation)
    assert engine.relation(0).copy().counts().rows == 0


def test_a_dropped_handle_is_refused_even_when_its_place_is_taken(engine, facts, rows):
    old = facts([("a", "b")])
    old.drop()
    new = facts([("c", "d")])
    for call in (
        old.counts,
        old.copy,
        old.drop,
        lambda: old.match([0, 0]),
        lambda: old.insert(rows([("a", "b")]), 1),
    ):
        with pytest.raises(EngineFault):
            call()
    assert new.counts().rows == 1


def test_many_relations(engine):
    made = [engine.relation(1) for _ in range(500)]
    one = array("I", [engine.intern("a")])
    for relation in made[::2]:
        relation.drop()
    again = [engine.relation(1) for _ in range(300)]
    for relation in again:
        relation.insert(one, 1)
    assert all(relation.counts().rows == 0 for relation in made[1::2])


class AgainstAModel(RuleBasedStateMachine):
    """Any sequence of calls leaves a relation as the same calls leave a dict."""

    values = st.integers(1, 9)
    batches = st.lists(st.tuples(values, values), max_size=30)

    def __init__(self):
        super().__init__()
        self.engine = Engine()
        self.engine.intern_many([str(i) for i in range(9)])
        self.relation = self.engine.relation(2)
        self.model: dict[tuple[int, int], bool] = {}

    def teardown(self):
        self.engine.close()

    @staticmethod
    def flat(batch):
        return array("I", [value for row in batch for value in row])

    @rule(batch=batches)
    def insert(self, batch):
        fresh = len(set(batch) - set(self.model))
        _, added = self.relation.insert(self.flat(batch), len(batch))
        assert added == fresh
        for row in batch:
            self.model.setdefault(row, False)

    @rule(batch=batches)
    def delete(self, batch):
        gone = {row for row in batch if row in self.model}
        assert self.relation.delete(self.flat(batch), len(batch)) == len(gone)
        for row in gone:
            del self.model[row]

    @rule(batch=batches, hidden=st.booleans())
    def hide(self, batch, hidden):
        moved = {row for row in batch if self.model.get(row, hidden) != hidden}
        assert self.relation.hide(self.flat(batch), len(batch), hidden) == len(moved)
        for row in moved:
            self.model[row] = hidden

    @rule(columns=st.sampled_from([[0], [1], [0, 1]]))
    def index(self, columns):
        self.relation.index(columns)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look(self, data):
        a, b = data.draw(st.sampled_from(sorted(self.model)))
        hidden = data.draw(st.booleans())
        for pattern in ([a, 0], [0, b], [a, b], [0, SAME]):
            found, _ = self.relation.match(pattern, hidden=hidden)
            expected = [
                row
                for row, concealed in self.model.items()
                if (hidden or not concealed)
                and pattern[0] in (0, row[0])
                and (row[0] == row[1] if pattern[1] == SAME else pattern[1] in (0, row[1]))
            ]
            assert sorted(zip(found[::2], found[1::2], strict=True)) == sorted(expected)

    @invariant()
    def counts(self):
        counts = self.relation.counts()
        assert (counts.live, counts.visible) == (
            len(self.model),
            sum(not hidden for hidden in self.model.values()),
        )


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(examples(40), stateful_step_count=40)


def test_distinct_keys_are_estimated_without_an_index(engine):
    count = 100_000
    engine.intern_many([f"s{i}" for i in range(count)])
    relation = engine.relation(3)
    assert relation.distinct([0]) == 0
    values = array(
        "I", [v for i in range(count) for v in (i + 1, i % 50 + 1, i % 7 + i // 10 * 10 % 5000 + 1)]
    )
    relation.insert(values, count)
    exact = {
        (0,): count,
        (1,): 50,
        (2,): len(set(values[2::3])),
        (1, 2): len(set(zip(values[1::3], values[2::3], strict=True))),
        (0, 2): count,
    }
    for columns, expected in exact.items():
        assert expected * 0.6 <= relation.distinct(columns) <= expected * 1.6
    assert relation.delete(values[: 3 * 60_000], 60_000) == 60_000  # another epoch: estimated again
    assert 24_000 <= relation.distinct([0]) <= 64_000
    relation.delete(values[3 * 60_000 :], 40_000)
    assert relation.distinct([0]) == 0
    relation.insert(values[:30], 10)
    assert relation.distinct([0]) == 10
    bytes_before = engine.bytes
    assert relation.distinct([1]) == 10
    assert engine.bytes == bytes_before
