"""Ollama's own interface, for models on a machine of one's own."""

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
        """Where below the base address a request goes."""
        return "/api/chat"

    def headers(self) -> Mapping[str, str]:
        """Return the header that carries the key, which only a proxy in front would want."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the words of the interface."""
        turns = [{"role": "system", "content": request.system}]
        turns += [{"role": turn.role, "content": turn.text} for turn in request.messages]
        options = {"temperature": 0, "num_predict": request.max_tokens}
        found: dict[str, Any] = {"model": self._model, "messages": turns, "stream": False, "options": options}
        if request.schema is not None:
            found["format"] = dict(request.schema)
        return found

    def read(self, answer: dict[str, Any]) -> Completion:
        """Return an answer in ours."""
        text = answer["message"]["content"]
        tokens = answer.get("prompt_eval_count"), answer.get("eval_count")
        return Completion(text, *tokens, truncated=answer.get("done_reason") == "length")
