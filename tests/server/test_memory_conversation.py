"""A conversation of 40 turns: what a program finds in it over Python, HTTP and MCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from support.agents import Agent
from support.conversation import DAYS, QUESTIONS, SESSIONS, Asked, message_id, messages
from support.http import serve_in_memory

from kbcore import open_kb

MAX_TOKENS = 300
TENANT = {"X-Tenant-ID": "mia"}
SPEAKERS = {"user": "mia", "assistant": "assistant"}
SAID = {
    (SPEAKERS[turn.role], turn.content): DAYS[session]
    for session, turns in enumerate(SESSIONS)
    for turn in turns
}
BELIEVED = {"lives_in", "works_at", "works_as", "diet"}

Call = Callable[[str, dict[str, Any]], dict[str, Any]]
"""A call of an operation of the memory with its arguments as JSON; returns its answer."""


def python() -> Iterator[Call]:
    with open_kb() as kb:
        memory = kb.memory(user="mia")

        def call(name: str, body: dict[str, Any]) -> dict[str, Any]:
            if name == "search":
                window = memory.search(body["question"], max_tokens=body["maxTokens"])
                entries = [{"predicate": e.predicate, "args": list(e.args)} for e in window.entries]
                return {"text": window.text, "entries": entries, "tokens": window.tokens}
            if name == "update":
                fact = body.pop("fact")
                evidence = [span["episode"] for span in fact["evidence"]]
                memory.update(fact["text"], evidence=evidence, **body)
            else:
                memory.add(body["messages"], session=body["session"])
            return {}

        yield call


def http() -> Iterator[Call]:
    with serve_in_memory() as served:

        def call(name: str, body: dict[str, Any]) -> dict[str, Any]:
            reply = served.client.post(f"/memory/{name}", body, headers=TENANT)
            assert reply.status_code == 200, reply.text
            answer: dict[str, Any] = reply.json
            return answer

        yield call


def mcp() -> Iterator[Call]:
    with serve_in_memory(mcp_tools="memory") as served:
        agent = Agent(served.client)

        def call(name: str, body: dict[str, Any]) -> dict[str, Any]:
            called = {"name": f"memory_{name}", "arguments": body}
            result = agent.legacy("tools/call", called, **TENANT)["result"]
            assert result["isError"] is False, result
            answer: dict[str, Any] = result["structuredContent"]
            return answer

        yield call


@pytest.fixture(scope="module", params=[python, http, mcp], ids=lambda way: way.__name__)
def call(request: pytest.FixtureRequest) -> Iterator[Call]:
    """A memory that has heard the conversation, and whose agent has noted the values in it."""
    for ready in request.param():
        for session, turns in enumerate(SESSIONS):
            ready("add", {"messages": messages(session), "session": f"s{session}"})
            for number, turn in enumerate(turns):
                for fact, replaces in turn.updates:
                    evidence = [{"episode": message_id(session, number)}]
                    body = {"fact": {"text": fact, "evidence": evidence}, "since": DAYS[session]}
                    ready("update", body if replaces is None else {**body, "replaces": replaces})
        yield ready


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question)
def test_a_window_has_the_answer_and_no_older_value(call: Call, asked: Asked) -> None:
    answer = call("search", {"question": asked.question, "maxTokens": MAX_TOKENS})
    text = answer["text"]
    assert asked.expected in text, text
    assert [stale for stale in asked.never if stale in text] == [], text
    assert answer["tokens"] <= MAX_TOKENS
    for entry in answer.get("entries", ()):  # a tool has the text only
        if entry["predicate"] == "said":
            speaker, words, when = entry["args"]
            assert when.startswith(SAID[speaker, words]), entry
            day = date.fromisoformat(SAID[speaker, words])
            shown = f"{day.day} {day:%b %Y}, {speaker}: {words}"
            assert shown in text, (shown, text)
        else:
            assert entry["predicate"] in BELIEVED, entry


def test_there_are_forty_turns_and_forty_questions() -> None:
    assert (len(SAID), len(QUESTIONS)) == (40, 40)


def test_errors_of_a_history_name_its_field():
    with serve_in_memory() as served:
        reply = served.client.get("/memory/history?about=said(")
        assert (reply.status_code, [*reply.json["details"]["fields"]]) == (400, ["about"])


def test_a_question_that_is_too_long_is_named():
    with serve_in_memory() as served:
        reply = served.client.post("/memory/search", json={"question": "tea " * 20_000})
        assert (reply.status_code, [*reply.json["details"]["fields"]]) == (400, ["question"])


def test_an_update_says_that_a_value_holds_already():
    with serve_in_memory() as served:
        for since in ("2024-01-01", "2025-01-01"):
            body = {"fact": "lives_in(mia, Bern)", "since": since}
            reply = served.client.post("/memory/update", json=body)
        holds = "lives_in(mia, Bern) holds since 2024-01-01T00:00:00.000Z and keeps this beginning"
        assert reply.json["warnings"] == [holds]


@pytest.mark.parametrize("name", ["since", "replaces"])
def test_an_argument_inside_of_the_fact_is_named(name: str) -> None:
    with serve_in_memory() as served:
        body = {"fact": {"text": "lives_in(mia, Bern)", name: "2024-01-01"}}
        reply = served.client.post("/memory/update", json=body)
        assert (reply.status_code, [*reply.json["details"]["fields"]]) == (400, [f"fact.{name}"])
        assert served.client.get("/memory/facts").json["totalFacts"] == 0
