"""Profiled runs: pauses at the end of components, and counts that add up to those of the run."""

from __future__ import annotations

import pytest

from engine import assembler as asm
from engine.assembler import BASE, DELTA, DERIVED, FULL, OLD, emit, key, load, probe, rule, scan
from engine.programs import GRAPHS, PLENTY, closure_of, finish, unreachable
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded, EngineFault


def closure():
    return asm.plan(
        [(2, BASE), (2, DERIVED), (1, DERIVED)],
        asm.component(
            rule(1, scan(0, DELTA, load(0), load(1)), emit(1, 0, 1)),
            rule(
                2, scan(1, DELTA, load(0), load(1)), probe(0, FULL, key(1), load(2)), emit(1, 0, 2)
            ),
            rule(
                2, scan(0, DELTA, load(1), load(2)), probe(1, OLD, load(0), key(1)), emit(1, 0, 2)
            ),
            recursive=True,
        ),
        asm.component(rule(3, scan(1, DELTA, load(0), 0), emit(2, 0))),
        answer=2,
    )


def added_up(run):
    stats, counts = run.stats(), run.counts()
    assert sum(one.rows_made for one in counts) == stats.rows_made
    assert sum(one.rows_read for one in counts) == stats.rows_read
    assert sum(one.probes for one in counts) == stats.probes
    for one in counts:
        assert (
            one.steps[-1] == one.rows_made <= one.steps[-2]
        )  # what is known already is not made again
    return counts


@pytest.mark.parametrize("fuel", [1, 7, PLENTY])
@pytest.mark.parametrize("name", GRAPHS)
def test_counts_add_up_however_the_run_is_sliced(engine, facts, name, fuel):
    edges = facts(GRAPHS[name])
    run = engine.open_run(engine.load(closure()), [edges])
    run.profile()
    stages = [0]
    while run.step(fuel) is RunState.PAUSED:
        stages.append(run.stats().component)
        added_up(run)
    assert run.stats().component == 2
    assert stages == sorted(stages)
    assert set(stages) == {0, 1}  # no step goes from one component into the next
    first, second, again, third = added_up(run)
    known = closure_of(GRAPHS[name])
    assert first.rows_made + second.rows_made == len(known)
    assert again.rows_read == 0  # it waits for new edges
    assert first.steps[0] == len(set(GRAPHS[name]))
    assert second.steps[0] == third.steps[0] == len(known)  # each row is worked on once
    assert third.rows_made == len({one[0] for one in known})


def test_a_long_recursion_is_counted_where_it_is_worked_value_by_value(engine, facts):
    nodes = 300
    edges = facts([(f"n{i:03}", f"n{i + 1:03}") for i in range(nodes)])
    run = engine.open_run(engine.load(closure()), [edges])
    run.profile()
    finish(run)
    first, second, again, third = added_up(run)
    rows = nodes * (nodes + 1) // 2
    assert [one.rows_made for one in (first, second, again, third)] == [
        nodes,
        rows - nodes,
        0,
        nodes,
    ]
    assert second.steps == (rows, rows - nodes, rows - nodes)
    assert run.stats().rounds < 20


def test_what_hidden_rows_would_give_is_not_counted(engine, facts, rows):
    edges = facts([(f"n{i:03}", f"n{i + 1:03}") for i in range(300)])
    edges.hide(rows([("n299", "n300")]), 1, True)
    run = engine.open_run(engine.load(closure()), [edges])
    run.profile()
    finish(run)
    _, second, _, _ = added_up(run)
    assert second.steps[1] == second.rows_made == 298 * 299 // 2


def test_going_on_adds_to_the_counts(engine, facts, rows):
    edges = facts([("a", "b")])
    run = engine.open_run(engine.load(closure()), [edges])
    run.profile()
    finish(run)
    edges.insert(rows([("b", "c")]), 1)
    finish(run)
    first, second, again, third = added_up(run)
    assert [one.rows_made for one in (first, second, again, third)] == [2, 0, 1, 2]


def test_a_run_without_a_profile_does_not_pause_at_ends(engine, facts):
    run = engine.open_run(engine.load(closure()), [facts([("a", "b")])])
    assert run.step(PLENTY) is RunState.DONE
    assert run.stats().component == 2
    with pytest.raises(EngineFault):
        run.counts()
    with pytest.raises(EngineFault):  # too late
        run.profile()


def test_tests_and_absence_count_what_passes(engine, facts):
    edges, nodes = facts(GRAPHS["diamond"]), facts([(one,) for one in "abcdef"], 1)
    run = engine.open_run(engine.load(unreachable()), [edges, nodes], [engine.intern("e")])
    run.profile()
    finish(run)
    negations = added_up(run)[3:]
    assert negations[0].steps == (6, 1, 1)  # f alone does not lead to e
    assert negations[1].steps == (6, 1, 1)  # nor anywhere
    assert negations[2].steps == (6, 2, 2)  # nothing leads to a, nor to f
    assert negations[3].steps == (0, 0)  # there are paths


def test_a_budget_names_its_rule_and_keeps_the_counts(engine, facts):
    edges = facts(GRAPHS["chain"])
    run = engine.open_run(engine.load(closure()), [edges], (), RunLimits(rows=100))
    run.profile()
    with pytest.raises(BudgetExceeded) as caught:
        finish(run)
    assert caught.value.details == {"limit": "derivedRows", "value": 100, "rule": "2"}
    assert sum(one.rows_made for one in run.counts()) == 100
    run.close()


def test_no_room_for_counts():
    engine = Engine()
    edges = engine.relation(2)
    plan = engine.load(closure())
    for allocation in (1, 2):
        run = engine.open_run(plan, [edges])
        before = engine.bytes
        engine.fail_after(allocation)
        with pytest.raises(BudgetExceeded):
            run.profile()
        engine.fail_after(0)
        assert engine.bytes == before
        run.profile()
        assert engine.bytes > before
        run.profile()  # it is profiled already
        assert finish(run) is RunState.DONE
        run.close()
    engine.close()
