"""Tools for language models: the same ones that the server offers by MCP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbcore_client import tool_calls
from kbcore_client._sync.handle import Handle
from kbcore_client.tool_calls import ToolFormat, ToolResult


class Tools(Handle):
    """Tools of a knowledge base in the forms that model APIs take."""

    def tools(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:
        """Return the definitions of the tools for the argument `tools` of a model API.

        `format` is `openai` for chat completions, `openai-responses`, `anthropic`, or `mcp`. Raises
        InvalidInput.
        """
        message = tool_calls.message("tools/list", {}, writes=False)
        reply = self._connection.send(message, self._destination)
        return tool_calls.converted(reply.json()["result"]["tools"], format)

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Carry out a call that a model asked for, with its arguments as an object or as JSON text.

        A call that fails returns a result with `is_error`, whose text tells the model why. Raises
        InvalidInput for an unknown tool, and for arguments that are no JSON object.
        """
        values = tool_calls.arguments_of(arguments)
        known_at, writes = self._destination.known_at, not tool_calls.is_read(name)
        if known_at is not None:
            if writes:
                self._require_present()
            values = {**values, "knownAt": known_at}
        params = {"name": name, "arguments": values}
        message = tool_calls.message("tools/call", params, writes=writes)
        return ToolResult.of((self._connection.send(message, self._destination)).json())
