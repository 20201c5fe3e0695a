"""Derived relations large enough for a bitmap: the same rows, ids, views and budgets."""

from __future__ import annotations

import random
from array import array

import pytest

from engine import assembler as asm
from engine.assembler import (
    BASE,
    DELTA,
    DERIVED,
    FULL,
    OLD,
    absent,
    component,
    emit,
    key,
    load,
    member,
    plan,
    probe,
    rule,
    scan,
)
from engine.programs import PLENTY, finish
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded

NO_ROW = 0xFFFFFFFF


def flat(pairs):
    return array("I", [value for pair in pairs for value in pair])


def pairs_of(relation):
    cells = relation.match([0] * relation.arity)[0]
    return list(zip(cells[::2], cells[1::2], strict=True))


def closure_of(pairs):
    next_of = {}
    for a, b in pairs:
        next_of.setdefault(a, []).append(b)
    closed = set()
    for start in next_of:
        seen, todo = set(), list(next_of[start])
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo.extend(next_of.get(node, ()))
        closed.update((start, node) for node in seen)
    return closed


def engine_with(symbols, pairs=()):
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(symbols)])
    relation = engine.relation(2)
    relation.insert(flat(pairs), len(pairs))
    return engine, relation


def random_pairs(seed, nodes, count, stride=1):
    draw = random.Random(seed)
    return [
        (1 + stride * draw.randrange(nodes), 1 + stride * draw.randrange(nodes))
        for _ in range(count)
    ]


@pytest.mark.parametrize("stride", [1, 16, 64])
@pytest.mark.parametrize("fuel", [97, PLENTY])
def test_dense_and_sparse_closures(stride, fuel):
    pairs = random_pairs(stride, 110, 240, stride)
    engine, edges = engine_with(110 * stride, pairs)
    run = engine.open_run(engine.load(asm.closure()), [edges])
    finish(run, fuel)
    rows = pairs_of(run.relation(1))
    assert len(rows) == len(set(rows)) > 5000
    assert set(rows) == closure_of(pairs)
    more = [(pairs[0][0], 110 * stride), (110 * stride, pairs[1][0])]
    edges.insert(flat(more), 2)
    finish(run, fuel)
    assert set(pairs_of(run.relation(1))) == closure_of(pairs + more)


def test_ids_of_rows_held_as_bits():
    pairs = random_pairs(5, 100, 300)
    engine, edges = engine_with(100, pairs)
    run = engine.open_run(engine.load(asm.closure()), [edges])
    for _ in range(30):
        run.step(1500)  # asked for in between, the ids follow the rows
        derived = run.relation(1)
        rows = pairs_of(derived)
        assert list(derived.locate(flat(rows), len(rows))) == list(range(len(rows)))
        assert derived.locate(array("I", [100, 0]), 1)[0] == NO_ROW
        if rows:
            assert list(derived.match(rows[-1])[1]) == [len(rows) - 1]
    finish(run)
    rows = pairs_of(derived)
    twin = derived.copy()
    run.close()
    assert pairs_of(twin) == rows
    assert twin.delete(flat(rows[:10]), 10) == 10
    assert list(twin.insert(flat(rows[:12]), 12)[0][-2:]) == [10, 11]


def test_a_set_that_becomes_sparse():
    """First a dense product, then pairs far from one another: the bits are given up again."""
    engine, first = engine_with(64 * 700 + 1, [])
    dense = [(a, b) for a in range(1, 61) for b in range(1, 61)]
    sparse = [(a, 64 * b) for a in range(1, 61) for b in range(1, 600)]
    compiled = engine.load(
        plan(
            [(2, BASE), (2, DERIVED)],
            component(rule(1, scan(0, DELTA, load(0), load(1)), emit(1, 0, 1))),
            answer=1,
        )
    )
    run = engine.open_run(compiled, [first])
    for part in (dense, sparse, dense):
        first.insert(flat(part), len(part))
        finish(run, 1000)
    assert set(pairs_of(run.relation(1))) == {*dense, *sparse}
    assert run.stats().rows_made == len(dense) + len(sparse)


@pytest.mark.parametrize("fuel", [113, PLENTY])
def test_members_of_what_a_rule_writes(fuel):
    """path(x, z) and back(x, z), the pairs joined both ways: MEMBER looks into the relation of its
    own component.
    """
    steps = component(
        rule(1, scan(0, DELTA, load(0), load(1)), emit(1, 0, 1)),
        rule(2, scan(1, DELTA, load(0), load(1)), probe(0, FULL, key(1), load(2)), emit(1, 0, 2)),
        rule(2, scan(0, DELTA, load(1), load(2)), probe(1, OLD, load(0), key(1)), emit(1, 0, 2)),
        rule(3, scan(1, DELTA, load(0), load(1)), member(1, FULL, key(1), key(0)), emit(2, 0, 1)),
        rule(3, scan(1, DELTA, load(1), load(0)), member(1, OLD, key(0), key(1)), emit(2, 0, 1)),
        recursive=True,
    )
    later = component(
        rule(4, scan(0, DELTA, load(0), load(1)), member(1, FULL, key(1), key(0)), emit(3, 0, 1)),
        rule(4, scan(1, DELTA, load(1), load(0)), member(0, OLD, key(0), key(1)), emit(3, 0, 1)),
        rule(5, scan(0, DELTA, load(0), load(1)), absent(1, key(1), key(0)), emit(4, 0, 1)),
    )
    slots = [(2, BASE), (2, DERIVED), (2, DERIVED), (2, DERIVED), (2, DERIVED)]
    pairs = random_pairs(3, 90, 170)
    engine, edges = engine_with(90, pairs[:150])
    words = plan(slots, steps, later, answer=2)
    run = engine.open_run(engine.load(words), [edges])
    finish(run, fuel)
    for known in (pairs[:150], pairs):
        if known is pairs:
            edges.insert(flat(pairs[150:]), 20)
            assert run.check() == RunState.STALE  # because of ABSENT
            run = engine.open_run(engine.load(words), [edges])
            finish(run, fuel)
        path = closure_of(known)
        assert set(pairs_of(run.relation(2))) == {(a, b) for a, b in path if (b, a) in path}
        assert set(pairs_of(run.relation(3))) == {(a, b) for a, b in known if (b, a) in path}
        assert set(pairs_of(run.relation(4))) == {(a, b) for a, b in known if (b, a) not in path}


def test_what_can_be_reached():
    """One column, large enough for bits."""
    pairs = random_pairs(9, 9000, 20_000)
    engine, edges = engine_with(9000, pairs)
    run = engine.open_run(engine.load(asm.reach()), [edges])
    run.seed(array("I", [pairs[0][0], pairs[0][0]]), 2)
    finish(run, 1000)
    reached, todo = {pairs[0][0]}, [pairs[0][0]]
    next_of = {}
    for a, b in pairs:
        next_of.setdefault(a, []).append(b)
    while todo:
        for node in next_of.get(todo.pop(), ()):
            if node not in reached:
                reached.add(node)
                todo.append(node)
    found = run.relation(2).match([0])[0]
    assert len(found) == len(reached) > 5000
    assert set(found) == reached
    extra = [(pairs[0][0], node) for node in range(1, 9001)]
    edges.insert(flat(extra), 9000)
    finish(run, 1000)
    assert set(run.relation(2).match([0])[0]) == set(range(1, 9001))


def test_budgets_of_rows_are_exact():
    engine, edges = engine_with(100, random_pairs(2, 100, 300))
    compiled = engine.load(asm.closure())
    for rows in (2048, 2049, 2500, 5001):
        run = engine.open_run(compiled, [edges], limits=RunLimits(rows=rows))
        with pytest.raises(BudgetExceeded):
            finish(run, 5000)
        assert run.stats().rows_made == run.relation(1).counts().rows == rows
        run.close()


def test_no_memory_while_bits_grow():
    """Each allocation of a run fails once; every byte comes back, and seeds that found no room
    leave nothing behind.
    """
    pairs = random_pairs(4, 100, 300)
    engine, edges = engine_with(100, pairs)
    edges.index([0])
    compiled = engine.load(asm.closure())
    before, n = engine.bytes, 0
    while True:
        n += 1
        run = engine.open_run(compiled, [edges])
        engine.fail_after(n)
        try:
            finish(run)
            quiet = True
        except BudgetExceeded:
            quiet = False
        engine.fail_after(0)
        done = quiet and run.relation(1).counts().rows
        run.close()
        assert engine.bytes - before < 1000
        if done and n > 60:
            break
    assert done == len(closure_of(pairs))


def test_seeds_that_find_no_room_are_taken_back():
    engine, edges = engine_with(70_000)
    run = engine.open_run(engine.load(asm.reach()), [edges])
    run.seed(array("I", range(1, 3001)), 3000)
    for n in range(1, 5):
        engine.fail_after(n)
        try:
            run.seed(array("I", range(2000, 70_000)), 68_000)
        except BudgetExceeded:
            engine.fail_after(0)
            assert run.relation(1).counts().rows == 3000
            assert run.relation(1).locate(array("I", [3000, 3001, 69_999]), 3)[1] == NO_ROW
        else:
            pytest.fail("the allocation did not fail")
    engine.fail_after(0)
    run.seed(array("I", range(2000, 70_000)), 68_000)
    assert list(run.relation(1).match([0])[0]) == list(range(1, 70_000))
