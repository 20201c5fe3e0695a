"""Attributes of the span of a window: its limits, and the number of entries by reason."""

from __future__ import annotations

from collections import Counter

from kbcore.context.request import WindowRequest
from kbcore.tracing.spans import TraceSpan
from kbtypes.windows import Window


def describe_window(span: TraceSpan, request: WindowRequest, window: Window) -> None:
    """Say in a span what a window was asked for, and what it has."""
    span.set("kbcore.window.max_facts", request.max_facts)
    if request.max_tokens is not None:
        span.set("kbcore.window.max_tokens", request.max_tokens)
    span.set("kbcore.window.tokens", window.tokens)
    span.set("kbcore.window.available", window.available)
    span.set("kbcore.window.entries", len(window.entries))
    span.set("kbcore.window.rules", len(window.rules))
    roles = ("goal" if entry.goal is not None else entry.role for entry in window.entries)
    for role, count in Counter(roles).items():
        span.set(f"kbcore.window.entries.{role}", count)
