"""Questions to the user: their bounds, malformed answers, and clients that leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.agents import Agent, failed, frames
from support.http import Served, serve_in_memory

from kbcore.errors import CallerLeft, Conflict, RateLimited
from kbcore.operations.queries import MAX_CANDIDATES, FactInWords
from kbserver.mcp import elicitation
from kbserver.mcp.calls import Call
from kbserver.mcp.elicitation import MAX_QUESTIONS, OpenQuestions, Question, takes_questions
from kbserver.mcp.sessions import McpSession

CAN_ASK = {"elicitation": {}}
CORRECT = {"old": "likes(ann, ?what)", "new": "likes(ann, milk)", "reason": "she said so"}
QUESTION = Question("Which?", [FactInWords("p(a)", "p(a)"), FactInWords("p(b)", "p(b)")])


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(mcp_tools="all") as found:
        for drink in ("tea", "coffee"):
            likes(found, drink)
        yield found


DEFAULT = {"X-Tenant-ID": "default"}


def likes(served: Served, drink: str) -> None:
    body = {"predicate": "likes", "args": ["ann", drink]}
    assert served.client.post("/tell", body, headers=DEFAULT).status_code == 200


def liked(served: Served) -> set[str]:
    body = {"predicate": "likes", "args": ["ann", "?x"]}
    rows = served.client.post("/query", body, headers=DEFAULT).get_json()
    return {row["args"][1] for row in rows}


def call(**more: Any) -> dict[str, Any]:
    return {"name": "correct", "arguments": {**CORRECT, **more}}


def session_of(served: Served, agent: Agent) -> McpSession:
    sessions = served.app.extensions["kbcore.mcp"].protocol.sessions
    session = sessions.find(agent.session, ("default", "default"))
    assert isinstance(session, McpSession)
    return session


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"form": {}, "url": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": True}, False),
        ({}, False),
        (None, False),
    ],
)
def test_which_clients_can_be_asked(capabilities: Any, can: bool) -> None:
    assert takes_questions(capabilities) is can


def test_the_question_is_the_result_of_a_call_without_a_session(served: Served) -> None:
    agent = Agent(served.client, CAN_ASK)
    result = agent.modern("tools/call", call()).get_json()["result"]
    assert result["resultType"] == "input_required"
    params = result["inputRequests"]["fact"]["params"]
    enum = params["requestedSchema"]["properties"]["fact"]["enum"]
    assert sorted(enum) == ["likes(ann, coffee)", "likes(ann, tea)"]
    assert liked(served) == {"tea", "coffee"}
    chosen = {"action": "accept", "content": {"fact": "likes(ann, tea)"}}
    answered = agent.modern("tools/call", {**call(), "inputResponses": {"fact": chosen}})
    assert answered.get_json()["result"]["isError"] is False
    assert liked(served) == {"milk", "coffee"}


def test_a_chosen_fact_that_has_gone_changes_nothing(served: Served) -> None:
    likes(served, "water")
    chosen = {"action": "accept", "content": {"fact": "likes(ann, cocoa)"}}
    agent = Agent(served.client, CAN_ASK)
    answered = agent.modern("tools/call", {**call(), "inputResponses": {"fact": chosen}})
    result = answered.get_json()["result"]
    assert result["isError"] is True
    assert '"reason":"changed"' in result["content"][0]["text"]
    assert liked(served) == {"tea", "coffee", "water"}


@pytest.mark.parametrize(
    "responses",
    [
        5,
        {"fact": None},
        {"fact": 5},
        {"fact": {"action": "accept"}},
        {"fact": {"action": "accept", "content": {"fact": 5}}},
        {"fact": {"action": "perhaps", "content": {"fact": "likes(ann, tea)"}}},
    ],
)
def test_malformed_answers_are_refused(served: Served, responses: Any) -> None:
    agent = Agent(served.client, CAN_ASK)
    failed(agent.modern("tools/call", {**call(), "inputResponses": responses}), 400, -32602)
    assert liked(served) == {"tea", "coffee"}


def test_too_many_candidates_are_no_question(served: Served) -> None:
    for number in range(MAX_CANDIDATES):
        likes(served, f"d{number}")
    result = Agent(served.client, CAN_ASK).modern("tools/call", call()).get_json()["result"]
    assert result["isError"] is True
    assert '"fields":{"old":' in result["content"][0]["text"]


@pytest.mark.parametrize("scope", ["*", "", 5, "other"])
def test_a_scope_decides_the_candidates(served: Served, scope: Any) -> None:
    agent = Agent(served.client, CAN_ASK)
    result = agent.modern("tools/call", call(scope=scope)).get_json()["result"]
    assert result["isError"] is True
    assert liked(served) == {"tea", "coffee"}


def test_a_question_in_a_session(served: Served) -> None:
    agent = Agent(served.client, CAN_ASK)
    agent.open()
    stream = frames(
        agent.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call()})
    )
    question = next(stream)
    assert question["method"] == "elicitation/create"
    other = Agent(served.client, CAN_ASK)
    other.open()
    decline = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
    assert other.send(decline).status_code == 202
    assert len(session_of(served, agent).questions) == 1
    chosen = {"action": "accept", "content": {"fact": "likes(ann, tea)"}}
    agent.send({"jsonrpc": "2.0", "id": question["id"], "result": chosen})
    (answer,) = stream
    assert (answer["id"], answer["result"]["isError"]) == (7, False)
    assert liked(served) == {"milk", "coffee"}
    assert len(session_of(served, agent).questions) == 0


@pytest.mark.parametrize("reply", [{"error": {"code": -1, "message": "no"}}, None])
def test_a_question_without_an_answer_ends(
    served: Served, reply: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reply is None:
        monkeypatch.setattr(elicitation, "ANSWER_SECONDS", 0.05)
    agent = Agent(served.client, CAN_ASK)
    agent.open()
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call()}
    stream = frames(agent.send(message))
    question = next(stream)
    if reply is not None:
        agent.send({"jsonrpc": "2.0", "id": question["id"], **reply})
    (answer,) = stream
    assert '"reason":"unanswered"' in answer["result"]["content"][0]["text"]
    assert liked(served) == {"tea", "coffee"}
    assert len(session_of(served, agent).questions) == 0


@pytest.mark.parametrize("way", ["disconnect", "cancel", "delete"])
def test_a_client_that_leaves_ends_its_question(served: Served, way: str) -> None:
    agent = Agent(served.client, CAN_ASK)
    agent.open()
    session = session_of(served, agent)
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call()}
    response = agent.send(message)
    stream = frames(response)
    next(stream)
    assert len(session.questions) == 1
    if way == "disconnect":
        response.close()
    elif way == "cancel":
        cancelled = {"requestId": 7}
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        assert list(stream) == []
    else:
        agent.flask.delete("/mcp", headers={"Mcp-Session-Id": agent.session or ""})
        assert list(stream) == []
    for thread in threading.enumerate():
        if thread.name == "kbcore-call":
            thread.join(10)
    assert len(session.questions) == 0
    assert not session.calls
    assert liked(served) == {"tea", "coffee"}


def test_a_session_has_few_open_questions() -> None:
    questions, sent, errors = OpenQuestions(), [], []
    calls = [Call() for _ in range(MAX_QUESTIONS)]
    ready = threading.Semaphore(0)

    def send(message: dict[str, Any]) -> None:
        sent.append(message)
        ready.release()

    def ask(call: Call) -> None:
        try:
            questions.asks(call, send)(QUESTION)
        except (CallerLeft, Conflict) as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=10)
    with pytest.raises(RateLimited) as limited:
        questions.asks(Call(), send)(QUESTION)
    assert (limited.value.details or {})["limit"] == "questions"
    for call in calls:
        call.stop(CallerLeft())
    for thread in threads:
        thread.join(10)
    assert len(errors) == MAX_QUESTIONS
    assert len(questions) == 0


def test_audited_tools_run_in_the_background(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {**CORRECT, "old": "likes(ann, tea)"}
    params = {"name": "correct", "arguments": arguments, "_meta": {"progressToken": "t"}}
    with caplog.at_level("INFO", logger="kbserver.audit"):
        result = Agent(served.client).modern("tools/call", params).get_json()["result"]
    assert result["isError"] is False, result
    (line,) = (record.__dict__["fields"] for record in caplog.records)
    assert (line["action"], line["outcome"]) == ("tool correct", "ok")
