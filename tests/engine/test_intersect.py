"""Bodies that close a cycle: the same rows by bitmap, by look-ups and from the other list."""

from __future__ import annotations

import random
from array import array

import pytest

from engine.assembler import (
    BASE,
    DELTA,
    DERIVED,
    FULL,
    OLD,
    absent,
    component,
    emit,
    intersect,
    key,
    load,
    plan,
    probe,
    rule,
    same,
    scan,
)
from engine.programs import PLENTY, finish
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded

FUELS = [1, 57, PLENTY]
NODES = 120


def flat(rows):
    return array("I", [value for row in rows for value in row])


def rows_of(relation):
    cells = relation.match([0] * relation.arity)[0]
    return list(zip(*(cells[i :: relation.arity] for i in range(relation.arity)), strict=True))


def graph(seed, count, skew):
    """Edges whose ends are drawn evenly (skew 1) or mostly from the first nodes."""
    draw = random.Random(seed)
    return sorted(
        {tuple(1 + int(NODES * draw.random() ** skew) for _ in range(2)) for _ in range(count)}
    )


def engine_with(*tables):
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(3000)])
    relations = []
    for rows in tables:
        relations.append(engine.relation(len(rows[0])))
        relations[-1].insert(flat(rows), len(rows))
    return engine, relations


def triangle_rules(e=0, t=1):
    """A version for each edge of the cycle."""
    meet = [
        (
            scan(e, DELTA, load(0), load(1)),
            intersect(e, FULL, [key(1), load(2)], e, FULL, [same(2), key(0)]),
        ),
        (
            scan(e, DELTA, load(1), load(2)),
            intersect(e, OLD, [load(0), key(1)], e, FULL, [key(2), same(0)]),
        ),
        (
            scan(e, DELTA, load(2), load(0)),
            intersect(e, OLD, [key(0), load(1)], e, OLD, [same(1), key(2)]),
        ),
    ]
    return [rule(1, *steps, emit(t, 0, 1, 2)) for steps in meet]


TRIANGLES = plan([(2, BASE), (3, DERIVED)], component(*triangle_rules()), answer=1)


def triangles(edges):
    known = set(edges)
    return {(x, y, z) for x, y in known for a, z in known if a == y and (z, x) in known}


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize(("count", "skew"), [(300, 1), (1500, 1), (900, 3), (2500, 6)])
def test_triangles(count, skew, fuel):
    edges = graph(count, count, skew)
    random.Random(1).shuffle(edges)
    engine, (relation,) = engine_with(edges)
    hidden = edges[::9]
    relation.hide(flat(hidden), len(hidden), True)
    run = engine.open_run(engine.load(TRIANGLES), [relation])
    finish(run, fuel)
    rows = rows_of(run.relation(1))
    assert len(rows) == len(set(rows)) == run.stats().rows_made
    assert set(rows) == triangles(set(edges) - set(hidden))


@pytest.mark.parametrize("fuel", FUELS)
def test_edges_that_come_later(fuel):
    edges = graph(7, 2000, 2)
    random.Random(2).shuffle(edges)
    engine, (relation,) = engine_with(edges[:600])
    run = engine.open_run(engine.load(TRIANGLES), [relation])
    for start, end in ((0, 600), (600, 601), (601, 900), (900, len(edges))):
        if start:
            relation.insert(flat(edges[start:end]), end - start)
        finish(run, fuel)
        rows = rows_of(run.relation(1))
        assert len(rows) == len(set(rows))
        assert set(rows) == triangles(edges[:end])


def test_steps_do_not_depend_on_fuel():
    edges = graph(8, 1500, 3)
    found = []
    for fuel in FUELS:
        engine, (relation,) = engine_with(edges)
        run = engine.open_run(engine.load(TRIANGLES), [relation])
        finish(run, fuel)
        stats = run.stats()
        found.append(
            (stats.rows_made, stats.rows_read, stats.probes, stats.steps, rows_of(run.relation(1)))
        )
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("fuel", FUELS)
def test_wider_relations_constants_and_two_meetings_in_a_rule(fuel):
    """big(x, y, k), big(y, z, k) and pair(x, z), then w by pair(z, w), pair(w, x), for the k that
    the run is opened with.
    """
    draw = random.Random(3)
    big = sorted(
        {
            (1 + draw.randrange(40), 1 + draw.randrange(40), 1 + draw.randrange(3))
            for _ in range(1200)
        }
    )
    pair = sorted({(1 + draw.randrange(40), 1 + int(40 * draw.random() ** 3)) for _ in range(400)})
    engine, relations = engine_with(big, pair)
    words = plan(
        [(3, BASE), (2, BASE), (4, DERIVED)],
        component(
            rule(
                1,
                scan(0, FULL, load(1), load(2), key(0)),
                intersect(0, FULL, [key(2), load(3), key(0)], 1, FULL, [key(1), same(3)]),
                intersect(1, FULL, [key(3), load(4)], 1, FULL, [same(4), key(1)]),
                emit(2, 1, 2, 3, 4),
            )
        ),
        answer=2,
        params=1,
    )
    pairs = set(pair)
    for k in (1, 3):
        run = engine.open_run(engine.load(words), relations, [k])
        finish(run, fuel)
        ours = [row[:2] for row in big if row[2] == k]
        thirds = {(x, y, z) for x, y in ours for a, z in ours if a == y and (x, z) in pairs}
        expected = {
            (x, y, z, w) for x, y, z in thirds for a, w in pair if a == z and (w, x) in pairs
        }
        assert set(rows_of(run.relation(2))) == expected
        assert expected
        run.close()


@pytest.mark.parametrize("fuel", FUELS)
def test_over_a_closure_and_inside_a_recursion(fuel):
    """A linear recursion whose step closes a cycle, and triangles over what it makes."""
    edges, guide = graph(11, 200, 1), graph(12, 2500, 1)
    engine, relations = engine_with(edges, guide)
    grow = component(
        rule(1, scan(0, DELTA, load(0), load(1)), emit(2, 0, 1)),
        rule(
            2,
            scan(2, DELTA, load(0), load(1)),
            intersect(0, FULL, [key(1), load(2)], 1, FULL, [key(0), same(2)]),
            emit(2, 0, 2),
        ),
        recursive=True,
    )
    words = plan(
        [(2, BASE), (2, BASE), (2, DERIVED), (3, DERIVED)],
        grow,
        component(*triangle_rules(2, 3)),
        answer=3,
    )
    run = engine.open_run(engine.load(words), relations)
    finish(run, fuel)
    known, allowed = set(edges), set(guide)
    while True:
        more = {(x, z) for x, y in known for a, z in edges if a == y and (x, z) in allowed} - known
        if not more:
            break
        known |= more
    assert len(known) > len(set(edges)) + 50
    assert set(rows_of(run.relation(2))) == known
    assert set(rows_of(run.relation(3))) == triangles(known)


@pytest.mark.parametrize("fuel", FUELS)
def test_heads_that_cannot_repeat_are_a_set_all_the_same(fuel):
    """A product with a gap is written without looking; a second rule, a later pass and a look-up
    find it complete.
    """
    left, right = [(i,) for i in range(1, 60)], [(i,) for i in range(30, 90)]
    gap = [(i, i + 20) for i in range(1, 60)]
    engine, relations = engine_with(left, right, gap)
    product = [
        scan(0, FULL, load(0)),
        scan(1, FULL, load(1)),
        absent(2, key(0), key(1)),
        emit(3, 0, 1),
    ]
    again = [
        scan(1, FULL, load(1)),
        scan(0, FULL, load(0)),
        absent(2, key(0), key(1)),
        emit(3, 0, 1),
    ]
    more = [scan(2, FULL, load(0), load(1)), emit(3, 0, 1)]
    words = plan(
        [(1, BASE), (1, BASE), (2, BASE), (3 - 1, DERIVED)],
        component(rule(1, *product), rule(2, *again), rule(3, *more)),
        answer=3,
    )
    run = engine.open_run(engine.load(words), relations)
    finish(run, fuel)
    rows = rows_of(run.relation(3))
    expected = {(x, y) for (x,) in left for (y,) in right} | set(gap)
    assert len(rows) == len(set(rows)) == run.stats().rows_made
    assert set(rows) == expected
    assert list(run.relation(3).locate(flat(rows), len(rows))) == list(range(len(rows)))


def test_values_left_out_of_the_head_are_met_twice():
    engine, (relation,) = engine_with([(1, 2), (1, 3), (2, 4), (3, 4), (2, 2)])
    words = plan(
        [(2, BASE), (1, DERIVED), (2, DERIVED)],
        component(
            rule(1, scan(0, FULL, load(0), 0), emit(1, 0)),
            rule(
                2, scan(0, FULL, load(0), load(1)), probe(0, FULL, key(1), load(2)), emit(2, 0, 2)
            ),
        ),
        answer=2,
    )
    run = engine.open_run(engine.load(words), [relation])
    finish(run)
    assert rows_of(run.relation(1)) == [(1,), (2,), (3,)]
    assert sorted(rows_of(run.relation(2))) == [(1, 2), (1, 4), (2, 2), (2, 4)]


def test_budgets_of_rows_are_exact():
    engine, (relation,) = engine_with(graph(20, 1500, 2))
    compiled = engine.load(TRIANGLES)
    run = engine.open_run(compiled, [relation])
    finish(run)
    total = run.stats().rows_made
    for rows in (1, 63, 64, 65, total - 1):
        run = engine.open_run(compiled, [relation], limits=RunLimits(rows=rows))
        with pytest.raises(BudgetExceeded):
            finish(run, 5000)
        assert run.stats().rows_made == run.relation(1).counts().rows == rows
    finish(engine.open_run(compiled, [relation], limits=RunLimits(rows=total)))


def test_each_allocation_fails_once():
    edges = graph(21, 1500, 2)
    engine, (relation,) = engine_with(edges)
    compiled = engine.load(TRIANGLES)
    relation.index([0])
    relation.index([1])
    before, failed = engine.bytes, 0
    for n in range(1, 60):
        run = engine.open_run(compiled, [relation])
        engine.fail_after(n)
        try:
            finish(run)
            engine.fail_after(0)
            assert set(rows_of(run.relation(1))) == triangles(edges)
        except BudgetExceeded:
            failed += 1
        engine.fail_after(0)
        run.close()
        assert engine.bytes == before
    assert 2 < failed < 59
