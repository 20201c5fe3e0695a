"""The sweeper: removal of expired facts in small batches."""

from __future__ import annotations

import pytest
from support.engines import HOUR, T0, tell
from support.memories import X, formula, names, stored
from support.runtimes import runtime

from kbcore.state.facts import Fact


def test_the_sweeper_evicts_what_has_expired_in_every_partition_and_tenant(node, kb, clock):
    other = node.knowledge_base(tenant="other")
    for one in (kb, other):
        tell(one, "p", "a", ttl=10)
        tell(one, "p", "b", ttl=10, scope="s")
        tell(one, "flag", ttl=10, positive=False)
        tell(one, "p", "kept")
        tell(one, "p", "future", valid_from=T0 + 10 * HOUR)
        tell(one, "p", "later", valid_from=T0 + 50, ttl=100)
        tell(one, "p", "history", valid_until=T0 + 50)
    assert node.sweeper.sweep() == 0
    clock.advance(9)
    assert node.sweeper.sweep() == 0
    clock.advance(1)
    assert node.sweeper.sweep() == 6
    clock.advance(90)
    assert node.sweeper.sweep() == 2
    for one in (kb, other):
        assert stored(one) == [("p", "future"), ("p", "history"), ("p", "kept")]
        assert stored(one, "s") == []
    generation = kb._read_tenant().generation
    assert node.sweeper.sweep() == 0
    assert kb._read_tenant().generation == generation


def test_the_sweeper_wakes_by_its_interval(clock):
    with runtime(clock=clock, sweep_interval_ms=1000) as node:
        kb = node.knowledge_base()
        tell(kb, "p", "a", ttl=10)
        clock.advance(999)
        assert node.sweeper.tick() == 0
        clock.advance(1)
        assert node.sweeper.tick() == 1
        tell(kb, "p", "a", ttl=10)
        clock.advance(999)
        assert node.sweeper.tick() == 0
    with runtime(clock=clock, sweep_interval_ms=0) as node:
        tell(node.knowledge_base(), "p", "a", ttl=10)
        clock.advance(10**9)
        assert node.sweeper.tick() == 0


def test_the_sweeper_works_in_batches(node, kb, clock, monkeypatch):
    monkeypatch.setattr("kbcore.upkeep.sweep.BATCH", 4)
    kb.assert_facts([Fact("p", (str(i),), ttl=10) for i in range(10)])
    tell(kb, "q", "a", ttl=10)
    clock.advance(10)
    generation = kb._read_tenant().generation
    pauses = []
    monkeypatch.setattr(node.sweeper, "_yield_now", lambda: pauses.append(stored(kb)))
    assert node.sweeper.sweep() == 11
    assert kb._read_tenant().generation == generation + 3
    assert [len(found) for found in pauses] == [7, 3, 0, 0]


def test_a_stopping_node_ends_a_sweep(node, kb, clock):
    tell(kb, "p", "a", ttl=10)
    clock.advance(10)
    node.sweeper.close()
    assert node.sweeper.sweep() == 0


def test_sweeping_continues_after_a_failed_write(node, kb, clock, monkeypatch, caplog):
    from kbcore.errors import StorageFull

    tell(kb, "p", "a", ttl=10)
    clock.advance(10)

    def full(changes):
        raise StorageFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(node.sweeper, "_commit", full)
        assert node.sweeper.sweep() == 0
    assert "were not evicted" in caplog.text
    assert node.sweeper.sweep() == 1


def test_a_backward_clock_neither_revives_nor_reorders_facts(node, kb, clock):
    tell(kb, "p", "a")
    clock.advance(HOUR)
    tell(kb, "p", "b")
    tell(kb, "p", "short", ttl=10)
    clock.advance(10)
    before = names(kb.salient("p", [X]))
    clock.step(-2 * HOUR)
    assert names(kb.salient("p", [X])) == before == [("p", "b"), ("p", "a")]
    assert kb.decay(0.0).expired == 1
    assert node.sweeper.sweep() == 0
    tell(kb, "p", "c")
    assert kb.salient("p", ["c"])[0]["salience"] == pytest.approx(formula(0))
