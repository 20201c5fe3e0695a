"""Merges of scopes with the built-in strategies."""

from __future__ import annotations

import pytest
from support.forks import START, contested, stored

from kbcore.errors import Conflict
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS


@pytest.mark.parametrize(
    ("strategy", "facts", "confidence", "who"),
    [
        (
            "SOURCE_WINS",
            {("sure", False), ("sign", True), ("mine", False), ("yours", False)},
            0.4,
            "s",
        ),
        (
            "TARGET_WINS",
            {("sure", False), ("sign", False), ("mine", False), ("yours", False)},
            0.9,
            "base",
        ),
        (
            "KEEP_BOTH",
            {("sure", False), ("sign", False), ("sign", True), ("mine", False), ("yours", False)},
            0.9,
            "s",
        ),
    ],
)
def test_strategies(kb, strategy, facts, confidence, who):
    contested(kb)
    before = stored(kb, "s")
    outcome = kb.merge_scope("s", strategy=strategy)
    assert (outcome.conflicts, outcome.strategy) == (2, strategy)
    found = stored(kb)
    assert set(found) == facts
    assert (found["sure", False]["confidence"], found["sure", False]["metadata"]["who"]) == (
        confidence,
        who,
    )
    assert found["yours", False] == {**before["yours", False], "scope": None}
    assert stored(kb, "s") == before
    if strategy == "KEEP_BOTH":
        assert found["sure", False]["metadata"] == {"who": "s", "s": 1, "b": 1}
    if strategy != "TARGET_WINS":
        again = kb.merge_scope("s", strategy=strategy)
        assert (again.conflicts, again.merged) == ((0, 0) if strategy == "SOURCE_WINS" else (1, 1))


def test_reject_lists_the_conflicts_and_changes_nothing(kb):
    contested(kb)
    before = stored(kb)
    with pytest.raises(Conflict) as caught:
        kb.merge_scope("s", strategy="REJECT")
    details = caught.value.details or {}
    assert details["count"] == 2
    assert [(pair["before"]["args"], pair["after"]["args"]) for pair in details["conflicts"]] == [
        (["sure"], ["sure"]),
        (["sign"], ["sign"]),
    ]
    assert stored(kb) == before
    kb.retract_pattern("p", [ANONYMOUS])
    assert kb.merge_scope("s", strategy="REJECT").merged == 3


def test_keep_both_joins_the_validity_of_equal_facts(kb, clock):
    kb.assert_facts(
        [Fact("p", ("a",), valid_from=START - 50, valid_until=START + 10, confidence=0.2)]
    )
    kb.assert_facts([Fact("p", ("a",), scope="s", valid_until=START + 40)])
    clock.advance(5)
    kb.merge_scope("s", strategy="KEEP_BOTH")
    row = stored(kb)["a", False]
    assert (row["validFrom"], row["validUntil"], row["confidence"]) == (
        START - 50,
        START + 40,
        None,
    )
    clock.advance(10)
    assert list(stored(kb)) == [("a", False)]
    clock.advance(25)
    assert stored(kb) == {}


def test_future_facts_are_merged_and_expired_ones_are_not(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=5), Fact("p", ("b",), scope="s", ttl=5)])
    kb.assert_facts(
        [
            Fact("p", ("a",), positive=False, scope="s"),
            Fact("p", ("c",), scope="s", valid_from=START + 50),
        ]
    )
    clock.advance(10)
    assert kb.merge_scope("s", strategy="REJECT").merged == 2
    assert list(stored(kb)) == [("a", True)]
    clock.advance(50)
    assert set(stored(kb)) == {("a", True), ("c", False)}
