"""The chat completions interface: OpenAI's, and that of vLLM, llama.cpp, LM Studio, Ollama and many others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbcore.plug.ports import Completion, CompletionRequest
from kbplugins.llm_http.transport import HTTPProvider


class OpenAI(HTTPProvider):
    """POST {base}/chat/completions, with a schema in `response_format`."""

    name = "openai"
    base_url = "https://api.openai.com/v1"

    def path(self) -> str:
        """Where below the base address a request goes."""
        return "/chat/completions"

    def headers(self) -> Mapping[str, str]:
        """Return the header that carries the key, none for a server that wants none."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the words of the interface."""
        turns = [{"role": "system", "content": request.system}]
        turns += [{"role": turn.role, "content": turn.text} for turn in request.messages]
        found: dict[str, Any] = {"model": self._model, "messages": turns}
        if self._base == self.base_url:  # its newer models take neither max_tokens nor a temperature
            found["max_completion_tokens"] = request.max_tokens
        else:
            found |= {"max_tokens": request.max_tokens, "temperature": 0}
        if request.schema is not None:
            shape = {"name": "answer", "strict": True, "schema": dict(request.schema)}
            found["response_format"] = {"type": "json_schema", "json_schema": shape}
        return found

    def read(self, answer: dict[str, Any]) -> Completion:
        """Return an answer in ours; a refusal has no text."""
        choice = answer["choices"][0]
        usage = answer.get("usage") or {}
        return Completion(
            choice["message"].get("content") or "",
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            choice.get("finish_reason") == "length",
        )
