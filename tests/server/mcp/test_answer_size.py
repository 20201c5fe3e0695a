"""Answers of tools are cut to the size that a model can read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents import Agent
from support.http import serve_in_memory

from kbserver.answers import written
from kbserver.mcp.answer_size import BYTES_PER_TOKEN, within

MAX_TOKENS = 200


@pytest.fixture
def agent():
    with serve_in_memory(mcp_max_answer_tokens=MAX_TOKENS) as served:
        yield Agent(served.client)


def test_long_lists_and_texts_are_cut_and_say_so(agent):
    for number in range(50):
        agent.call("tell", predicate="likes", args=["ann", f"a thing with the number {number}"])
    result = agent.call("query", text="likes(ann, ?what)")
    shown = result["content"][0]["text"]
    assert len(shown.encode()) <= MAX_TOKENS * BYTES_PER_TOKEN + 50
    answer = json.loads(shown)
    assert answer == result["structuredContent"]
    assert answer["truncated"] is True
    assert 0 < len(answer["results"]) < 50
    assert answer["count"] == len(answer["results"])
    window = agent.call("context", format="facts", maxFacts=50)["structuredContent"]
    assert window["truncated"] is True
    assert window["formattedText"].endswith("\u2026")


def test_short_answers_are_whole(agent):
    agent.call("tell", predicate="likes", args=["ann", "tea"])
    answer = agent.call("query", text="likes(ann, ?what)")["structuredContent"]
    assert (answer["count"], answer["truncated"]) == (1, False)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=60,
)


@given(st.dictionaries(st.text(min_size=1, max_size=4), VALUES, max_size=4), st.integers(1, 60))
def test_an_answer_is_a_beginning_of_the_whole(answer, max_tokens):
    cut = within(answer, max_tokens)
    if len(written(answer)) <= max_tokens * BYTES_PER_TOKEN:
        assert cut == answer
        return
    assert cut["truncated"] is True
    assert len(written(cut)) <= len(written(answer)) + len(written({"truncated": True}))
    assert begins({**cut, "truncated": 0}, {**answer, "truncated": 0})


def begins(part, whole):
    if isinstance(whole, str):
        return whole.startswith(part.removesuffix("\u2026"))
    if isinstance(whole, list):
        return part == whole[: len(part)]
    if isinstance(whole, dict):
        return part.keys() == whole.keys() and all(begins(part[key], whole[key]) for key in part)
    return part == whole


def test_a_model_reads_no_invisible_characters():
    with serve_in_memory() as served:
        agent = Agent(served.client)
        hidden = "te\u200ba\u202e \U000e0041"
        agent.call("tell", predicate="likes", args=["ann", hidden])
        result = agent.call("query", text="likes(ann, ?what)")
    assert result["structuredContent"]["results"][0]["args"] == ["ann", hidden]
    assert json.loads(result["content"][0]["text"])["results"][0]["args"] == ["ann", "tea "]
