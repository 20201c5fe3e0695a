"""Calls of tools: whose they are, how they are stopped, what is answered.

A tool that fails is no failure of the protocol: the model reads the error, in the shape that HTTP
has for it, and can do better.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kbcore.errors import Forbidden, InvalidInput, KBError, NotFound
from kbcore.metrics.catalogue import MCP_CALL_SECONDS
from kbcore.operations.queries import MAX_CANDIDATES
from kbcore.operations.views import ALL
from kbcore.reason.admission import Caller
from kbcore.search.invisible import visible
from kbserver.answers import written
from kbserver.errors import ErrorAnswer, InsufficientScope
from kbserver.hookspecs import Principal
from kbserver.http.request import actor_of, part_of_request
from kbserver.http.request_context import grant_of
from kbserver.mcp.answer_size import within
from kbserver.mcp.elicitation import Ask, InputRequired, Question
from kbserver.mcp.rpc import RpcFailure
from kbserver.mcp.tools import TRANSACTION, McpTool
from kbserver.operations import UserChoice
from kbserver.schemas.requests import require_present, take_view
from kbserver.security import audit
from kbserver.security.permissions import demand

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.queries import FactInWords
    from kbcore.operations.tenant_kb import TenantKB
    from kbcore.operations.transaction import TransactionKB

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
        self._unwatch: dict[Stop, Callable[[], None]] = {}
        self.stopped: KBError | None = None
        self.ask: Ask | None = None
        """Asks the user of the client; None if the client cannot do that."""

    def watch(self, stop: Stop) -> Callable[[], None]:
        """Have `stop` called when the call is stopped, or the client leaves."""
        with self._mutex:
            self._stops.append(stop)
            stopped = self.stopped
            if self._connection is not None:
                self._unwatch[stop] = self._connection.watch(stop)
        if stopped is not None:
            stop(stopped)

        def end() -> None:
            with self._mutex:
                self._stops.remove(stop)
                unwatch = self._unwatch.pop(stop, None)
            if unwatch is not None:
                unwatch()

        return end

    def detach(self) -> None:
        """Let the call go on when its connection ends."""
        with self._mutex:
            self._connection = None
            watched, self._unwatch = list(self._unwatch.values()), {}
        for unwatch in watched:
            unwatch()

    def stop(self, error: KBError) -> None:
        """End the work of the call soon, with this error."""
        with self._mutex:
            self.stopped = self.stopped or error
            stops = list(self._stops)
        for stop in stops:
            stop(error)


NOT_ASKED: Mapping[str, Any] = MappingProxyType({})


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
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The view and the labels that the request names, None without."""

    @property
    def has_view(self) -> bool:
        """True if the caller sees what a view admits, or gives labels to what it stores."""
        asks = any(each is not None for each in self.asked.values())
        return asks or grant_of(self.principal) != ALL

    @property
    def caller(self) -> str | None:
        """The key of the caller, or the name without one; None if authentication is off."""
        actor = actor_of(self.principal)
        return None if actor is None else actor.name

    def viewed(self, kb: TenantKB, asked: Mapping[str, Any] = NOT_ASKED) -> TenantKB:
        """Return a knowledge base as the caller sees it; `asked` is what a call itself names."""
        return kb.viewed(**{**self.asked, **asked}, grant=grant_of(self.principal))

    def demand(self, needed: str) -> None:
        """Raise Forbidden where the sender has not the role that is needed."""
        if self.principal is not None:
            demand(self.principal, needed)


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
        try:
            done, transaction_id, notes = self.noted(tool, arguments, who, call)
        except InputRequired as question:
            return question.result
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

    def check_scope(self, tool: McpTool, who: Who) -> None:
        """Raise InsufficientScope for a token without the scope of a tool: an answer with the
        status 403 makes clients request it. Keys are checked by the call.
        """
        try:
            who.demand(tool.needs)
        except InsufficientScope:
            if tool.operation.is_audited:
                _audit(tool, who, "failed")
            raise
        except Forbidden:
            return

    def noted(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> tuple[bool, dict[str, Any], Notes]:
        """Do the work of a tool: whether it succeeded, its outcome, or the error as HTTP shows it,
        and what is noted about it.

        Arguments that it does not have are ignored as over HTTP, but not by a tool that takes
        something away. The action of an administrator has a line in the audit log, refused or not.
        """
        with part_of_request(self._runtime) as part:
            done, outcome = self._attempt(tool, arguments, who, call)
            if tool.operation.is_audited:
                _audit(tool, who, "ok" if done else "failed", part.audited)
        ignored = [] if part.ignored is None else part.ignored.names()
        return done, outcome, Notes(ignored, list(part.time_warnings or ()))

    def _attempt(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> tuple[bool, dict[str, Any]]:
        try:
            done, outcome = True, self._outcome(tool, arguments, who, call)
        except (InputRequired, RpcFailure):  # which are no outcome of the tool
            raise
        except Exception as error:  # noqa: BLE001 - the error table has an answer to everything
            failed = self.fail(error, who.number)
            done = False
            outcome = {"code": failed.code, "message": failed.message, "details": failed.details}
        return done, outcome

    def _outcome(
        self, tool: McpTool, arguments: dict[str, Any], who: Who, call: Call
    ) -> dict[str, Any]:
        who.demand(tool.needs)
        if tool.writes and not tool.operation.checked_inside:
            self._runtime.refuse_on_follower()
        rest = {name: value for name, value in arguments.items() if name != TRANSACTION}
        asked = take_view(rest, tool.operation.body_reader)
        if (asked or who.has_view) and not tool.operation.viewed:
            if not asked and who.principal is not None and grant_of(who.principal) != ALL:
                view, labels = bool(who.principal.view), bool(who.principal.labels)
                need = replace(tool.operation.need, role=tool.needs)
                need.check_view(who.principal.name, view=view, labels=labels)
            else:
                raise InvalidInput.at("view", "this is not available through a view or with labels")
        rest = tool.typed(rest, self._runtime.config.max_json_depth)
        if not (tool.writes or tool.is_historic):
            require_present(rest)
        transaction = _transaction(arguments, who)
        if transaction is not None and not tool.operation.transaction:
            raise InvalidInput.at(TRANSACTION, "this cannot be part of a transaction")
        choice, ask = tool.declared.choice, call.ask
        if choice is not None and ask is not None:
            with self._knowledge_base(tool, who, transaction, call, asked) as kb:
                candidates = choice.candidates(kb, rest, who.strict or tool.declared.destroys)
            rest = _chosen(tool, choice, candidates, rest, ask)
        with self._knowledge_base(tool, who, transaction, call, asked) as kb:
            answer = tool.work(
                kb, rest, who.strict or tool.declared.destroys, self._runtime.clock.now_ms()
            )
        return within(answer, self._runtime.config.mcp_max_answer_tokens)

    def _knowledge_base(
        self,
        tool: McpTool,
        who: Who,
        transaction: str | None,
        call: Call,
        asked: Mapping[str, Any],
    ) -> AbstractContextManager[TenantKB]:
        if transaction is None:
            kb = self._runtime.knowledge_base(who.database, who.tenant, call)
            kb.actor = actor_of(who.principal)
            return _as_it_is(who.viewed(kb, asked))
        held = self._runtime.in_transaction(
            who.database, who.tenant, transaction, writes=tool.writes, caller=call
        )
        held.actor = actor_of(who.principal)
        return _viewed_in(held, who, asked)


def _chosen(
    tool: McpTool,
    choice: UserChoice,
    candidates: Sequence[FactInWords] | None,
    arguments: dict[str, Any],
    ask: Ask,
) -> dict[str, Any]:
    """Return the arguments with the fact that the user means in place of a pattern.

    The user is not asked about a call that would be refused. Raises NotFound and InvalidInput.
    """
    if candidates is None:
        return arguments
    if not candidates:
        raise NotFound("no stored fact matches the pattern")
    if len(candidates) > MAX_CANDIDATES:
        raise InvalidInput.at(
            choice.argument,
            f"matches more than {MAX_CANDIDATES} facts; give more of its arguments",
        )
    certain = {**arguments, choice.argument: candidates[0].text}
    if len(candidates) == 1:
        return certain
    if tool.operation.body_reader is not None:
        tool.operation.body_reader.read(certain, strict=True)
    return {**arguments, choice.argument: ask(Question(choice.message, candidates))}


def _audit(tool: McpTool, who: Who, outcome: str, noted: Mapping[str, Any] | None = None) -> None:
    """Write the audit line of a call that has ended."""
    audit.log_tool(
        tool.name,
        who.principal,
        {
            "address": who.address,
            "outcome": outcome,
            "id": who.number,
            "database": who.database,
            "tenant": who.tenant,
            **(noted or {}),
        },
    )


@contextmanager
def _as_it_is(kb: TenantKB) -> Iterator[TenantKB]:
    yield kb


@contextmanager
def _viewed_in(held: TransactionKB, who: Who, asked: Mapping[str, Any]) -> Iterator[TenantKB]:
    with held as kb:
        yield who.viewed(kb, asked)


def _transaction(arguments: dict[str, Any], who: Who) -> str | None:
    transaction_id = arguments.get(TRANSACTION)
    if transaction_id is None:
        return who.transaction
    if type(transaction_id) is not str or len(transaction_id) > _LONGEST_ID:
        raise InvalidInput.at(TRANSACTION, "is no id of a transaction")
    return transaction_id


_LONGEST_ID = 128
