"""Standing instructions of the asker in her windows."""

from __future__ import annotations

import pytest
from support.engines import tell
from support.windows import goal, window

WORDS = "answer in short sentences and name the day of each thing that you say"


@pytest.fixture
def memory(kb):
    for number in range(40):
        tell(kb, "likes", "mia", f"tea {number}")
    tell(kb, "instruction", "leo", "answer in french")
    tell(kb, "instruction", "mia", WORDS)
    return kb


def instructions(hers):
    return [entry.args for entry in hers.entries if entry.predicate == "instruction"]


@pytest.mark.parametrize(
    "more", [{}, {"query": "what tea do I like?"}, {"goals": [goal("likes", "mia", "tea 3")]}]
)
def test_her_instructions_come_first(memory, more):
    hers = window(memory, max_facts=8, asker="mia", **more)
    assert tuple(hers.entries[0].args) == ("mia", WORDS)
    if "query" in more:
        assert ("leo", "answer in french") not in map(tuple, instructions(hers))
    assert len(hers.entries) > 1


def test_they_take_a_quarter_of_the_facts_and_of_the_text(memory):
    for number in range(10):
        tell(memory, "instruction", "mia", f"rule {number}: {WORDS}")
    assert len(instructions(window(memory, max_facts=8, asker="mia", query="tea"))) == 2
    hers = window(memory, max_facts=40, max_tokens=200, asker="mia", query="tea")
    lines = [line for line in hers.text.splitlines() if "instruction" in line]
    assert 0 < sum(map(len, lines)) <= 200
    assert any(entry.predicate == "likes" for entry in hers.entries)
