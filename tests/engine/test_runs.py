"""Runs: staleness, pauses, budgets, cancellation, rejected calls."""

from __future__ import annotations

import threading
from array import array

import pytest

from engine import assembler as asm
from engine.assembler import (
    BASE,
    DELTA,
    DERIVED,
    FULL,
    OLD,
    compare,
    emit,
    key,
    load,
    probe,
    rule,
    scan,
)
from engine.programs import GRAPHS, PLENTY, closure_of, finish, one_rule, unreachable
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import SCRATCH_SYMBOLS, Engine
from kbplanner.errors import BudgetExceeded, Cancelled, EngineFault


def test_when_a_run_is_stale(engine, facts, rows):
    edges, nodes = facts([("a", "b"), ("b", "c")]), facts([("a",)], 1)
    compiled = engine.load(unreachable())

    def done():
        run = engine.open_run(compiled, [edges, nodes], [engine.find("a")])
        finish(run)
        assert run.check() == RunState.DONE
        return run

    run = done()
    nodes.insert(rows([("b",)]), 1)  # read positively only
    assert run.check() == RunState.READY
    finish(run)
    edges.insert(rows([("c", "d")]), 1)  # the closure under the negation grows from it
    assert run.check() == RunState.STALE
    assert run.step(1) == RunState.STALE
    run = done()
    nodes.hide(rows([("a",)]), 1, True)
    assert run.check() == RunState.STALE
    nodes.hide(rows([("a",)]), 1, False)
    assert run.check() == RunState.STALE
    run = done()
    edges.delete(rows([("a", "b")]), 1)
    assert run.check() == RunState.STALE
    fresh = engine.open_run(compiled, [edges, nodes], [engine.find("a")])
    edges.delete(rows([("b", "c")]), 1)  # nothing is read before the first step
    assert fresh.check() == RunState.READY
    assert finish(fresh) == RunState.DONE
    nodes.drop()
    assert fresh.check() == RunState.STALE
    assert fresh.step(1) == RunState.STALE
    fresh.close()


def test_what_a_paused_run_reads_does_not_change(engine, facts, rows):
    edges = facts(GRAPHS["cycle"])
    run = engine.open_run(engine.load(asm.closure()), [edges])
    assert run.step(2) == RunState.PAUSED
    assert run.check() == RunState.READY
    row = rows([("a", "b")])
    for change in (
        lambda: edges.insert(row, 1),
        lambda: edges.delete(row, 1),
        lambda: edges.hide(row, 1, True),
        edges.drop,
    ):
        with pytest.raises(EngineFault, match="paused"):
            change()
    with pytest.raises(EngineFault):
        run.seed(row, 1)
    assert (
        len(edges.match([0, engine.find("b")])[1]) == 1
    )  # reading is free, also through a new index
    edges.index([1])
    finish(run, 1)
    assert edges.delete(row, 1) == 1
    paused = engine.open_run(engine.load(asm.closure()), [edges])
    assert paused.step(1) == RunState.PAUSED
    paused.close()
    assert edges.insert(row, 1)[1] == 1


def test_relations_of_a_run_can_only_be_read(engine, facts, rows, read):
    run = engine.open_run(engine.load(asm.closure()), [facts(GRAPHS["cycle"])])
    finish(run)
    derived = run.relation(1)
    row = rows([("a", "b")])
    for change in (
        lambda: derived.insert(row, 1),
        lambda: derived.delete(row, 1),
        lambda: derived.hide(row, 1, True),
        lambda: derived.fill_attribute(0, 0, 1, 1),
        derived.drop,
    ):
        with pytest.raises(EngineFault):
            change()
    with pytest.raises(EngineFault):
        engine.open_run(engine.load(asm.closure()), [derived])
    kept = derived.copy()
    run.close()
    with pytest.raises(EngineFault):
        derived.counts()
    assert read(kept) == closure_of(GRAPHS["cycle"])


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (RunLimits(rows=5), "derivedRows"),
        (RunLimits(bytes=3000), "memoryBytes"),
        (RunLimits(steps=50), "steps"),
    ],
)
@pytest.mark.parametrize("fuel", [1, PLENTY])
def test_budgets(engine, facts, limits, name, fuel):
    base = [facts(GRAPHS["chain"])]
    run = engine.open_run(engine.load(asm.closure()), base, limits=limits)
    with pytest.raises(BudgetExceeded) as caught:
        finish(run, fuel)
    assert caught.value.details["limit"] == name
    assert caught.value.details["value"] == limits.rows + limits.bytes + limits.steps
    assert caught.value.details["rule"] in ("1", "2")
    stats = run.stats()
    assert stats.budget == name
    if limits.rows:
        assert stats.rows_made == 5
    if limits.bytes:
        assert stats.bytes <= 3000
    with pytest.raises(BudgetExceeded):
        run.step(1)
    run.close()
    base[0].delete(base[0].match([0, 0])[0], 1)


def test_exact_budgets_are_enough(engine, facts):
    base = [facts(GRAPHS["chain"])]
    compiled = engine.load(asm.closure())
    run = engine.open_run(compiled, base)
    finish(run)
    stats = run.stats()
    run = engine.open_run(
        compiled, base, limits=RunLimits(stats.rows_made, 2 * stats.bytes, stats.steps)
    )
    assert finish(run) == RunState.DONE
    assert run.stats() == stats


def test_new_budgets_count_from_now(engine, facts, rows):
    edges = facts([("a", "b"), ("b", "c")])
    run = engine.open_run(engine.load(asm.reach()), [edges], limits=RunLimits(rows=3))
    run.seed(rows([("a",)]), 1)
    finish(run)
    edges.insert(rows([("c", "d"), ("d", "e"), ("e", "f")]), 3)
    run.limit(RunLimits(rows=3, steps=1000, bytes=10_000))
    assert finish(run) == RunState.DONE
    edges.insert(rows([("f", "g")]), 1)
    with pytest.raises(BudgetExceeded):
        finish(run)


def test_cancel(engine, facts):
    base = [facts(GRAPHS["cycle"])]
    run = engine.open_run(engine.load(asm.closure()), base)
    assert run.step(1) == RunState.PAUSED
    run.cancel()
    for _ in range(2):
        with pytest.raises(Cancelled):
            run.step(1)
    with pytest.raises(Cancelled):
        run.check()
    base[0].insert(array("I", [1, 1]), 1)
    run.close()
    run.cancel()


def test_cancel_from_another_thread(engine, facts):
    """A product that would take hours stops soon after it is cancelled."""
    base = [facts([(f"v{i}",) for i in range(3000)], 1)]
    steps = [scan(0, FULL if i else DELTA, load(i)) for i in range(5)]
    compiled = one_rule(engine, [(1, BASE), (1, DERIVED)], *steps, compare("<", 4, 4), emit(1, 4))
    run = engine.open_run(compiled, base)
    started = threading.Event()

    def work():
        started.set()
        with pytest.raises(Cancelled):
            run.step(PLENTY)
        started.clear()

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    run.cancel()
    worker.join(30)
    assert not started.is_set()


def test_a_product_meets_its_budget_and_not_the_machine(engine, facts):
    base = [facts([(f"v{i}",) for i in range(2000)], 1)]
    compiled = one_rule(
        engine,
        [(1, BASE), (2, DERIVED)],
        scan(0, DELTA, load(0)),
        scan(0, FULL, load(1)),
        emit(1, 0, 1),
    )
    run = engine.open_run(compiled, base, limits=RunLimits(bytes=1_000_000))
    with pytest.raises(BudgetExceeded):
        run.step(PLENTY)
    assert run.stats().bytes <= 1_000_000


def test_what_opening_and_seeding_refuse(engine, facts):
    edges = facts([("a", "b")])
    compiled = engine.load(asm.reach())
    other = Engine()
    for base, params in (
        ([], []),
        ([edges, edges], []),
        ([facts([("a",)], 1)], []),
        ([edges], [1]),
        ([other.relation(2)], []),
    ):
        with pytest.raises(EngineFault):
            engine.open_run(compiled, base, params)
    other.close()
    with_param = one_rule(engine, [(1, DERIVED)], emit(0, 0), params=1)
    for symbol in (0, 99):
        with pytest.raises(EngineFault):
            engine.open_run(with_param, [], [symbol])
    run = engine.open_run(compiled, [edges])
    for bad in (array("I", [0]), array("I", [99])):
        with pytest.raises(EngineFault):
            run.seed(bad, 1)
    with pytest.raises(EngineFault):
        run.seed(array("I"), 1)
    with pytest.raises(EngineFault):
        run.relation(3)
    without_seed = engine.open_run(engine.load(asm.closure()), [edges])
    with pytest.raises(EngineFault):
        without_seed.seed(array("I", [1, 1]), 1)


def test_a_small_goal_is_one_call(engine, facts):
    edges = facts([("a", "b"), ("b", "c"), ("c", "a"), ("x", "y")])
    run = engine.open_run(engine.load(asm.paths()), [edges])
    a, b, c, x, y = (engine.find(name) for name in "abcxy")
    asked = run.ask([a], 2, [a, 0], RunLimits(), 1000)
    assert (asked.state, list(asked.rows), asked.worked) == (
        RunState.DONE,
        [a, a, a, b, a, c],
        True,
    )
    assert asked.bytes > 0
    asked = run.ask([a], 2, [a, b], RunLimits(), 1000)
    assert (list(asked.rows), asked.worked) == ([a, b], False)
    assert run.ask([x], 2, [x, 0], RunLimits(), 1).rows is None  # not enough fuel: nothing is read
    finish(run)
    assert list(run.ask(None, 2, [x, 0], RunLimits(), 1).rows) == [x, y]
    with pytest.raises(EngineFault):
        run.ask([a, b], 2, [a, 0], RunLimits(), 1000)
    with pytest.raises(EngineFault):
        run.ask([a], 2, [a], RunLimits(), 1000)
    edges.delete(edges.match([a, 0])[0], 1)
    assert run.ask([b], 2, [b, 0], RunLimits(), 1000).state is RunState.STALE


def test_more_answers_than_the_buffer_holds_are_left_to_match(engine, facts):
    many = SCRATCH_SYMBOLS // 2 + 1
    edges = facts([("hub", f"n{i}") for i in range(many)])
    run = engine.open_run(engine.load(asm.paths()), [edges])
    hub = engine.find("hub")
    asked = run.ask([hub], 2, [hub, 0], RunLimits(), 1_000_000)
    assert (asked.state, asked.rows) == (RunState.DONE, None)
    assert len(run.relation(2).match([hub, 0])[1]) == many


def test_a_new_binding_costs_no_more_for_those_before_it(engine, facts):
    compiled = asm.plan(  # hop(t, x, y) for demand (t, x); the second version of `out` looks demand up by a value all share
        [(2, BASE), (2, asm.DEMAND), (3, DERIVED), (1, DERIVED)],
        asm.component(
            rule(
                1,
                scan(1, DELTA, load(0), load(1)),
                probe(0, FULL, key(1), load(2)),
                emit(2, 0, 1, 2),
            ),
            rule(
                1,
                scan(0, DELTA, load(1), load(2)),
                probe(1, OLD, load(0), key(1)),
                emit(2, 0, 1, 2),
            ),
        ),
        asm.component(
            rule(
                2,
                scan(1, DELTA, load(0), load(1)),
                probe(2, FULL, key(0), key(1), load(2)),
                emit(3, 2),
            ),
            rule(
                2,
                scan(2, DELTA, load(0), load(1), load(2)),
                probe(1, OLD, key(0), load(3)),
                asm.compare("==", 1, 3),
                emit(3, 2),
            ),
        ),
        answer=3,
        seed=1,
    )
    edges = facts([(f"s{i}", f"n{i}") for i in range(500)])
    run = engine.open_run(engine.load(compiled), [edges])
    shared = engine.intern("t")

    def cost(start: str) -> int:
        before = run.stats().steps
        assert (
            run.ask([shared, engine.find(start)], 3, [0], RunLimits(), 1_000_000).rows is not None
        )
        return run.stats().steps - before

    costs = [cost(f"s{i}") for i in range(400)]
    assert costs[399] == costs[1]
    edges.insert(
        array("I", [engine.find("s3"), engine.find("n400")]), 1
    )  # the base grows: then the others count again
    assert cost("s401") > 10 * costs[1]
    assert engine.find("n400") in run.ask(None, 3, [0], RunLimits(), 1).rows
