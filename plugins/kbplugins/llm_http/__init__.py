"""Language models over HTTP, one small adapter per interface: `openai`, `anthropic`, `google`,
`ollama`.

`openai` works with every server of the chat completions interface (LLM_BASE_URL): vLLM, llama.cpp,
LM Studio, Ollama.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LLMProvider
from kbplugins.llm_http import anthropic, google, ollama, openai


@hookimpl
def kb_llm_providers(config: Config) -> Mapping[str, Callable[[Config], LLMProvider]]:
    """Offer the adapters; no connection is opened before one is chosen."""
    return {
        "anthropic": anthropic.Anthropic,
        "google": google.Google,
        "ollama": ollama.Ollama,
        "openai": openai.OpenAI,
    }
