"""A denial is newer knowledge: reads do not decide which side of a contradiction a window shows."""

from __future__ import annotations

import itertools

import pytest
from support.engines import HOUR, tell
from support.windows import window

from kbcore.state.facts import Fact


def sides(kb) -> list[bool]:
    return [entry.negated for entry in window(kb).entries if entry.predicate == "diet"]


@pytest.mark.parametrize("reads", list(itertools.product((0, 1, 60), repeat=2)))
def test_reads_before_and_after_change_nothing(kb, clock, reads):
    before, after = reads
    tell(kb, "diet", "mia", "vegan")
    for _ in range(before):
        kb.salient("diet")
    clock.advance(HOUR)
    tell(kb, "diet", "mia", "vegan", positive=False)
    salience = {row["negated"]: row["salience"] for row in kb.salient("diet")}
    assert salience[True] >= salience[False]
    for _ in range(after):
        kb.recall("diet", ["mia", "vegan"], clock.now_ms(), positive=True)
        kb.salient("diet")
    assert sides(kb) == [True]
    clock.advance(HOUR)
    tell(kb, "diet", "mia", "vegan")
    assert sides(kb) == [False], "stated again"


@pytest.mark.parametrize(
    ("first", "second", "negative"),
    [
        ((None, None), (None, None), True),
        ((0.9, None), (0.6, None), False),
        ((0.9, None), (0.65, None), True),
        ((0.9, None), (None, None), True),
        ((0.1, 0.9), (1.0, None), False),
        ((0.1, None), (1.0, 0.9), True),
    ],
)
def test_priority_confidence_and_time_decide_in_this_order(kb, clock, first, second, negative):
    for (confidence, priority), positive in ((first, True), (second, False)):
        kb.assert_facts([Fact("diet", ("mia",), positive, confidence=confidence)])
        if priority is not None:
            kb.prioritize("diet", ["mia"], priority, positive=positive)
        clock.advance(HOUR)
    assert sides(kb) == [negative]


def test_at_the_same_time_the_positive_side_stays(kb):
    kb.assert_facts([Fact("diet", ("mia",), positive) for positive in (False, True)])
    assert sides(kb) == [False]
