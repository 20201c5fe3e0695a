"""Language models over HTTP, one thin adapter an interface: `openai`, `anthropic`, `google`, `ollama`.

`openai` speaks to whatever offers the chat completions interface, by LLM_BASE_URL: vLLM, llama.cpp, LM Studio, Ollama too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LLMProvider
from kbplugins.llm_http import anthropic, google, ollama, openai


@hookimpl
def kb_llm_providers(config: Config) -> Mapping[str, Callable[[Config], LLMProvider]]:
    """Offer the adapters; nothing is opened before one is picked."""
    return {
        "anthropic": anthropic.Anthropic,
        "google": google.Google,
        "ollama": ollama.Ollama,
        "openai": openai.OpenAI,
    }
