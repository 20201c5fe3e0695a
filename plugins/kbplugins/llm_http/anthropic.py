"""Anthropic's messages interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kbcore.plug.ports import Completion, CompletionRequest
from kbplugins.llm_http.transport import HTTPProvider


class Anthropic(HTTPProvider):
    """POST {base}/v1/messages; a schema becomes the input of a tool that has to be used, which
    every model takes.
    """

    name = "anthropic"
    base_url = "https://api.anthropic.com"

    def path(self) -> str:
        """Return the path of a request below the base address."""
        return "/v1/messages"

    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the key and the version of the interface."""
        key = {"x-api-key": self._key} if self._key else {}
        return {**key, "anthropic-version": "2023-06-01"}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the format of the interface."""
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_tokens,
            "system": request.system,
            "messages": [{"role": turn.role, "content": turn.text} for turn in request.messages],
        }
        if request.schema is not None:
            shape = {
                "name": "answer",
                "description": "Give the answer.",
                "input_schema": dict(request.schema),
            }
            body |= {"tools": [shape], "tool_choice": {"type": "tool", "name": "answer"}}
        return body

    def read(self, answer: dict[str, Any]) -> Completion:
        """Parse an answer: the input of the tool, else the text."""
        parts = answer["content"]
        inputs = [part["input"] for part in parts if part["type"] == "tool_use"]
        text = (
            json.dumps(inputs[0])
            if inputs
            else "".join(part["text"] for part in parts if part["type"] == "text")
        )
        usage = answer.get("usage") or {}
        truncated = answer.get("stop_reason") == "max_tokens"
        return Completion(text, usage.get("input_tokens"), usage.get("output_tokens"), truncated)
