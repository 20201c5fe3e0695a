"""Rules to their fixpoint: chains, cycles, strata, and going on from there."""

from __future__ import annotations

import pytest
from engine import assembler as asm

from kbplanner.backend import RunState

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


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("fuel", [1, 2, 3, 7, 100, PLENTY])
def test_closure_does_not_depend_on_fuel(engine, facts, read, graph, fuel):
    run = engine.open_run(engine.load(asm.closure()), [facts(GRAPHS[graph])])
    assert run.check() == RunState.READY
    assert finish(run, fuel) == RunState.DONE
    assert read(run.relation(1)) == closure_of(GRAPHS[graph])
    assert run.check() == RunState.DONE
    run.close()
