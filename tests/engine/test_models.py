"""Well-founded models of ground programs: truth values, budgets, out of memory."""

from __future__ import annotations

import gc
from array import array

import pytest

from kbplanner._engine import ffi, lib
from kbplanner.engine.backend import RunLimits, RunState, Truth
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import NEGATED, NONE, Ground
from kbplanner.errors import BudgetExceeded, Cancelled, EngineFault


def no(node):
    return NEGATED | node


def program(nodes, *rules):
    """Each rule is a head and its premises."""
    heads, ends, premises = array("I"), array("I"), array("I")
    for head, *body in rules:
        heads.append(head)
        premises.extend(body)
        ends.append(len(premises))
    return Ground(nodes, heads, ends, premises)


def values(engine, ground, fuel=1_000_000):
    model = engine.model(ground, RunLimits())
    while model.step(fuel) is not RunState.DONE:
        pass
    found = "".join(
        {Truth.TRUE: "t", Truth.FALSE: "f", Truth.UNDEFINED: "u"}[Truth(v)] for v in model.values()
    )
    model.close()
    return found


@pytest.mark.parametrize(
    ("ground", "expected"),
    [
        (program(0), ""),
        (program(2), "ff"),
        (program(2, (0,), (1, 0)), "tt"),
        (program(1, (0, no(0))), "u"),
        (program(2, (0, no(1)), (1, no(0))), "uu"),
        (program(3, (0, no(1)), (1, no(0)), (1, 2)), "uuf"),
        (program(3, (0, no(1)), (1, no(2)), (2, no(2)), (2, NONE)), "tft"),
        (program(2, (0, 1), (1, 0)), "ff"),
        (program(3, (0, 1), (1, 0), (2, no(0))), "fft"),
        # A positive loop that has a way in, which fails only once node 3 is known to be true.
        (program(4, (0, 1), (1, 0), (1, no(3)), (3, NONE), (2, no(1))), "fftt"),
        # The way in fails, another one is undefined: the loop is undefined with it.
        (program(5, (0, 1), (1, 0), (1, no(3)), (3,), (1, 4), (4, no(4)), (2, no(0))), "uuutu"),
        # Premises that occur twice count twice.
        (program(3, (0, 1, 1, no(2), no(2)), (1,)), "ttf"),
    ],
)
@pytest.mark.parametrize("fuel", [1, 1_000_000])
def test_what_is_true_false_and_undefined(engine, ground, expected, fuel):
    assert values(engine, ground, fuel) == expected


def test_a_long_chain_takes_time_in_proportion(engine):
    steps = []
    for count in (10_000, 100_000):
        chain = program(count, *((i, no(i + 1)) for i in range(count - 1)))
        model = engine.model(chain, RunLimits())
        while model.step(100_000) is not RunState.DONE:
            pass
        assert list(model.values()[-3:]) == [Truth.FALSE, Truth.TRUE, Truth.FALSE]
        steps.append(model.stats().steps)
        model.close()
    assert steps[1] < 11 * steps[0]


def test_budgets_and_cancelling(engine):
    chain = program(50_000, *((i, no(i + 1)) for i in range(49_999)))
    model = engine.model(chain, RunLimits(steps=10_000))
    with pytest.raises(BudgetExceeded) as caught:
        model.step(1_000_000)
    assert caught.value.details["limit"] == "steps"
    model.close()
    with pytest.raises(BudgetExceeded) as caught:
        engine.model(chain, RunLimits(bytes=1000))
    assert caught.value.details["limit"] == "memoryBytes"
    model = engine.model(chain, RunLimits())
    assert model.step(1) is RunState.PAUSED
    with pytest.raises(EngineFault):
        model.values()
    model.cancel()
    with pytest.raises(Cancelled):
        model.step(1)
    model.close()
    model.cancel()
    with pytest.raises(EngineFault):
        model.step(1)


@pytest.mark.parametrize(
    "ground",
    [
        program(1, (1,)),
        program(1, (0, 1)),
        program(1, (0, no(1))),
        Ground(1, array("I", [0, 0]), array("I", [1, 0]), array("I", [0])),
        Ground(1, array("I", [0]), array("I", [2]), array("I", [0])),
    ],
)
def test_arrays_that_make_no_sense_are_refused(engine, ground):
    model = engine.model(ground, RunLimits())
    with pytest.raises(EngineFault):
        model.step(1000)
    with pytest.raises(EngineFault):
        model.values()
    model.close()


def test_misuse_in_c(engine):
    out = ffi.new("kb_model **")
    assert lib.kb_model_open(engine._handle, ffi.NULL, ffi.NULL, out) == lib.KB_MISUSE
    ground = ffi.new("kb_ground *", {"nodes": 1, "count": 1})
    assert lib.kb_model_open(engine._handle, ground, ffi.NULL, out) == lib.KB_MISUSE
    ground = ffi.new("kb_ground *", {"nodes": lib.KB_NEGATED})
    assert lib.kb_model_open(engine._handle, ground, ffi.NULL, out) == lib.KB_MISUSE
    assert lib.kb_model_step(ffi.NULL, 1) == lib.KB_MISUSE
    assert lib.kb_model_values(ffi.NULL, ffi.NULL) == lib.KB_MISUSE
    lib.kb_model_stats(ffi.NULL, ffi.NULL)
    lib.kb_model_cancel(ffi.NULL)
    lib.kb_model_close(ffi.NULL)


def test_every_failed_allocation_leaves_the_engine_as_it_was():
    ground = program(3, (0, no(1)), (1, no(0)), (1, 2))
    engine = Engine()
    before = engine.bytes
    for attempt in range(1, 100):
        engine.fail_after(attempt)
        try:
            found = values(engine, ground)
        except BudgetExceeded:
            assert engine.bytes == before
            continue
        break
    assert attempt > 10
    assert found == "uuf"
    engine.fail_after(0)
    assert engine.bytes == before
    engine.close()


def test_a_model_that_is_lost_is_given_back():
    engine = Engine()
    before = engine.bytes
    model = engine.model(program(3, (0, no(1))), RunLimits())
    assert engine.bytes > before
    del model
    gc.collect()
    engine.intern("the next call sweeps")
    assert engine.relation(1).counts().rows == 0
    kept = engine.model(program(3, (0, no(1))), RunLimits())
    engine.close()
    with pytest.raises(EngineFault):
        kept.step(1)
    kept.close()
