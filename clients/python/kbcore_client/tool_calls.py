"""Tools of a server in the forms of model APIs, and results of their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from typing import Literal as OneOf

from kbcore_client.errors import InvalidInput
from kbcore_client.requests import Request
from kbtypes.records import Json

ToolFormat = OneOf["openai", "openai-responses", "anthropic", "mcp"]
"""The API that tools are for: `openai` chat completions, `openai-responses`, `anthropic` messages,
or `mcp`.
"""


def _function(tool: Json) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["inputSchema"],
    }


FORMATS: Mapping[str, Callable[[Json], dict[str, Any]]] = {
    "openai": lambda tool: {"type": "function", "function": _function(tool)},
    "openai-responses": lambda tool: {"type": "function", **_function(tool)},
    "anthropic": lambda tool: {
        "name": tool["name"],
        "description": tool["description"],
        "input_schema": tool["inputSchema"],
    },
    "mcp": dict,
}
"""Conversions of a tool of MCP to each format."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool: its text for a model, and its data (None if it is no JSON object).

    A call that failed, for example because of a mistake in a goal, has `is_error` and the error as
    text, so that the model can correct its call. `parts` are the parts of the text: the result, and
    remarks such as the names of arguments that were ignored.
    """

    text: str
    is_error: bool
    data: dict[str, Any] | None
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Json) -> ToolResult:
        """Return the result that an answer of MCP describes; raise the error of a refused call."""
        if "error" in answer:
            raise InvalidInput(answer["error"]["message"])
        result = answer["result"]
        parts = tuple(part["text"] for part in result["content"] if part["type"] == "text")
        data = result.get("structuredContent")
        return cls("\n".join(parts), result.get("isError", False), data, parts)


@cache
def definitions() -> Mapping[str, dict[str, Any]]:
    """Return the tools of `MCP_TOOLS=default` and `memory` by name, as MCP shows them."""
    text = (files("kbcore_client") / "tools.json").read_text(encoding="utf-8")
    return {each["name"]: each for each in json.loads(text)}


def is_read(name: str) -> bool:
    """Return True if a tool is known to change nothing."""
    return name in definitions() and bool(definitions()[name]["annotations"].get("readOnlyHint"))


def converted(tools: list[Json], format: str) -> list[dict[str, Any]]:
    """Return tools of MCP in a format; raise InvalidInput."""
    convert = FORMATS.get(format)
    if convert is None:
        raise InvalidInput.at("format", f"must be one of {', '.join(FORMATS)}")
    return [convert(tool) for tool in tools]


def arguments_of(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return the arguments of a call, which some APIs give as the text of a JSON object; raise
    InvalidInput.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise InvalidInput.at("arguments", f"is no JSON: {error}") from None
    if not isinstance(arguments, Mapping):
        raise InvalidInput.at("arguments", "must be a JSON object")
    return arguments


def message(method: str, params: Mapping[str, Any], *, writes: bool) -> Request:
    """Return a request of MCP without a session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    # MCP has no idempotency keys, so a write whose answer is lost is not sent again.
    return Request("/mcp", body, writes=writes, keyed=False)
