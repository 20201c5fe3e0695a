"""Ollama's own interface, for models on a local machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbcore.plug.ports import Completion, CompletionRequest
from kbplugins.llm_http.transport import HTTPProvider


class Ollama(HTTPProvider):
    """POST {base}/api/chat, with a schema in `format`."""

    name = "ollama"
    base_url = "http://127.0.0.1:11434"
    needs_key = False

    def path(self) -> str:
        """Return the path of a request below the base address."""
        return "/api/chat"

    def headers(self) -> Mapping[str, str]:
        """Return the header that carries the key, used only by a proxy in front."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the format of the interface."""
        turns = [{"role": "system", "content": request.system}]
        turns += [{"role": turn.role, "content": turn.text} for turn in request.messages]
        options = {"temperature": 0, "num_predict": request.max_tokens}
        body: dict[str, Any] = {
            "model": self._model,
            "messages": turns,
            "stream": False,
            "options": options,
        }
        if request.schema is not None:
            body["format"] = dict(request.schema)
        return body

    def read(self, answer: dict[str, Any]) -> Completion:
        """Parse an answer."""
        text = answer["message"]["content"]
        tokens = answer.get("prompt_eval_count"), answer.get("eval_count")
        return Completion(text, *tokens, truncated=answer.get("done_reason") == "length")
