"""Tasks with the official client, whose part of the extension is written here as its interface for
extensions wants it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from support.servers import Server

pytest.importorskip("mcp", reason="the official SDK is not installed; tox -e full has it")

import mcp_types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import stdio_client

pytestmark = pytest.mark.filterwarnings("ignore")

NOWHERE = open(os.devnull, "w")  # noqa: SIM115 - as long as the module

WAYS = ["http", "stdio"]
MANY = 2000
SLOW = "never(?a) :- n(?a), n(?b), n(?c), ?a + ?b + ?c < 0."
GOAL = {"predicate": "never", "args": ["?x"]}


class TaskResult(mcp_types.Result):
    """A call that has become a task."""

    result_type: Literal["task"]
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class TaskParams(mcp_types.RequestParams):
    """The id of a task."""

    task_id: str


class TaskRequest(mcp_types.Request[TaskParams, str]):
    """A request about a task."""

    name_param = "taskId"


class State(mcp_types.Result):
    """The state of a task."""

    status: str
    status_message: str | None = None
    result: mcp_types.CallToolResult | None = None


async def send(session: Any, method: str, id: str, answer: Any = mcp_types.EmptyResult) -> Any:
    return await session.send_request(
        TaskRequest(method=method, params=TaskParams(task_id=id)), answer
    )


class Tasks(ClientExtension):
    """Takes tasks; with `finish` a call returns when its task has ended."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.created: list[TaskResult] = []
        self.states: list[State] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=TaskResult, resolve=self._resolve),)

    async def _resolve(self, task: TaskResult, context: ClaimContext) -> Any:
        self.created.append(task)
        while True:
            self.states.append(await send(context.session, "tasks/get", task.task_id, State))
            if self.states[-1].status != "working":
                return self.states[-1].result or mcp_types.CallToolResult(content=[], is_error=True)
            await asyncio.sleep(task.poll_interval_ms / 5000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {
        "QUERY_TIMEOUT_MS": "60000",
        "TENANT_MAX_INFERENCES": "1",
        "QUERY_MAX_STEPS": "1000000000000",
    }
    with Server(tmp_path_factory.mktemp("mcp"), **limits) as found:
        numbers = [{"predicate": "n", "args": [n]} for n in range(MANY)]
        for path, body in (("/assert/facts", {"facts": numbers}), ("/teach", {"text": SLOW})):
            assert found.post(path, body, X_Tenant_ID="default")[0] == 200
        yield found


def client(server: Server, way: str, *tasks: Tasks, tenant: str = "default") -> Client:
    url = f"http://{server.address[0]}:{server.address[1]}"
    if way == "http" and tenant == "default":
        return Client(f"{url}/mcp", mode="2026-07-28", extensions=tasks)
    command = ["-m", "kbserver.cli", "mcp", "--url", url, "--tenant", tenant]
    program = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    transport = stdio_client(program, errlog=NOWHERE)
    return Client(transport, mode="2026-07-28", extensions=tasks)


def run(work: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize("way", WAYS)
def test_a_long_goal_is_a_task(server: Server, way: str) -> None:
    async def work() -> None:
        tasks = Tasks()
        async with client(server, way, tasks) as agent:
            result = await agent.call_tool("ask", {**GOAL, "timeoutMs": 1500})
            assert result.is_error
            assert "BUDGET_EXCEEDED" in result.content[0].text
            assert len(tasks.created) == 1
            assert tasks.states[0].status_message.startswith("running for ")
            assert tasks.states[-1].status == "completed"
            result = await agent.call_tool("query", {"predicate": "n", "args": ["0"]})
            assert result.structured_content["count"] == 1
            assert len(tasks.created) == 1, "a short call is answered at once"

    run(work())


@pytest.mark.parametrize("way", WAYS)
def test_cancelling_a_task_ends_its_goal(server: Server, way: str) -> None:
    async def work() -> None:
        tasks = Tasks()
        async with client(server, way, tasks) as agent:
            call = asyncio.create_task(agent.call_tool("ask", GOAL))
            while not tasks.states:
                await asyncio.sleep(0.05)
            id = tasks.created[0].task_id
            async with client(server, way, Tasks(), tenant="other") as other:
                for method in ("tasks/get", "tasks/cancel"):
                    with pytest.raises(MCPError, match="no such task"):
                        await send(other.session, method, id)
            async with client(server, way) as other:
                with pytest.raises(MCPError, match="capability") as missing:
                    await send(other.session, "tasks/get", id)
                assert missing.value.error.code == -32021
            assert not call.done()
            await send(agent.session, "tasks/cancel", id)
            await call
            assert tasks.states[-1].status == "cancelled"
            # The only slot is free again: another goal meets its time limit, not the queue.
            result = await agent.call_tool("ask", {**GOAL, "timeoutMs": 700})
            assert '"limit":"timeMs"' in result.content[0].text

    run(work())


@pytest.mark.parametrize("way", WAYS)
def test_a_task_outlives_its_client(server: Server, way: str) -> None:
    async def work() -> None:
        tasks = Tasks()
        async with client(server, way, tasks) as agent:
            goal = {**GOAL, "timeoutMs": 3000}
            result = await agent.session.call_tool("ask", goal, allow_claimed=True)
            assert isinstance(result, TaskResult)
        async with client(server, way, Tasks()) as agent:
            state = await send(agent.session, "tasks/get", result.task_id, State)
            while state.status == "working":
                await asyncio.sleep(0.1)
                state = await send(agent.session, "tasks/get", result.task_id, State)
            assert state.status == "completed"
            assert '"limit":"timeMs"' in state.result.content[0].text

    run(work())
