"""HTTP transport of MCP: POST, GET and DELETE of one path, and the older pair of paths.

A call that reports progress runs in the background. If it ends within PLAIN_ANSWER_SECONDS, as most
do, the response is plain JSON, else a stream of events that ends with the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from kbcore.errors import InvalidInput, RateLimited
from kbserver.answers import JSON, written
from kbserver.http.json_body import text_limit
from kbserver.mcp import rpc
from kbserver.mcp.calls import Call, Fail, Who
from kbserver.mcp.protocol import McpRequest, Protocol
from kbserver.mcp.resources.subscriptions import MAX_FOLLOWED
from kbserver.mcp.rpc import Json, RpcFailure, RpcMessage
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
from kbserver.mcp.versions import (
    HEADER_MISMATCH,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    check_modern,
    check_version,
    is_modern,
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
        self.protocol.sessions.close_all()

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
                session = self.protocol.sessions.open((who.database, who.tenant))
            except RateLimited as error:
                raise self.protocol.failure(error, who.number) from error
            result = rpc.result(message.id, self.protocol.welcome(message))
            return _as_json(result, headers={"Mcp-Session-Id": session.id})
        check_version(environ.get(VERSION_HEADER))
        asked.session = self._session(environ, who)
        return self._reply(asked, environ)

    def _reply(self, asked: McpRequest, environ: Mapping[str, Any]) -> Response:
        token = asked.message.meta.get("progressToken")
        if (
            type(token) not in (str, int)
            or asked.message.method != "tools/call"
            or not _takes_events(environ)
        ):
            try:
                answer = rpc.result(asked.message.id, self._run(asked))
            except RpcFailure:
                if not asked.is_cancelled:
                    raise
            return _unanswered(environ) if asked.is_cancelled else _as_json(answer)
        self.protocol.tool(asked.message)
        work = BackgroundCall(self._app, lambda: self._outcome(asked))
        if work.wait(PLAIN_ANSWER_SECONDS):
            return _unanswered(environ) if asked.is_cancelled else _as_json(work.answer)
        return events(self._counted(asked, progress_frames(work, asked.call, token)))

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
        whose = asked.who.database, asked.who.tenant
        stream = Listening(self.protocol.subscriptions, whose, asked.message.id)
        return events(self._counted(asked, self._listened(stream, uris)))

    def _listened(self, stream: Listening, uris: list[str]) -> Iterator[bytes]:
        with self._mutex:
            self._listening.add(stream)
            if self._closed:
                stream.close()
        try:
            yield from stream.frames(uris)
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
        session = self.protocol.sessions.find(id, (who.database, who.tenant))
        if session is None:
            raise RpcFailure(
                rpc.INVALID_REQUEST, "no such session; call initialize for a new one", status=404
            )
        return session

    @staticmethod
    def _handle_notification(message: RpcMessage, session: McpSession | None) -> None:
        if session is not None and message.method == "notifications/cancelled":
            session.cancel(message.params.get("requestId"))

    # -- the older pair of paths -------------------------------------------------------------------

    def open_stream(self, who: Who, path: str) -> Response:
        """Open a session whose answers are sent on this stream.

        Its first event is the URL for requests.
        """
        session = self.protocol.sessions.open((who.database, who.tenant))

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
            BackgroundCall(self._app, lambda: self._send_answer(asked, session))
        return Response(status=202)

    def _send_answer(self, asked: McpRequest, session: McpSession) -> Json:
        """Send progress, if wanted, and the answer of a request on the stream of its session."""
        token = asked.message.meta.get("progressToken")
        work, began = BackgroundCall(self._app, lambda: self._outcome(asked)), time.monotonic()
        while not work.wait(PROGRESS_SECONDS):
            if type(token) in (str, int):
                session.outbox.put(progress(token, time.monotonic() - began))
        if not asked.is_cancelled:
            session.outbox.put(work.answer)
        return work.answer


def _takes_events(environ: Mapping[str, Any]) -> bool:
    accept = environ.get("HTTP_ACCEPT", "*/*")
    return EVENTS in accept or "*/*" in accept or "text/*" in accept


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
