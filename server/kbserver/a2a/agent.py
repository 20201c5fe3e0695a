"""Agent2Agent protocol (A2A): the agent card, and messages that run operations.

A message has data parts with an operation and its arguments, or text parts in the rule language.
The answer is a message with a data part. There are no tasks: every message is answered at once.
Versions 1.0 and 0.3 are supported, each with its names and shapes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbcore import __version__
from kbcore.errors import Forbidden, InvalidInput
from kbcore.state.names import is_name
from kbplanner.syntax.textform import literal_from_text
from kbserver.mcp.calls import Call, Toolbox, Who
from kbserver.mcp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Failure, Json, Message
from kbserver.mcp.tools import Tool, tools_of
from kbserver.schemas.pace import reading

VERSIONS = ("1.0", "0.3")

TASK_NOT_FOUND, UNSUPPORTED, BAD_VERSION = -32001, -32004, -32009

_REASONS = {
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    BAD_VERSION: "VERSION_NOT_SUPPORTED",
    INVALID_PARAMS: "INVALID_PARAMS",
    METHOD_NOT_FOUND: "METHOD_NOT_FOUND",
}

_SEND = {"SendMessage": "1.0", "message/send": "0.3"}
_GET_TASK = frozenset(
    ("GetTask", "tasks/get", "CancelTask", "tasks/cancel", "SubscribeToTask", "tasks/resubscribe")
)
_REFUSED = frozenset(
    (
        *("SendStreamingMessage", "ListTasks", "GetExtendedAgentCard"),
        *(
            "CreateTaskPushNotificationConfig",
            "GetTaskPushNotificationConfig",
            "ListTaskPushNotificationConfigs",
        ),
        "DeleteTaskPushNotificationConfig",
        *("message/stream", "agent/getAuthenticatedExtendedCard"),
        *(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete")),
    )
)
"""Methods of the protocol that this agent does not support."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill of the agent card, with an example request."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    example: str


SKILLS = (
    Skill("assert", "Store facts and rules", "Stores a fact (tell), many (bulk_assert) or rules (teach).", ("write",),
          '{"op": "tell", "predicate": "parent", "args": ["ann", "bob"]}'),
    Skill("infer", "Answer goals", "Answers goals from facts and rules by backward chaining (ask).", ("reasoning",),
          '{"op": "ask", "predicate": "ancestor", "args": ["ann", "?who"]}'),
    Skill("query", "Look up facts", "Matches stored facts (query), counts and aggregates them (aggregate).", ("read",),
          '{"op": "query", "predicate": "parent", "args": ["?x", "bob"]}'),
    Skill("explain", "Explain conclusions", "Explains step by step why a conclusion holds (explain).",
          ("reasoning", "proof"),
          '{"op": "explain", "text": "ancestor(ann, cid)"}'),
    Skill("context-window", "Choose context", "Chooses the facts that matter for a prompt (context, ingest).", ("memory",),
          '{"op": "context", "maxFacts": 20}'),
    Skill("context-diff", "Report changes", "Reports the changes since a session's last window (context_diff).", ("memory",),
          '{"op": "context_diff", "sessionId": "s1"}'),
    Skill("scopes", "Explore hypotheses", "Forks, compares and merges scopes (fork_scope, diff_scope).", ("what-if",),
          '{"op": "fork_scope", "targetScope": "what-if"}'),
)  # fmt: skip


SYNTHESIZE = Skill(
    "synthesize", "Answer in words", "Answers questions in words from the knowledge base (synthesize).", ("language",),
    '{"op": "synthesize", "question": "Who is Cid descended from?"}',
)  # fmt: skip
"""Offered only if a language model is configured."""


_SECURED: Json = {
    "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
}


def card(url: str, model: bool = False, keys: bool = False) -> Json:
    """Return the agent card for a server at `url`, for clients of versions 1.0 and 0.3.

    `model`: a language model is configured; `keys`: messages need an API key.
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
            for skill in (*SKILLS, *((SYNTHESIZE,) if model else ()))
        ],
        "url": endpoint,
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        **(_SECURED if keys else {}),
    }


class Agent:
    """Answers A2A messages with the MCP tools."""

    def __init__(self, toolbox: Toolbox, model: bool) -> None:
        self._toolbox = toolbox
        self._tools = tools_of("all", model)

    def answer(self, message: Message, version: str | None, who: Who, call: Call) -> Json:
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
        asked = [
            _operation(part, f"params.message.parts[{index}]", self._tools)
            for index, part in enumerate(parts)
        ]
        outcomes = []
        for name, arguments in asked:
            done, outcome = self._toolbox.attempt(self._tools[name], arguments, who, call)
            outcomes.append({"op": name, "result" if done else "error": outcome})
            if not done:
                break
        return outcomes[0] if len(asked) == 1 else {"results": outcomes}


def failure(code: int, message: str) -> Failure:
    """Return an error with its reason in the protocol."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": _REASONS[code],
        "domain": "a2a-protocol.org",
    }
    return Failure(code, message, [info])


def _operation(part: Any, path: str, tools: Mapping[str, Tool]) -> tuple[str, Json]:
    """Return the name of the tool that a part requests and its arguments; raises Failure."""
    data = part.get("data") if type(part) is dict else None
    text = part.get("text") if type(part) is dict else None
    if type(data) is dict:
        name = data.get("op")
        if type(name) is not str or name not in tools:
            raise failure(INVALID_PARAMS, f"{path}.data.op must be one of {', '.join(tools)}")
        return name, {key: value for key, value in data.items() if key != "op"}
    if type(text) is str and text.strip():
        return _text_operation(text.strip())
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
