"""Rules and graphs that several tests share."""

from __future__ import annotations

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
    plan,
    probe,
    rule,
    scan,
)
from kbplanner.engine.backend import RunState
from kbplanner.errors import BudgetExceeded

PLENTY = 1 << 40


def finish(run, fuel=PLENTY):
    while (state := run.step(fuel)) == RunState.PAUSED:
        pass
    return state


def closure_of(edges):
    known = set(edges)
    while True:
        more = {(a, d) for a, b in known for c, d in edges if b == c} - known
        if not more:
            return sorted(known)
        known |= more


GRAPHS = {
    "empty": [],
    "loop": [("a", "a")],
    "chain": [(f"n{i:02}", f"n{i + 1:02}") for i in range(30)],
    "cycle": [("a", "b"), ("b", "c"), ("c", "a")],
    "diamond": [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("e", "b")],
}


def one_rule(engine, slots, *steps, params=0, registers=8):
    """A plan of one rule whose head is the last slot."""
    return engine.load(
        plan(
            slots,
            component(rule(7, *steps)),
            answer=len(slots) - 1,
            params=params,
            registers=registers,
        )
    )


def unreachable():
    """node(x), not path(x, y) for given y: negation over a closure, with and without a free
    place.
    """
    closure_rules = component(
        rule(1, scan(0, DELTA, load(1), load(2)), emit(2, 1, 2)),
        rule(2, scan(2, DELTA, load(1), load(2)), probe(0, FULL, key(2), load(3)), emit(2, 1, 3)),
        rule(2, scan(0, DELTA, load(2), load(3)), probe(2, OLD, load(1), key(2)), emit(2, 1, 3)),
        recursive=True,
    )
    negation = component(
        rule(3, scan(1, DELTA, load(1)), absent(2, key(1), key(0)), emit(3, 1)),
        rule(4, scan(1, DELTA, load(1)), absent(2, key(1), 0), emit(4, 1)),
        rule(5, scan(1, DELTA, load(1)), absent(2, 0, key(1)), emit(5, 1)),
        rule(6, absent(2, 0, 0), emit(6)),
    )
    slots = [
        (2, BASE),
        (1, BASE),
        (2, DERIVED),
        (1, DERIVED),
        (1, DERIVED),
        (1, DERIVED),
        (0, DERIVED),
    ]
    return plan(slots, closure_rules, negation, answer=3, params=1)


def check_failing_allocations(world, plan, relation, expected, most):
    """Let each of the first allocations of a run fail, fewer than `most`: it ends with the right
    rows or the error, and gives all memory back. The base relations have their indexes and symbols
    already.
    """
    before, failed = world.engine.bytes, 0
    for n in range(1, most):
        run = world.open(plan)
        world.engine.fail_after(n)
        try:
            finish(run)
            world.engine.fail_after(0)
            assert world.rows(run.relation(relation)) == expected
        except BudgetExceeded:
            failed += 1
        world.engine.fail_after(0)
        run.close()
        assert world.engine.bytes == before
    assert 10 < failed < most - 1
