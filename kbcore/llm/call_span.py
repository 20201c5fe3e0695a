"""The span of a call of a language model, by the conventions for generative AI."""

from __future__ import annotations

import json

from kbcore.plug.ports import Completion, CompletionRequest
from kbcore.tracing.spans import CLIENT, Tracer, TraceSpan

PROVIDERS = {"google": "gcp.gemini"}
"""The names of providers in the conventions, where they differ from those of the settings."""


def begin_call(tracer: Tracer, provider: str, model: str, request: CompletionRequest) -> TraceSpan:
    """Begin the span of one attempt; prompts are in it only if the operator wants them."""
    span = tracer.begin(f"chat {model}", CLIENT)
    if not span.is_recorded:
        return span
    span.set("gen_ai.operation.name", "chat")
    span.set("gen_ai.provider.name", PROVIDERS.get(provider, provider))
    span.set("gen_ai.request.model", model)
    span.set("gen_ai.request.max_tokens", request.max_tokens)
    if tracer.shows_content:
        span.set("gen_ai.system_instructions", json.dumps([_part(request.system)]))
        messages = [{"role": each.role, "parts": [_part(each.text)]} for each in request.messages]
        span.set("gen_ai.input.messages", json.dumps(messages))
    return span


def describe_answer(span: TraceSpan, completion: Completion, shows_content: bool) -> None:
    """Say in a span what a model has answered: tokens, and the reason of its end."""
    reason = "length" if completion.truncated else "stop"
    span.set("gen_ai.response.finish_reasons", [reason])
    if completion.input_tokens is not None:
        span.set("gen_ai.usage.input_tokens", completion.input_tokens)
    if completion.output_tokens is not None:
        span.set("gen_ai.usage.output_tokens", completion.output_tokens)
    if shows_content:
        message = {
            "role": "assistant",
            "parts": [_part(completion.text)],
            "finish_reason": reason,
        }
        span.set("gen_ai.output.messages", json.dumps([message]))


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}
