"""Closed and outdated handles, and calls that are misuse: no pointer is trusted."""

from __future__ import annotations

import gc

import pytest

from engine import assembler as asm
from kbplanner._engine import ffi, lib
from kbplanner.engine import binding
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import EngineFault


def test_a_closed_engine():
    engine = Engine()
    relation = engine.relation(1)
    engine.close()
    engine.close()
    for call in (lambda: engine.intern("a"), relation.counts, lambda: engine.bytes, relation.drop):
        with pytest.raises(EngineFault, match="closed"):
            call()


def test_runs_may_outlive_their_engine_and_plan():
    engine = Engine()
    plan = engine.load(asm.closure())
    relation = engine.relation(2)
    relation.insert(engine.intern_many(["a", "b"]), 1)
    runs = [engine.open_run(plan, [relation]) for _ in range(3)]
    plan.close()
    with pytest.raises(EngineFault):
        engine.open_run(plan, [relation])
    assert runs[0].step(100) == RunState.DONE
    assert runs[1].step(1) == RunState.PAUSED
    engine.close()
    for run in runs[:2]:
        with pytest.raises(EngineFault):
            run.step(1)
        run.close()
        run.close()
    with pytest.raises(EngineFault):
        runs[0].stats()
    del runs[2]
    gc.collect()


def test_lost_handles_are_given_back():
    engine = Engine()
    relation = engine.relation(2)
    relation.insert(engine.intern_many(["a", "b"]), 1)
    plan = engine.load(asm.closure())
    base = engine.bytes
    for fuel in (0, 1, 100):
        run = engine.open_run(plan, [relation], (), RunLimits())
        if fuel:
            run.step(fuel)
        run.relation(1)
        del run
    relation.insert(engine.intern_many(["b", "c"]), 1)  # a lost run that was paused holds nothing
    gc.collect()
    engine.intern("a")
    assert engine.bytes - base < 1200
    lost = engine.open_run(plan, [relation])
    derived = lost.relation(1)
    del lost, plan
    gc.collect()
    assert derived.counts().rows == 0
    del derived, relation, engine
    gc.collect()


def test_a_run_is_closed_while_a_call_is_at_work():
    """As garbage collection does, which may come at any moment, also within the engine's own
    mutex.
    """
    engine = Engine()
    relation = engine.relation(2)
    relation.insert(engine.intern_many(["a", "b"]), 1)
    run = engine.open_run(engine.load(asm.closure()), [relation])
    assert run.step(100) == RunState.DONE
    before = engine.bytes
    with engine._lock:
        run.close()
        assert len(engine._pending_closes) == 1
    with pytest.raises(EngineFault):
        run.check()
    assert not engine._pending_closes
    assert engine.bytes < before


def test_null_arguments_are_misuse():
    """Through the compiled module itself: no call trusts a pointer."""
    null = ffi.NULL
    out, size = ffi.new("kb_sym *"), ffi.new("size_t *")
    wide = ffi.new("uint64_t *")
    assert lib.kb_engine_open(null, null) == lib.KB_MISUSE
    opened = ffi.new("kb_engine **")
    assert lib.kb_engine_open(null, opened) == lib.KB_OK
    engine = opened[0]
    rel = ffi.new("kb_rel *")
    assert lib.kb_relation_new(engine, 1, rel) == lib.KB_OK
    misuse = [
        lib.kb_intern(null, b"a", 1, out), lib.kb_intern(engine, null, 1, out), lib.kb_intern(engine, b"a", 1, null),
        lib.kb_intern_many(engine, b"ab", ffi.new("uint64_t[]", [2, 1]), 2, ffi.new("kb_sym[2]")),
        lib.kb_find_many(engine, b"ab", ffi.new("uint64_t[]", [2, 1]), 2, ffi.new("kb_sym[2]")),
        lib.kb_find_many(null, b"a", wide, 0, out), lib.kb_find_many(engine, null, wide, 1, out),
        lib.kb_find(null, b"a", 1, out), lib.kb_symbol(engine, 0, null, null),
        lib.kb_symbols_text(engine, null, 1, null, 0, null, size),
        lib.kb_symbol_number(engine, 1, null, null, null), lib.kb_sort_rows(null, null, 1, 1),
        lib.kb_sort_rows(engine, null, 1, 1), lib.kb_relation_new(engine, 65, rel), lib.kb_relation_new(null, 1, rel),
        lib.kb_relation_drop(engine, 0), lib.kb_relation_drop(engine, 99), lib.kb_relation_copy(engine, rel[0], null),
        lib.kb_insert(engine, rel[0], null, 1, null, size), lib.kb_insert(engine, rel[0], out, 1, null, null),
        lib.kb_delete(engine, rel[0], null, 1, size), lib.kb_hide(engine, rel[0], null, 1, 1, size),
        lib.kb_locate(engine, rel[0], null, 1, null), lib.kb_missing(engine, rel[0], null, 1, out, size),
        lib.kb_missing(engine, rel[0], out, 1, null, size), lib.kb_missing(engine, rel[0], out, 1, out, null),
        lib.kb_count(engine, rel[0], null, null, null, null),
        lib.kb_match(engine, rel[0], null, 0, wide, null, null, 1, size),
        lib.kb_match_many(engine, rel[0], null, 1, 0, wide, out, out, 1, size),
        lib.kb_match_many(engine, rel[0], out, 1, 0, null, out, out, 1, size),
        lib.kb_match_many(engine, rel[0], out, 1, 0, wide, null, out, 1, size),
        lib.kb_match_many(engine, rel[0], out, 1, 0, wide, out, null, 1, size),
        lib.kb_match_many(engine, rel[0], out, 1, 0, wide, out, out, 0, size),
        lib.kb_match_many(engine, rel[0], out, 1, 0, wide, out, out, 1, null),
        lib.kb_match(engine, rel[0], out, 0, wide, null, null, 0, size), lib.kb_index(engine, rel[0], 2),
        lib.kb_total_add(engine, rel[0], null, 0, wide, 1, ffi.new("kb_total *")),
        lib.kb_total_add(engine, rel[0], ffi.new("kb_sym[1]"), 1, wide, 1, ffi.new("kb_total *")),
        lib.kb_total_add(engine, rel[0], ffi.new("kb_sym[1]"), 0, wide, 0, ffi.new("kb_total *")),
        lib.kb_distinct(engine, rel[0], 1, null), lib.kb_attribute_set(engine, rel[0], 9, null, null, 0),
        lib.kb_attribute_get(engine, rel[0], 0, null, 1, null), lib.kb_attribute_fill(engine, rel[0], 0, 0, 1, 0),
        lib.kb_plan_load(null, 0, null, null), lib.kb_opcode(0, null, null), lib.kb_opcode(99, null, null),
        lib.kb_run_open(engine, null, null, 0, null, 0, null, null), lib.kb_run_seed(null, null, 0),
        lib.kb_run_step(null, 1), lib.kb_run_check(null), lib.kb_run_relation(null, 0, null),
        lib.kb_run_limits(null, null), lib.kb_run_profile(null), lib.kb_run_counts(null, null, 0, null, 0, size, size),
    ]  # fmt: skip
    assert set(misuse) == {lib.KB_MISUSE}
    lib.kb_run_stats(null, null)
    lib.kb_run_cancel(null)
    lib.kb_run_close(null)
    lib.kb_plan_free(null)
    lib.kb_engine_fail_after(null, 1)
    assert lib.kb_engine_bytes(null) == lib.kb_symbol_count(null) == 0
    lib.kb_engine_close(engine)
    lib.kb_engine_close(null)


def test_every_status_has_a_text():
    texts = [ffi.string(lib.kb_status_text(status)) for status in range(-6, 4)]
    assert len(set(texts)) == 10
    assert ffi.string(lib.kb_status_text(77)) == b"unknown status"


def test_a_stale_compiled_engine_is_refused():
    binding.check_abi(lib.KB_ABI)
    with pytest.raises(ImportError, match=r"interface version 1, .* needs version \d+; build"):
        binding.check_abi(1)
