"""Relations that keep the best row of each group: rounds, best-first order, budgets, and lack of
memory.
"""

from __future__ import annotations

import heapq
import random

import pytest
from support.reference.engine import ReferenceEngine

from engine.assembler import (
    BASE,
    DELTA,
    DEMAND,
    DERIVED,
    FULL,
    GREATEST,
    LEAST,
    OLD,
    absent,
    call,
    compare,
    component,
    copy,
    emit,
    key,
    load,
    member,
    plan,
    probe,
    rule,
    scan,
)
from engine.programs import PLENTY, check_failing_allocations, finish
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded

ADD, MIN = 0, 7
UNLIMITED = RunLimits()
FUELS = [1, 37, 5000, PLENTY]


def shortest(kind=LEAST, function=ADD, further=()):
    """Slot 0 start(x, v) and slot 1 edge(x, y, w), base; slot 2 the best value of each x; slot 3
    its rows once more.
    """
    recursion = [
        rule(1, scan(0, DELTA, load(0), load(1)), emit(2, 0, 1)),
        rule(
            2,
            scan(1, DELTA, load(0), load(1), load(2)),
            probe(2, OLD, key(0), load(3)),
            call(function, 4, 3, 2),
            emit(2, 1, 4),
        ),
        rule(
            2,
            scan(2, DELTA, load(0), load(3)),
            probe(1, FULL, key(0), load(1), load(2)),
            call(function, 4, 3, 2),
            emit(2, 1, 4),
        ),
        *further,
    ]
    return plan(
        [(2, BASE), (3, BASE), (2, kind), (2, DERIVED)],
        component(*recursion, recursive=True),
        component(rule(3, scan(2, DELTA, load(0), load(1)), emit(3, 0, 1))),
        answer=3,
    )


class World:
    def __init__(self, engine, starts, edges):
        self.engine = engine
        self.starts = self.relation(2, starts)
        self.edges = self.relation(3, edges)

    def relation(self, arity, rows):
        relation = self.engine.relation(arity)
        relation.insert(self.flat(rows), len(rows))
        return relation

    def flat(self, rows):
        return self.engine.intern_many([str(value) for row in rows for value in row])

    def open(self, words, limits=UNLIMITED):
        loaded = self.engine.load(words)
        return self.engine.open_run(loaded, [self.starts, self.edges], (), limits)

    def rows(self, relation):
        texts = self.engine.texts(relation.match([0] * relation.arity)[0])
        arity = relation.arity
        rows = [tuple(texts[i : i + arity]) for i in range(0, len(texts), arity)]
        assert len(rows) == relation.counts().live
        assert len(set(rows)) == len(rows)
        return sorted(rows)


def graph(seed, nodes=40, edges=200, low=0, high=30):
    draw = random.Random(seed)
    return [
        (f"n{draw.randrange(nodes)}", f"n{draw.randrange(nodes)}", draw.randrange(low, high))
        for _ in range(edges)
    ]


def best(starts, edges, step=lambda value, weight: value + weight, sign=1):
    """The best values by trying every edge until nothing changes."""
    known = {}
    for node, value in starts:
        known[node] = value if node not in known else sign * min(sign * known[node], sign * value)
    changed = True
    while changed:
        changed = False
        for x, y, weight in edges:
            if x in known:
                value = step(known[x], weight)
                if y not in known or sign * value < sign * known[y]:
                    known[y] = value
                    changed = True
    return sorted((node, str(value)) for node, value in known.items())


@pytest.fixture(params=[Engine, ReferenceEngine], ids=["c", "python"])
def make(request):
    return request.param


STARTS = [("n0", 3), ("n1", 50), ("n1", 7), ("n2", 0)]


@pytest.mark.parametrize("fuel", FUELS)
@pytest.mark.parametrize("seed", range(3))
def test_least_sums(make, fuel, seed):
    edges = graph(seed)
    world = World(make(), STARTS, edges)
    run = world.open(shortest())
    finish(run, fuel)
    expected = best(STARTS, edges)
    assert world.rows(run.relation(2)) == world.rows(run.relation(3)) == expected


@pytest.mark.parametrize("fuel", FUELS)
def test_greatest_minima(make, fuel):
    edges = graph(9)
    world = World(make(), STARTS, edges)
    run = world.open(shortest(GREATEST, MIN))
    finish(run, fuel)
    assert world.rows(run.relation(3)) == best(STARTS, edges, min, -1)


@pytest.mark.parametrize("fuel", FUELS)
def test_values_that_improve_on_the_way(make, fuel):
    """Weights below 0 along a line of nodes: no cycle, and best-first order would read nodes again
    and again.
    """
    edges = []
    for i in range(12):
        edges += [(f"n{i}", f"n{i + 1}", 0), (f"n{i}", f"m{i}", 1 << (12 - i))]
        edges.append((f"m{i}", f"n{i + 1}", -(2 << (12 - i))))
    world = World(make(), [("n0", 0)], edges)
    run = world.open(shortest())
    finish(run, fuel)
    assert world.rows(run.relation(3)) == best([("n0", 0)], edges)


def test_the_order_bounds_the_work():
    """With weights below 0 a group is read at most once for each round; best-first order alone
    would take 2^40 steps.
    """
    edges = []
    for i in range(40):
        edges += [(f"n{i}", f"n{i + 1}", 0), (f"n{i}", f"m{i}", 1 << (40 - i))]
        edges.append((f"m{i}", f"n{i + 1}", -(2 << (40 - i))))
    world = World(Engine(), [("n0", 0)], edges)
    run = world.open(shortest())
    finish(run)
    assert dict(world.rows(run.relation(3)))["n40"] == str(-sum(1 << (40 - i) for i in range(40)))
    assert run.stats().steps < 40 * len(edges) * 5


def test_each_group_is_read_once_where_nothing_improves():
    edges = graph(4, nodes=300, edges=3000, low=1)
    world = World(Engine(), [("n0", 0)], edges)
    run = world.open(shortest())
    finish(run)
    expected = {}
    queue = [(0, "n0")]
    while queue:
        value, node = heapq.heappop(queue)
        if expected.setdefault(node, value) == value:
            for x, y, weight in edges:
                if x == node and y not in expected:
                    heapq.heappush(queue, (value + weight, y))
    assert world.rows(run.relation(3)) == sorted((n, str(v)) for n, v in expected.items())
    assert run.stats().rounds <= 3


@pytest.mark.parametrize("fuel", FUELS)
def test_two_linear_rules_and_guards(make, fuel):
    """A rule that goes against the edges up to a limit, one that looks rows up, and one without a
    loop of its own.
    """
    further = [
        rule(
            4,
            scan(2, DELTA, load(0), load(3)),
            probe(1, FULL, load(1), key(0), load(2)),
            call(ADD, 4, 3, 2),
            compare("<=", 4, 2),
            emit(2, 1, 4),
        ),
        rule(
            5,
            scan(2, DELTA, load(0), load(3)),
            member(0, FULL, key(0), key(3)),
            probe(1, FULL, key(0), load(1), load(2)),
            emit(2, 1, 2),
        ),
        rule(6, scan(2, DELTA, load(0), load(3)), copy(1, 3), call(ADD, 4, 3, 1), emit(2, 0, 4)),
    ]
    edges = graph(5)
    world = World(make(), STARTS, edges)
    run = world.open(shortest(further=further))
    finish(run, fuel)
    other = World(ReferenceEngine(), STARTS, edges)
    plain = other.open(shortest(further=further))
    finish(plain)
    assert world.rows(run.relation(3)) == other.rows(plain.relation(3))


@pytest.mark.parametrize("fuel", FUELS)
def test_recursion_over_two_relations_goes_by_rounds(make, fuel):
    """Slot 2 takes steps from slot 3 and slot 3 from slot 2; slot 4 has the nodes that slot 2
    lacks.
    """

    def step(number, source, target):
        return [
            rule(
                number,
                scan(source, DELTA, load(0), load(3)),
                probe(1, FULL, key(0), load(1), load(2)),
                call(ADD, 4, 3, 2),
                emit(target, 1, 4),
            ),
            rule(
                number,
                scan(1, DELTA, load(0), load(1), load(2)),
                probe(source, OLD, key(0), load(3)),
                call(ADD, 4, 3, 2),
                emit(target, 1, 4),
            ),
        ]

    words = plan(
        [(2, BASE), (3, BASE), (2, LEAST), (2, LEAST), (1, DERIVED)],
        component(
            rule(1, scan(0, DELTA, load(0), load(1)), emit(2, 0, 1)),
            *step(2, 2, 3),
            *step(3, 3, 2),
            recursive=True,
        ),
        component(rule(4, scan(0, DELTA, load(0), load(1)), absent(3, key(0), 0), emit(4, 0))),
        answer=3,
    )
    edges = graph(6, nodes=30, edges=60)
    world = World(make(), STARTS, edges)
    run = world.open(words)
    finish(run, fuel)
    doubled = [(f"{x}+", f"{y}-", w) for x, y, w in edges]
    doubled += [(f"{x}-", f"{y}+", w) for x, y, w in edges]
    expected = best([(f"{node}+", value) for node, value in STARTS], doubled)
    for slot, sign in ((2, "+"), (3, "-")):
        wanted = [(node[:-1], value) for node, value in expected if node[-1] == sign]
        assert world.rows(run.relation(slot)) == sorted(wanted)
    odd = {node for node, _ in world.rows(run.relation(3))}
    lacking = sorted({(node,) for node, _ in STARTS if node not in odd})
    assert world.rows(run.relation(4)) == lacking


def test_a_relation_joined_with_itself_drops_indexes_of_replaced_rows(make):
    """All pairs: the index lists rows that were replaced, until there are too many of them."""
    words = plan(
        [(2, BASE), (3, BASE), (3, LEAST)],
        component(
            rule(1, scan(1, DELTA, load(0), load(1), load(2)), emit(2, 0, 1, 2)),
            rule(
                2,
                scan(2, DELTA, load(0), load(1), load(2)),
                probe(2, FULL, key(1), load(3), load(4)),
                call(ADD, 5, 2, 4),
                emit(2, 0, 3, 5),
            ),
            rule(
                2,
                scan(2, DELTA, load(1), load(3), load(4)),
                probe(2, OLD, load(0), key(1), load(2)),
                call(ADD, 5, 2, 4),
                emit(2, 0, 3, 5),
            ),
            recursive=True,
        ),
        answer=2,
    )
    edges = graph(7, nodes=30, edges=300, low=1, high=1000)
    world = World(make(), [], edges)
    run = world.open(words)
    finish(run)
    expected = []
    for start in sorted({x for x, _, _ in edges}):
        first = [(y, w) for x, y, w in edges if x == start]
        expected += [(start, node, value) for node, value in best(first, edges)]
    assert world.rows(run.relation(2)) == sorted(expected)


def test_ties_and_texts(make):
    """Numbers are kept in canonical text; other texts, and numbers beyond the doubles, make no
    row.
    """
    starts = [
        ("n0", "2.0"),
        ("n0", "2"),
        ("n0", "2e0"),
        ("n1", "word"),
        ("n2", "-0"),
        ("n2", "0.0"),
        ("n5", "1e999"),
    ]
    for kind in (LEAST, GREATEST):
        world = World(make(), starts, [("n0", "n3", "text"), ("n1", "n4", 3)])
        run = world.open(shortest(kind))
        finish(run)
        assert world.rows(run.relation(3)) == [("n0", "2"), ("n2", "0")]
        assert run.stats().warnings == 3


def test_large_numbers_are_compared_exactly(make):
    large = 1 << 62
    starts = [("n0", large + 1), ("n0", large), ("n0", large + 2), ("n1", f"{large}.5")]
    world = World(make(), starts, [("n0", "n1", 0)])
    run = world.open(shortest())
    finish(run)
    # The decimal is kept as 4.611686018427388e+18, which is written above 2^62.
    assert dict(world.rows(run.relation(3))) == {"n0": str(large), "n1": str(large)}


def test_demand_that_comes_later_continues_the_run(make):
    """Slot 3 is the demand for nodes: each new seed derives what only it needs."""
    words = plan(
        [(2, BASE), (3, BASE), (2, LEAST), (1, DEMAND)],
        component(
            rule(
                0,
                scan(3, DELTA, load(0)),
                probe(1, FULL, load(1), key(0), load(2)),
                emit(3, 1),
            ),
            recursive=True,
        ),
        component(
            rule(1, scan(3, DELTA, load(0)), probe(0, FULL, key(0), load(1)), emit(2, 0, 1)),
            rule(
                2,
                scan(3, DELTA, load(1)),
                probe(1, FULL, load(0), key(1), load(2)),
                probe(2, FULL, key(0), load(3)),
                call(ADD, 4, 3, 2),
                emit(2, 1, 4),
            ),
            rule(
                2,
                scan(2, DELTA, load(0), load(3)),
                probe(1, OLD, key(0), load(1), load(2)),
                call(ADD, 4, 3, 2),
                member(3, OLD, key(1)),
                emit(2, 1, 4),
            ),
            recursive=True,
        ),
        answer=2,
        seed=3,
    )
    edges = graph(8, nodes=60, edges=70)
    world = World(make(), STARTS, edges)
    run = world.open(words)
    everything = dict(best(STARTS, edges))
    asked = set()
    for node in ("n5", "n9", "n30", "n2"):
        run.seed(world.flat([(node,)]), 1)
        finish(run)
        asked.add(node)
        known = dict(world.rows(run.relation(2)))
        assert known.items() <= everything.items()
        assert {n: v for n, v in everything.items() if n in asked}.items() <= known.items()


@pytest.mark.parametrize("rows", [1, 5, 17])
def test_budgets_of_rows_are_exact(make, rows):
    edges = graph(1, low=1)
    world = World(make(), STARTS, edges)
    run = world.open(shortest(), RunLimits(rows=rows))
    with pytest.raises(BudgetExceeded) as caught:
        finish(run)
    assert caught.value.details["limit"] == "derivedRows"
    assert run.stats().rows_made in (rows, rows + 1)  # the reference engine counts the row too many
    run.close()


def test_each_allocation_fails_once():
    edges = graph(2, nodes=120, edges=500)
    world = World(Engine(), STARTS, edges)
    expected = best(STARTS, edges)
    finish(world.open(shortest()))  # the symbols exist from now on
    check_failing_allocations(world, shortest(), 3, expected, 60)


@pytest.mark.parametrize("fuel", FUELS)
def test_counts_of_a_profiled_run_add_up(fuel):
    further = [
        rule(
            4,
            scan(2, DELTA, load(0), load(3)),
            probe(1, FULL, load(1), key(0), load(2)),
            call(ADD, 4, 3, 2),
            compare("<=", 4, 2),
            emit(2, 1, 4),
        )
    ]
    world = World(Engine(), STARTS, graph(3))
    run = world.open(shortest(further=further))
    run.profile()
    finish(run, fuel)
    counts, stats = run.counts(), run.stats()
    assert sum(each.rows_made for each in counts) == stats.rows_made
    assert sum(each.probes for each in counts) == stats.probes
    assert sum(each.rows_read for each in counts) == stats.rows_read
    through = counts[2]  # scan, probe, call: what passes the probe has a value
    assert through.steps[1] == through.steps[2] > 0


def test_closing_a_paused_run_frees_its_queue():
    world = World(Engine(), STARTS, graph(3))
    whole = world.open(shortest())
    finish(whole)  # the symbols exist from now on
    whole.close()
    before = world.engine.bytes
    run = world.open(shortest())
    for _ in range(60):
        assert run.step(5) is RunState.PAUSED
    run.close()
    assert world.engine.bytes == before
