"""Changes of a base relation that do not affect a run leave it current; others make it stale."""

from __future__ import annotations

import pytest

from engine import assembler as asm
from engine.assembler import (
    BASE,
    DERIVED,
    FULL,
    OLD,
    absent,
    component,
    copy,
    emit,
    key,
    load,
    member,
    probe,
    rule,
    scan,
)
from engine.programs import finish
from kbplanner.engine.backend import RunLimits, RunState

GRAPH = [("a", "b"), ("b", "c"), ("c", "a"), ("x", "y"), ("y", "z")]
CHANGES = 64


@pytest.fixture
def asked(engine, facts):
    """The graph, and a run of paths that was asked from a."""
    edges = facts(GRAPH)
    run = engine.open_run(engine.load(asm.paths()), [edges])
    a = engine.find("a")
    assert len(run.ask([a], 2, [a, 0], RunLimits(), 1000).rows) == 6
    return edges, run


def test_what_no_demand_reaches_does_not_concern_the_run(engine, rows, asked):
    edges, run = asked
    a = engine.find("a")
    edges.delete(rows([("x", "y")]), 1)
    assert run.check() is RunState.DONE
    edges.hide(rows([("y", "z")]), 1, True)
    assert run.check() is RunState.DONE
    edges.hide(rows([("y", "z")]), 1, False)
    again = run.ask([a], 2, [a, 0], RunLimits(), 1000)
    assert (again.state, again.worked, len(again.rows)) == (RunState.DONE, False, 6)
    edges.delete(rows([("b", "c")]), 1)
    assert run.check() is RunState.STALE
    assert run.step(1) is RunState.STALE


@pytest.mark.parametrize("change", ["delete", "hide"])
def test_a_row_that_was_read_does(rows, asked, change):
    edges, run = asked
    one = rows([("c", "a")])
    assert (edges.delete(one, 1) if change == "delete" else edges.hide(one, 1, True)) == 1
    assert run.check() is RunState.STALE


def test_new_demand_meets_the_relation_as_it_is(engine, rows, asked):
    edges, run = asked
    edges.delete(rows([("y", "z")]), 1)
    x = engine.find("x")
    assert len(run.ask([x], 2, [x, 0], RunLimits(), 1000).rows) == 2
    edges.insert(rows([("y", "z")]), 1)
    assert len(run.ask([x], 2, [x, 0], RunLimits(), 1000).rows) == 4


def test_rows_that_come_and_go_between_two_goals(engine, rows, asked):
    edges, run = asked
    edges.insert(rows([("c", "x")]), 1)
    edges.delete(rows([("x", "y")]), 1)
    a = engine.find("a")
    assert len(run.ask([a], 2, [a, 0], RunLimits(), 1000).rows) == 8
    edges.delete(rows([("c", "x")]), 1)
    assert run.check() is RunState.STALE


def test_more_changes_than_are_remembered(engine, facts, rows):
    other = [(f"p{i}", f"q{i}") for i in range(4 * CHANGES)]
    edges = facts([*GRAPH, *other])
    run = engine.open_run(engine.load(asm.paths()), [edges])
    a = engine.find("a")
    run.ask([a], 2, [a, 0], RunLimits(), 1000)
    edges.delete(rows(other[:CHANGES]), CHANGES)
    assert run.check() is RunState.DONE  # and now they are behind
    edges.delete(rows(other[CHANGES : 2 * CHANGES]), CHANGES)
    assert run.check() is RunState.DONE
    edges.delete(
        rows(other[2 * CHANGES : 3 * CHANGES + 1]), CHANGES + 1
    )  # more changes than are recorded
    assert run.check() is RunState.STALE


def test_rows_that_move_make_a_run_stale(engine, facts, rows):
    other = [(f"p{i}", f"q{i}") for i in range(60)]
    edges = facts([*GRAPH, *other])
    run = engine.open_run(engine.load(asm.paths()), [edges])
    a = engine.find("a")
    run.ask([a], 2, [a, 0], RunLimits(), 1000)
    edges.delete(rows(other[:40]), 40)  # now more are dead than alive
    assert edges.counts().rows == 25
    assert run.check() is RunState.STALE


def test_rows_under_absence(engine, facts, rows):
    """out(x, y) :- demand(x), edge(x, y), not banned(x, y)."""
    edges, banned = facts(GRAPH), facts([("a", "b"), ("x", "y"), ("x", "q")])
    words = asm.plan(
        [(2, BASE), (2, BASE), (1, asm.DEMAND), (2, DERIVED)],
        component(
            rule(
                1,
                scan(2, asm.DELTA, load(0)),
                probe(0, FULL, key(0), load(1)),
                absent(1, key(0), key(1)),
                emit(3, 0, 1),
            ),
            rule(
                1,
                scan(0, asm.DELTA, load(0), load(1)),
                member(2, OLD, key(0)),
                absent(1, key(0), key(1)),
                emit(3, 0, 1),
            ),
        ),
        answer=3,
        seed=2,
    )
    run = engine.open_run(engine.load(words), [edges, banned])
    a, b = engine.find("a"), engine.find("b")
    assert len(run.ask([a], 3, [a, 0], RunLimits(), 1000).rows) == 0
    banned.delete(rows([("x", "q")]), 1)
    banned.insert(rows([("y", "z")]), 1)
    assert run.check() is RunState.DONE
    banned.insert(
        rows([("a", "zz")]), 1
    )  # the rule did not test this row, but a is in demand, so it may
    assert run.check() is RunState.STALE
    run = engine.open_run(engine.load(words), [edges, banned])
    assert len(run.ask([b], 3, [b, 0], RunLimits(), 1000).rows) == 2
    banned.delete(rows([("a", "b")]), 1)
    assert run.check() is RunState.DONE
    banned.insert(rows([("b", "c")]), 1)
    assert run.check() is RunState.STALE


def test_values_go_through_copies_and_constants(engine, facts, rows):
    """out(y, z) :- edge(c, y), z = y, seen(z), with c a constant; seen(z) :- mark(z)."""
    edges, marks = facts([("c", "y"), ("c", "n"), ("d", "y")]), facts([("y",)], 1)
    words = asm.plan(
        [(2, BASE), (1, BASE), (1, DERIVED), (2, DERIVED)],
        component(rule(1, scan(1, asm.DELTA, load(1)), emit(2, 1))),
        component(
            rule(
                2,
                scan(0, asm.DELTA, key(0), load(1)),
                copy(2, 1),
                member(2, FULL, key(2)),
                emit(3, 1, 2),
            ),
            rule(
                2,
                scan(2, asm.DELTA, load(2)),
                copy(1, 2),
                member(0, OLD, key(0), key(1)),
                emit(3, 1, 2),
            ),
        ),
        answer=3,
        params=1,
    )
    run = engine.open_run(engine.load(words), [edges, marks], [engine.find("c")])
    finish(run)
    edges.delete(rows([("d", "y")]), 1)  # another constant
    assert run.check() is RunState.DONE
    edges.delete(rows([("c", "n")]), 1)  # what is no mark
    assert run.check() is RunState.DONE
    edges.delete(rows([("c", "y")]), 1)
    assert run.check() is RunState.STALE
