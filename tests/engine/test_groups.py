"""Linear recursion evaluated by outer value: the same rows, steps, budgets and later runs."""

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
    compare,
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

NODES = 60
FUELS = [1, 89, 5000, PLENTY]


def flat(rows):
    return array("I", [value for row in rows for value in row])


def rows_of(relation):
    cells = relation.match([0] * relation.arity)[0]
    return list(zip(*(cells[i :: relation.arity] for i in range(relation.arity)), strict=True))


def pairs(seed, count, nodes=NODES):
    draw = random.Random(seed)
    drawn = {(1 + draw.randrange(nodes), 1 + draw.randrange(nodes)) for _ in range(count)}
    return sorted(drawn, key=lambda _: draw.random())


def least(start, grow):
    """The least set that holds `start` and what `grow` makes of each of its rows."""
    known, todo = set(start), list(start)
    while todo:
        for row in grow(todo.pop()):
            if row not in known:
                known.add(row)
                todo.append(row)
    return known


EXIT = rule(1, scan(0, DELTA, load(1), load(2)), emit(3, 1, 2))
SLOTS = [(2, BASE), (2, BASE), (1, BASE), (2, DERIVED)]
"""Edges, more edges, marked nodes, the closure; register 0 is a parameter."""

GUARDED = {
    "left": ([], lambda x, z, y, _: True),
    "marked row": ([member(2, FULL, key(2))], lambda x, z, y, marked: z in marked),
    "marked group": ([member(2, OLD, key(1))], lambda x, z, y, marked: x in marked),
    "unmarked row": ([absent(2, key(2))], lambda x, z, y, marked: z not in marked),
    "unmarked group": ([absent(2, key(1))], lambda x, z, y, marked: x not in marked),
    "not to itself": ([compare("!==", 1, 2)], lambda x, z, y, _: x != z),
    "not from one": ([compare("!==", 1, 0)], lambda x, z, y, _: x != 1),
}


def closure_plan(*rules):
    return plan(SLOTS, component(EXIT, *rules, recursive=True), answer=3, params=1)


class World:
    """An engine with two sets of edges and marked nodes."""

    def __init__(self, edges, more=(), marked=()):
        self.engine = Engine()
        self.engine.intern_many([f"s{i}" for i in range(NODES + 40)])
        self.base = [self.engine.relation(arity) for arity in (2, 2, 1)]
        for relation, rows in zip(self.base, (edges, more, marked), strict=True):
            relation.insert(flat(rows), len(rows))

    def open(self, words, limits=None):
        return self.engine.open_run(
            self.engine.load(words), self.base, [1], *([limits] if limits else [])
        )


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("shape", GUARDED)
def test_guards(shape, fuel):
    steps, holds = GUARDED[shape]
    edges, marked = pairs(1, 150), {(node,) for node in range(1, NODES, 2)} | {(2,)}
    world = World(edges, marked=list(marked))
    step = rule(
        2, scan(3, DELTA, load(1), load(2)), *steps, probe(0, FULL, key(2), load(3)), emit(3, 1, 3)
    )
    run = world.open(closure_plan(step))
    assert finish(run, fuel) == RunState.DONE
    rows = rows_of(run.relation(3))
    known = {node for (node,) in marked}
    expected = least(
        edges,
        lambda row: [(row[0], b) for a, b in edges if a == row[1] and holds(row[0], a, b, known)],
    )
    assert len(rows) == len(set(rows)) > 256
    assert set(rows) == expected
    assert run.stats().rows_made == len(rows)


@pytest.mark.parametrize("fuel", FUELS)
def test_the_first_column_may_be_the_one_that_changes(fuel):
    edges = pairs(2, 130)
    world = World(edges)
    step = rule(2, scan(3, DELTA, load(1), load(2)), probe(0, OLD, load(3), key(1)), emit(3, 3, 2))
    run = world.open(closure_plan(step))
    finish(run, fuel)
    assert set(rows_of(run.relation(3))) == least(
        edges, lambda row: [(a, row[1]) for a, b in edges if b == row[0]]
    )


@pytest.mark.parametrize("fuel", FUELS)
def test_two_rules_and_hidden_edges(fuel):
    edges, more = pairs(3, 90), pairs(4, 90)
    world = World(edges, more)
    world.base[1].hide(flat(more[:30]), 30, True)
    steps = [
        rule(
            2 + i, scan(3, DELTA, load(1), load(2)), probe(i, FULL, key(2), load(3)), emit(3, 1, 3)
        )
        for i in range(2)
    ]
    run = world.open(closure_plan(*steps))
    finish(run, fuel)
    both = {*edges, *more[30:]}
    assert set(rows_of(run.relation(3))) == least(
        edges, lambda row: [(row[0], b) for a, b in both if a == row[1]]
    )


def test_steps_do_not_depend_on_fuel():
    step = scan(3, DELTA, load(1), load(2))
    for words in [
        closure_plan(
            rule(
                2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3)
            )
        ),
        closure_plan(
            rule(2, step, member(2, FULL, key(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3)),
            rule(3, step, absent(2, key(1)), probe(1, FULL, key(2), load(3)), emit(3, 1, 3)),
        ),
    ]:
        found = []
        for fuel in FUELS:
            run = World(pairs(5, 140), pairs(6, 90), [(node,) for node in range(1, 50, 3)]).open(
                words
            )
            finish(run, fuel)
            stats = run.stats()
            found.append(
                (
                    stats.rows_made,
                    stats.rows_read,
                    stats.probes,
                    stats.steps,
                    rows_of(run.relation(3)),
                )
            )
        assert found[0][0] > 1000
        assert all(other == found[0] for other in found)


@pytest.mark.parametrize("fuel", FUELS)
def test_a_row_comes_after_the_row_it_is_made_from(fuel):
    edges = pairs(7, 140)
    run = World(edges).open(
        closure_plan(
            rule(
                2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3)
            )
        )
    )
    finish(run, fuel)
    seen, into = set(), {}
    for a, b in edges:
        into.setdefault(b, []).append(a)
    for x, y in rows_of(run.relation(3)):
        assert (x, y) in edges or any((x, z) in seen for z in into[y])
        seen.add((x, y))


def test_looked_at_while_it_grows_and_gone_on_later():
    edges = pairs(8, 140)
    world = World(edges)
    new_row = rule(
        2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3)
    )
    new_edge = rule(
        2, scan(0, DELTA, load(2), load(3)), probe(3, OLD, load(1), key(2)), emit(3, 1, 3)
    )
    run = world.open(closure_plan(new_row, new_edge))
    state = RunState.PAUSED
    while state == RunState.PAUSED:
        state = run.step(211)
        derived = run.relation(3)
        rows = rows_of(derived)
        assert len(rows) == len(set(rows))
        assert list(derived.locate(flat(rows), len(rows))) == list(range(len(rows)))
        if rows:
            x, y = rows[-1]
            assert set(derived.match([x, 0])[1]) == {i for i, row in enumerate(rows) if row[0] == x}
            assert list(derived.match([x, y])[1]) == [len(rows) - 1]
    for extra in ([(NODES + 1, 1)], [(2, NODES + 2), (NODES + 2, NODES + 3)]):
        edges = edges + extra
        world.base[0].insert(flat(extra), len(extra))
        finish(run, 300)
        known = set(edges)
        assert set(rows_of(run.relation(3))) == least(
            edges, lambda row, known=known: [(row[0], b) for a, b in known if a == row[1]]
        )


@pytest.mark.parametrize("fuel", FUELS)
def test_a_single_group_starts_small(fuel):
    """One column, and two columns of which one never changes, from one seed."""
    count = 3000
    chain = [(i, i + 1) for i in range(1, count)] + [
        (i, 1 + i * 7 % count) for i in range(1, count, 5)
    ]
    engine = Engine()
    engine.intern_many([f"s{i}" for i in range(count + 10)])
    edges = engine.relation(2)
    edges.insert(flat(chain), len(chain))
    after = {node: [b for a, b in chain if a == node] for node in range(1, count + 1)}
    words = plan(
        [(2, BASE), (1, DERIVED), (2, DERIVED)],
        component(
            rule(1, scan(1, DELTA, load(1)), probe(0, FULL, key(1), load(2)), emit(2, 1, 2)),
            rule(
                2, scan(2, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(2, 1, 3)
            ),
            recursive=True,
        ),
        seed=1,
        answer=2,
    )
    for loaded in (engine.load(words), engine.load(asm.reach())):
        run = engine.open_run(loaded, [edges])
        for start in (1, 2500):
            run.seed(array("I", [start]), 1)
            finish(run, fuel)
        rows = rows_of(run.relation(2))
        if len(rows[0]) == 2:
            begin = {(a, b) for a, b in chain if a in (1, 2500)}
            assert set(rows) == least(begin, lambda row: [(row[0], b) for b in after[row[1]]])
        else:
            assert set(rows) == least({(1,), (2500,)}, lambda row: [(b,) for b in after[row[0]]])
        assert len(rows) == len(set(rows)) > 2000
        run.close()


@pytest.mark.parametrize("fuel", [700, PLENTY])
def test_absence_over_a_closure(fuel):
    edges = pairs(9, 100)
    world = World(edges, marked=[(node,) for node in range(1, NODES + 1)])
    closed = component(
        EXIT,
        rule(2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3)),
        recursive=True,
    )
    other = component(
        rule(
            3,
            scan(2, DELTA, load(1)),
            scan(2, FULL, load(2)),
            absent(3, key(1), key(2)),
            emit(4, 1, 2),
        )
    )
    run = world.open(plan([*SLOTS, (2, DERIVED)], closed, other, answer=4, params=1))
    finish(run, fuel)
    expected = least(edges, lambda row: [(row[0], b) for a, b in edges if a == row[1]])
    nodes = range(1, NODES + 1)
    assert set(rows_of(run.relation(4))) == {(x, y) for x in nodes for y in nodes} - expected


def test_budgets_of_rows_are_exact():
    world = World(pairs(10, 140))
    words = closure_plan(
        rule(2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3))
    )
    run = world.open(words)
    finish(run)
    total = run.stats().rows_made
    run.close()
    for rows in (300, 301, 1000, total - 1):
        run = world.open(words, RunLimits(rows=rows))
        with pytest.raises(BudgetExceeded):
            finish(run, 5000)
        assert run.stats().rows_made == run.relation(3).counts().rows == rows
        run.close()
    run = world.open(words, RunLimits(rows=total))
    assert finish(run) == RunState.DONE


def test_each_allocation_fails_once():
    world = World(pairs(11, 140))
    words = closure_plan(
        rule(2, scan(3, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(3, 1, 3))
    )
    run = world.open(words)
    finish(run)
    expected = set(rows_of(run.relation(3)))
    run.close()
    before, failed = world.engine.bytes, 0
    for n in range(1, 40):
        run = world.open(words)
        world.engine.fail_after(n)
        try:
            finish(run)
            world.engine.fail_after(0)
            assert set(rows_of(run.relation(3))) == expected
        except BudgetExceeded:
            failed += 1
        world.engine.fail_after(0)
        run.close()
        assert world.engine.bytes == before
    assert 5 < failed < 39
