"""Snapshots: the rows at one point in time, whatever changes while they are copied."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from engine.assembler import closure
from kbplanner.engine.backend import Attribute, RunState
from kbplanner.engine.engine import Engine
from kbplanner.engine.salience import Salience
from kbplanner.errors import BudgetExceeded, EngineFault

HOW = Salience(0.4, 0.3, 0.3, 1000, 5)

BLOCK = 4096
"""Rows that are copied together."""


def flat(rows):
    return array("I", [symbol for row in rows for symbol in row])


def contents(relation):
    """Everything of a relation that can be read."""
    rows, ids = relation.match([0] * relation.arity, hidden=True)
    shown = list(relation.match([0] * relation.arity)[1])
    cells = [
        ["nan" if math.isnan(v) else v for v in relation.attributes(a, ids)] for a in Attribute
    ]
    return list(rows), list(ids), shown, cells


def filled(engine, count):
    engine.intern_many([str(i) for i in range(count + 2)])
    relation = engine.relation(2)
    relation.insert(flat([(i + 1, i + 2) for i in range(count)]), count)
    relation.fill_attribute(Attribute.CREATED_AT, 0, count, 7)
    return relation


def settled(snapshot, rows=1):
    while not snapshot.settle(rows):
        pass
    return snapshot


CHANGES = st.sampled_from(
    [
        "insert",
        "delete",
        "hide",
        "show",
        "set",
        "fill",
        "touch",
        "settle",
        "freeze",
        "empty",
        "drop",
    ]
)


@examples(60)
@given(
    st.lists(st.tuples(CHANGES, st.integers(0, 3 * BLOCK), st.integers(1, 2 * BLOCK)), max_size=12),
    st.data(),
)
def test_a_snapshot_is_unaffected_by_changes_of_the_original(changes, data):
    engine = Engine()
    count = 2 * BLOCK + 100
    relation = filled(engine, count)
    relation.hide(flat([(5, 6), (5000, 5001)]), 2, True)
    relation.delete(flat([(9, 10)]), 1)
    relation.set_attribute(Attribute.CONFIDENCE, array("I", [3, 4200]), [0.25, 0.5])
    snapshots = [(contents(relation), engine.freeze([relation])[0])]
    fresh = count
    for what, at, many in changes:
        rows = [(i + 1, i + 2) for i in range(at, min(at + many, count))]
        held = relation.counts().rows
        ids = array("I", range(min(at, held), min(at + many, held)))
        if what == "insert":
            engine.intern_many([str(i) for i in range(fresh, fresh + many + 2)])
            relation.insert(flat([(i + 1, i + 2) for i in range(fresh, fresh + many)]), many)
            fresh += many
        elif what == "delete":
            relation.delete(flat(rows), len(rows))
        elif what in ("hide", "show"):
            relation.hide(flat(rows), len(rows), what == "hide")
        elif what == "set":
            relation.set_attribute(Attribute.TTL, ids, [at + 1] * len(ids))
        elif what == "fill":
            relation.fill_attribute(Attribute.CREATED_AT, ids[0] if len(ids) else 0, len(ids), at)
        elif what == "touch":
            relation.touch(ids, at)
        elif what == "settle":
            data.draw(st.sampled_from(snapshots))[1].settle(many)
        elif what == "freeze":
            snapshots.append((contents(relation), engine.freeze([relation])[0]))
        elif what == "empty":
            every = relation.match([0, 0], hidden=True)[0]
            relation.delete(every, len(every) // 2)
        else:
            relation.drop()
            relation = filled(engine, count)
    for expected, then in snapshots:
        assert contents(settled(then, BLOCK)) == expected
    relation.drop()
    for _, then in snapshots:
        then.drop()
    engine.close()


def test_a_snapshot_is_readable_when_complete_and_never_changed():
    engine = Engine()
    relation = filled(engine, 2 * BLOCK)
    (then,) = engine.freeze([relation])
    one = flat([(1, 2)])
    readers = [
        lambda: then.match([0, 0]),
        lambda: then.attributes(Attribute.CREATED_AT, array("I", [0])),
        lambda: then.locate(one, 1),
        lambda: then.rows(array("I", [0])),
        lambda: then.copy(),
        lambda: then.total([0, 0], None),
        lambda: then.index([0]),
        lambda: then.distinct([0]),
        lambda: then.compare(relation),
        lambda: relation.compare(then),
        lambda: then.salience(array("I", [0]), HOW),
        lambda: then.most_salient(1, HOW),
        lambda: then.least_salient(0.5, HOW),
        lambda: engine.open_run(engine.load(closure()), [then]),
    ]
    changers = [
        lambda: then.insert(one, 1),
        lambda: then.delete(one, 1),
        lambda: then.hide(one, 1, True),
        lambda: then.touch(array("I", [0]), 1),
        lambda: then.set_attribute(Attribute.TTL, array("I", [0]), [1]),
        lambda: engine.freeze([then]),
    ]
    for call in readers + changers:
        with pytest.raises(EngineFault):
            call()
    assert not then.settle(1)
    assert then.settle(BLOCK)
    for read in readers:
        read()
    for change in changers:
        with pytest.raises(EngineFault):
            change()
    with pytest.raises(EngineFault):
        relation.settle(1)
    engine.close()


def test_a_snapshot_that_a_paused_run_reads_is_not_dropped():
    engine = Engine()
    relation = filled(engine, 50)
    (then,) = engine.freeze([relation])
    settled(then)
    run = engine.open_run(engine.load(closure()), [then])
    assert run.step(1) == RunState.PAUSED
    with pytest.raises(EngineFault, match="paused"):
        then.drop()
    run.close()
    then.drop()
    engine.close()


def test_freezing_takes_all_its_memory_or_none():
    engine = Engine()
    relations = [filled(engine, 300), engine.relation(0), filled(engine, 50)]
    relations[0].hide(flat([(1, 2)]), 1, True)
    before, held, n = [contents(r) for r in relations], engine.bytes, 1
    while True:
        engine.fail_after(n)
        try:
            snapshots = engine.freeze(relations)
            engine.fail_after(0)
            break
        except BudgetExceeded:
            engine.fail_after(0)
        assert [contents(r) for r in relations] == before
        n += 1
    assert n > 8
    # Now nothing may fail for want of memory.
    engine.fail_after(1)
    relations[0].set_attribute(Attribute.CREATED_AT, array("I", [0]), [99])
    assert [contents(settled(then)) for then in snapshots] == before
    engine.fail_after(0)
    for then in snapshots:
        then.drop()
    assert engine.bytes - held < 1000  # the table of handles has grown
    engine.close()


def test_closing_in_the_midst_of_it():
    engine = Engine()
    relation = filled(engine, 3 * BLOCK)
    engine.freeze([relation, relation])[0].settle(1)
    engine.close()
    engine = Engine()
    relation = filled(engine, 3 * BLOCK)
    one, other = engine.freeze([relation, relation])
    one.drop()
    expected = contents(relation)
    relation.drop()
    assert contents(settled(other)) == expected
    engine.close()
