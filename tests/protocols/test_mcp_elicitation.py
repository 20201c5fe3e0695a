"""Questions to the user with the official client, in both kinds of protocol versions, over HTTP and
standard input and output.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from support.servers import Server

pytest.importorskip("mcp", reason="the official SDK is not installed; tox -e full has it")

import mcp_types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

pytestmark = pytest.mark.filterwarnings("ignore")

NOWHERE = open(os.devnull, "w")  # noqa: SIM115 - as long as the module

WAYS = [("2026-07-28", "http"), ("legacy", "http"), ("2026-07-28", "stdio"), ("legacy", "stdio")]

OLD, NEW, REASON = "likes(ann, ?what)", "likes(ann, milk)", "she said so"
TEA, COFFEE = "likes(ann, tea)", "likes(ann, coffee)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("mcp"), MCP_TOOLS="all") as found:
        yield found


def client(server: Server, mode: str, way: str, **more: Any) -> Client:
    url = f"http://{server.address[0]}:{server.address[1]}"
    if way == "http":
        return Client(f"{url}/mcp", mode=mode, **more)
    command = ["-m", "kbserver.cli", "mcp", "--url", url]
    program = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    return Client(stdio_client(program, errlog=NOWHERE), mode=mode, **more)


class User:
    """Answers questions with an action, and keeps what was asked."""

    def __init__(self, action: str, fact: str | None = None) -> None:
        self.asked: list[Any] = []
        self._result = mcp_types.ElicitResult(
            action=action, content=None if fact is None else {"fact": fact}
        )

    async def answer(self, context: Any, params: Any) -> Any:
        self.asked.append(params)
        return self._result


def corrected(
    server: Server, mode: str, way: str, user: User | None, **more: Any
) -> tuple[Any, set[str]]:
    """Correct a pattern with two matches; the result and what Ann likes then."""

    async def work() -> tuple[Any, set[str]]:
        callback = {} if user is None else {"elicitation_callback": user.answer}
        async with client(server, mode, way, **callback) as agent:
            await agent.call_tool("retract_pattern", {"predicate": "likes", "args": ["?x", "?y"]})
            for text in (TEA, COFFEE):
                await agent.call_tool("tell", {"text": text})
            body = {"old": OLD, "new": NEW, "reason": REASON, **more}
            result = await agent.call_tool("correct", body)
            answers = await agent.call_tool("query", {"text": "likes(ann, ?what)"})
            return result, {row["args"][1] for row in answers.structured_content["results"]}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize(("mode", "way"), WAYS)
def test_the_user_chooses_the_fact(server: Server, mode: str, way: str) -> None:
    user = User("accept", COFFEE)
    result, liked = corrected(server, mode, way, user)
    assert not result.is_error, result
    assert result.structured_content["old"]["args"] == ["ann", "coffee"]
    assert liked == {"tea", "milk"}
    (question,) = user.asked
    assert question.mode == "form"
    schema = question.requested_schema["properties"]["fact"]
    assert sorted(schema["enum"]) == [COFFEE, TEA]
    assert sorted(schema["enumNames"]) == ["ann likes coffee", "ann likes tea"]


@pytest.mark.parametrize(("mode", "way"), WAYS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_no_choice_changes_nothing(server: Server, mode: str, way: str, action: str) -> None:
    result, liked = corrected(server, mode, way, User(action))
    assert result.is_error
    assert "nothing was changed" in result.content[0].text
    assert liked == {"tea", "coffee"}


@pytest.mark.parametrize(("mode", "way"), WAYS)
def test_a_client_that_cannot_ask_gets_the_error_of_a_pattern(
    server: Server, mode: str, way: str
) -> None:
    result, liked = corrected(server, mode, way, None)
    assert result.is_error
    assert "a fact holds no variables" in result.content[0].text
    assert liked == {"tea", "coffee"}


@pytest.mark.parametrize(("mode", "way"), WAYS[:2])
def test_an_answer_that_is_no_candidate_changes_nothing(
    server: Server, mode: str, way: str
) -> None:
    result, liked = corrected(server, mode, way, User("accept", "likes(bob, tea)"))
    assert result.is_error
    assert liked == {"tea", "coffee"}


@pytest.mark.parametrize(("mode", "way"), WAYS[:2])
def test_one_match_and_refused_calls_need_no_question(server: Server, mode: str, way: str) -> None:
    user = User("cancel")
    result, liked = corrected(server, mode, way, user, old={"text": "likes(?who, tea)"})
    assert not result.is_error, result
    assert liked == {"coffee", "milk"}
    result, _ = corrected(server, mode, way, user, reason=5)
    assert result.is_error
    result, _ = corrected(server, mode, way, user, old="likes(zed, ?what)")
    assert "no stored fact matches" in result.content[0].text
    assert user.asked == []
