"""Versions of MCP, with and without sessions.

Through 2025-11-25 a client opens a session with `initialize`. From 2026-07-28 on there are no
sessions: every request has its version and capabilities, and its headers repeat parts of its body
for proxies.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from kbserver.mcp.rpc import INVALID_PARAMS, RpcFailure, RpcMessage

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions with sessions, newest first."""

MODERN = ("2026-07-28",)
"""Versions without sessions."""

SUPPORTED = (*MODERN, *LEGACY)

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

TASKS = "io.modelcontextprotocol/tasks"
"""The extension with which clients take tasks."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

VERSION_HEADER = "HTTP_MCP_PROTOCOL_VERSION"
METHOD_HEADER = "HTTP_MCP_METHOD"
NAME_HEADER = "HTTP_MCP_NAME"

NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods with a parameter that the header Mcp-Name repeats."""

_ENCODED = re.compile(r"=\?base64\?(.*)\?=")


def is_modern(message: RpcMessage, environ: Mapping[str, Any]) -> bool:
    """Return True if the body or headers of a request name a protocol version without sessions."""
    return VERSION_KEY in message.meta or environ.get(VERSION_HEADER) in MODERN


def check_modern(message: RpcMessage, environ: Mapping[str, Any]) -> None:
    """Raise Failure if a request without sessions lacks metadata, or its headers differ from its
    body.
    """
    meta = message.meta
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcFailure(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    version = meta[VERSION_KEY]
    if type(version) is not str:
        raise RpcFailure(INVALID_PARAMS, f"params._meta[{VERSION_KEY!r}] must be a text")
    if type(meta[CAPABILITIES_KEY]) is not dict:
        raise RpcFailure(INVALID_PARAMS, f"params._meta[{CAPABILITIES_KEY!r}] must be an object")
    if environ.get(VERSION_HEADER) != version:
        raise RpcFailure(
            HEADER_MISMATCH, f"header MCP-Protocol-Version must be {version}, as the body has it"
        )
    if environ.get(METHOD_HEADER) != message.method:
        raise RpcFailure(HEADER_MISMATCH, "header Mcp-Method must be the method of the body")
    name = NAMED.get(message.method)
    name_in_body = None if name is None else message.params.get(name)
    if name_in_body is not None and decoded(environ.get(NAME_HEADER)) != name_in_body:
        raise RpcFailure(HEADER_MISMATCH, f"header Mcp-Name must be params.{name} of the body")
    check_version(version, MODERN)


def check_version(version: str | None, known: tuple[str, ...] = SUPPORTED) -> None:
    """Raise Failure, with the supported versions, for an unsupported version."""
    if version is not None and version not in known:
        data = {"supported": list(SUPPORTED), "requested": version}
        raise RpcFailure(
            UNSUPPORTED_VERSION,
            f"protocol version {version[:40]} is not supported",
            data,
            status=400,
        )


def negotiated(version: Any) -> str:
    """Return the version of a new session: the requested one, or the newest with sessions."""
    return version if version in LEGACY else LEGACY[0]


def decoded(value: str | None) -> str | None:
    """Return the text of a header that may be in base64; None if it is absent or malformed."""
    match = None if value is None else _ENCODED.fullmatch(value)
    if match is None:
        return value
    try:
        raw = base64.b64decode(match[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == match[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def takes_tasks(meta: Mapping[str, Any]) -> bool:
    """Return True if the metadata of a request declares the extension."""
    capabilities = meta.get(CAPABILITIES_KEY)
    extensions = capabilities.get("extensions") if type(capabilities) is dict else None
    return type(extensions) is dict and type(extensions.get(TASKS)) is dict


def check_extension(meta: Mapping[str, Any]) -> None:
    """Raise RpcFailure if a request about tasks does not declare the extension."""
    if not takes_tasks(meta):
        raise RpcFailure(
            MISSING_CAPABILITY,
            f"the client capability {TASKS} is missing",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
            status=400,
        )
