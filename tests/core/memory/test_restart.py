"""Results of upkeep, priorities and accesses after a restart, from the log and from a snapshot."""

from __future__ import annotations

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.state.facts import Fact
from kbplanner.engine.backend import Attribute
from kbplanner.ir.terms import Atom, Variable

T0 = 1_700_000_000_000


def content(kb):
    """Every stored fact with all its cells."""
    tenant = kb._read_tenant()
    found = []
    for partition in tenant.partitions():
        for stored in partition.relations():
            rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
            cells = zip(*(stored.relation.attributes(each, ids) for each in Attribute), strict=True)
            found.extend(
                (str(row), *map(str, each))
                for row, each in zip(stored.rows(tenant.engine, rows, ids), cells, strict=True)
            )
    return sorted(found)


@pytest.mark.parametrize("snapshot", [False, True])
def test_memory_state_survives_a_restart(tmp_path, snapshot):
    clock = ManualClock(T0)
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", (str(i), str(j))) for i in range(3) for j in range(5 + i)])
        kb.assert_facts(
            [
                Fact("flag", (), ttl=10),
                Fact("short", ("a",), ttl=10, scope="s"),
                Fact("p", ("0", "0")),
            ]
        )
        kb.prioritize("p", ["1", "1"], 0.9)
        kb.consolidate()
        clock.advance(10)
        assert node.sweeper.sweep() == 2
        clock.advance(20 * 3_600_000)
        kb.assert_facts([Fact("p", ("2", "9"))])
        kb.prioritize("p", ["2", "0"], 1.0)
        assert kb.decay(0.2).evicted > 10
        kb.consolidate(min_group_size=2)
        if snapshot:
            kb.tuples(Atom("p", ("2", Variable("x"))))
            node.snapshot()
        before = content(kb)
        node.system.snapshots._at_bytes = (
            node.system.committer.bytes
        )  # no other snapshot at the stop
    with runtime(tmp_path, clock=ManualClock(T0)) as node:
        assert (node.recovered.snapshot > 0) is snapshot
        assert content(node.knowledge_base()) == before
