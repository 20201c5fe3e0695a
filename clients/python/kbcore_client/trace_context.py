"""The trace of the program, for the headers of its requests (W3C Trace Context).

Nothing is imported: a program that has no OpenTelemetry loaded has no trace.
"""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Return `traceparent` and `tracestate` of the current span, none without a span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    own = trace.get_current_span().get_span_context()
    if not own.is_valid:
        return {}
    flags = own.trace_flags & 1
    headers = {"traceparent": f"00-{own.trace_id:032x}-{own.span_id:016x}-{flags:02x}"}
    if state := own.trace_state.to_header():
        headers["tracestate"] = state
    return headers
