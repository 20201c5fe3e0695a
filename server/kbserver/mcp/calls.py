"""Calls of tools: whose they are, how they are stopped, what is answered.

A tool that fails is no failure of the protocol: the model reads the error, in the shape that HTTP
has for it, and can do better.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kbcore.errors import InvalidInput, KBError
from kbcore.metrics.catalogue import MCP_CALL_SECONDS
from kbcore.reason.admission import Caller
from kbcore.search.invisible import visible
from kbserver.answers import written
from kbserver.errors import ErrorAnswer
from kbserver.hookspecs import Principal
from kbserver.http.request import actor_of, part_of_request
from kbserver.http.request_context import current_request
from kbserver.mcp.answer_size import within
from kbserver.mcp.tools import TRANSACTION, McpTool
from kbserver.schemas.requests import require_present
from kbserver.security import audit
from kbserver.security.permissions import demand

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB

Fail = Callable[[Exception, str], ErrorAnswer]
IGNORED_META, TIMES_META = "ignoredFields", "timeWarnings"
"""The keys in `_meta` of a tool result for arguments that were ignored, and for warnings of
instants.
"""

Stop = Callable[[KBError], None]


class Call:
    """An active call; it can be stopped from any thread.

    `connection` detects disconnects of the client, if the transport can.
    """

    def __init__(self, connection: Caller | None = None) -> None:
        self._connection = connection
        self._mutex = threading.Lock()
        self._stops: list[Stop] = []
        self.stopped: KBError | None = None

    def watch(self, stop: Stop) -> Callable[[], None]:
        """Have `stop` called when the call is stopped, or the client leaves."""
        with self._mutex:
            self._stops.append(stop)
            stopped = self.stopped
        unwatch = None if self._connection is None else self._connection.watch(stop)
        if stopped is not None:
            stop(stopped)

        def end() -> None:
            with self._mutex:
                self._stops.remove(stop)
            if unwatch is not None:
                unwatch()

        return end

    def stop(self, error: KBError) -> None:
        """End the work of the call soon, with this error."""
        with self._mutex:
            self.stopped = self.stopped or error
            stops = list(self._stops)
        for stop in stops:
            stop(error)


@dataclass(frozen=True, slots=True)
class Who:
    """Database, tenant and transaction of a request, by its headers, and its request id.

    `principal` is the authenticated caller, None if authentication is off; `address` its network
    address.
    """

    database: str
    tenant: str
    number: str
    transaction: str | None = None
    strict: bool = False
    principal: Principal | None = None
    address: str = ""

    def demand(self, needed: str) -> None:
        """Raise Forbidden where the sender has not the role that is needed."""
        if self.principal is not None:
            demand(self.principal.role, self.principal.name, needed)


class Notes(NamedTuple):
    """Arguments of a tool that were ignored, and warnings of instants."""

    ignored: list[str]
    times: list[str]

    @property
    def texts(self) -> list[str]:
        """The notes for the reader of the result."""
        ignored = [f"Ignored arguments: {', '.join(self.ignored)}"] if self.ignored else []
        return [*ignored, *(f"Warning: {warning}" for warning in self.times)]

    @property
    def meta(self) -> dict[str, list[str]]:
        """The notes for a program, in `_meta` of the result."""
        notes = {IGNORED_META: self.ignored, TIMES_META: self.times}
        return {key: values for key, values in notes.items() if values}


class Toolbox:
    """The tools of a profile, and the runtime they work on."""

    def __init__(self, runtime: Runtime, tools: dict[str, McpTool], fail: Fail) -> None:
        self.tools = tools
        self.fail = fail
        self._runtime = runtime

    def call(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> dict[str, Any]:
        """Do the work of a tool, timed, and show the outcome as the protocol wants it; errors are
        answers too.
        """
        clock = self._runtime.clock
        began = clock.monotonic()
        done, transaction_id, notes = self.noted(tool, arguments, who, call)
        labels = tool.name, "ok" if done else "failed"
        self._runtime.metrics.observe(MCP_CALL_SECONDS, clock.monotonic() - began, labels)
        texts = [visible(written(transaction_id).decode()), *notes.texts]  # read by a model
        meta = notes.meta
        return {
            "content": [{"type": "text", "text": text} for text in texts],
            "isError": not done,
            **({"structuredContent": transaction_id} if done else {}),
            **({"_meta": meta} if meta else {}),
        }

    def noted(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> tuple[bool, dict[str, Any], Notes]:
        """Do the work of a tool as `attempt` does, and return also what is noted about it."""
        with part_of_request(self._runtime) as part:
            done, outcome = self.attempt(tool, arguments, who, call)
        ignored = [] if part.ignored is None else part.ignored.names()
        return done, outcome, Notes(ignored, list(part.time_warnings or ()))

    def attempt(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> tuple[bool, dict[str, Any]]:
        """Do the work of a tool: whether it succeeded, and its outcome, or the error as HTTP shows
        it.

        Arguments that it does not have are ignored as over HTTP, but not by a tool that takes
        something away. The action of an administrator has a line in the audit log, refused or not.
        """
        if tool.operation.is_audited:
            current_request().audited = None  # of another call in the same request
        try:
            done, outcome = True, self._outcome(tool, arguments, who, call)
        except Exception as error:  # noqa: BLE001 - the error table has an answer to everything
            failed = self.fail(error, who.number)
            done = False
            outcome = {"code": failed.code, "message": failed.message, "details": failed.details}
        if tool.operation.is_audited:
            audit.log_tool(
                tool.name,
                who.principal,
                {
                    "address": who.address,
                    "outcome": "ok" if done else "failed",
                    "id": who.number,
                    "database": who.database,
                    "tenant": who.tenant,
                    **(current_request().audited or {}),
                },
            )
        return done, outcome

    def _outcome(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> dict[str, Any]:
        who.demand(tool.needs)
        if tool.writes and not tool.operation.checked_inside:
            self._runtime.refuse_on_follower()
        rest = {name: value for name, value in arguments.items() if name != TRANSACTION}
        rest = tool.typed(rest, self._runtime.config.max_json_depth)
        if not (tool.writes or tool.is_historic):
            require_present(rest)
        transaction = _transaction(arguments, who)
        if transaction is not None and not tool.operation.transaction:
            raise InvalidInput.at(TRANSACTION, "this cannot be part of a transaction")
        with self._knowledge_base(tool, who, transaction, call) as kb:
            answer = tool.work(
                kb, rest, who.strict or tool.declared.destroys, self._runtime.clock.now_ms()
            )
        return within(answer, self._runtime.config.mcp_max_answer_tokens)

    def _knowledge_base(
        self, tool: McpTool, who: Who, transaction: str | None, call: Call
    ) -> AbstractContextManager[TenantKB]:
        if transaction is None:
            kb = self._runtime.knowledge_base(who.database, who.tenant, call)
            kb.actor = actor_of(who.principal)
            return _as_it_is(kb)
        held = self._runtime.in_transaction(
            who.database, who.tenant, transaction, writes=tool.writes, caller=call
        )
        held.actor = actor_of(who.principal)
        return held


@contextmanager
def _as_it_is(kb: TenantKB) -> Iterator[TenantKB]:
    yield kb


def _transaction(arguments: dict[str, Any], who: Who) -> str | None:
    transaction_id = arguments.get(TRANSACTION)
    if transaction_id is None:
        return who.transaction
    if type(transaction_id) is not str or len(transaction_id) > _LONGEST_ID:
        raise InvalidInput.at(TRANSACTION, "is no id of a transaction")
    return transaction_id


_LONGEST_ID = 128
