"""Clock changes: logged times never go back, and a large step is logged once."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from kbcore.clock import LoggedClock, ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.state.facts import Fact


def test_a_backward_step_holds_the_time_and_is_logged_once(caplog) -> None:
    clock = ManualClock(1_000_000)
    logged = LoggedClock(clock)
    with caplog.at_level(logging.WARNING, "kbcore.clock"):
        assert logged.now_ms() == 1_000_000
        clock.step(-5000)
        assert logged.now_ms() == 1_000_000
        assert caplog.records == []
        clock.step(-1)
        for _ in range(3):
            assert logged.now_ms() == 1_000_000
        assert len(caplog.records) == logged.steps_back == 1
        clock.step(6000)
        assert logged.now_ms() == 1_000_999
        clock.step(-60_000)
        assert logged.now_ms() == 1_000_999
        assert logged.steps_back == 2
        clock.step(60_000)  # to the time that was held
        assert logged.now_ms() == 1_000_999
        clock.step(-60_000)
        assert logged.now_ms() == 1_000_999
        assert logged.steps_back == 3


@pytest.mark.parametrize("step", [-86_400_000, -6000, 3_600_000])
def test_steps_change_no_order_and_survive_a_restart(tmp_path, step) -> None:
    config = replace(Config(), storage_dir=str(tmp_path), min_free_mb=0, wal_segment_mb=1)
    clock = ManualClock()
    times = []
    for _ in range(2):
        with open_runtime(config, clock=clock) as runtime:
            kb = runtime.knowledge_base()
            for _ in range(2):
                kb.assert_facts([Fact("n", (str(len(times)),), ttl=10**12)])
                (row,) = kb.query_rows("n", [str(len(times))], positive=True)
                times.append(row["createdAt"])
                clock.step(step)
            clock.advance(1)
    assert times == sorted(times)
