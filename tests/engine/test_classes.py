"""Relations of classes: pairs unite them, and rules that read them miss no pair."""

from __future__ import annotations

import random

import pytest
from support.reference.engine import ReferenceEngine

from engine.assembler import (
    BASE,
    CLASSES,
    DELTA,
    DERIVED,
    FULL,
    OLD,
    component,
    emit,
    key,
    load,
    plan,
    probe,
    rule,
    scan,
)
from engine.programs import PLENTY, check_failing_allocations, finish
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded

UNLIMITED = RunLimits()


def congruence(with_parts):
    """Slot 0 pairs and slot 1 part(x, u), base; slot 2 the classes; slot 3 the pairs of names of
    the same class.
    """
    parts = [
        rule(
            2,
            scan(2, DELTA, load(0), load(1)),
            probe(2, FULL, load(2), key(1)),
            probe(1, FULL, key(0), load(3)),
            probe(1, FULL, key(2), load(4)),
            emit(2, 3, 4),
        ),
        rule(
            2,
            scan(2, DELTA, load(2), load(1)),
            probe(2, OLD, load(0), key(1)),
            probe(1, FULL, key(0), load(3)),
            probe(1, FULL, key(2), load(4)),
            emit(2, 3, 4),
        ),
    ]
    pairs = [
        rule(3, scan(2, DELTA, load(0), load(1)), probe(2, FULL, load(2), key(1)), emit(3, 0, 2)),
        rule(3, scan(2, DELTA, load(0), load(1)), probe(2, OLD, load(2), key(1)), emit(3, 2, 0)),
    ]
    return plan(
        [(2, BASE), (2, BASE), (2, CLASSES), (2, DERIVED)],
        component(
            rule(1, scan(0, DELTA, load(0), load(1)), emit(2, 0, 1)),
            *(parts if with_parts else []),
            recursive=with_parts,
        ),
        component(*pairs),
        answer=3,
    )


def closed(pairs, parts=()):
    """The pairs of the least equivalence that has some pairs, and those of parts of the same
    thing.
    """
    classes = {name: {name} for pair in pairs for name in pair}
    todo = list(pairs)
    while todo:
        x, y = todo.pop()
        for name in (x, y):
            classes.setdefault(name, {name})
        if classes[x] is not classes[y]:
            united = classes[x] | classes[y]
            classes.update(dict.fromkeys(united, united))
        todo += [
            (u, v)
            for a, u in parts
            for b, v in parts
            if a in classes and b in classes[a] and classes.get(u, 0) is not classes.get(v, 1)
        ]
    return sorted((x, y) for x, others in classes.items() for y in others)


def drawn(seed, names, count):
    draw = random.Random(seed)
    return [(f"n{draw.randrange(names)}", f"n{draw.randrange(names)}") for _ in range(count)]


class World:
    def __init__(self, engine, pairs, parts=()):
        self.engine = engine
        self.pairs, self.parts = engine.relation(2), engine.relation(2)
        self.tell(self.pairs, pairs)
        self.tell(self.parts, parts)

    def tell(self, relation, rows):
        relation.insert(self.engine.intern_many([name for row in rows for name in row]), len(rows))

    def open(self, words, limits=UNLIMITED):
        return self.engine.open_run(self.engine.load(words), [self.pairs, self.parts], (), limits)

    def rows(self, relation):
        texts = self.engine.texts(relation.match([0, 0])[0])
        return sorted(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture(params=[Engine, ReferenceEngine], ids=["c", "python"])
def make(request):
    return request.param


@pytest.mark.parametrize("fuel", [1, 50, PLENTY])
@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_the_same_class(make, seed, fuel):
    pairs = drawn(seed, 40, 15 + 10 * seed)
    world = World(make(), pairs)
    run = world.open(congruence(False))
    finish(run, fuel)
    assert world.rows(run.relation(3)) == closed(pairs)
    classes = world.rows(run.relation(2))
    names = {name for pair in pairs for name in pair}
    assert [name for name, _ in classes] == sorted(names)
    assert {root for _, root in classes} <= names


@pytest.mark.parametrize("fuel", [1, 50, PLENTY])
@pytest.mark.parametrize("seed", range(4))
def test_classes_that_depend_on_classes(make, seed, fuel):
    pairs, parts = drawn(seed, 25, 6), drawn(seed + 100, 25, 22)
    world = World(make(), pairs, parts)
    run = world.open(congruence(True))
    finish(run, fuel)
    assert world.rows(run.relation(3)) == closed(pairs, parts)


def test_new_pairs_continue_a_run(make):
    pairs = drawn(9, 60, 20)
    world = World(make(), pairs)
    run = world.open(congruence(False))
    finish(run)
    for more in (drawn(10, 60, 10), drawn(11, 60, 30)):
        world.tell(world.pairs, more)
        pairs += more
        finish(run)
        assert world.rows(run.relation(3)) == closed(pairs)


def test_a_name_changes_its_class_seldom():
    pairs = [(f"n{i}", f"n{i + 1}") for i in range(4095)]
    random.Random(3).shuffle(pairs)
    world = World(Engine(), pairs)
    run = world.open(congruence(False), RunLimits(rows=4096 * 13))
    with pytest.raises(
        BudgetExceeded
    ):  # by the pairs: the classes take at most 1 + log2(n) rows a name
        finish(run)
    assert run.relation(2).counts().live == 4096
    assert run.relation(2).counts().rows <= 4096 * 13
    assert run.relation(3).counts().rows > 0


def test_budgets_of_rows():
    world = World(Engine(), drawn(5, 50, 80))
    for rows in (1, 7, 60):
        run = world.open(congruence(False), RunLimits(rows=rows))
        with pytest.raises(BudgetExceeded) as caught:
            finish(run)
        assert caught.value.details["limit"] == "derivedRows"
        assert run.stats().rows_made <= rows
        run.close()


def test_each_allocation_fails_once():
    pairs, parts = drawn(6, 150, 120), drawn(7, 150, 80)
    world = World(Engine(), pairs, parts)
    expected = closed(pairs, parts)
    whole = world.open(congruence(True))
    finish(whole)  # the indexes of base relations exist from now on
    whole.close()
    check_failing_allocations(world, congruence(True), 3, expected, 80)
