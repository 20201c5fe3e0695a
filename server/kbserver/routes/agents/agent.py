"""The agent card, at its current and its older path, and the message endpoint that it names."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, current_app, request

from kbcore.state.keys import READER
from kbserver.a2a.agent import Agent, card, signature_of, version_of
from kbserver.answers import JSON, written
from kbserver.http.etags import digested
from kbserver.http.request_context import current_request, runtime
from kbserver.mcp import rpc
from kbserver.mcp.calls import Call
from kbserver.mcp.rpc import RpcFailure
from kbserver.operations import as_object, operation
from kbserver.routes.agents.mcp import message_body, transport, who
from kbserver.routes.knowledge.receipts import KEY_PATH
from kbserver.security.browser_guard import EXTENSION as BROWSER_GUARD
from kbserver.security.browser_guard import BrowserGuard
from kbserver.security.guard import DISABLED, GUARD, Guard, mode_of
from kbserver.security.permissions import PUBLIC, About

_KEEP = "public, max-age=300"
_NO_STORE = "no-store"
"""For a card with a Host that may be an attacker's: no cache may give it to others."""
_NO_HEADERS: Mapping[str, str] = {}


@operation(
    "GET /.well-known/agent-card.json",
    "GET /.well-known/agent.json",
    role=PUBLIC,
    about=About.NOTHING,
    replies=(as_object("The card.", {"type": "object"}),),
    tagged=True,
    tenant=False,
    headers_checked=False,
)
def agent_card() -> Response:
    """Return the agent card: identity and skills of this agent."""
    config = runtime().config
    guard: BrowserGuard = current_app.extensions[BROWSER_GUARD]
    is_known = bool(config.public_url) or guard.is_own_host(request.environ)
    url = config.public_url or request.url_root.rstrip("/")
    agent_card = card(url, transport().protocol.toolbox.tools, mode_of(config) != DISABLED)
    key = runtime().receipt_key
    if key is not None and is_known:  # a Host of an attacker must not be signed
        agent_card["signatures"] = [signature_of(agent_card, key, f"{url}{KEY_PATH}")]
    response = Response(written(agent_card), content_type=JSON)
    response.headers["Cache-Control"] = _KEEP if is_known else _NO_STORE
    if not config.public_url:
        response.vary.add("Host")
    return digested(response) if is_known else response


@operation(
    "POST /a2a",
    role=READER,
    about=About.IMPLIED,
    headers_checked=False,
    listed=False,
    viewed=True,
)
def message() -> Response:
    """Process a message of another agent and return the response."""
    served = transport()
    caller, id = who(), None
    status, headers = 200, _NO_HEADERS
    try:
        asked = rpc.read_message(message_body(), runtime().config.max_json_depth)
        id = asked.id
        if asked.reply or id is None:
            raise RpcFailure(rpc.INVALID_REQUEST, "this takes requests, with an id")
        agent = Agent(served.protocol.toolbox, _count_part)
        answer = rpc.result(
            id,
            agent.answer(
                asked, version_of(request.environ), caller, Call(current_request().caller)
            ),
        )
    except RpcFailure as failure:
        answer, status, headers = rpc.error(id, failure), failure.status or status, failure.headers
    return Response(written(answer), status, headers, content_type=JSON)


def _count_part(tenant: str, is_first: bool) -> None:
    guard: Guard = current_app.extensions[GUARD]
    guard.limits.count_part(current_request(), tenant, is_first=is_first)
