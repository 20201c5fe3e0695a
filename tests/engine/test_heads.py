"""Heads sorted by the outermost loop of their rule: the same set, complete for later readers."""

from __future__ import annotations

import random

import pytest

from engine.assembler import (
    BASE,
    DELTA,
    DERIVED,
    FULL,
    OP,
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
from engine.test_intersect import engine_with, flat, rows_of
from kbplanner.engine.backend import RunLimits
from kbplanner.errors import BudgetExceeded

FUELS = [1, 61, PLENTY]
SLOTS = [(2, BASE), (2, BASE), (2, DERIVED), (0, BASE)]


def tables(seed, count=500, nodes=60):
    draw = random.Random(seed)
    made = []
    for _ in range(2):
        rows = list({(1 + draw.randrange(nodes), 1 + draw.randrange(nodes)) for _ in range(count)})
        draw.shuffle(rows)
        made.append(rows)
    return made


def joined(left, right, hidden=()):
    return {
        (a, d)
        for a, b in left
        for c, d in right
        if b == c and (a, b) not in hidden and (c, d) not in hidden
    }


def join(view, *head, guard=()):
    return rule(
        1, *guard, scan(0, view, load(0), load(1)), probe(1, FULL, key(1), load(2)), emit(2, *head)
    )


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("head", [(0, 2), (2, 0)])
def test_a_join_that_leaves_out_what_it_joins_by(head, fuel):
    left, right = tables(1)
    engine, relations = engine_with(left, right)
    relations[0].hide(flat(left[::7]), len(left[::7]), True)
    run = engine.open_run(
        engine.load(plan(SLOTS[:3], component(join(FULL, *head)), answer=2)), relations
    )
    finish(run, fuel)
    rows = rows_of(run.relation(2))
    expected = joined([row for i, row in enumerate(left) if i % 7], right)
    assert len(rows) == len(set(rows)) == run.stats().rows_made
    assert {tuple(row[:: 1 if head[0] == 0 else -1]) for row in rows} == expected


@pytest.mark.parametrize("fuel", FUELS)
def test_a_guard_before_and_a_rule_after_it(fuel):
    left, right = tables(2)
    engine, relations = engine_with(left, right)
    there = engine.relation(0)
    there.insert(flat([]), 1)
    back = rule(2, scan(1, FULL, load(0), load(1)), probe(0, FULL, key(1), load(2)), emit(2, 0, 2))
    words = plan([*SLOTS], component(join(FULL, 0, 2, guard=[scan(3, FULL)]), back), answer=2)
    run = engine.open_run(engine.load(words), [*relations, there])
    finish(run, fuel)
    rows = rows_of(run.relation(2))
    assert len(rows) == len(set(rows))
    assert set(rows) == joined(left, right) | joined(right, left)
    assert list(run.relation(2).locate(flat(rows), len(rows))) == list(range(len(rows)))


@pytest.mark.parametrize("fuel", FUELS)
def test_looked_at_on_the_way_and_gone_on_later(fuel):
    left, right = tables(3)
    engine, relations = engine_with(left[:300], right)
    both = [
        join(DELTA, 0, 2),
        rule(1, scan(1, DELTA, load(1), load(2)), probe(0, FULL, load(0), key(1)), emit(2, 0, 2)),
    ]
    run = engine.open_run(engine.load(plan(SLOTS[:3], component(*both), answer=2)), relations)
    for _ in range(20):
        run.step(fuel if fuel < PLENTY else 100)
        derived = run.relation(2)
        rows = rows_of(derived)
        assert len(rows) == len(set(rows))
        assert list(derived.locate(flat(rows), len(rows))) == list(range(len(rows)))
        if rows:
            assert set(derived.match([rows[0][0], 0])[1]) == {
                i for i, row in enumerate(rows) if row[0] == rows[0][0]
            }
    finish(run, fuel)
    relations[0].insert(flat(left[300:]), len(left) - 300)
    finish(run, fuel)
    rows = rows_of(run.relation(2))
    assert len(rows) == len(set(rows))
    assert set(rows) == joined(left, right)


def test_budgets_of_rows_are_exact():
    left, right = tables(4)
    engine, relations = engine_with(left, right)
    compiled = engine.load(plan(SLOTS[:3], component(join(FULL, 0, 2)), answer=2))
    total = len(joined(left, right))
    for rows in (1, 64, 700, total - 1):
        run = engine.open_run(compiled, relations, limits=RunLimits(rows=rows))
        with pytest.raises(BudgetExceeded):
            finish(run, 777)
        assert run.stats().rows_made == run.relation(2).counts().rows == rows
    finish(engine.open_run(compiled, relations, limits=RunLimits(rows=total)))


def test_each_allocation_fails_once():
    left, right = tables(5)
    engine, relations = engine_with(left, right)
    relations[1].index([0])
    compiled = engine.load(plan(SLOTS[:3], component(join(FULL, 0, 2)), answer=2))
    before, failed = engine.bytes, 0
    for n in range(1, 40):
        run = engine.open_run(compiled, relations)
        engine.fail_after(n)
        try:
            finish(run)
            engine.fail_after(0)
            assert set(rows_of(run.relation(2))) == joined(left, right)
        except BudgetExceeded:
            failed += 1
        engine.fail_after(0)
        run.close()
        assert engine.bytes == before
    assert 2 < failed < 39


@pytest.mark.parametrize("fuel", FUELS)
def test_loops_that_the_head_does_not_depend_on_find_one_row(fuel):
    left, right = tables(6, 300)
    engine, relations = engine_with(left, right)
    first = scan(0, FULL, load(1), load(2))
    rules = [
        rule(1, scan(0, FULL, load(0), load(1)), scan(1, FULL, load(2), load(3)), emit(2, 0, 1)),
        rule(2, first, probe(1, FULL, key(2), load(3)), scan(0, FULL, load(4), 0), emit(3, 2)),
        rule(
            3, first, probe(1, FULL, key(2), load(3)), member(0, FULL, key(3), key(1)), emit(4, 1)
        ),
        rule(4, first, scan(1, FULL, load(3), load(4)), emit(5)),
    ]
    slots = [*SLOTS[:2], (2, DERIVED), (1, DERIVED), (1, DERIVED), (0, DERIVED)]
    run = engine.open_run(engine.load(plan(slots, component(*rules), answer=2)), relations)
    finish(run, fuel)
    assert set(rows_of(run.relation(2))) == set(left)
    assert set(rows_of(run.relation(3))) == {(b,) for _, b in left} & {(c,) for c, _ in right}
    known = set(left)
    assert set(rows_of(run.relation(4))) == {
        (a,) for a, b in left for c, d in right if b == c and (d, a) in known
    }
    assert run.relation(5).counts().rows == 1
    assert run.stats().steps < 12 * len(left) * 10


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("nodes", [60, 3000])
def test_rows_that_one_look_up_tests(nodes, fuel):
    """By a scan and by a probe, in a small set and in a large one, for rows that are there and for
    rows that are not.
    """
    left, right = tables(7, 6000 if nodes > 60 else 500, nodes)
    engine, relations = engine_with(left, right)
    engine.intern_many([f"t{i}" for i in range(nodes)])
    marked = engine.relation(1)
    marked.insert(flat([(i,) for i in range(1, nodes, 3)]), len(range(1, nodes, 3)))
    pairs = [
        rule(1, scan(0, FULL, load(0), load(1)), member(1, FULL, key(1), key(0)), emit(3, 1, 0)),
        rule(2, scan(0, FULL, load(0), load(1)), absent(1, key(0), key(1)), emit(4, 0, 1)),
        rule(
            3,
            scan(2, FULL, load(0)),
            probe(0, FULL, key(0), load(1)),
            absent(2, key(1)),
            emit(5, 1, 0),
        ),
        rule(
            4,
            scan(2, FULL, load(0)),
            probe(0, FULL, key(0), load(1)),
            member(2, FULL, key(1)),
            emit(6, 0, 1),
        ),
    ]
    slots = [*SLOTS[:2], (1, BASE), *[(2, DERIVED)] * 4]
    run = engine.open_run(
        engine.load(plan(slots, component(*pairs), answer=3)), [*relations, marked]
    )
    finish(run, fuel)
    a, b, odd = set(left), set(right), set(range(1, nodes, 3))
    assert set(rows_of(run.relation(3))) == {(y, x) for x, y in a if (y, x) in b}
    assert set(rows_of(run.relation(4))) == a - b
    assert set(rows_of(run.relation(5))) == {(y, x) for x, y in a if x in odd and y not in odd}
    assert set(rows_of(run.relation(6))) == {(x, y) for x, y in a if x in odd and y in odd}


@pytest.mark.parametrize("fuel", FUELS)
def test_a_recursion_whose_rows_are_tested(fuel):
    """The rows that are read lie in the relation that is written, and move while they are read."""
    left, allowed = tables(8, 1800)
    engine, relations = engine_with(left[:150], allowed)
    grow = [
        rule(1, scan(0, DELTA, load(0), load(1)), emit(2, 0, 1)),
        rule(2, scan(2, DELTA, load(0), load(1)), member(1, FULL, key(1), key(0)), emit(2, 1, 0)),
        rule(3, scan(2, DELTA, load(0), load(1)), absent(1, key(0), key(1)), emit(2, 1, 1)),
    ]
    run = engine.open_run(
        engine.load(plan(SLOTS[:3], component(*grow, recursive=True), answer=2)), relations
    )
    finish(run, fuel)
    known, todo, good = set(left[:150]), list(left[:150]), set(allowed)
    while todo:
        x, y = todo.pop()
        for row in [(y, x)] * ((y, x) in good) + [(y, y)] * ((x, y) not in good):
            if row not in known:
                known.add(row)
                todo.append(row)
    assert set(rows_of(run.relation(2))) == known


@pytest.mark.parametrize("fuel", FUELS)
def test_heads_with_computed_symbols(fuel):
    """Symbols that a rule makes are not among those that exist when it begins."""
    rows = [(1 + i % 60, 1 + i) for i in range(2400)]
    engine, relations = engine_with(rows)
    concat = [OP["CALL"], 10, 2, 2, 1, 1]
    steps = rule(1, scan(0, DELTA, load(0), load(1)), concat, emit(1, 2, 0))
    code = plan([(2, BASE), (2, DERIVED)], component(steps), answer=1, registers=3)
    run = engine.open_run(engine.load(code), relations, (), RunLimits())
    finish(run, fuel)
    found = rows_of(run.relation(1))
    texts = {(engine.text(b), engine.text(a)) for b, a in found}
    assert texts == {(2 * engine.text(b), engine.text(a)) for a, b in rows}
