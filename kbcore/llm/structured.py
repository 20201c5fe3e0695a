"""Structured answers of a language model: JSON requested with a schema, validated, retried once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kbcore.errors import ModelFailed
from kbcore.llm.model import LanguageModel
from kbcore.plug.ports import Completion, CompletionRequest, Message

T = TypeVar("T")

MAX_ANSWER_CHARS = 1 << 20
"""Maximum length of an answer; a longer one is rejected."""

MAX_QUOTED_CHARS = 4000
"""Maximum length of the quotation of a bad answer in the second prompt."""


class BadAnswer(ValueError):
    """An answer of the wrong form; the message gives the reason and is sent back to the model."""


def ask_json(
    model: LanguageModel,
    system: str,
    prompt: str,
    schema: Mapping[str, Any],
    read: Callable[[dict[str, Any]], T],
    *,
    operation: str,
    deadline: float,
) -> T:
    """Ask the model for a JSON object and return the value that `read` makes of it.

    `read` raises BadAnswer if the object has the wrong shape. If the provider rejects schemas, only
    the prompt asks for JSON. After a bad answer the model is asked once more, with the reason.
    `deadline` is that of the request, in seconds of the monotonic clock; LLM_TIMEOUT_MS may end the
    call earlier. Raises ModelFailed and RateLimited.
    """
    deadline = min(deadline, model.clock.monotonic() + model.prompt_seconds)
    schema_text = json.dumps(schema, separators=(",", ":"))
    full_prompt = (
        f"{prompt}\n\nAnswer with one JSON object and nothing else. Its JSON schema: {schema_text}"
    )
    request = CompletionRequest(
        system, (Message("user", full_prompt),), schema, model.max_tokens, model.prompt_seconds
    )
    completion = _completion(model, request, operation, deadline)
    try:
        return read(object_of(completion))
    except BadAnswer as problem:
        complaint = f"That cannot be used: {problem}. Answer again with the JSON object alone."
        turns = (
            *request.messages,
            Message("assistant", completion.text[:MAX_QUOTED_CHARS] or "(nothing)"),
            Message("user", complaint),
        )
        completion = _completion(model, replace(request, messages=turns), operation, deadline)
    try:
        return read(object_of(completion))
    except BadAnswer as problem:
        raise model.failure(
            f"the language model gave no usable answer: {problem}", "bad_answer"
        ) from problem


def object_of(completion: Completion) -> dict[str, Any]:
    """Return the JSON object in an answer, ignoring code fences and text around it.

    Raises BadAnswer.
    """
    text = completion.text
    if len(text) > MAX_ANSWER_CHARS:
        raise BadAnswer(f"it is longer than {MAX_ANSWER_CHARS} characters")
    _, closed, after = text.rpartition("</think>")
    start = (after if closed else text).find("{")
    if start < 0:
        raise BadAnswer(
            "it was cut off before any JSON"
            if completion.truncated
            else "there is no JSON object in it"
        )
    decoder = json.JSONDecoder(parse_constant=_refused)
    try:
        value, _ = decoder.raw_decode(after if closed else text, start)
    except (ValueError, RecursionError) as error:
        reason = (
            "it was cut off; give fewer and shorter entries"
            if completion.truncated
            else f"it is not JSON ({_brief(error)})"
        )
        raise BadAnswer(reason) from error
    if not isinstance(value, dict):
        raise BadAnswer("it is not a JSON object")
    return value


def array(answer: Mapping[str, Any], key: str) -> list[Any]:
    """Return an array member of an answer, empty if null or absent.

    Raises BadAnswer for other values.
    """
    value = answer.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadAnswer(f'"{key}" must be an array')
    return value


def fraction(value: Any) -> float | None:
    """Return a number from 0 to 1 as a float; None for other values."""
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else None


def _completion(
    model: LanguageModel, request: CompletionRequest, operation: str, deadline: float
) -> Completion:
    plain = replace(request, schema=None)
    if not model.takes_schemas:
        return model.complete(plain, operation, deadline)
    try:
        return model.complete(request, operation, deadline)
    except ModelFailed as error:
        if (error.details or {}).get("reason") != "refused":
            raise
    completion = model.complete(plain, operation, deadline)
    model.takes_schemas = False
    return completion


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _brief(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
