"""Spans of operations on memory, by the conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kbcore.tracing import spans

P = ParamSpec("P")
T = TypeVar("T")


def memory_span(
    operation: str, count: Callable[[Any], int], *, query: str = ""
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that makes calls of a method spans of an operation on memory.

    `count` returns the number of records that a result is about. `query` names the first argument
    of the method if it is a text that is searched for.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def call(*args: P.args, **options: P.kwargs) -> T:
            if spans.tracer is None:
                return method(*args, **options)
            with spans.tracer.begin(operation) as span:
                result = method(*args, **options)
                if span.is_recorded:
                    span.set("gen_ai.operation.name", operation)
                    span.set("gen_ai.memory.record.count", count(result))
                    if spans.tracer is not None and spans.tracer.shows_content and query:
                        text = options[query] if query in options else args[1]
                        span.set("gen_ai.memory.query.text", str(text))
                return result

        return call

    return decorate
