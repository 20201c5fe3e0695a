"""The tool protocol with its official client, in every era and transport, against a server in a
process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import Server

pytest.importorskip("mcp", reason="the official SDK is not installed; tox -e full has it")

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client

pytestmark = pytest.mark.filterwarnings("ignore")

MANY = 2000
SLOW = "never(?a) :- n(?a), n(?b), n(?c), ?a + ?b + ?c < 0."

WAYS = [
    ("auto", "http"),
    ("2026-07-28", "http"),
    ("legacy", "http"),
    ("legacy", "sse"),
    ("auto", "stdio"),
    ("legacy", "stdio"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {
        "QUERY_TIMEOUT_MS": "60000",
        "TENANT_MAX_INFERENCES": "1",
        "QUERY_MAX_STEPS": "1000000000000",
    }
    with Server(tmp_path_factory.mktemp("mcp"), **limits) as found:
        yield found


def url(server: Server) -> str:
    return f"http://{server.address[0]}:{server.address[1]}"


def client(server: Server, mode: str, way: str, **more: Any) -> Client:
    if way == "http":
        return Client(f"{url(server)}/mcp", mode=mode, **more)
    if way == "sse":
        return Client(sse_client(f"{url(server)}/mcp/sse"), mode=mode, **more)
    command = ["-m", "kbserver.cli", "mcp", "--url", url(server)]
    program = StdioServerParameters(command=sys.executable, args=command)
    return Client(stdio_client(program, errlog=open(os.devnull, "w")), mode=mode, **more)


def run(work: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize(("mode", "way"), WAYS)
def test_everything(server: Server, mode: str, way: str) -> None:
    name = f"p_{mode.replace('-', '_')}_{way}"

    async def work() -> None:
        async with client(server, mode, way) as agent:
            assert agent.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            tools = (await agent.list_tools()).tools
            assert len(tools) == 12
            await agent.call_tool("tell", {"predicate": name, "args": ["ann", "é"]})
            found = await agent.call_tool("ask", {"predicate": name, "args": ["?x", "?y"]})
            assert found.structured_content is not None
            assert found.structured_content["results"][0]["args"] == ["ann", "é"]
            wrong = await agent.call_tool("ask", {"predicate": name})
            assert wrong.is_error
            with pytest.raises(MCPError):
                await agent.call_tool("nothing é", {})
            (content,) = (await agent.read_resource(f"kb://facts/{name}")).contents
            assert "é" in content.text
            assert len((await agent.list_resource_templates()).resource_templates) == 4
            assert (await agent.get_prompt("write-rules", {"goal": "g"})).messages

    run(work())


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_listen(server: Server, way: str) -> None:
    async def work() -> None:
        async with client(server, "auto", way) as agent:
            uri = f"kb://facts/heard_{way}"
            async with agent.listen(resource_subscriptions=[uri, "kb://nothing"]) as changes:
                assert changes.honored.resource_subscriptions == [uri]
                await agent.call_tool("tell", {"predicate": f"heard_{way}", "args": ["a"]})
                event = await asyncio.wait_for(anext(changes), 10)
                assert event.uri == uri

    run(work())


@pytest.mark.parametrize("way", ["http", "sse", "stdio"])
def test_subscribe(server: Server, way: str) -> None:
    async def work() -> None:
        told = asyncio.Event()

        async def hear(message: Any) -> None:
            if "resources/updated" in str(getattr(message, "method", "")):
                told.set()

        async with client(server, "legacy", way, message_handler=hear) as agent:
            await agent.subscribe_resource(f"kb://facts/followed_{way}")
            await agent.call_tool("tell", {"predicate": f"followed_{way}", "args": ["a"]})
            await asyncio.wait_for(told.wait(), 15)

    run(work())


def slow(server: Server) -> dict[str, Any]:
    """A goal that takes minutes."""
    numbers = [{"predicate": "n", "args": [n]} for n in range(MANY)]
    assert server.post("/assert/facts", {"facts": numbers}, X_Tenant_ID="default")[0] == 200
    assert server.post("/teach", {"text": SLOW}, X_Tenant_ID="default")[0] == 200
    return {"predicate": "never", "args": ["?x"]}


@pytest.mark.parametrize(
    ("mode", "way"), [("auto", "http"), ("legacy", "http"), ("legacy", "sse"), ("auto", "stdio")]
)
def test_progress_and_cancellation(server: Server, mode: str, way: str) -> None:
    goal = slow(server)

    async def work() -> None:
        reports: list[float] = []
        reported = asyncio.Event()

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append(progress)
            if len(reports) == 2:
                reported.set()

        async with client(server, mode, way) as agent:
            call = asyncio.create_task(agent.call_tool("ask", goal, progress_callback=report))
            await asyncio.wait_for(reported.wait(), 20)
            assert reports == sorted(reports)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            found = await agent.call_tool("query", {"predicate": "n", "args": ["0"]})
            assert found.structured_content is not None
            assert found.structured_content["count"] == 1

    run(work())
    # What was cancelled has given its turn back, the only one there is: another meets its time
    # limit, not the line.
    status, body = server.post("/ask", {**goal, "timeoutMs": 2000}, X_Tenant_ID="default")
    assert (status, json.loads(body)["details"]["limit"]) == (422, "timeMs"), body


@pytest.mark.parametrize(
    ("mode", "way"), [("auto", "http"), ("legacy", "http"), ("legacy", "stdio"), ("auto", "stdio")]
)
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, mode: str, way: str) -> None:
    first = Server(tmp_path)
    port = str(first.address[1])
    goal = {"predicate": "p", "args": ["?x"]}

    async def work() -> None:
        async with client(first, mode, way) as agent:
            await agent.call_tool("tell", {"predicate": "p", "args": ["a"]})
            first.kill()
            if way == "stdio":
                with pytest.raises(MCPError, match="no answer"):
                    await agent.call_tool("tell", {"predicate": "p", "args": ["b"]})
            with Server(tmp_path, "--port", port) as second:
                if (mode, way) == ("legacy", "http"):
                    with pytest.raises(MCPError, match="no such session"):
                        await agent.call_tool("query", goal)
                    async with client(second, mode, way) as reconnected:
                        found = await reconnected.call_tool("query", goal)
                else:
                    found = await agent.call_tool("query", goal)
                assert found.structured_content is not None
                assert [row["args"] for row in found.structured_content["results"]] == [["a"]]

    with first:
        run(work())
