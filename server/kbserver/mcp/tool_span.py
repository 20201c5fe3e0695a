"""The span of a call of a tool, by the conventions for MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbcore.tracing.spans import SERVER, Tracer, TraceSpan

MAX_STATE_CHARS = 512
"""A longer `tracestate` is left out, as W3C Trace Context allows."""


def begin_tool(tracer: Tracer, name: str, meta: Mapping[str, Any]) -> TraceSpan:
    """Begin the span of a call, below that of the agent if `_meta` of its request names one."""
    parent, state = meta.get("traceparent"), meta.get("tracestate")
    span = tracer.begin_remote(
        f"tools/call {name}",
        SERVER,
        parent if isinstance(parent, str) else None,
        state if isinstance(state, str) and len(state) <= MAX_STATE_CHARS else None,
    )
    if span.is_recorded:
        span.set("mcp.method.name", "tools/call")
        span.set("gen_ai.operation.name", "execute_tool")
        span.set("gen_ai.tool.name", name)
    return span
