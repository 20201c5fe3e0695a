"""Handlers of MCP requests, independent of the transport.

Requests that are answered by a stream are handled in `transport.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbcore import __version__
from kbcore.errors import CallerLeft, KBError, NotFound
from kbcore.events.events import EventView
from kbcore.tracing import spans
from kbserver.mcp.calls import Call, Fail, Toolbox, Who
from kbserver.mcp.elicitation import ask_by_result, takes_questions
from kbserver.mcp.prompts import PROMPTS
from kbserver.mcp.resources import listing as resources
from kbserver.mcp.resources import uris
from kbserver.mcp.resources.subscriptions import ResourceSubscriptions
from kbserver.mcp.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Json,
    RpcFailure,
    RpcMessage,
)
from kbserver.mcp.sessions import McpSession, McpSessions
from kbserver.mcp.tasks import McpTask, McpTasks, TaskOwner
from kbserver.mcp.tool_span import begin_tool
from kbserver.mcp.tools import McpTool, all_tools, tools_of
from kbserver.mcp.versions import (
    CAPABILITIES_KEY,
    SERVER_KEY,
    SUPPORTED,
    TASKS,
    check_extension,
    negotiated,
)

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB

SERVER = {"name": "kbcore", "title": "kbcore knowledge base", "version": __version__}

INSTRUCTIONS = (
    "A knowledge base of facts and rules. Call predicates to list its predicates, ask to answer goals (arguments that "
    "start with ? are variables), tell to store a fact, teach to store rules, explain to see why something holds, and "
    "context to get the facts that matter for a prompt."
)

LIST_TTL_MS = 300_000
"""Time that clients may cache the lists of tools, resources and prompts; these change only with the
server version."""

NO_RESOURCE = -32002
"""Error code for unknown resources in protocol versions with sessions."""


@dataclass(slots=True)
class McpRequest:
    """A request with its caller, session and cancellation; `modern`: a version without sessions."""

    message: RpcMessage
    who: Who
    modern: bool
    session: McpSession | None = None
    call: Call = field(default_factory=Call)

    @property
    def is_cancelled(self) -> bool:
        """True if the client has cancelled the request, or has left: it gets no answer."""
        return self.call.stopped is not None


class Protocol:
    """The MCP server of one runtime; `fail` converts an error of the core to an answer."""

    def __init__(self, runtime: Runtime, fail: Fail) -> None:
        self._runtime = runtime
        self._fail = fail
        self.toolbox = Toolbox(
            runtime, tools_of(runtime.config.mcp_tools, runtime.model is not None), fail
        )
        self.subscriptions = ResourceSubscriptions(runtime.feed)
        self.sessions = McpSessions(runtime.clock, self.subscriptions)
        self.tasks = McpTasks(runtime)
        common: dict[str, Callable[[McpRequest], Json]] = {
            "tools/list": self._tools_list,
            "tools/call": self._tools_call,
            "resources/list": lambda asked: _listed({"resources": list(resources.LISTED)}),
            "resources/templates/list": lambda asked: _listed(
                {"resourceTemplates": list(resources.TEMPLATES)}
            ),
            "resources/read": self._resources_read,
            "prompts/list": lambda asked: _listed(
                {"prompts": [prompt.shown for prompt in PROMPTS.values()]}
            ),
            "prompts/get": self._prompts_get,
        }
        self._modern = {
            **common,
            "server/discover": _discover,
            "tasks/get": lambda asked: self.tasks.shown(self.task(asked)),
            "tasks/update": self._update_task,
            "tasks/cancel": self._cancel_task,
        }
        self._legacy = {
            **common,
            "ping": lambda asked: {},
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def tool(self, message: RpcMessage) -> McpTool:
        """Return the tool that a request calls; raises Failure."""
        name = message.text("name")
        name = OLD_NAMES.get(name, name)
        tool = self.toolbox.tools.get(name)
        if tool is None and name in PUBLISHED:
            tool = all_tools()[name]
        if tool is None:
            raise RpcFailure(INVALID_PARAMS, f"unknown tool {name[:64]!r}; see tools/list")
        return tool

    def answer(self, asked: McpRequest) -> Json:
        """Return the result of a request; raises Failure."""
        methods = self._modern if asked.modern else self._legacy
        method = methods.get(asked.message.method)
        if method is None:
            raise RpcFailure(METHOD_NOT_FOUND, f"unknown method {asked.message.method[:64]!r}")
        try:
            result = method(asked)
        except RpcFailure:
            raise
        except Exception as error:
            raise self.failure(error, asked.who.number) from error
        if not asked.modern:
            return {
                key: value for key, value in result.items() if key not in ("ttlMs", "cacheScope")
            }
        return complete(result)

    def failure(self, error: Exception, number: str) -> RpcFailure:
        """Convert an error of the core to a protocol error; `data` is the error object of the HTTP
        interface.
        """
        failed = self._fail(error, number)
        wrong = isinstance(error, KBError) and 400 <= failed.status < 500
        data = {"code": failed.code, "message": failed.message, "details": failed.details}
        return RpcFailure(INVALID_PARAMS if wrong else INTERNAL_ERROR, failed.message, data)

    def welcome(self, message: RpcMessage) -> Json:
        """Return the answer of `initialize`: the negotiated version and the capabilities."""
        version = negotiated(message.params.get("protocolVersion"))
        return {
            "protocolVersion": version,
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER,
            "instructions": INSTRUCTIONS,
        }

    def close(self) -> None:
        """Close all sessions and their streams, and cancel all tasks."""
        self.sessions.close_all()
        self.tasks.close()

    def task(self, asked: McpRequest) -> McpTask:
        """Return the task that a request names; raises RpcFailure."""
        check_extension(asked.message.meta)
        return self.tasks.find(asked.message.text("taskId"), TaskOwner.of(asked.who))

    def _update_task(self, asked: McpRequest) -> Json:
        self.task(asked)
        asked.message.object("inputResponses")  # no task asks: answers are ignored
        return {}

    def _cancel_task(self, asked: McpRequest) -> Json:
        self.task(asked).call.stop(CallerLeft())
        return {}

    def _tools_list(self, asked: McpRequest) -> Json:
        if asked.message.params.get("cursor") is not None:
            raise RpcFailure(INVALID_PARAMS, "params.cursor: the list has only one page")
        return _listed({"tools": [tool.shown for tool in self.toolbox.tools.values()]})

    def _tools_call(self, asked: McpRequest) -> Json:
        tool = self.tool(asked.message)
        arguments = asked.message.object("arguments")
        if takes_questions(asked.message.meta.get(CAPABILITIES_KEY)) and asked.modern:
            asked.call.ask = ask_by_result(asked.message.params.get("inputResponses"))
        if spans.tracer is None:
            return self.toolbox.call(tool, arguments, asked.who, asked.call)
        with begin_tool(spans.tracer, tool.name, asked.message.meta) as span:
            result = self.toolbox.call(tool, arguments, asked.who, asked.call)
            if result.get("isError"):
                span.fail("tool_error")
            return result

    def _resources_read(self, asked: McpRequest) -> Json:
        uri = asked.message.text("uri")
        address = uris.read_uri(uri)
        try:
            contents = None if address is None else resources.read(self._kb(asked), uri, address)
        except NotFound:
            contents = None
        if contents is None:
            raise RpcFailure(
                INVALID_PARAMS if asked.modern else NO_RESOURCE,
                "the resource does not exist",
                {"uri": uri},
            )
        return {"contents": [contents], "ttlMs": 0, "cacheScope": "private"}

    def _prompts_get(self, asked: McpRequest) -> Json:
        name, arguments = asked.message.text("name"), asked.message.object("arguments")
        prompt = PROMPTS.get(name)
        if prompt is None:
            raise RpcFailure(
                INVALID_PARAMS,
                f"unknown prompt {name[:64]!r}; see prompts/list",
            )
        for argument, _, required in prompt.arguments:
            value = arguments.get(argument)
            if value is None and not required:
                arguments.pop(argument, None)
            elif type(value) is not str or not value:
                raise RpcFailure(INVALID_PARAMS, f"params.arguments.{argument} must be a text")
        content = {"type": "text", "text": prompt.text(self._kb(asked), arguments)}
        return {
            "description": prompt.description,
            "messages": [{"role": "user", "content": content}],
        }

    def _subscribe(self, asked: McpRequest) -> Json:
        uri = asked.message.text("uri")
        if not self.sessions.follow(_session(asked), uri, self.event_view(asked)):
            raise RpcFailure(NO_RESOURCE, "no resource can have this URI", {"uri": uri})
        return {}

    def _unsubscribe(self, asked: McpRequest) -> Json:
        self.sessions.leave(_session(asked), asked.message.text("uri"))
        return {}

    def event_view(self, asked: McpRequest) -> EventView | None:
        """Return the view through which a request follows changes; None if it sees all."""
        return self._kb(asked).event_view()

    def _kb(self, asked: McpRequest) -> TenantKB:
        kb = self._runtime.knowledge_base(asked.who.database, asked.who.tenant, asked.call)
        return asked.who.viewed(kb)


OLD_NAMES = {
    "assert_fact": "tell",
    "infer": "ask",
    "retract": "forget",
    "context_window": "context",
}
"""Names of tools that published clients call; they are not listed."""

PUBLISHED = frozenset(
    (
        "tell",
        "teach",
        "ask",
        "forget",
        "query",
        "aggregate",
        "bulk_assert",
        "retract_pattern",
        "context",
        "context_diff",
        "ingest",
        "predicates",
        "recall",
        "compress",
        "cleanup",
        "fork_scope",
        "merge_scope",
        "list_scopes",
        "delete_scope",
        "explain",
        "memory_add",
        "memory_facts",
        "memory_forget",
        "memory_history",
        "memory_search",
        "memory_update",
    )
)
"""Names of tools that published clients rely on: accepted in every profile, listed or not."""

CAPABILITIES: Json = {
    "tools": {"listChanged": False},
    "resources": {"subscribe": True, "listChanged": False},
    "prompts": {"listChanged": False},
}


def complete(result: Json) -> Json:
    """Add the members that protocol versions without sessions require: the result type, if the
    result is not of a special one, and the server info.
    """
    return {
        "resultType": "complete",
        **result,
        "_meta": {**result.get("_meta", {}), SERVER_KEY: SERVER},
    }


def _discover(asked: McpRequest) -> Json:
    capabilities = {**CAPABILITIES, "extensions": {TASKS: {}}}
    offered: dict[str, Any] = {"supportedVersions": list(SUPPORTED), "capabilities": capabilities}
    return _listed({**offered, "instructions": INSTRUCTIONS})


def _listed(result: Json) -> Json:
    return {**result, "ttlMs": LIST_TTL_MS, "cacheScope": "public"}


def _session(asked: McpRequest) -> McpSession:
    if asked.session is None:
        raise RpcFailure(
            INVALID_REQUEST,
            "this method needs a session: call initialize and send its Mcp-Session-Id",
        )
    return asked.session
