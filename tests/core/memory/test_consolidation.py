"""Consolidation: repeated facts are replaced by a summary."""

from __future__ import annotations

import pytest
from support.engines import T0, tell
from support.memories import X, names

from kbcore.errors import InvalidInput
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable


def visits(kb, who, places, **more):
    kb.assert_facts([Fact("visited", (who, f"place{i}"), **more) for i in places])


def summaries(kb, scope=None):
    return [
        (row["args"], row["metadata"])
        for row in kb.query_rows("visited_consolidated", [X, Variable("n")], scope=scope)
    ]


def test_repeated_facts_are_summarised(kb, clock):
    visits(kb, "ann", range(5))
    clock.advance(100)
    visits(kb, "ann", [5, 6])
    visits(kb, "bob", range(4))
    visits(kb, "cid", range(5), scope="s")
    visits(kb, "dora", range(5), positive=False)
    visits(kb, "eve", range(4))
    visits(kb, "eve", [9], ttl=10)
    clock.advance(10)
    tell(kb, "flag")
    dry = kb.consolidate(dry_run=True)
    assert summaries(kb) == []
    found = kb.consolidate()
    metadata = {"consolidated": True, "sources": 7, "from": T0, "to": T0 + 100}
    assert summaries(kb) == [(["ann", "7"], metadata)]
    assert (found.consolidated, found.removed, found.timestamp) == (7, 0, T0 + 110)
    assert names(found.facts) == [("visited_consolidated", "ann", "7")]
    assert (dry.consolidated, names(dry.facts), dry.facts[0]["metadata"]) == (
        7,
        names(found.facts),
        metadata,
    )
    assert found.facts[0]["createdAt"] == T0 + 110
    assert dry.facts[0]["createdAt"] is None
    assert len(kb.query_rows("visited", ["ann", X])) == 7
    assert kb.consolidate(scope="s").consolidated == 5
    assert [args for args, _ in summaries(kb, "s")] == [["cid", "5"]]


def test_a_later_run_replaces_the_count(kb, clock):
    visits(kb, "ann", range(5))
    kb.consolidate()
    generation = kb._read_tenant().generation
    clock.advance(100)
    again = kb.consolidate()
    assert (again.consolidated, again.facts, again.removed) == (0, [], 0)
    assert kb._read_tenant().generation == generation
    visits(kb, "ann", [5])
    more = kb.consolidate()
    assert (more.consolidated, more.removed) == (6, 1)
    assert [args for args, _ in summaries(kb)] == [["ann", "6"]]
    kb.retract_fact("visited", ["ann", "place5"])
    visits(kb, "ann", [6])
    same = kb.consolidate()
    assert (same.consolidated, same.removed) == (0, 0)
    kb.retract_fact("visited", ["ann", "place0"])
    clock.advance(100)
    visits(kb, "ann", [7])
    assert kb.consolidate().facts[0]["metadata"]["to"] == T0 + 200
    assert [args for args, _ in summaries(kb)] == [["ann", "6"]]


def test_the_summary_of_a_group_below_the_minimum_is_removed(kb):
    visits(kb, "ann", range(5))
    kb.consolidate()
    kb.retract_fact("visited", ["ann", "place0"])
    found = kb.consolidate()
    assert (found.facts, found.removed) == ([], 1)
    assert summaries(kb) == []


def test_summaries_are_not_summarised(kb):
    for count in range(5, 12):
        tell(kb, "visited_consolidated", "ann", str(count), metadata={"consolidated": True})
    assert kb.consolidate(predicates=["visited_consolidated"]).facts == []
    assert kb.consolidate(predicates=["other"]).removed == 0
    tell(kb, "visited_consolidated", "bob", "5")
    visits(kb, "bob", range(5))
    visits(kb, "bob", [0])
    found = kb.consolidate()
    assert (found.facts, found.removed) == ([], 7)
    assert summaries(kb) == [(["bob", "5"], {})]


def test_groups_of_two_arities(kb):
    kb.assert_facts(
        [Fact("e", ("a", str(i))) for i in range(5)]
        + [Fact("e", ("a", str(i), "x")) for i in range(6)]
    )
    assert sorted(names(kb.consolidate().facts)) == [
        ("e_consolidated", "a", "5"),
        ("e_consolidated", "a", "6"),
    ]
    kb.retract_fact("e", ["a", "0", "x"])
    assert (kb.consolidate().removed, kb.consolidate().removed) == (1, 0)
    assert names(kb.query_rows("e_consolidated", [X, Variable("n")])) == [
        ("e_consolidated", "a", "5")
    ]


def test_group_size_and_predicates_are_options(kb):
    visits(kb, "ann", range(3))
    kb.assert_facts([Fact("met", ("ann", str(i))) for i in range(3)])
    assert names(kb.consolidate(min_group_size=3, predicates=["met"]).facts) == [
        ("met_consolidated", "ann", "3")
    ]
    with pytest.raises(InvalidInput):
        kb.consolidate(min_group_size=1)
    with pytest.raises(InvalidInput):
        kb.consolidate(scope="*")


def test_many_groups_are_split_into_records(kb, monkeypatch):
    monkeypatch.setattr("kbcore.upkeep.consolidate.RECORD_BYTES", 2000)
    kb.assert_facts([Fact("p", (f"a{i}", str(j))) for i in range(20) for j in range(2)])
    assert len(kb.consolidate(min_group_size=2).facts) == 20
    kb.assert_facts([Fact("p", (f"a{i}", "2")) for i in range(20)])
    assert (kb.consolidate(min_group_size=2).removed, kb.consolidate(min_group_size=2).removed) == (
        20,
        0,
    )
    assert len(kb.query_rows("p_consolidated", [X, "3"])) == 20
