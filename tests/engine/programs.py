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
    """node(x), not path(x, y) for given y: negation over a closure, with and without a free place."""
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
