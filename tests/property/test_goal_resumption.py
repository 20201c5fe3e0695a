"""Standing goals across restarts: a client that resumes anywhere gets every change, in order."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st
from property.test_standing_goals import FORMS, GOALS, START, fresh, scopes, steps, take, texts
from support import naive
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import KBError
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.subscriptions import evaluation as goals

EVENTS = st.sampled_from(["", "", "", "restart", "snapshot", "forget"])


def follow(kb, id, position, known):
    """Return the answers after each change since a position, and the last position."""
    states = {}
    while changes := kb.goal_changes(id, position, limit=3):
        for change in changes:
            gone, new = set(texts(change.disappeared)), set(texts(change.appeared))
            assert gone <= known
            assert not new & known
            known = known - gone | new
            states[change.seq] = known
            position = change.event_id
    assert changes is not None
    return known, states


@examples(150)
@given(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True),
    GOALS,
    scopes,
    steps,
    st.lists(EVENTS, min_size=30, max_size=30),
    st.sampled_from([-1, 500]),
)
def test_a_client_resumes_anywhere_without_losing_or_repeating_a_change(
    rules, body, scope, steps, events, cheap
):
    assume(naive.stratified(rules))
    goals.CHEAP_ROWS = cheap
    clock = ManualClock(START)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        node = runtime(directory, clock=clock)
        try:
            kb = node.knowledge_base()
            kb.assert_rules(rules)
            rules = list(rules)
            first = kb.subscribe_goal(body, scope=scope, id="g", keep=DurableSubscription())
            seen = [(first.event_id, set(texts(first.answers)), first.seq)]
            for step, event in zip(steps, events, strict=False):
                with suppress(KBError):
                    take(kb, node, clock, step, rules)
                if event == "restart":
                    node.close()
                    node = runtime(directory, clock=clock)
                    kb = node.knowledge_base()
                elif event == "snapshot":
                    node.snapshot()
                elif event == "forget":
                    kb.standing_goal("g").history.begin(kb.standing_goal("g").moment)
                now = kb.goal_answers("g")
                assert set(texts(now.answers)) == fresh(kb, body, scope)
                seen.append((now.event_id, set(texts(now.answers)), now.seq))
            by_seq = {}
            for _, answers, seq in seen:
                by_seq[seq] = answers
            for position, known, seq in seen:
                if kb.goal_changes("g", position) is None:
                    assert "snapshot" in events or "restart" in events  # the log was cut
                    continue
                end, states = follow(kb, "g", position, known)
                assert end == seen[-1][1]
                for number, answers in states.items():
                    if number > seq and number in by_seq:
                        assert answers == by_seq[number]
        finally:
            node.close()
