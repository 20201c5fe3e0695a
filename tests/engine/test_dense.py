"""Recursion evaluated by whole rows of bits: the same rows, for each form of a rule, with budgets
and later runs.
"""

from __future__ import annotations

import random
from array import array
from collections import defaultdict
from functools import cache

import pytest

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
from engine.test_groups import flat, rows_of
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded, Cancelled

NODES = 180
START_ROWS = 4200
"""Enough for an evaluation by rows of bits, which begins with 4,096."""

FUELS = [97, PLENTY]
SLOTS = [(2, BASE), (2, BASE), (1, BASE), (0, BASE), (2, DERIVED), (2, DERIVED)]
"""Many pairs, a few edges, marked nodes, a switch, and the two relations of a recursion."""

MANY, EDGES, MARKED, SWITCH, P, Q = range(6)
START = rule(1, scan(MANY, DELTA, load(1), load(2)), emit(P, 1, 2))
NEW_PAIR = scan(P, DELTA, load(1), load(2))
NEW_OTHER = scan(Q, DELTA, load(1), load(2))
AND_Q = [rule(8, NEW_PAIR, emit(Q, 1, 2)), rule(9, NEW_OTHER, emit(P, 1, 2))]


class World:
    """An engine with base relations; symbols below `first` belong to no row."""

    def __init__(
        self, *, seed=1, nodes=NODES, start_rows=START_ROWS, edges=220, first=1, threads=1
    ):
        draw = random.Random(seed)
        self.nodes = range(first, first + nodes)

        def pairs(count):
            drawn = set()
            while len(drawn) < count:
                drawn.add((draw.choice(self.nodes), draw.choice(self.nodes)))
            return sorted(drawn)

        self.many = pairs(start_rows)
        self.edges = pairs(edges)
        self.marked = {node for node in self.nodes if draw.random() < 0.7}
        self.engine = Engine(threads=threads)
        self.engine.intern_many([f"s{i}" for i in range(first + nodes + 100)])
        self.base = [self.engine.relation(arity) for arity in (2, 2, 1, 0)]
        contents = self.many, self.edges, [(node,) for node in sorted(self.marked)]
        for relation, rows in zip(self.base, contents, strict=False):
            relation.insert(flat(rows), len(rows))
        self.base[SWITCH].insert(array("I"), 1)

    def open(self, *rules, limits=None, more=(), answer=P):
        slots = [*SLOTS, *((2, DERIVED) for _ in more)]
        words = plan(
            slots,
            component(START, *rules, recursive=True),
            *(component(each) for each in more),
            answer=answer,
            params=1,
        )
        compiled = self.engine.load(words)
        return self.engine.open_run(
            compiled, self.base, [self.nodes[0]], *([limits] if limits else [])
        )


def least(start, grow):
    """Return the least sets P and Q that have `start` in P and that `grow` adds nothing to."""
    sets = set(start), set()
    while True:
        more_p, more_q = grow(*sets)
        if more_p <= sets[0] and more_q <= sets[1]:
            return sets
        sets = sets[0] | more_p, sets[1] | more_q


def joined(left, right):
    """Return the pairs (x, z) with (x, y) in one relation and (y, z) in the other."""
    after, joins = defaultdict(set), defaultdict(set)
    for y, z in right:
        after[y].add(z)
    for x, y in left:
        joins[x] |= after[y]
    return {(x, z) for x, reached in joins.items() for z in reached}


def mirrored(rows):
    return {(y, x) for x, y in rows}


def is_bits(relation):
    """Return True if the cells of new rows are not written; read the first row, which writes
    them.
    """
    before = relation.bytes()
    next(relation.pieces([0, 0]))
    return relation.bytes() > before


FORMS = {
    "left-linear": (
        [rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(P, 1, 3))],
        lambda p, q, w: (joined(p, w.edges), q),
    ),
    "right-linear": (
        [rule(2, NEW_PAIR, probe(EDGES, FULL, load(3), key(1)), emit(P, 3, 2))],
        lambda p, q, w: (joined(w.edges, p), q),
    ),
    "both sides": (
        [
            rule(2, NEW_PAIR, probe(EDGES, OLD, key(2), load(3)), emit(P, 1, 3)),
            rule(3, NEW_PAIR, probe(EDGES, OLD, load(3), key(1)), emit(P, 3, 2)),
        ],
        lambda p, q, w: (joined(p, w.edges) | joined(w.edges, p), q),
    ),
    "exchanged head": (
        [rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(P, 3, 1))],
        lambda p, q, w: (mirrored(joined(p, w.edges)), q),
    ),
    "not linear": (
        [
            rule(2, NEW_PAIR, probe(P, FULL, key(2), load(3)), emit(P, 1, 3)),
            rule(3, NEW_PAIR, probe(P, OLD, load(3), key(1)), emit(P, 3, 2)),
        ],
        lambda p, q, w: (joined(p, p), q),
    ),
    "a common first column": (
        [
            rule(2, NEW_PAIR, probe(P, FULL, key(1), load(3)), emit(Q, 2, 3)),
            rule(3, NEW_PAIR, probe(P, OLD, key(1), load(3)), emit(Q, 3, 2)),
            rule(4, NEW_OTHER, probe(EDGES, FULL, key(2), load(3)), emit(P, 1, 3)),
        ],
        lambda p, q, w: (joined(q, w.edges), joined(mirrored(p), p)),
    ),
    "two relations": (
        [
            rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(Q, 1, 3)),
            rule(3, NEW_OTHER, probe(EDGES, FULL, load(3), key(1)), emit(P, 3, 2)),
        ],
        lambda p, q, w: (joined(w.edges, q), joined(p, w.edges)),
    ),
    "copies": (
        [
            rule(2, NEW_PAIR, emit(Q, 2, 1)),
            rule(3, NEW_OTHER, emit(P, 1, 2)),
            rule(4, NEW_OTHER, probe(EDGES, FULL, key(2), load(3)), emit(Q, 1, 3)),
        ],
        lambda p, q, w: (q, mirrored(p) | joined(q, w.edges)),
    ),
    "guards": (
        [
            rule(
                2,
                NEW_PAIR,
                scan(SWITCH, OLD),
                member(MARKED, FULL, key(1)),
                absent(MARKED, key(2)),
                probe(EDGES, FULL, key(2), load(3)),
                emit(Q, 1, 3),
            ),
            rule(3, NEW_OTHER, compare("!==", 2, 0), member(MARKED, OLD, key(2)), emit(P, 1, 2)),
        ],
        lambda p, q, w: (
            {(x, y) for x, y in q if y != w.nodes[0] and y in w.marked},
            joined(
                {(x, y) for x, y in p if x in w.marked and y not in w.marked}, w.edges
            ),
        ),
    ),
    "tests of a pair": (
        [
            rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(Q, 1, 3)),
            rule(3, NEW_OTHER, compare("!==", 1, 2), absent(EDGES, key(1), key(2)), emit(P, 2, 1)),
        ],
        lambda p, q, w: (
            mirrored({(x, y) for x, y in q - set(w.edges) if x != y}),
            joined(p, w.edges),
        ),
    ),
    "guards of a join by pairs": (
        [
            rule(
                2,
                NEW_PAIR,
                member(MARKED, FULL, key(1)),
                absent(MARKED, key(2)),
                probe(P, FULL, key(2), load(3)),
                emit(P, 1, 3),
            ),
            rule(3, NEW_PAIR, absent(MARKED, key(1)), probe(P, OLD, load(3), key(1)),
                 member(MARKED, FULL, key(3)), emit(P, 3, 2)),
        ],
        lambda p, q, w: (
            joined(
                {(x, y) for x, y in p if x in w.marked and y not in w.marked}, p
            ),
            q,
        ),
    ),
    "an intersection of two relations": (
        [
            rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(Q, 1, 3)),
            rule(3, NEW_PAIR, member(Q, FULL, key(2), key(1)), emit(P, 2, 1)),
            rule(4, NEW_OTHER, member(P, OLD, key(2), key(1)), emit(P, 1, 2)),
            rule(5, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(P, 1, 3)),
        ],
        lambda p, q, w: (mirrored(p) & q | joined(p, w.edges), joined(p, w.edges)),
    ),
    "an intersection with a base relation": (
        [
            rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(Q, 1, 3)),
            rule(3, NEW_OTHER, member(MANY, FULL, key(1), key(2)), emit(P, 2, 1)),
            rule(5, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(P, 1, 3)),
        ],
        lambda p, q, w: (mirrored(q & set(w.many)) | joined(p, w.edges), joined(p, w.edges)),
    ),
}  # fmt: skip


@cache
def world_of(form):
    return World(start_rows=9000 if form in ("copies", "guards") else START_ROWS)


@cache
def model(form):
    world = world_of(form)
    return least(world.many, lambda p, q: FORMS[form][1](p, q, world))


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_the_least_model(form, fuel):
    run = world_of(form).open(*FORMS[form][0])
    assert finish(run, fuel) == RunState.DONE
    expected = model(form)
    relation = run.relation(P)
    assert relation.counts().rows == len(expected[0])
    assert is_bits(relation)
    assert run.stats().rows_made == len(expected[0]) + len(expected[1])
    for slot, rows in zip((P, Q), expected, strict=True):
        written = rows_of(run.relation(slot))
        assert len(written) == len(rows)
        assert set(written) == rows


BESIDE = [
    rule(2, NEW_PAIR, probe(EDGES, FULL, key(2), load(3)), emit(P, 1, 3)),
    rule(
        3,
        NEW_PAIR,
        member(MARKED, FULL, key(1)),
        probe(EDGES, FULL, key(1), load(3)),
        probe(EDGES, FULL, key(2), load(4)),
        emit(Q, 3, 4),
    ),
    rule(4, NEW_OTHER, probe(EDGES, FULL, key(1), load(3)), emit(P, 2, 3)),
]
"""The second rule joins three relations, so it is evaluated row by row, between the others."""


def beside(world):
    """Return the least sets P and Q of these rules."""
    edges, back = set(world.edges), mirrored(world.edges)

    def grow(p, q):
        marked = {(x, y) for x, y in p if x in world.marked}
        return joined(p, edges) | joined(mirrored(q), edges), joined(back, joined(marked, edges))

    return least(world.many, grow)


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_rules_of_another_form_are_evaluated_beside_rows_of_bits(threads, fuel):
    world = World(edges=60, threads=threads)
    run = world.open(*BESIDE)
    assert finish(run, fuel) == RunState.DONE
    expected = beside(world)
    assert expected[0] != set(world.many)
    assert run.stats().rows_made == len(expected[0]) + len(expected[1])
    for slot, rows in zip((P, Q), expected, strict=True):
        written = rows_of(run.relation(slot))
        assert len(written) == len(rows)
        assert set(written) == rows


def test_budgets_beside_rows_of_bits():
    world = World(edges=60)
    rows = sum(map(len, beside(world)))
    for limits, name in (
        (RunLimits(rows=START_ROWS + 500), "derivedRows"),
        (RunLimits(rows=rows - 1), "derivedRows"),
        (RunLimits(steps=9_000), "steps"),
    ):
        run = world.open(*BESIDE, limits=limits)
        with pytest.raises(BudgetExceeded) as error:
            finish(run)
        assert error.value.details["limit"] == name
        run.close()
    run = world.open(*BESIDE, limits=RunLimits(rows=rows))
    assert finish(run) == RunState.DONE


def test_steps_do_not_depend_on_fuel():
    counters = []
    for fuel in FUELS:
        run = World().open(*FORMS["both sides"][0])
        finish(run, fuel)
        stats = run.stats()
        counters.append((stats.rows_made, stats.rows_read, stats.probes, stats.steps, stats.rounds))
        run.close()
    assert counters[0] == counters[1]


@pytest.mark.parametrize("first", [1, 63, 64, 65, 1000])
def test_symbols_may_start_anywhere(first):
    world = World(first=first, nodes=130, start_rows=5000)
    run = world.open(*FORMS["left-linear"][0])
    finish(run)
    expected = least(world.many, lambda p, q: (joined(p, world.edges), q))[0]
    assert is_bits(run.relation(P))
    assert set(rows_of(run.relation(P))) == expected


def test_hidden_and_deleted_edges_are_not_read():
    world = World()
    world.base[EDGES].hide(flat(world.edges[:40]), 40, True)
    world.base[EDGES].delete(flat(world.edges[40:60]), 20)
    world.edges = world.edges[60:]
    run = world.open(*FORMS["right-linear"][0])
    finish(run)
    expected = least(world.many, lambda p, q: (joined(world.edges, p), q))[0]
    assert is_bits(run.relation(P))
    assert set(rows_of(run.relation(P))) == expected


def test_a_run_goes_on_after_new_facts():
    """Old rows keep their place, and a few new rows are joined row by row, many by rows of bits."""
    new_edge = rule(
        3, scan(EDGES, DELTA, load(2), load(3)), probe(P, OLD, load(1), key(2)), emit(P, 1, 3)
    )
    world = World(nodes=300, start_rows=4200, edges=60)
    run = world.open(*FORMS["left-linear"][0], new_edge)
    finish(run)
    rows = rows_of(run.relation(P))
    for slot, fresh in (
        (EDGES, [(world.nodes[3], world.nodes[5])]),
        (EDGES, [(world.nodes[0], node) for node in world.nodes[::2]]),
        (MANY, [(world.nodes[-1], world.nodes[0])]),
        (MANY, [(x, world.nodes[x % 7]) for x in world.nodes]),
        (MANY, [(x, y) for x in world.nodes for y in world.nodes[::9]]),
    ):
        added = sorted(set(fresh) - set(world.many if slot == MANY else world.edges))
        world.base[slot].insert(flat(added), len(added))
        (world.many if slot == MANY else world.edges).extend(added)
        finish(run, 3000)
        expected = least(world.many, lambda p, q: (joined(p, world.edges), q))[0]
        before, rows = rows, rows_of(run.relation(P))
        assert rows[: len(before)] == before
        assert len(rows) == len(set(rows))
        assert set(rows) == expected


def test_later_rules_read_what_was_derived():
    world = World()
    rest = rule(
        5,
        scan(MARKED, DELTA, load(1)),
        scan(MARKED, FULL, load(2)),
        absent(P, key(1), key(2)),
        emit(6, 1, 2),
    )
    both_ways = rule(
        6, scan(P, DELTA, load(1), load(2)), probe(P, FULL, key(2), load(3)), emit(7, 3, 1)
    )
    run = world.open(*FORMS["left-linear"][0], more=[rest, both_ways], answer=6)
    finish(run)
    rows = least(world.many, lambda p, q: (joined(p, world.edges), q))[0]
    marked = {(x, y) for x in world.marked for y in world.marked}
    assert set(rows_of(run.relation(6))) == marked - rows
    assert set(rows_of(run.relation(7))) == mirrored(joined(rows, rows))


def test_what_is_read_first():
    """Look-ups, patterns and copies read the rows of a result whose cells are not written."""
    world = World()
    expected = least(world.many, lambda p, q: (joined(p, world.edges), q))[0]
    ordered = sorted(expected)
    for read in (
        lambda relation: {ordered[i] for i, at in enumerate(located(relation, ordered)) if at < len(ordered)},
        lambda relation: {row for node in world.nodes for row in pairs_of(relation.match([node, 0])[0])},
        lambda relation: {row for row in ordered if len(relation.match(row)[1]) == 1},
        lambda relation: set(rows_of(relation.copy())),
    ):  # fmt: skip
        run = world.open(*FORMS["left-linear"][0])
        finish(run)
        assert read(run.relation(P)) == expected
        run.close()


def located(relation, rows):
    return relation.locate(flat(rows), len(rows))


def pairs_of(cells):
    return list(zip(cells[::2], cells[1::2], strict=True))


def test_budgets():
    world = World()
    rules = FORMS["left-linear"][0]
    run = world.open(*rules)
    finish(run)
    stats = run.stats()
    run.close()
    for limits, name in (
        (RunLimits(rows=stats.rows_made - 1), "derivedRows"),
        (RunLimits(steps=stats.steps // 2), "steps"),
        (RunLimits(bytes=8 * START_ROWS), "memoryBytes"),
        (RunLimits(bytes=8 * stats.rows_made), "memoryBytes"),
    ):
        run = world.open(*rules, limits=limits)
        with pytest.raises(BudgetExceeded) as exceeded:
            finish(run, 5000)
        assert exceeded.value.details["limit"] == name
        if name == "derivedRows":
            assert exceeded.value.details["rule"] == "2"
        run.close()
    run = world.open(*rules, limits=RunLimits(rows=stats.rows_made, steps=stats.steps))
    assert finish(run) == RunState.DONE
    run.close()


def test_a_run_is_cancelled_between_two_steps():
    run = World().open(*FORMS["not linear"][0])
    assert run.step(5000) == RunState.PAUSED
    run.cancel()
    with pytest.raises(Cancelled):
        finish(run)


@pytest.mark.parametrize("rules", [FORMS["left-linear"][0], BESIDE], ids=["alone", "beside"])
def test_each_allocation_fails_once(rules):
    world = World(edges=60)
    expected = beside(world)[0]
    if rules is not BESIDE:
        expected = least(world.many, lambda p, q: (joined(p, world.edges), q))[0]
    run = world.open(*rules)
    finish(run)  # makes the index of the edges
    run.close()
    before, failed, finished = world.engine.bytes, 0, 0
    for n in range(1, 60):
        run = world.open(*rules)
        world.engine.fail_after(n)
        try:
            finish(run)
            cells = run.relation(P).match([0, 0])[0]
            assert set(pairs_of(cells)) == expected
            finished += 1
        except BudgetExceeded:
            failed += 1
        world.engine.fail_after(0)
        run.close()
        assert world.engine.bytes == before
    assert failed > 5
    assert finished > 5


LARGE = {"nodes": 3600, "start_rows": 9000, "edges": 9000}
"""Large enough for several threads, which begin with rectangles of 200,000 words."""

BY_THREADS = ["left-linear", "not linear", "guards of a join by pairs", "copies"]


@pytest.mark.parametrize("form", BY_THREADS)
def test_threads_derive_the_same_rows_in_as_many_steps(form):
    results = []
    for threads in (1, 3):
        world = World(**LARGE, threads=threads)
        run = world.open(*FORMS[form][0])
        finish(run, 200_000)
        stats = run.stats()
        found = run.relation(P)
        some = [bytes(found.match([node, 0])[0]) for node in world.nodes[::400]]
        counters = (stats.rows_made, stats.probes, stats.steps, stats.rounds, found.counts().rows)
        results.append((some, counters))
        run.close()
    assert results[0] == results[1]
    assert results[0][1][0] > LARGE["start_rows"]


def test_threads_stop_at_budgets_and_when_cancelled():
    world = World(**LARGE, threads=3)
    rules = FORMS["not linear"][0]
    run = world.open(*rules)
    finish(run)
    steps = run.stats().steps
    run.close()
    run = world.open(*rules, limits=RunLimits(steps=steps // 2))
    with pytest.raises(BudgetExceeded):
        finish(run, 5000)
    run.close()
    run = world.open(*rules)
    assert run.step(5000) == RunState.PAUSED
    run.cancel()
    with pytest.raises(Cancelled):
        finish(run)


def test_a_retracted_edge_makes_a_run_stale_only_where_it_was_used():
    world = World()
    beyond = world.nodes[-1] + 5
    unused = [(beyond, beyond + 1)]
    world.base[EDGES].insert(flat(unused), 1)
    run = world.open(*FORMS["left-linear"][0])
    finish(run)
    world.base[EDGES].delete(flat(unused), 1)
    assert run.check() == RunState.DONE
    assert is_bits(run.relation(P)), "cells were written for the test"
    run.close()
    run = world.open(*FORMS["left-linear"][0])
    finish(run)
    world.base[EDGES].delete(flat(world.edges[:1]), 1)
    assert run.check() == RunState.STALE
    run.close()


def test_a_sparse_result_keeps_no_rectangle():
    """A rectangle of 45,000 words for 6,000 rows would take several times the memory of a table."""
    sparse = World(nodes=1700, start_rows=6000, edges=0)
    run = sparse.open(*FORMS["left-linear"][0])
    finish(run)
    assert not is_bits(run.relation(P))
    assert run.stats().bytes < 40 * len(sparse.many)
    assert sorted(rows_of(run.relation(P))) == sparse.many
