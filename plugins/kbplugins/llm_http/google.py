"""Google's generateContent interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from kbcore.plug.ports import Completion, CompletionRequest
from kbplugins.llm_http.transport import HTTPProvider


class Google(HTTPProvider):
    """POST {base}/v1beta/models/{model}:generateContent, with a schema in `responseSchema`."""

    name = "google"
    base_url = "https://generativelanguage.googleapis.com"

    def path(self) -> str:
        """Return the path of a request below the base address."""
        return f"/v1beta/models/{quote(self._model, safe='')}:generateContent"

    def headers(self) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"x-goog-api-key": self._key} if self._key else {}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the format of the interface."""
        roles = {"user": "user", "assistant": "model"}
        settings: dict[str, Any] = {"maxOutputTokens": request.max_tokens, "temperature": 0}
        if request.schema is not None:
            settings |= {
                "responseMimeType": "application/json",
                "responseSchema": _plain(request.schema),
            }
        return {
            "systemInstruction": {"parts": [{"text": request.system}]},
            "contents": [
                {"role": roles[turn.role], "parts": [{"text": turn.text}]}
                for turn in request.messages
            ],
            "generationConfig": settings,
        }

    def read(self, answer: dict[str, Any]) -> Completion:
        """Parse an answer; a blocked prompt has no candidates, and no text."""
        candidates = answer.get("candidates") or [{}]
        parts = candidates[0].get("content", {}).get("parts") or []
        usage = answer.get("usageMetadata") or {}
        return Completion(
            "".join(part.get("text", "") for part in parts if not part.get("thought")),
            usage.get("promptTokenCount"),
            usage.get("candidatesTokenCount"),
            candidates[0].get("finishReason") == "MAX_TOKENS",
        )


def _plain(schema: Any) -> Any:
    """Return a schema without the keyword that this interface does not support."""
    if isinstance(schema, Mapping):
        return {
            key: _plain(value) for key, value in schema.items() if key != "additionalProperties"
        }
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema
