"""The ways in: POST, GET and DELETE of one address, and the older pair of addresses.

A call that is to report its progress is worked on beside its request, which waits a moment for it: if it is done by then, as
most are, the answer is plain JSON, else a stream of events that ends with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from kbcore.errors import InvalidInput, RateLimited
from kbserver.answers import JSON
from kbserver.mcp import rpc
from kbserver.mcp.calls import Call, Fail, Who
from kbserver.mcp.guard import Guard
from kbserver.mcp.protocol import Protocol, Request
from kbserver.mcp.resources.subscriptions import MOST_FOLLOWED
from kbserver.mcp.rpc import Failure, Json, Message
from kbserver.mcp.sessions import Session
from kbserver.mcp.streams import (
    EVENTS,
    PROGRESS_SECONDS,
    Beside,
    Listening,
    Streams,
    events,
    followed_by,
    progress,
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

MOST_BODY_BYTES = 4 << 20
"""Largest message: what the protocol's own libraries take."""

PROMPT_SECONDS = 0.5
"""A call that takes longer reports its progress, if that is wanted."""

_SESSION = "HTTP_MCP_SESSION_ID"

_STATUS = {
    rpc.PARSE_ERROR: 400,
    rpc.INVALID_REQUEST: 400,
    rpc.INVALID_PARAMS: 400,
    rpc.METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
}
"""HTTP statuses of errors in protocol versions without sessions; in older versions valid requests always get 200."""


class Transport:
    """The HTTP transport of MCP, one per application; the routes call it."""

    def __init__(self, app: Flask, runtime: Runtime, fail: Fail) -> None:
        self.protocol = Protocol(runtime, fail)
        self.guard = Guard(runtime.config)
        self.streams = Streams()
        self.most_body_bytes = min(MOST_BODY_BYTES, runtime.config.max_body_bytes)
        self._max_depth = runtime.config.max_json_depth
        self._app = app
        self._mutex = threading.Lock()
        self._listening: set[Listening] = set()
        self._closed = False

    # -- one address --------------------------------------------------------------------------------------------------

    def post(self, body: bytes, environ: Mapping[str, Any], who: Who, call: Call) -> Response:
        """Answer one message."""
        id, by_code = None, True
        try:
            message = rpc.read_message(body, self._max_depth)
            id, by_code = message.id, is_modern(message, environ)
            if message.reply or id is None:
                self._noticed(message, self._session(environ, who))
                return Response(status=202)
            return self._answered(message, environ, who, call)
        except Failure as failure:
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
        """End every stream in good order: the server is stopping."""
        with self._mutex:
            self._closed = True
            listening = list(self._listening)
        for stream in listening:
            stream.close()
        self.protocol.sessions.close_all()

    def _answered(
        self, message: Message, environ: Mapping[str, Any], who: Who, call: Call
    ) -> Response:
        asked = Request(message, who, is_modern(message, environ), call=call)
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

    def _reply(self, asked: Request, environ: Mapping[str, Any]) -> Response:
        token = asked.message.meta.get("progressToken")
        if (
            type(token) not in (str, int)
            or asked.message.method != "tools/call"
            or not _takes_events(environ)
        ):
            return _as_json(rpc.result(asked.message.id, self._run(asked)))
        self.protocol.tool(asked.message)
        work = Beside(self._app, lambda: self._outcome(asked))
        if work.wait(PROMPT_SECONDS):
            return _as_json(work.found)
        return events(self._counted(asked, followed_by(work, asked.call, token)))

    def _run(self, asked: Request) -> Json:
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

    def _outcome(self, asked: Request) -> Json:
        """The whole message that answers a request."""
        try:
            return rpc.result(asked.message.id, self._run(asked))
        except Failure as failure:
            return rpc.error(asked.message.id, failure)

    def _listen(self, asked: Request, environ: Mapping[str, Any]) -> Response:
        """Tell of changes for as long as the stream is open."""
        wanted = asked.message.params.get("notifications")
        if type(wanted) is not dict:
            raise Failure(rpc.INVALID_PARAMS, "params.notifications must be an object")
        uris = wanted.get("resourceSubscriptions") or []
        if type(uris) is not list or not all(type(uri) is str for uri in uris):
            raise Failure(
                rpc.INVALID_PARAMS,
                "params.notifications.resourceSubscriptions must be an array of texts",
            )
        if len(uris) > MOST_FOLLOWED:
            raise Failure(
                rpc.INVALID_PARAMS, f"one stream follows at most {MOST_FOLLOWED} resources"
            )
        if not _takes_events(environ):
            raise Failure(
                rpc.INVALID_REQUEST,
                "the answer is a stream: Accept must allow text/event-stream",
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

    def _counted(self, asked: Request, frames: Iterator[bytes]) -> Iterator[bytes]:
        try:
            return self.streams.counted((asked.who.database, asked.who.tenant), frames)
        except RateLimited as error:
            raise self.protocol.failure(error, asked.who.number) from error

    def _named(self, environ: Mapping[str, Any], who: Who) -> Session:
        session = self._session(environ, who)
        if session is None:
            raise InvalidInput(
                "this is for clients with a session: header Mcp-Session-Id",
                {"header": "Mcp-Session-Id"},
            )
        return session

    def _session(self, environ: Mapping[str, Any], who: Who) -> Session | None:
        """The session a request names, None where it names none; raises Failure for one that is not, or no longer."""
        id = environ.get(_SESSION)
        return None if id is None else self._known(id, who)

    def _known(self, id: str, who: Who) -> Session:
        session = self.protocol.sessions.find(id, (who.database, who.tenant))
        if session is None:
            raise Failure(
                rpc.INVALID_REQUEST, "no such session; call initialize for a new one", status=404
            )
        return session

    @staticmethod
    def _noticed(message: Message, session: Session | None) -> None:
        if session is not None and message.method == "notifications/cancelled":
            session.cancel(message.params.get("requestId"))

    # -- the older pair of addresses ----------------------------------------------------------------------------------

    def open_stream(self, who: Who, path: str) -> Response:
        """Open a session whose answers come on this stream; its first event says where requests are posted."""
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
        """Take a message of such a session; its answer comes on the stream. Raises Failure."""
        session = self._known(id, who)
        message = rpc.read_message(body, self._max_depth)
        if message.reply or message.id is None:
            self._noticed(message, session)
        elif message.method == "initialize":
            session.outbox.put(rpc.result(message.id, self.protocol.welcome(message)))
        else:
            asked = Request(message, who, modern=False, session=session)
            Beside(self._app, lambda: self._sent(asked, session))
        return Response(status=202)

    def _sent(self, asked: Request, session: Session) -> Json:
        """Put the answer on the stream of the session, and before it how long it takes, if that is wanted."""
        token = asked.message.meta.get("progressToken")
        work, began = Beside(self._app, lambda: self._outcome(asked)), time.monotonic()
        while not work.wait(PROGRESS_SECONDS):
            if type(token) in (str, int):
                session.outbox.put(progress(token, time.monotonic() - began))
        if asked.call.stopped is None:
            session.outbox.put(work.found)
        return work.found


def _takes_events(environ: Mapping[str, Any]) -> bool:
    accept = environ.get("HTTP_ACCEPT", "*/*")
    return EVENTS in accept or "*/*" in accept or "text/*" in accept


def _as_json(value: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        rpc.written(value),
        status=status,
        content_type=JSON,
        headers=dict(headers) if headers else None,
    )
