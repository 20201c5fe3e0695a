"""Agent2Agent protocol (A2A): the agent card, and messages that run operations.

A message has data parts with an operation and its arguments, or text parts in the rule language.
The answer is a message with a data part. There are no tasks: every message is answered at once.
Versions 1.0 and 0.3 are supported, each with its names and shapes. Each part of a message counts
against the rate limits like a request.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbcore import __version__
from kbcore.errors import Forbidden, InvalidInput, RateLimited
from kbcore.receipts.signing import ReceiptKey
from kbcore.state.names import is_name
from kbplanner.syntax.textform import literal_from_text
from kbserver.mcp.calls import Call, Toolbox, Who
from kbserver.mcp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Json, RpcFailure, RpcMessage
from kbserver.mcp.tools import McpTool
from kbserver.pace import reading

VERSIONS = ("1.0", "0.3")

TASK_NOT_FOUND, UNSUPPORTED, BAD_VERSION = -32001, -32004, -32009

TOO_MANY_REQUESTS = -32000
"""Error code of a part over a rate limit: the protocol has none, and this one is free for
servers.
"""

MAX_PARTS = 64
"""Maximum number of parts in a message."""

CountPart = Callable[[str, bool], None]
"""Counts a part for a tenant, and whether it is the first of its message; raises RateLimited."""

_REASONS = {
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    BAD_VERSION: "VERSION_NOT_SUPPORTED",
    TOO_MANY_REQUESTS: "RATE_LIMITED",
    INVALID_PARAMS: "INVALID_PARAMS",
    METHOD_NOT_FOUND: "METHOD_NOT_FOUND",
}

_SEND = {"SendMessage": "1.0", "message/send": "0.3"}
_GET_TASK = frozenset(
    ("GetTask", "tasks/get", "CancelTask", "tasks/cancel", "SubscribeToTask", "tasks/resubscribe")
)
_REFUSED = frozenset(
    (
        "SendStreamingMessage",
        "ListTasks",
        "GetExtendedAgentCard",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "message/stream",
        "agent/getAuthenticatedExtendedCard",
        *(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete")),
    )
)
"""Methods of the protocol that this agent does not support."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill of the agent card, with an example request; `tools` are those that it needs."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    example: str
    tools: tuple[str, ...]


SKILLS = (
    Skill("assert", "Store facts and rules", "Stores a fact (tell), many (bulk_assert) or rules (teach).", ("write",),
          '{"op": "tell", "predicate": "parent", "args": ["ann", "bob"]}',
          ("tell", "bulk_assert", "teach")),
    Skill("infer", "Answer goals", "Answers goals from facts and rules by backward chaining (ask).", ("reasoning",),
          '{"op": "ask", "predicate": "ancestor", "args": ["ann", "?who"]}',
          ("ask",)),
    Skill("query", "Look up facts", "Matches stored facts (query), counts and aggregates them (aggregate).", ("read",),
          '{"op": "query", "predicate": "parent", "args": ["?x", "bob"]}',
          ("query", "aggregate")),
    Skill("explain", "Explain conclusions", "Explains step by step why a conclusion holds (explain).",
          ("reasoning", "proof"),
          '{"op": "explain", "text": "ancestor(ann, cid)"}',
          ("explain",)),
    Skill("context-window", "Choose context", "Chooses the facts that matter for a prompt (context, ingest).", ("memory",),
          '{"op": "context", "maxFacts": 20}',
          ("context", "ingest")),
    Skill("context-diff", "Report changes", "Reports the changes since a session's last window (context_diff).", ("memory",),
          '{"op": "context_diff", "sessionId": "s1"}',
          ("context_diff",)),
    Skill("scopes", "Explore hypotheses", "Forks, compares and merges scopes (fork_scope, diff_scope).", ("what-if",),
          '{"op": "fork_scope", "targetScope": "what-if"}',
          ("fork_scope", "diff_scope", "merge_scope")),
    Skill("synthesize", "Answer in words", "Answers questions in words from the knowledge base (synthesize).",
          ("language",),
          '{"op": "synthesize", "question": "Who is Cid descended from?"}',
          ("synthesize",)),
)  # fmt: skip


_SECURED: Json = {
    "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
}


def card(url: str, tools: Container[str], keys: bool = False) -> Json:
    """Return the agent card for a server at `url`, for clients of versions 1.0 and 0.3.

    `tools`: names of the tools that messages may call; skills that need others are left out;
    `keys`: messages need an API key.
    """
    endpoint = f"{url}/a2a"
    return {
        "name": "kbcore",
        "description": "A knowledge base: stores facts and rules, answers goals with proofs, chooses context for prompts.",
        "version": __version__,
        "supportedInterfaces": [
            {"url": endpoint, "protocolBinding": "JSONRPC", "protocolVersion": version}
            for version in VERSIONS
        ],
        "capabilities": {
            "streaming": False,
            "pushNotifications": False,
            "extendedAgentCard": False,
        },
        "defaultInputModes": ["application/json", "text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": [
            {
                "id": skill.id,
                "name": skill.name,
                "description": skill.description,
                "tags": list(skill.tags),
                "examples": [skill.example],
            }
            for skill in SKILLS
            if all(tool in tools for tool in skill.tools)
        ],
        "url": endpoint,
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        **(_SECURED if keys else {}),
    }


_OLDER = frozenset(("url", "protocolVersion", "preferredTransport"))
"""Members of a card that version 1.0 does not have."""


def signature_of(card: Json, key: ReceiptKey, key_url: str) -> Json:
    """Return the signature of a card (A2A 1.0, section 8.4): a JSON Web Signature of its members of
    version 1.0 in canonical form, without empty ones.
    """
    signed = {name: value for name, value in card.items() if name not in _OLDER}
    return key.jws(_without_empty(signed), {"typ": "JOSE", "jku": key_url})


def _without_empty(value: Any) -> Any:
    """Return JSON without empty texts, arrays and objects, which cards in protobuf do not have."""
    if isinstance(value, dict):
        members = {name: _without_empty(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in ("", [], {})}
    if isinstance(value, list):
        return [item for item in map(_without_empty, value) if item not in ("", [], {})]
    return value


class Agent:
    """Answers A2A messages with the MCP tools; `count_part` counts each part that is carried
    out.
    """

    def __init__(self, toolbox: Toolbox, count_part: CountPart) -> None:
        self._toolbox = toolbox
        self._count_part = count_part

    def answer(self, message: RpcMessage, version: str | None, who: Who, call: Call) -> Json:
        """Return the result of a request; raises Failure. `version` is the A2A version of the
        client, if sent.
        """
        if version is not None and ".".join(version.split(".")[:2]) not in VERSIONS:
            raise failure(
                BAD_VERSION,
                f"version {version[:20]} is not supported; supported: {' and '.join(VERSIONS)}",
            )
        method = message.method
        if method in _GET_TASK:
            raise failure(
                TASK_NOT_FOUND, "this agent has no tasks: every message is answered at once"
            )
        if method in _REFUSED:
            raise failure(UNSUPPORTED, f"{method} is not supported; see the agent card")
        if method not in _SEND:
            raise failure(METHOD_NOT_FOUND, f"unknown method {method[:64]!r}")
        tenant = message.params.get("tenant") or who.tenant
        if type(tenant) is not str or not is_name(tenant):
            raise failure(INVALID_PARAMS, "params.tenant is not a valid name")
        if who.principal is not None and not who.principal.may_touch(who.database, tenant):
            raise Forbidden(
                f"'{who.principal.name}' may not touch tenant '{tenant}' of database '{who.database}'"
            )
        content = message.params.get("message")
        if type(content) is not dict:
            raise failure(INVALID_PARAMS, "params.message must be an object")
        outcome = self._run(content.get("parts"), replace(who, tenant=tenant), call)
        return _reply(outcome, content.get("contextId"), _SEND[method])

    def _run(self, parts: Any, who: Who, call: Call) -> Json:
        """Run the operations of the parts of a message in order; a single part returns its own
        result.
        """
        if type(parts) is not list or not parts:
            raise failure(INVALID_PARAMS, "params.message.parts must be a non-empty array")
        if len(parts) > MAX_PARTS:
            raise failure(
                INVALID_PARAMS,
                f"params.message.parts has {len(parts)} parts; a message has at most {MAX_PARTS}",
            )
        tools = self._toolbox.tools
        asked = [
            _operation(part, f"params.message.parts[{index}]", tools)
            for index, part in enumerate(parts)
        ]
        outcomes: list[Json] = []
        for name, arguments in asked:
            try:
                self._count_part(who.tenant, not outcomes)
            except RateLimited as error:
                raise self._refusal(error, who, outcomes, len(asked)) from error
            done, outcome, notes = self._toolbox.noted(tools[name], arguments, who, call)
            warnings = {"warnings": notes.texts} if notes.texts else {}
            outcomes.append({"op": name, "result" if done else "error": outcome, **warnings})
            if not done:
                break
        return outcomes[0] if len(asked) == 1 else {"results": outcomes}

    def _refusal(
        self, error: RateLimited, who: Who, outcomes: list[Json], parts: int
    ) -> RpcFailure:
        """Return the error of a message of which a part is over a rate limit.

        It has the results of the parts before, because what these stored stays stored.
        """
        answer = self._toolbox.fail(error, who.number)
        done = len(outcomes)
        refused = failure(
            TOO_MANY_REQUESTS,
            f"{answer.message}; {done} of {parts} parts were carried out, and the rest was not",
        )
        refused.data += [
            {"@type": _STRUCT, "value": {**(answer.details or {}), "results": outcomes}},
        ]
        refused.status, refused.headers = answer.status, answer.headers
        return refused


_STRUCT = "type.googleapis.com/google.protobuf.Struct"


def failure(code: int, message: str) -> RpcFailure:
    """Return an error with its reason in the protocol."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": _REASONS[code],
        "domain": "a2a-protocol.org",
    }
    return RpcFailure(code, message, [info])


def _operation(part: Any, path: str, tools: Mapping[str, McpTool]) -> tuple[str, Json]:
    """Return the name of the tool that a part requests and its arguments; raises Failure."""
    data = part.get("data") if type(part) is dict else None
    text = part.get("text") if type(part) is dict else None
    if type(data) is dict:
        name = data.get("op")
        if type(name) is not str or name not in tools:
            raise failure(INVALID_PARAMS, f"{path}.data.op must be one of {', '.join(tools)}")
        return name, {key: value for key, value in data.items() if key != "op"}
    if type(text) is str and text.strip():
        name, arguments = _text_operation(text.strip())
        if name not in tools:
            raise failure(
                INVALID_PARAMS, f"{path}.text needs the tool {name}, which is not offered"
            )
        return name, arguments
    raise failure(INVALID_PARAMS, f"{path} must have `data`, an object with `op`, or `text`")


def _text_operation(text: str) -> tuple[str, Json]:
    """Return the operation of a text: `ask` for a goal (`?-` in front, or variables without a
    rule), else `ingest`.
    """
    if not text.startswith("?-") and ("?" not in text or ":-" in text):
        return "ingest", {"text": text}
    try:
        with reading({}):
            literal_from_text(text)
    except InvalidInput as error:
        raise failure(INVALID_PARAMS, f"the text is not a goal: {error.message}") from error
    return "ask", {"text": text}


def _reply(outcome: Json, context: Any, version: str) -> Json:
    reply: Json = {"messageId": str(uuid.uuid4())}
    if type(context) is str:
        reply["contextId"] = context
    if version == "0.3":
        return {
            "kind": "message",
            **reply,
            "role": "agent",
            "parts": [{"kind": "data", "data": outcome}],
        }
    return {
        "message": {
            **reply,
            "role": "ROLE_AGENT",
            "parts": [{"data": outcome, "mediaType": "application/json"}],
        }
    }


def version_of(environ: Mapping[str, Any]) -> str | None:
    """Return the protocol version in the headers of a request, or None."""
    return environ.get("HTTP_A2A_VERSION") or None
