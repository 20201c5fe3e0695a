"""The facts with evidence in an episode, beside a dict of sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbcore.state.intervals import EVIDENCE_KEY
from kbcore.state.partition import _SupportedFacts

ROWS = st.sampled_from([(), (1,), (2,), (1, 2)])
EPISODES = st.lists(st.sampled_from(["ep-1", "ep-2", "ep-3"]), max_size=3)


@given(st.lists(st.tuples(ROWS, EPISODES), max_size=30))
def test_facts_that_gain_and_lose_evidence(
    changes: list[tuple[tuple[int, ...], list[str]]],
) -> None:
    supported, stored = _SupportedFacts(), {}
    for row, episodes in changes:
        before = stored.get(row)
        stored[row] = {EVIDENCE_KEY: [{"episode": each} for each in episodes]}
        supported.move(row, before, stored[row])
        for episode in ("ep-1", "ep-2", "ep-3"):
            expected = {
                each
                for each, metadata in stored.items()
                if {"episode": episode} in metadata[EVIDENCE_KEY]
            }
            rows = list(supported.of(episode))
            assert set(rows) == expected
            assert len(rows) == len(expected)
