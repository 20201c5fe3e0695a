"""Decay: salience over time, and the facts that are evicted."""

from __future__ import annotations

import math

import pytest
from support.engines import HOUR, T0, tell
from support.memories import X, names, stored
from support.runtimes import runtime

from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.state.changes import ChangeSet, EvictFacts, EvictReason
from kbcore.state.facts import Fact
from kbcore.upkeep import evict as evicting
from kbplanner.ir.terms import Atom, Literal
from kbplanner.syntax.parser import parse_rule


def test_decay_evicts_expired_and_low_salience_facts(kb, clock):
    kb.assert_rules([parse_rule("known(?x) :- seen(?x).")])
    tell(kb, "seen", "old")
    tell(kb, "seen", "kept")
    kb.prioritize("seen", ["kept"], 1.0)
    tell(kb, "seen", "short", ttl=1000)
    tell(kb, "alarm", ttl=1000)
    tell(kb, "seen", "future", valid_from=T0 + 1000 * HOUR)
    tell(kb, "seen", "elsewhere", scope="s", ttl=1000)
    clock.advance(20 * HOUR)
    tell(kb, "seen", "new")
    generation = kb._read_tenant().generation
    before = stored(kb)
    dry = kb.decay(0.2, dry_run=True)
    assert stored(kb) == before
    assert kb._read_tenant().generation == generation
    assert {names([row])[0]: row["why"]["reason"] for row in dry.atoms} == {
        ("alarm",): "expired",
        ("seen", "short"): "expired",
        ("seen", "old"): "faded",
    }
    since, faded = dry.atoms[0]["why"], dry.atoms[-1]["why"]
    assert since == {"reason": "expired", "since": T0 + 1000}
    assert faded["salience"] == pytest.approx(
        faded["recency"] + faded["frequency"] + faded["priority"]
    )
    assert faded["salience"] < faded["threshold"] == 0.2
    done = kb.decay(0.2)
    assert (done.expired, done.evicted, done.truncated, done.timestamp) == (
        2,
        1,
        False,
        T0 + 20 * HOUR,
    )
    assert names(done.atoms) == names(dry.atoms)
    assert all("why" not in row for row in done.atoms)
    assert stored(kb) == [("seen", "future"), ("seen", "kept"), ("seen", "new")]
    assert [row["args"] for row in kb.infer(Literal(Atom("known", (X,))))] == [["kept"], ["new"]]
    assert stored(kb, "s") == [("seen", "elsewhere")]
    assert kb.decay(0.2, scope="s").expired == 1
    again = kb.decay(0.2)
    assert (again.expired, again.evicted, again.atoms) == (0, 0, [])


@pytest.mark.parametrize("threshold", [-0.01, 1.01, math.nan])
def test_a_threshold_is_from_0_to_1(kb, threshold):
    with pytest.raises(InvalidInput, match="threshold"):
        kb.decay(threshold)


def test_the_whole_range_of_thresholds(kb, clock):
    tell(kb, "p", "a")
    assert kb.decay(0.0).evicted == 0
    assert kb.decay(1.0).evicted == 1
    assert kb.decay(1.0, scope="nowhere").evicted == 0
    with pytest.raises(InvalidInput):
        kb.decay(scope="*")


def test_upkeep_of_an_unknown_tenant_writes_nothing(node):
    stranger = node.knowledge_base(tenant="stranger")
    assert stranger.decay().expired == 0
    assert stranger.consolidate().facts == []
    assert node.system.catalog.find("default", "stranger") is None


def test_facts_used_during_decay_are_not_evicted(node, kb, clock, monkeypatch):
    for name in ("told", "used", "idle"):
        tell(kb, "p", name)
        tell(kb, "short", name, ttl=10)
    clock.advance(20 * HOUR)
    commit = node.commit
    concurrent_calls = [
        lambda: tell(kb, "short", "told", ttl=10),
        lambda: (clock.advance(1), tell(kb, "p", "told")),
        lambda: kb.infer(Literal(Atom("p", ("used",)))),
    ]

    def slow(changes):
        if any(isinstance(change, EvictFacts) for change in changes.changes) and concurrent_calls:
            concurrent_calls.pop(0)()
        return commit(changes)

    monkeypatch.setattr(node, "commit", slow)
    found = kb.decay(0.5)
    assert (found.expired, found.evicted) == (2, 1)
    assert sorted(names(found.atoms)) == [("p", "idle"), ("short", "idle"), ("short", "used")]
    assert stored(kb) == [("p", "told"), ("p", "used"), ("short", "told")]


def test_decay_does_not_affect_a_tenant_that_was_replaced(node, kb, clock, monkeypatch):
    from kbcore.state.changes import CatalogAction, ChangeCatalog

    tell(kb, "p", "a")
    clock.advance(20 * HOUR)
    commit = node.commit

    def slow(changes):
        if any(isinstance(change, EvictFacts) for change in changes.changes):
            commit(ChangeSet("default", "default", (ChangeCatalog(CatalogAction.NUKE_TENANT),)))
            commit(ChangeSet("default", "default", (EvictFacts((), EvictReason.FADED),)))
            monkeypatch.setattr(node, "commit", commit)
            tell(kb, "p", "a")
        return commit(changes)

    monkeypatch.setattr(node, "commit", slow)
    assert kb.decay(0.5).evicted == 0
    assert stored(kb) == [("p", "a")]


def test_a_list_too_long_for_one_record_is_split(node, kb, clock, monkeypatch):
    monkeypatch.setattr(evicting, "RECORD_BYTES", 200)
    kb.assert_facts(
        [Fact("p", (f"a{i:03}",)) for i in range(50)] + [Fact("q", ("x" * 100,)), Fact("flag", ())]
    )
    generation = kb._read_tenant().generation
    assert kb.decay(1.0).evicted == 52
    assert stored(kb) == []
    assert kb._read_tenant().generation > generation + 3


def test_the_reply_lists_at_most_as_many_rows_as_answers_may_have(clock):
    with runtime(clock=clock, query_max_answers=10) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", (str(i),)) for i in range(30)])
        with pytest.raises(BudgetExceeded):
            kb.salient(limit=20)
        found = kb.decay(1.0)
        assert (found.evicted, len(found.atoms), found.truncated) == (30, 10, True)
        assert stored(kb) == []
