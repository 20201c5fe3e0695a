"""HISTORY_DAYS: the log and some snapshots stay, so that the last days can be asked about."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.durable.retention import DAY_MS
from kbcore.errors import InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.plug.ports import KeepsHistory
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.terms import Atom, Variable

ANY = Atom("day", (Variable("x"),))


def days(kb: TenantKB, at: int) -> int:
    return len(kb.known_at(at).query_page(ANY))


@pytest.mark.parametrize("storage", ["wal", "sqlite"])
def test_the_days_that_are_kept(tmp_path: Path, storage: str) -> None:
    clock = ManualClock()
    settings = {"storage_backend": storage, "sweep_interval_ms": 0, "history_days": 4}
    begin = clock.now_ms()
    node = runtime(tmp_path, clock=clock, **settings)
    for day in range(30):
        kb = node.knowledge_base("default", "t")
        kb.assert_facts([Fact("day", (str(day),))])
        for _ in range(4):
            clock.advance(DAY_MS // 4)
            kb.assert_facts([Fact("hour", (str(clock.now_ms()),))])
            node.snapshot()
        for back in range(4):
            instant = begin + (day - back) * DAY_MS + 10
            if instant >= begin:
                assert days(kb, instant) == day - back + 1
        if day % 10 == 5:
            node.close()
            node = runtime(tmp_path, clock=clock, **settings)
        store = node.system.store
        assert isinstance(store, KeepsHistory)
        assert len(store.snapshot_numbers()) <= 12
    kb = node.knowledge_base("default", "t")
    if storage == "sqlite":  # whose log is dropped record by record
        assert clock.now_ms() - 6 * DAY_MS < kb.history_start().at
        with pytest.raises(InvalidInput, match="oldest instant"):
            kb.known_at(begin + 10 * DAY_MS)
    node.close()


@pytest.mark.parametrize("storage", ["wal", "sqlite"])
def test_a_state_that_lasted_longer_than_the_kept_days_can_be_asked_about(
    tmp_path: Path, storage: str
) -> None:
    clock = ManualClock()
    settings = {"storage_backend": storage, "sweep_interval_ms": 0, "history_days": 4}
    begin = clock.now_ms()
    for day in range(3):
        node = runtime(tmp_path, clock=clock, **settings)
        kb = node.knowledge_base("default", "t")
        for _ in range(3):
            kb.assert_facts([Fact("day", (str(day),))])
            kb.assert_facts([Fact("other", (str(clock.now_ms()),))])
            assert kb.history_start().at <= max(begin, clock.now_ms() - 4 * DAY_MS)
            node.snapshot()
            clock.advance(1)
        assert kb.history_start().at <= max(begin, clock.now_ms() - 4 * DAY_MS)
        if day:
            assert days(kb, clock.now_ms() - 3 * DAY_MS) == day
        clock.advance(30 * DAY_MS)
        node.close()


@pytest.mark.parametrize("storage", ["wal", "sqlite"])
def test_a_purge_removes_what_is_kept(tmp_path: Path, storage: str) -> None:
    clock = ManualClock()
    node = runtime(
        tmp_path, clock=clock, storage_backend=storage, sweep_interval_ms=0, history_days=30
    )
    kb = node.knowledge_base("default", "t")
    for day in range(5):
        kb.assert_facts([Fact("day", (f"secret {day}",)), Fact("day", (str(day),))])
        clock.advance(DAY_MS)
        node.snapshot()
    assert kb.purge(PurgeTarget(subject="secret")).erased
    node.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if b"secret" in path.read_bytes()] == []
