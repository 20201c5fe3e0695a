"""A language model's answer as data: JSON of a known shape, asked for with a schema, read strictly, repaired once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kbcore.errors import ModelFailed
from kbcore.llm.model import Model
from kbcore.plug.ports import Completion, CompletionRequest, Message

T = TypeVar("T")

MAX_ANSWER = 1 << 20
"""Characters of an answer that are read; a longer one is refused."""

QUOTED = 4000
"""Characters of a bad answer that its author is shown again."""

class BadAnswer(ValueError):
    """An answer that is not what was asked for; the text says why, to the model that gave it."""


def ask_json(
    model: Model,
    system: str,
    prompt: str,
    schema: Mapping[str, Any],
    read: Callable[[dict[str, Any]], T],
    *,
    operation: str,
    deadline: float,
) -> T:
    """Ask for an object and read it; `read` raises BadAnswer where it is not of the shape.

    Where the provider refuses schemas, the prompt alone asks for JSON. A bad answer is shown to the model once, with what is
    wrong. `deadline`, on the clock's monotonic hand, is that of the request; LLM_TIMEOUT_MS may come earlier. Raises
    ModelFailed and RateLimited.
    """
    deadline = min(deadline, model.clock.monotonic() + model.prompt_seconds)
    written = json.dumps(schema, separators=(",", ":"))
    asked = f"{prompt}\n\nAnswer with one JSON object and nothing else. Its JSON schema: {written}"
    request = CompletionRequest(system, (Message("user", asked),), schema, model.max_tokens, model.prompt_seconds)
    found = _completion(model, request, operation, deadline)
    try:
        return read(object_of(found))
    except BadAnswer as problem:
        said = f"That cannot be used: {problem}. Answer again with the JSON object alone."
        turns = (*request.messages, Message("assistant", found.text[:QUOTED] or "(nothing)"), Message("user", said))
        found = _completion(model, replace(request, messages=turns), operation, deadline)
    try:
        return read(object_of(found))
    except BadAnswer as problem:
        raise model.failure(f"the language model gave no usable answer: {problem}", "bad_answer") from problem


def object_of(found: Completion) -> dict[str, Any]:
    """The JSON object in an answer, with or without a fence or words around it; raises BadAnswer."""
    text = found.text
    if len(text) > MAX_ANSWER:
        raise BadAnswer(f"it is longer than {MAX_ANSWER} characters")
    _, closed, after = text.rpartition("</think>")
    start = (after if closed else text).find("{")
    if start < 0:
        raise BadAnswer("it was cut off before any JSON" if found.truncated else "there is no JSON object in it")
    decoder = json.JSONDecoder(parse_constant=_refused)
    try:
        value, _ = decoder.raw_decode(after if closed else text, start)
    except (ValueError, RecursionError) as error:
        why = "it was cut off; give fewer and shorter entries" if found.truncated else f"it is not JSON ({_brief(error)})"
        raise BadAnswer(why) from error
    if not isinstance(value, dict):
        raise BadAnswer("it is no JSON object")
    return value


def array(found: Mapping[str, Any], key: str) -> list[Any]:
    """An array of an answer, empty where null or absent; raises BadAnswer for anything else."""
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadAnswer(f'"{key}" must be an array')
    return value


def fraction(value: Any) -> float | None:
    """A number from 0 to 1; None for anything else."""
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else None


def _completion(model: Model, request: CompletionRequest, operation: str, deadline: float) -> Completion:
    plain = replace(request, schema=None)
    if not model.takes_schemas:
        return model.complete(plain, operation, deadline)
    try:
        return model.complete(request, operation, deadline)
    except ModelFailed as error:
        if (error.details or {}).get("reason") != "refused":
            raise
    found = model.complete(plain, operation, deadline)
    model.takes_schemas = False
    return found


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _brief(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:100]
