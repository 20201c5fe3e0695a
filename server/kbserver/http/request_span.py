"""The span of a request, as the conventions for HTTP servers describe it.

It has the template of its route, never the path: paths have names of databases and ids in them.
"""

from __future__ import annotations

from kbcore.tracing.spans import TraceSpan

METHODS = frozenset(
    ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE")
)
"""The methods that the conventions know; any other one is a text of the client."""

_SERVER_ERROR = 500


def describe(span: TraceSpan, method: str, route: str | None, status: int) -> None:
    """Set what is known of a request when it is answered; `route` is None if none matched."""
    known = method if method in METHODS else "_OTHER"
    name = "HTTP" if known == "_OTHER" else known
    span.rename(name if route is None else f"{name} {route}")
    span.set("http.request.method", known)
    if route is not None:
        span.set("http.route", route)
    span.set("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        span.fail(str(status))
