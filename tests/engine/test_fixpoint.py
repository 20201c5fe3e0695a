"""Rules run to their fixpoint: chains, cycles, strata, and continued runs."""

from __future__ import annotations

import random
from array import array

import pytest
from support import values

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
    same,
    scan,
)
from engine.programs import GRAPHS, PLENTY, closure_of, finish, one_rule, unreachable
from kbplanner.engine.backend import RunState
from kbplanner.ir.operators import COMPARISONS


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("fuel", [1, 2, 3, 7, 100, PLENTY])
def test_closure_does_not_depend_on_fuel(engine, facts, read, graph, fuel):
    run = engine.open_run(engine.load(asm.closure()), [facts(GRAPHS[graph])])
    assert run.check() == RunState.READY
    assert finish(run, fuel) == RunState.DONE
    assert read(run.relation(1)) == closure_of(GRAPHS[graph])
    assert run.check() == RunState.DONE
    run.close()


def test_every_fuel_counts_the_same_work(engine, facts):
    base = [facts(GRAPHS["diamond"])]
    words = engine.load(asm.closure())
    stats = []
    for fuel in (1, 5, PLENTY):
        run = engine.open_run(words, base)
        finish(run, fuel)
        stats.append(run.stats())
        run.close()
    assert stats[0] == stats[1] == stats[2]
    assert stats[0].steps == stats[0].rows_read + stats[0].probes
    assert stats[0].rows_made == len(closure_of(GRAPHS["diamond"]))


def test_a_linear_rule_goes_over_what_it_makes_in_one_round(engine, facts):
    count = 20_000
    relation = facts([(f"n{i}", f"n{i + 1}") for i in range(count)])
    run = engine.open_run(engine.load(asm.reach()), [relation])
    run.seed(array("I", [engine.find("n0")]), 1)
    assert finish(run) == RunState.DONE
    assert run.relation(2).counts().rows == count + 1
    assert run.stats().rounds < 5


def answers(engine, compiled, base, read, params=(), slot=None):
    run = engine.open_run(compiled, base, params)
    assert finish(run, 3) == RunState.DONE
    result = read(run.relation(len(base) if slot is None else slot))
    run.close()
    return result


def test_repeated_variables_and_anything(engine, facts, read):
    base = [facts([("a", "a", "b"), ("a", "b", "b"), ("c", "c", "c"), ("b", "b", "a")], 3)]
    slots = [(3, BASE), (1, DERIVED)]
    pair = one_rule(engine, slots, scan(0, DELTA, load(0), same(0), 0), emit(1, 0))
    assert answers(engine, pair, base, read) == [("a",), ("b",), ("c",)]
    triple = one_rule(engine, slots, scan(0, DELTA, load(0), same(0), same(0)), emit(1, 0))
    assert answers(engine, triple, base, read) == [("c",)]
    last = one_rule(engine, slots, scan(0, DELTA, 0, 0, load(5)), emit(1, 5))
    assert answers(engine, last, base, read) == [("a",), ("b",), ("c",)]
    bound = one_rule(engine, slots, probe(0, DELTA, key(0), load(1), same(1)), emit(1, 1), params=1)
    assert answers(engine, bound, base, read, [engine.find("a")]) == [("b",)]
    filtered = one_rule(engine, slots, scan(0, DELTA, load(1), key(0), 0), emit(1, 1), params=1)
    assert answers(engine, filtered, base, read, [engine.find("b")]) == [("a",), ("b",)]


def test_heads_with_constants_and_repeats(engine, facts, read):
    base = [facts([("a", "b"), ("b", "c")])]
    compiled = one_rule(
        engine,
        [(2, BASE), (4, DERIVED)],
        scan(0, DELTA, load(1), load(2)),
        emit(1, 2, 0, 1, 2),
        params=1,
    )
    assert answers(engine, compiled, base, read, [engine.intern("k")]) == [
        ("b", "k", "a", "b"),
        ("c", "k", "b", "c"),
    ]


def test_predicates_without_arguments(engine, read):
    flag, compiled = (
        engine.relation(0),
        one_rule(engine, [(0, BASE), (0, DERIVED)], member(0, DELTA), emit(1)),
    )
    run = engine.open_run(compiled, [flag])
    assert finish(run) == RunState.DONE
    assert run.relation(1).counts().rows == 0
    flag.insert(array("I"), 1)
    assert run.check() == RunState.READY
    assert finish(run) == RunState.DONE
    assert run.relation(1).counts().rows == 1
    negation = one_rule(engine, [(0, BASE), (0, DERIVED)], absent(0), emit(1))
    for fuel in (1, PLENTY):
        run = engine.open_run(negation, [flag])
        assert finish(run, fuel) == RunState.DONE
        assert run.relation(1).counts().rows == 0
    flag.delete(array("I"), 1)
    run = engine.open_run(negation, [flag])
    assert finish(run) == RunState.DONE
    assert run.relation(1).counts().rows == 1


def test_rules_without_a_view_run_once(engine, read):
    compiled = one_rule(engine, [(1, DERIVED)], emit(0, 0), params=1)
    run = engine.open_run(compiled, [], [engine.intern("a")])
    assert finish(run) == RunState.DONE
    assert read(run.relation(0)) == [("a",)]
    assert finish(run) == RunState.DONE
    assert run.stats().rows_made == 1
    assert run.stats().probes == 1


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("negated", [False, True])
def test_comparisons(engine, facts, read, op, negated):
    pairs = [(a, b) for a in values.ODD for b in values.ODD]
    compiled = one_rule(
        engine,
        [(2, BASE), (2, DERIVED)],
        scan(0, DELTA, load(0), load(1)),
        compare(op, 0, 1, negated=negated),
        emit(1, 0, 1),
    )

    assert answers(engine, compiled, [facts(pairs)], read) == sorted(
        pair for pair in pairs if values.holds(op, *pair) != negated
    )


def test_copy(engine, facts, read):
    compiled = one_rule(
        engine, [(1, BASE), (2, DERIVED)], scan(0, DELTA, load(3)), asm.copy(1, 3), emit(1, 1, 3)
    )
    assert answers(engine, compiled, [facts([("a",), ("b",)], 1)], read) == [("a", "a"), ("b", "b")]


def test_a_product_of_three(engine, facts, read):
    compiled = one_rule(
        engine,
        [(1, BASE), (3, DERIVED)],
        scan(0, DELTA, load(0)),
        scan(0, FULL, load(1)),
        compare("!=", 0, 1),
        scan(0, FULL, load(2)),
        compare("<", 1, 2),
        emit(1, 0, 1, 2),
    )
    values = "abcd"
    expected = [(a, b, c) for a in values for b in values for c in values if a != b and b < c]
    assert answers(engine, compiled, [facts([(v,) for v in values], 1)], read) == expected


@pytest.mark.parametrize("fuel", [1, PLENTY])
def test_negation_over_a_closure(engine, facts, read, fuel):
    edges, nodes = [("a", "b"), ("b", "c"), ("d", "d")], "abcde"
    base = [facts(edges), facts([(n,) for n in nodes], 1)]
    closed = closure_of(edges)
    run = engine.open_run(engine.load(unreachable()), base, [engine.find("c")])
    assert finish(run, fuel) == RunState.DONE
    assert read(run.relation(3)) == [(n,) for n in nodes if (n, "c") not in closed]
    assert read(run.relation(4)) == [(n,) for n in nodes if n not in {a for a, _ in closed}]
    assert read(run.relation(5)) == [(n,) for n in nodes if n not in {b for _, b in closed}]
    assert run.relation(6).counts().rows == 0
    empty = engine.open_run(
        engine.load(unreachable()), [engine.relation(2), base[1]], [engine.find("c")]
    )
    assert finish(empty, fuel) == RunState.DONE
    assert empty.relation(6).counts().rows == 1


def test_hidden_and_deleted_rows_do_not_exist_for_a_run(engine, facts, rows, read):
    edges = facts([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "z")])
    edges.index([0])
    edges.hide(rows([("c", "d")]), 1, True)
    edges.delete(rows([("a", "z")]), 1)
    run = engine.open_run(engine.load(asm.closure()), [edges])
    finish(run)
    assert read(run.relation(1)) == closure_of([("a", "b"), ("b", "c"), ("d", "e")])
    nodes = facts([(n,) for n in "ace"], 1)
    run = engine.open_run(engine.load(unreachable()), [edges, nodes], [engine.find("d")])
    finish(run)
    assert read(run.relation(4)) == [("c",), ("e",)]
    assert read(run.relation(3)) == [("a",), ("c",), ("e",)]


@pytest.mark.parametrize("fuel", [1, PLENTY])
def test_a_run_goes_on_from_new_rows_and_seeds(engine, facts, rows, read, fuel):
    edges = facts([("a", "b"), ("x", "y")])
    run = engine.open_run(engine.load(asm.reach()), [edges])
    run.seed(rows([("a",)]), 1)
    finish(run, fuel)
    assert read(run.relation(2)) == [("a",), ("b",)]
    made = run.stats().probes
    edges.insert(rows([("b", "x"), ("y", "a"), ("q", "q")]), 3)
    assert run.check() == RunState.READY
    finish(run, fuel)
    assert read(run.relation(2)) == [("a",), ("b",), ("x",), ("y",)]
    assert run.check() == RunState.DONE
    run.seed(rows([("q",), ("a",)]), 2)
    assert run.check() == RunState.READY
    finish(run, fuel)
    assert read(run.relation(2)) == [("a",), ("b",), ("q",), ("x",), ("y",)]
    before = run.stats()
    assert finish(run, fuel) == RunState.DONE
    assert run.stats().steps == before.steps > made


def test_rules_from_one_closure_grown_edge_by_edge(engine, rows, read):
    edges = engine.relation(2)
    run = engine.open_run(engine.load(asm.closure()), [edges])
    known = []
    for edge in [("c", "d"), ("a", "b"), ("d", "a"), ("b", "c"), ("b", "e"), ("e", "e")]:
        known.append(edge)
        edges.insert(rows([edge]), 1)
        finish(run, 2)
        assert read(run.relation(1)) == closure_of(known)


def random_edges(draw, nodes, count):
    return [(f"n{draw.randrange(nodes)}", f"n{draw.randrange(nodes)}") for _ in range(count)]


@pytest.mark.parametrize("seed", range(12))
def test_triangles_against_python(engine, facts, read, seed):
    """A join of three with every view of semi-naive evaluation, grown in steps and stopped at
    random.
    """
    draw = random.Random(seed)
    names = [(2, BASE), (3, DERIVED)]
    head, closes = emit(1, 0, 1, 2), member(0, FULL, key(2), key(0))
    versions = component(
        rule(1, scan(0, DELTA, load(0), load(1)), probe(0, FULL, key(1), load(2)), closes, head),
        rule(1, scan(0, DELTA, load(1), load(2)), probe(0, OLD, load(0), key(1)), closes, head),
        rule(1, scan(0, DELTA, load(2), load(0)), probe(0, OLD, key(0), load(1)), member(0, OLD, key(1), key(2)), head),
    )  # fmt: skip
    compiled = engine.load(plan(names, versions, answer=1))
    edges = facts([])
    known = set()
    run = engine.open_run(compiled, [edges])
    for _ in range(5):
        batch = random_edges(draw, 12, 15)
        known.update(batch)
        edges.insert(engine.intern_many([t for edge in batch for t in edge]), len(batch))
        assert finish(run, draw.choice((1, 4, PLENTY))) == RunState.DONE
        expected = sorted(
            (a, b, c) for a, b in known for d, c in known if b == d and (c, a) in known
        )
        assert read(run.relation(1)) == expected
    assert run.stats().rows_made == len(expected)


@pytest.mark.parametrize("seed", range(6))
def test_large_closure_against_python(engine, facts, read, seed):
    """Large enough for batches, direct tables and lists that move while they are read."""
    edges = random_edges(random.Random(seed), 60, 100)
    run = engine.open_run(engine.load(asm.closure()), [facts(edges)])
    finish(run, 1000 + seed)
    assert read(run.relation(1)) == closure_of(edges)


def test_nonlinear_closure(engine, facts, read):
    """path(x,z) :- path(x,y), path(y,z): both atoms read what the rule writes."""
    edges = random_edges(random.Random(1), 40, 60)
    rules = component(
        rule(1, scan(0, DELTA, load(0), load(1)), emit(1, 0, 1)),
        rule(2, scan(1, DELTA, load(0), load(1)), probe(1, FULL, key(1), load(2)), emit(1, 0, 2)),
        rule(2, scan(1, DELTA, load(1), load(2)), probe(1, OLD, load(0), key(1)), emit(1, 0, 2)),
        recursive=True,
    )
    for fuel in (1, 50, PLENTY):
        run = engine.open_run(
            engine.load(plan([(2, BASE), (2, DERIVED)], rules, answer=1)), [facts(edges)]
        )
        finish(run, fuel)
        assert read(run.relation(1)) == closure_of(edges)
