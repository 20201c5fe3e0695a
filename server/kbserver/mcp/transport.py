"""HTTP transport of MCP: POST, GET and DELETE of one path, and the older pair of paths.

A call that reports progress runs in the background. If it ends within PLAIN_ANSWER_SECONDS, as most
do, the response is plain JSON, else a stream of events that ends with the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from kbcore.errors import CallerLeft, InvalidInput, RateLimited
from kbserver.answers import JSON, written
from kbserver.http.json_body import text_limit
from kbserver.mcp import rpc
from kbserver.mcp.calls import Call, Fail, Who
from kbserver.mcp.elicitation import takes_questions
from kbserver.mcp.protocol import McpRequest, Protocol, complete
from kbserver.mcp.resources.subscriptions import MAX_FOLLOWED
from kbserver.mcp.rpc import Id, Json, RpcFailure, RpcMessage
from kbserver.mcp.sessions import McpSession
from kbserver.mcp.streams import (
    EVENTS,
    PROGRESS_SECONDS,
    BackgroundCall,
    Listening,
    Streams,
    events,
    progress,
    progress_frames,
)
from kbserver.mcp.tasks import McpTask, TaskOwner
from kbserver.mcp.tools import McpTool
from kbserver.mcp.versions import (
    HEADER_MISMATCH,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    check_extension,
    check_modern,
    check_version,
    is_modern,
    takes_tasks,
)

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

PLAIN_ANSWER_SECONDS = 0.5
"""Time after which a call reports its progress, if the client asked for that."""

_SESSION = "HTTP_MCP_SESSION_ID"

_STATUS = {
    rpc.PARSE_ERROR: 400,
    rpc.INVALID_REQUEST: 400,
    rpc.INVALID_PARAMS: 400,
    rpc.METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
}
"""HTTP statuses of errors in protocol versions without sessions; in older versions valid requests
always get 200."""


class Transport:
    """The HTTP transport of MCP, one per application; the routes call it."""

    def __init__(self, app: Flask, runtime: Runtime, fail: Fail) -> None:
        self.protocol = Protocol(runtime, fail)
        self.streams = Streams()
        self.body_limit = text_limit(runtime.config)
        self._max_depth = runtime.config.max_json_depth
        self._app = app
        self._mutex = threading.Lock()
        self._listening: set[Listening] = set()
        self._closed = False

    # -- one path ----------------------------------------------------------------------------------

    def post(self, body: bytes, environ: Mapping[str, Any], who: Who, call: Call) -> Response:
        """Return the response to one message."""
        id, by_code = None, True
        try:
            message = rpc.read_message(body, self._max_depth)
            id, by_code = message.id, is_modern(message, environ)
            if message.reply or id is None:
                self._handle_notification(message, self._session(environ, who))
                return Response(status=202)
            return self._answered(message, environ, who, call)
        except RpcFailure as failure:
            status = failure.status or (_STATUS.get(failure.code, 200) if by_code else 200)
            return _as_json(rpc.error(id, failure), status)

    def get(self, environ: Mapping[str, Any], who: Who) -> Response:
        """Open the stream of a session; raises Failure and InvalidInput."""
        session = self._named(environ, who)
        return events(self.streams.counted(session.whose, session.outbox.frames()))

    def delete(self, environ: Mapping[str, Any], who: Who) -> Response:
        """End a session; raises Failure and InvalidInput."""
        self.protocol.sessions.close(self._named(environ, who))
        return Response(status=204)

    def close(self) -> None:
        """End all streams and sessions when the server stops."""
        with self._mutex:
            self._closed = True
            listening = list(self._listening)
        for stream in listening:
            stream.close()
        self.protocol.close()

    def _answered(
        self, message: RpcMessage, environ: Mapping[str, Any], who: Who, call: Call
    ) -> Response:
        asked = McpRequest(message, who, is_modern(message, environ), call=call)
        if asked.modern:
            check_modern(message, environ)
            return (
                self._listen(asked, environ)
                if message.method == "subscriptions/listen"
                else self._reply(asked, environ)
            )
        if message.method == "initialize":
            try:
                session = self.protocol.sessions.open(
                    (who.database, who.tenant),
                    who.caller,
                    elicits=takes_questions(message.params.get("capabilities")),
                )
            except RateLimited as error:
                raise self.protocol.failure(error, who.number) from error
            result = rpc.result(message.id, self.protocol.welcome(message))
            return _as_json(result, headers={"Mcp-Session-Id": session.id})
        check_version(environ.get(VERSION_HEADER))
        asked.session = self._session(environ, who)
        return self._reply(asked, environ)

    def _reply(self, asked: McpRequest, environ: Mapping[str, Any]) -> Response:
        self._check_scope(asked)
        token = _progress_token(asked.message)
        if self._may_be_task(asked):
            return self._task_or_answer(asked, environ, token)
        tool = self._streamed(asked, token) if _takes_events(environ) else None
        if tool is None:
            try:
                answer = rpc.result(asked.message.id, self._run(asked))
            except RpcFailure:
                if not asked.is_cancelled:
                    raise
            return _unanswered(environ) if asked.is_cancelled else _as_json(answer)
        work = BackgroundCall(self._app, lambda: self._outcome(asked))
        if asked.session is not None and asked.session.elicits and tool.declared.choice:
            asked.call.ask = asked.session.questions.asks(asked.call, work.send)
        work.start()
        if work.wait(PLAIN_ANSWER_SECONDS):
            return _unanswered(environ) if asked.is_cancelled else _as_json(work.answer)
        return self._progress_of(work, asked, token)

    def _may_be_task(self, asked: McpRequest) -> bool:
        """Return True for a call that may become a task; raises Failure.

        Questions to the user are asked before there is a task.
        """
        if not asked.modern or asked.message.method != "tools/call":
            return False
        return (
            takes_tasks(asked.message.meta)
            and self.protocol.tool(asked.message).declared.choice is None
        )

    def _task_or_answer(
        self, asked: McpRequest, environ: Mapping[str, Any], token: Id | None
    ) -> Response:
        """Answer a call, with a task if it takes longer."""
        work = BackgroundCall(self._app, lambda: self._outcome(asked))
        work.start()
        done = work.wait(PLAIN_ANSWER_SECONDS)
        if not done and token is not None and _takes_events(environ):
            return self._progress_of(work, asked, token, lambda: self._as_task(work, asked))
        task = None if done else self._as_task(work, asked)
        if task is not None:
            return _as_json(task)
        work.wait(None)
        return _unanswered(environ) if asked.is_cancelled else _as_json(work.answer)

    def _as_task(self, work: BackgroundCall, asked: McpRequest) -> Json | None:
        """Make a task of a running call and return the message that says so; None if there is no
        capacity for it.
        """
        tasks = self.protocol.tasks
        writes = self.protocol.tool(asked.message).writes
        task = tasks.begin(TaskOwner.of(asked.who), asked.call, writes=writes)
        if task is None:
            return None
        seed = {**tasks.shown(task), "resultType": "task"}
        work.then(lambda answer: tasks.finish(task, answer))
        return rpc.result(asked.message.id, complete(seed))

    def _progress_of(
        self,
        work: BackgroundCall,
        asked: McpRequest,
        token: Id | None,
        as_task: Callable[[], Json | None] | None = None,
    ) -> Response:
        """Stream the progress of a call; raises Failure."""
        frames = progress_frames(work, asked.call, token, as_task)
        try:
            return events(self._counted(asked, frames))
        except RpcFailure:
            asked.call.stop(CallerLeft())  # the client cannot get the answer
            raise

    def _streamed(self, asked: McpRequest, token: Id | None) -> McpTool | None:
        """Return the tool of a call that may be answered with a stream, because it reports progress
        or asks the user; raises Failure.
        """
        if asked.message.method != "tools/call":
            return None
        asks = asked.session is not None and asked.session.elicits
        if token is None and not asks:
            return None
        tool = self.protocol.tool(asked.message)
        return tool if token is not None or tool.declared.choice is not None else None

    def _check_scope(self, asked: McpRequest) -> None:
        """Raise InsufficientScope, which has a status of HTTP, before a call is begun."""
        if asked.message.method != "tools/call":
            return
        try:
            tool = self.protocol.tool(asked.message)
        except RpcFailure:  # which the call itself answers
            return
        self.protocol.toolbox.check_scope(tool, asked.who)

    def _run(self, asked: McpRequest) -> Json:
        """Answer a request that can be cancelled while it runs."""
        id, session = asked.message.id, asked.session
        if session is None or id is None:
            return self.protocol.answer(asked)
        try:
            session.begin(id, asked.call)
        except RateLimited as error:
            raise self.protocol.failure(error, asked.who.number) from error
        try:
            return self.protocol.answer(asked)
        finally:
            session.end(id)

    def _outcome(self, asked: McpRequest) -> Json:
        """Return the message that answers a request."""
        try:
            return rpc.result(asked.message.id, self._run(asked))
        except RpcFailure as failure:
            return rpc.error(asked.message.id, failure)

    def _listen(self, asked: McpRequest, environ: Mapping[str, Any]) -> Response:
        """Stream changes of resources."""
        notifications = asked.message.params.get("notifications")
        if type(notifications) is not dict:
            raise RpcFailure(rpc.INVALID_PARAMS, "params.notifications must be an object")
        uris = notifications.get("resourceSubscriptions") or []
        if type(uris) is not list or not all(type(uri) is str for uri in uris):
            raise RpcFailure(
                rpc.INVALID_PARAMS,
                "params.notifications.resourceSubscriptions must be an array of texts",
            )
        if len(uris) > MAX_FOLLOWED:
            raise RpcFailure(
                rpc.INVALID_PARAMS, f"a stream can follow at most {MAX_FOLLOWED} resources"
            )
        if not _takes_events(environ):
            raise RpcFailure(
                rpc.INVALID_REQUEST,
                "the response is a stream: the header Accept must allow text/event-stream",
                status=406,
            )
        tasks = self._tasks_named(asked, notifications)
        whose = asked.who.database, asked.who.tenant
        view = self.protocol.event_view(asked) if uris else None
        stream = Listening(
            self.protocol.subscriptions, whose, asked.message.id, self.protocol.tasks, view
        )
        return events(self._counted(asked, self._listened(stream, uris, tasks)))

    def _tasks_named(self, asked: McpRequest, notifications: Json) -> list[McpTask]:
        """Return the tasks that a stream follows; those of others and unknown ones are left out.

        Raises Failure.
        """
        ids = notifications.get("taskIds")
        if ids is None:
            return []
        check_extension(asked.message.meta)
        if type(ids) is not list or not all(type(id) is str for id in ids):
            raise RpcFailure(
                rpc.INVALID_PARAMS, "params.notifications.taskIds must be an array of texts"
            )
        if len(ids) > MAX_FOLLOWED:
            raise RpcFailure(
                rpc.INVALID_PARAMS, f"a stream can follow at most {MAX_FOLLOWED} tasks"
            )
        owner, tasks = TaskOwner.of(asked.who), []
        for id in dict.fromkeys(ids):
            with suppress(RpcFailure):
                tasks.append(self.protocol.tasks.find(id, owner))
        return tasks

    def _listened(
        self, stream: Listening, uris: list[str], tasks: list[McpTask]
    ) -> Iterator[bytes]:
        with self._mutex:
            self._listening.add(stream)
            if self._closed:
                stream.close()
        try:
            yield from stream.frames(uris, tasks)
        finally:
            with self._mutex:
                self._listening.discard(stream)

    def _counted(self, asked: McpRequest, frames: Iterator[bytes]) -> Iterator[bytes]:
        try:
            return self.streams.counted((asked.who.database, asked.who.tenant), frames)
        except RateLimited as error:
            raise self.protocol.failure(error, asked.who.number) from error

    def _named(self, environ: Mapping[str, Any], who: Who) -> McpSession:
        session = self._session(environ, who)
        if session is None:
            raise InvalidInput(
                "missing header Mcp-Session-Id: this request needs a session",
                {"header": "Mcp-Session-Id"},
            )
        return session

    def _session(self, environ: Mapping[str, Any], who: Who) -> McpSession | None:
        """Return the session a request names, or None; raises Failure if it does not exist."""
        id = environ.get(_SESSION)
        return None if id is None else self._known(id, who)

    def _known(self, id: str, who: Who) -> McpSession:
        session = self.protocol.sessions.find(id, (who.database, who.tenant), who.caller)
        if session is None:
            raise RpcFailure(
                rpc.INVALID_REQUEST, "no such session; call initialize for a new one", status=404
            )
        return session

    @staticmethod
    def _handle_notification(message: RpcMessage, session: McpSession | None) -> None:
        if session is not None and message.reply:
            session.questions.reply(message.id, message.result)
        elif session is not None and message.method == "notifications/cancelled":
            session.cancel(message.params.get("requestId"))

    # -- the older pair of paths -------------------------------------------------------------------

    def open_stream(self, who: Who, path: str) -> Response:
        """Open a session whose answers are sent on this stream.

        Its first event is the URL for requests.
        """
        session = self.protocol.sessions.open((who.database, who.tenant), who.caller)

        def frames() -> Iterator[bytes]:
            yield b"event: endpoint\ndata: %b?sessionId=%b\n\n" % (
                path.encode(),
                session.id.encode(),
            )
            yield from session.outbox.frames()

        def end() -> None:
            self.protocol.sessions.close(session)

        try:
            return events(self.streams.counted(session.whose, frames(), end))
        except RateLimited:
            end()
            raise

    def post_message(self, body: bytes, id: str, who: Who) -> Response:
        """Accept a message of such a session, whose answer is sent on its stream; raises
        Failure.
        """
        session = self._known(id, who)
        message = rpc.read_message(body, self._max_depth)
        if message.reply or message.id is None:
            self._handle_notification(message, session)
        elif message.method == "initialize":
            session.outbox.put(rpc.result(message.id, self.protocol.welcome(message)))
        else:
            asked = McpRequest(message, who, modern=False, session=session)
            self._check_scope(asked)
            BackgroundCall(self._app, lambda: self._send_answer(asked, session)).start()
        return Response(status=202)

    def _send_answer(self, asked: McpRequest, session: McpSession) -> Json:
        """Send progress, if wanted, and the answer of a request on the stream of its session."""
        token = _progress_token(asked.message)
        work, began = BackgroundCall(self._app, lambda: self._outcome(asked)), time.monotonic()
        work.start()
        while not work.wait(PROGRESS_SECONDS):
            if token is not None:
                session.outbox.put(progress(token, time.monotonic() - began))
        if not asked.is_cancelled:
            session.outbox.put(work.answer)
        return work.answer


def _takes_events(environ: Mapping[str, Any]) -> bool:
    accept = environ.get("HTTP_ACCEPT", "*/*")
    return EVENTS in accept or "*/*" in accept or "text/*" in accept


def _progress_token(message: RpcMessage) -> Id | None:
    """Return the token with which a client wants to know the progress of a request."""
    token = message.meta.get("progressToken")
    return token if type(token) in (str, int) else None


def _unanswered(environ: Mapping[str, Any]) -> Response:
    """Return the response to a request that its client has cancelled: it has no message."""
    return events(iter(())) if _takes_events(environ) else Response(status=204)


def _as_json(value: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        written(value),
        status=status,
        content_type=JSON,
        headers=dict(headers) if headers else None,
    )
