"""Tasks: their life, owners, bounds, and clients that leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.agents import Agent, failed, frames
from support.http import Served, serve_in_memory
from support.keys import keyed

from kbcore.errors import InvalidInput
from kbcore.operations.views import ALL
from kbserver.mcp import streams, tasks, transport
from kbserver.mcp.calls import Call, Toolbox
from kbserver.mcp.tasks import TASK_BYTES, McpTasks, TaskOwner
from kbserver.mcp.versions import SUBSCRIPTION_KEY, TASKS

DECLARED = {"extensions": {TASKS: {}}}
ASK = {"name": "query", "arguments": {"predicate": "p", "args": ["?x"]}}
MISSING = -32021
DEFAULT = {"X-Tenant-ID": "default"}


class Gate:
    """Holds the calls of tools until it is opened, or the call is stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.error: Exception | None = None
        self.calls: list[Call] = []
        self.tries = 0
        original = Toolbox._outcome

        def outcome(toolbox: Toolbox, tool: Any, arguments: Any, who: Any, call: Call) -> Any:
            self.calls.append(call)
            end = call.watch(lambda error: self.opened.set())
            try:
                assert self.opened.wait(20)
            finally:
                end()
            if call.stopped is not None:
                raise call.stopped
            if self.error is not None:
                raise self.error
            return original(toolbox, tool, arguments, who, call)

        begin = McpTasks.begin

        def begun_or_opened(registry: McpTasks, owner: TaskOwner, call: Call, **more: Any) -> Any:
            task = begin(registry, owner, call, **more)
            self.tries += 1
            if task is None:
                self.opened.set()
            return task

        monkeypatch.setattr(Toolbox, "_outcome", outcome)
        monkeypatch.setattr(McpTasks, "begin", begun_or_opened)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(transport, "PLAIN_ANSWER_SECONDS", 0.01)
    calls = Gate(monkeypatch)
    yield calls
    calls.opened.set()
    finished()


@pytest.fixture
def agent(served: Served) -> Agent:
    served.client.post("/tell", {"predicate": "p", "args": ["a"]}, headers=DEFAULT)
    return Agent(served.client, DECLARED)


def finished() -> None:
    """Wait until no call runs in the background."""
    for thread in threading.enumerate():
        if thread.name == "kbcore-call":
            thread.join(20)
            assert not thread.is_alive()


def begun(agent: Agent, **headers: str) -> dict[str, Any]:
    result: dict[str, Any] = agent.modern("tools/call", ASK, **headers).get_json()["result"]
    assert result["resultType"] == "task", result
    return result


def state(agent: Agent, id: str) -> dict[str, Any]:
    result: dict[str, Any] = agent.modern("tasks/get", {"taskId": id}).get_json()["result"]
    assert result["resultType"] == "complete"
    return result


def registry(served: Served) -> McpTasks:
    tasks_of_process = served.app.extensions["kbcore.mcp"].protocol.tasks
    assert isinstance(tasks_of_process, McpTasks)
    return tasks_of_process


def test_the_extension_is_offered_without_sessions_only(agent: Agent) -> None:
    offered = agent.modern("server/discover").get_json()["result"]["capabilities"]
    assert offered["extensions"] == {TASKS: {}}
    assert "extensions" not in agent.open()["capabilities"]


def test_a_short_call_is_answered_at_once(agent: Agent, served: Served) -> None:
    result = agent.modern("tools/call", ASK).get_json()["result"]
    assert (result["resultType"], result["structuredContent"]["count"]) == ("complete", 1)
    assert len(registry(served)) == 0


def test_the_life_of_a_task(agent: Agent, gate: Gate) -> None:
    task = begun(agent)
    assert task["status"] == "working"
    assert task["ttlMs"] == 4_200_000
    assert task["pollIntervalMs"] == 1000
    running = state(agent, task["taskId"])
    assert running["statusMessage"] == "running for 0 seconds"
    gate.opened.set()
    finished()
    done = state(agent, task["taskId"])
    assert done["status"] == "completed"
    assert done["createdAt"] == task["createdAt"]
    assert done["ttlMs"] == 600_000
    assert done["result"]["structuredContent"]["count"] == 1
    assert done["result"]["isError"] is False
    assert state(agent, task["taskId"]) == done
    cancelled = agent.modern("tasks/cancel", {"taskId": task["taskId"]})
    assert cancelled.get_json()["result"]["resultType"] == "complete"
    assert state(agent, task["taskId"]) == done


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("ask", {"text": "p(?x)"}, {"count": 1}),
        ("bulk_assert", {"facts": [{"predicate": "p", "args": ["b"]}]}, {"asserted": 1}),
        ("purge", {"subject": "a"}, {"factCount": 1}),
    ],
)
def test_goals_bulk_runs_and_purges_are_tasks(
    gate: Gate, tool: str, arguments: dict[str, Any], found: dict[str, int]
) -> None:
    with serve_in_memory(mcp_tools="all") as served:
        agent = Agent(served.client, DECLARED)
        gate.opened.set()
        tell = {"name": "tell", "arguments": {"text": "p(a)"}}
        assert agent.modern("tools/call", tell).status_code == 200
        finished()
        gate.opened.clear()
        call = {"name": tool, "arguments": arguments}
        task = agent.modern("tools/call", call).get_json()["result"]
        assert task["resultType"] == "task"
        gate.opened.set()
        finished()
        done = state(agent, task["taskId"])
        assert (done["status"], done["result"]["isError"]) == ("completed", False)
        content = done["result"]["structuredContent"]
        assert {key: content[key] for key in found} == found


def test_a_key_sees_its_own_tasks(gate: Gate) -> None:
    with keyed() as node:
        owner, other = (Agent(node.served.client, DECLARED) for _ in range(2))
        mine = {"Authorization": f"Bearer {node.make('reader').secret}"}
        theirs = {"Authorization": f"Bearer {node.make('admin').secret}"}
        task = owner.modern("tools/call", ASK, **mine).get_json()["result"]
        params = {"taskId": task["taskId"]}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            failed(other.modern(method, params, **theirs), 400, -32602)
        subscription = {"notifications": {"taskIds": [task["taskId"]]}}
        stream = frames(other.modern("subscriptions/listen", subscription, **theirs))
        assert next(stream)["params"]["notifications"] == {}
        running = owner.modern("tasks/get", params, **mine).get_json()["result"]
        assert running["status"] == "working"
        gate.opened.set()
        finished()


def test_an_error_of_the_tool_is_a_completed_task(agent: Agent, gate: Gate) -> None:
    task = begun(agent)
    gate.error = InvalidInput.at("x", "is wrong")
    gate.opened.set()
    finished()
    done = state(agent, task["taskId"])
    assert (done["status"], done["result"]["isError"]) == ("completed", True)


def test_a_task_is_cancelled(agent: Agent, gate: Gate, served: Served) -> None:
    task = begun(agent)
    reply = agent.modern("tasks/cancel", {"taskId": task["taskId"]})
    assert set(reply.get_json()["result"]) == {"resultType", "_meta"}
    finished()
    done = state(agent, task["taskId"])
    assert done["status"] == "cancelled"
    assert not {"result", "error"} & set(done)
    assert registry(served).size == TASK_BYTES


def test_answers_to_a_task_that_asks_nothing_are_ignored(agent: Agent, gate: Gate) -> None:
    task = begun(agent)
    answers = {"fact": {"action": "accept"}}
    reply = agent.modern("tasks/update", {"taskId": task["taskId"], "inputResponses": answers})
    assert set(reply.get_json()["result"]) == {"resultType", "_meta"}
    wrong = {"taskId": task["taskId"], "inputResponses": 5}
    failed(agent.modern("tasks/update", wrong), 400, -32602)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_who_cannot_use_a_task(agent: Agent, gate: Gate, served: Served, method: str) -> None:
    task = begun(agent)
    params = {"taskId": task["taskId"]}
    failed(agent.modern(method, {"taskId": "unknown"}), 400, -32602)
    failed(agent.modern(method, {}, Mcp_Name="x"), 400, -32602)
    failed(agent.modern(method, params, X_Tenant_ID="other"), 400, -32602)
    failed(agent.modern(method, params, Mcp_Name="x"), 400, -32020)
    body = failed(Agent(served.client).modern(method, params), 400, MISSING)
    assert body["error"]["data"]["requiredCapabilities"] == DECLARED
    session = Agent(served.client, DECLARED)
    session.open()
    assert session.legacy(method, params)["error"]["code"] == -32601
    assert state(agent, task["taskId"])["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
def test_methods_of_older_revisions_do_not_exist(agent: Agent, method: str) -> None:
    failed(agent.modern(method, {"taskId": "x"}), 404, -32601)


def test_a_client_without_the_extension_gets_no_task(served: Served, gate: Gate) -> None:
    gate.opened.set()
    for capabilities in ({}, {"extensions": {}}, {"extensions": {TASKS: True}}):
        result = Agent(served.client, capabilities).modern("tools/call", ASK).get_json()["result"]
        assert result["resultType"] == "complete"
    assert (len(registry(served)), gate.tries) == (0, 0)


def test_a_tenant_has_few_tasks(
    agent: Agent, gate: Gate, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_TASKS", 3)
    for _ in range(3):
        begun(agent)
    begun(agent, X_Tenant_ID="other")
    result = agent.modern("tools/call", ASK).get_json()["result"]
    assert (result["resultType"], result["structuredContent"]["count"]) == ("complete", 1)
    finished()
    assert len(registry(served)) == 4


def test_the_memory_of_tasks_is_bounded(
    agent: Agent, gate: Gate, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 3 * 4 * served.runtime.config.mcp_max_answer_tokens + TASK_BYTES
    monkeypatch.setattr(tasks, "MAX_BYTES", 2 * largest)
    begun(agent)
    begun(agent, X_Tenant_ID="other")
    assert registry(served).size == 2 * largest
    assert agent.modern("tools/call", ASK).get_json()["result"]["resultType"] == "complete"
    finished()
    assert 0 < registry(served).size - 2 * TASK_BYTES < 2000


def test_a_finished_task_is_kept_for_a_time(agent: Agent, gate: Gate, served: Served) -> None:
    task = begun(agent)
    gate.opened.set()
    finished()
    served.clock.advance(599_000)
    assert state(agent, task["taskId"])["status"] == "completed"
    served.clock.advance(1000)
    failed(agent.modern("tasks/get", {"taskId": task["taskId"]}), 400, -32602)
    assert (len(registry(served)), registry(served).size) == (0, 0)


def purge(served: Served) -> None:
    body = {"subject": "a"}
    assert served.client.post("/memory/purge", body, headers=DEFAULT).status_code == 200


def test_a_purge_drops_results_with_what_it_erased(
    agent: Agent, gate: Gate, served: Served
) -> None:
    task = begun(agent)
    gate.opened.set()
    finished()
    assert state(agent, task["taskId"])["status"] == "completed"
    purge(served)
    failed(agent.modern("tasks/get", {"taskId": task["taskId"]}), 400, -32602)
    assert (len(registry(served)), registry(served).size) == (0, 0)


def test_a_result_of_before_a_purge_is_not_kept(agent: Agent, gate: Gate, served: Served) -> None:
    task = begun(agent)
    purge(served)
    gate.opened.set()
    finished()
    failure = state(agent, task["taskId"])
    assert failure["status"] == "failed"
    assert "purged" in failure["error"]["message"]


def test_a_task_that_runs_too_long_is_cancelled(agent: Agent, gate: Gate, served: Served) -> None:
    task = begun(agent)
    served.clock.advance(3_600_000)
    state(agent, task["taskId"])
    finished()
    assert state(agent, task["taskId"])["status"] == "cancelled"


def test_tasks_end_with_the_server(agent: Agent, gate: Gate, served: Served) -> None:
    begun(agent)
    served.app.extensions["kbcore.mcp"].close()
    finished()
    assert gate.calls[0].stopped is not None
    assert registry(served).begin(TaskOwner(("d", "t"), None, ALL), Call(), writes=False) is None


def test_another_key_or_view_is_another_owner() -> None:
    owner = TaskOwner(("d", "t"), "key-1", ALL)
    assert owner != replace(owner, caller="key-2")
    assert owner != replace(owner, whose=("d", "u"))
    assert owner == TaskOwner(("d", "t"), "key-1", ALL)


class Connection:
    """A connection whose client leaves."""

    def __init__(self) -> None:
        self.stops: list[Any] = []

    def watch(self, stop: Any) -> Any:
        self.stops.append(stop)
        return lambda: self.stops.remove(stop)


def test_a_detached_call_goes_on_without_its_connection() -> None:
    connection, stopped = Connection(), []
    call = Call(connection)
    end = call.watch(stopped.append)
    assert len(connection.stops) == 1
    call.detach()
    assert connection.stops == []
    end_later = call.watch(stopped.append)
    assert connection.stops == []
    end()
    end_later()
    assert stopped == []


def test_progress_and_then_a_task(
    agent: Agent, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(streams, "TASK_SECONDS", 0.05)
    params = {**ASK, "_meta": {"progressToken": "t"}}
    *reports, last = frames(agent.modern("tools/call", params))
    assert reports
    assert all(each["params"]["progressToken"] == "t" for each in reports)
    assert last["result"]["resultType"] == "task"
    gate.opened.set()
    finished()
    assert state(agent, last["result"]["taskId"])["status"] == "completed"


def test_the_end_of_a_task_is_notified(agent: Agent, gate: Gate, served: Served) -> None:
    task = begun(agent)
    other = begun(agent, X_Tenant_ID="other")
    subscription = {"taskIds": [task["taskId"], task["taskId"], other["taskId"], "unknown"]}
    response = agent.modern("subscriptions/listen", {"notifications": subscription})
    stream = frames(response)
    assert next(stream)["params"]["notifications"] == {"taskIds": [task["taskId"]]}
    gate.opened.set()
    notified = next(stream)
    assert notified["method"] == "notifications/tasks"
    assert notified["params"].pop("_meta") == {SUBSCRIPTION_KEY: "a"}
    finished()
    last_state = state(agent, task["taskId"])
    assert notified["params"] == {
        key: value for key, value in last_state.items() if key not in ("_meta", "resultType")
    }
    response.close()
    again = frames(agent.modern("subscriptions/listen", {"notifications": subscription}))
    next(again)
    assert next(again)["params"]["status"] == "completed"


@pytest.mark.parametrize("ids", ["x", [5], {"a": 1}, [str(n) for n in range(10_000)]])
def test_malformed_subscriptions_of_tasks(agent: Agent, ids: Any) -> None:
    subscription = {"notifications": {"taskIds": ids}}
    failed(agent.modern("subscriptions/listen", subscription), 400, -32602)


def test_a_subscription_needs_the_extension(served: Served) -> None:
    subscription = {"notifications": {"taskIds": ["x"]}}
    failed(Agent(served.client).modern("subscriptions/listen", subscription), 400, MISSING)


def test_a_revoked_key_gets_no_result(gate: Gate) -> None:
    with keyed() as node:
        agent = Agent(node.served.client, DECLARED)
        key, admin = node.make("reader"), node.make("admin")
        mine = {"Authorization": f"Bearer {key.secret}"}
        task = agent.modern("tools/call", ASK, **mine).get_json()["result"]
        subscription = {"notifications": {"taskIds": [task["taskId"]]}}
        stream = frames(agent.modern("subscriptions/listen", subscription, **mine))
        assert next(stream)["params"]["notifications"] == {"taskIds": [task["taskId"]]}
        gone = node.send("DELETE", f"/auth/keys/{key.key.id}", admin.secret)
        assert gone.status_code == 200
        gate.opened.set()
        finished()
        assert not [each for each in stream if each.get("method") == "notifications/tasks"]
        assert agent.modern("tasks/get", {"taskId": task["taskId"]}, **mine).status_code == 401
