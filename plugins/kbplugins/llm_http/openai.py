"""The chat completions interface of OpenAI, vLLM, llama.cpp, LM Studio, Ollama and many others."""

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
        """Return the path of a request below the base address."""
        return "/chat/completions"

    def headers(self) -> Mapping[str, str]:
        """Return the header that carries the key; none for a server without authentication."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the format of the interface."""
        turns = [{"role": "system", "content": request.system}]
        turns += [{"role": turn.role, "content": turn.text} for turn in request.messages]
        body: dict[str, Any] = {"model": self._model, "messages": turns}
        if self._base == self.base_url:
            # OpenAI's newer models accept neither max_tokens nor a temperature.
            body["max_completion_tokens"] = request.max_tokens
        else:
            body |= {"max_tokens": request.max_tokens, "temperature": 0}
        if request.schema is not None:
            shape = {"name": "answer", "strict": True, "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        return body

    def read(self, answer: dict[str, Any]) -> Completion:
        """Parse an answer; a refusal has no text."""
        choice = answer["choices"][0]
        usage = answer.get("usage") or {}
        return Completion(
            choice["message"].get("content") or "",
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            choice.get("finish_reason") == "length",
        )
