"""MCP endpoints: one address for both protocol versions, and the older pair of addresses."""

from __future__ import annotations

from typing import Any

from flask import Response, current_app, request

from kbcore.state.keys import READER
from kbserver.answers import written
from kbserver.http.json_body import read_body
from kbserver.http.request_context import (
    DEFAULT,
    bodies,
    current_request,
    read_context,
    runtime,
    view_asked,
)
from kbserver.mcp import rpc
from kbserver.mcp.calls import Call, Who
from kbserver.mcp.rpc import RpcFailure
from kbserver.mcp.transport import Transport
from kbserver.operations import operation
from kbserver.schemas.requests import check_media
from kbserver.security.limits import address_of
from kbserver.security.permissions import About

EXTENSION = "kbcore.mcp"
"""The key of the MCP transport in the extensions of an application."""

MESSAGES = "/mcp/messages"


_MCP: dict[str, Any] = {
    "role": READER,
    "about": About.IMPLIED,
    "headers_checked": False,
    "listed": False,
    "viewed": True,
}


@operation("POST /mcp", **_MCP)
def post() -> Response:
    """Answer an MCP message."""
    return transport().post(message_body(), request.environ, who(), Call(current_request().caller))


@operation("GET /mcp", **_MCP)
def stream() -> Response:
    """Open the stream of a session."""
    return transport().get(request.environ, who())


@operation("DELETE /mcp", **_MCP)
def end() -> Response:
    """End a session."""
    return transport().delete(request.environ, who())


@operation("GET /mcp/sse", **_MCP)
def older_stream() -> Response:
    """Open a stream for a client of protocol version 2024-11-05."""
    return transport().open_stream(who(), MESSAGES)


@operation("POST /mcp/messages", **_MCP)
def older_post() -> Response:
    """Accept a message of a client of protocol version 2024-11-05."""
    return transport().post_message(message_body(), request.args.get("sessionId", ""), who())


def failed(failure: RpcFailure) -> Response:
    """Return the error response for a request without a message to answer."""
    return Response(
        written(rpc.error(None, failure)),
        status=failure.status or 400,
        content_type="application/json",
    )


def transport() -> Transport:
    """Return the MCP transport of this application."""
    served: Transport = current_app.extensions[EXTENSION]
    return served


def who() -> Who:
    """Return the database, tenant and caller of the request; the default tenant is `default`."""
    context, served = read_context(DEFAULT), current_request()
    return Who(
        context.database,
        context.tenant,
        served.id,
        context.transaction,
        context.strict,
        served.principal,
        address_of(request.environ, runtime().config.forwarded_hops),
        view_asked(served),
    )


def message_body() -> bytes:
    """Read the body of a message request; raises UnsupportedMedia, TooLarge and TooManyBodies."""
    check_media(request.environ)
    return read_body(request.environ, transport().body_limit, bodies())
