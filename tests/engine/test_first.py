"""Relations of first rows: of the rows with the same key the one that came first."""

from __future__ import annotations

import random

import pytest
from support.reference.engine import ReferenceEngine

from engine.assembler import (
    BASE,
    DELTA,
    DERIVED,
    FIRST,
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
from engine.programs import PLENTY, check_failing_allocations, closure_of, finish
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded

UNLIMITED = RunLimits()
EDGE, PATH, PAIR = range(3)


def closure():
    """Paths by two shorter paths: each pair with the middle of the instance that concluded it
    first, which is the end of an edge.
    """
    return plan(
        [(2, BASE), (3, FIRST + 2), (2, DERIVED)],
        component(
            rule(1, scan(EDGE, DELTA, load(0), load(1)), emit(PATH, 0, 1, 1)),
            rule(
                2,
                scan(PATH, DELTA, load(0), load(1), 0),
                probe(PATH, FULL, key(1), load(2), 0),
                emit(PATH, 0, 2, 1),
            ),
            rule(
                2,
                scan(PATH, DELTA, load(1), load(2), 0),
                probe(PATH, OLD, load(0), key(1), 0),
                emit(PATH, 0, 2, 1),
            ),
            recursive=True,
        ),
        component(rule(0, scan(PATH, DELTA, load(0), load(1), 0), emit(PAIR, 0, 1))),
        answer=PAIR,
    )


def projected(width, columns):
    """The first row of `width` columns for each key of `columns`."""
    registers = range(width)
    return plan(
        [(width, BASE), (width, FIRST + columns)],
        component(rule(1, scan(0, DELTA, *map(load, registers)), emit(1, *registers))),
        answer=1,
    )


class World:
    def __init__(self, engine, rows):
        self.engine = engine
        self.base = engine.relation(len(rows[0]) if rows else 2)
        self.base.insert(engine.intern_many([name for row in rows for name in row]), len(rows))

    def open(self, words, limits=UNLIMITED):
        return self.engine.open_run(self.engine.load(words), [self.base], (), limits)

    def in_order(self, relation):
        texts = self.engine.texts(relation.match([0] * relation.arity)[0])
        return list(zip(*[iter(texts)] * relation.arity, strict=True))

    def rows(self, relation):
        return sorted(self.in_order(relation))


def drawn(seed, names, count):
    draw = random.Random(seed)
    pairs = [(f"n{draw.randrange(names)}", f"n{draw.randrange(names)}") for _ in range(count)]
    return list(dict.fromkeys(pairs))


@pytest.fixture(params=[Engine, ReferenceEngine], ids=["c", "python"])
def make(request):
    return request.param


@pytest.mark.parametrize("fuel", [1, 50, PLENTY])
@pytest.mark.parametrize("seed", range(4))
def test_each_pair_has_a_row_that_earlier_rows_conclude(make, seed, fuel):
    edges = drawn(seed, 16, 14 + 4 * seed)
    world = World(make(), edges)
    run = world.open(closure())
    finish(run, fuel)
    rows = world.in_order(run.relation(PATH))
    assert world.rows(run.relation(PAIR)) == closure_of(edges)
    assert sorted(row[:2] for row in rows) == closure_of(edges)
    before = set()
    for start, end, middle in rows:
        is_edge = (start, end) in edges and middle == end
        assert is_edge or {(start, middle), (middle, end)} <= before
        before.add((start, end))


@pytest.mark.parametrize("names", [60, 90])
def test_many_pairs_are_kept_as_bits(names):
    edges = [(f"n{i}", f"n{(i * 7 + step) % names}") for i in range(names) for step in (1, 3)]
    world = World(Engine(), edges)
    run = world.open(closure())
    finish(run)
    rows = world.in_order(run.relation(PATH))
    assert sorted(row[:2] for row in rows) == closure_of(edges)
    assert len(rows) > 2048
    before = set()
    for start, end, middle in rows:
        assert (start, end) in edges or {(start, middle), (middle, end)} <= before
        before.add((start, end))


@pytest.mark.parametrize("columns", range(5))
def test_keys_of_any_number_of_columns(make, columns):
    draw = random.Random(columns)
    table = [tuple(f"v{draw.randrange(4)}" for _ in range(4)) for _ in range(60)]
    world = World(make(), list(dict.fromkeys(table)))
    run = world.open(projected(4, columns))
    finish(run)
    first = {}
    for row in dict.fromkeys(table):
        first.setdefault(row[:columns], row)
    relation = run.relation(1)
    assert world.in_order(relation) == list(first.values())
    symbols = world.engine.intern_many([text for row in table for text in row])
    ids = relation.locate(symbols, len(table))
    rows = list(first.values())
    assert [rows[index] if index < len(rows) else None for index in ids] == [
        row if row in rows else None for row in table
    ]


@pytest.mark.parametrize("columns", [1, 2])
def test_many_keys(columns):
    table = [(f"v{i // 70}", f"v{i % 70}", f"w{i % 11}") for i in range(4900)]
    world = World(Engine(), [*table, *((a, b, "last") for a, b, _ in table)])
    run = world.open(projected(3, columns))
    finish(run)
    first = {}
    for row in table:
        first.setdefault(row[:columns], row)
    assert world.in_order(run.relation(1)) == list(first.values())


def test_rows_count_once(make):
    edges = [(f"n{i}", f"n{i + 1}") for i in range(10)]
    world = World(make(), edges)
    run = world.open(closure())
    finish(run)
    assert run.stats().rows_made == 2 * 55
    run = world.open(closure(), RunLimits(rows=54))
    with pytest.raises(BudgetExceeded):
        finish(run)


def test_without_memory():
    edges = drawn(3, 12, 20)
    world = World(Engine(), edges)
    run = world.open(closure())
    finish(run)
    expected = world.rows(run.relation(PAIR))
    run.close()
    check_failing_allocations(world, closure(), PAIR, expected, 60)
