"""Cross-origin requests (CORS): refused unless `CORS_ORIGINS` names the origin.

The server uses no cookies, so credentials are never allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kbserver.http.request_id import identity_headers, request_id

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

METHODS = "GET, HEAD, POST, DELETE"
HEADERS = (
    "Accept, Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, "
    "Mcp-Name, Mcp-Session-Id, Prefer, X-API-Key, X-Database, X-Request-ID, X-Tenant-ID, X-Transaction-ID, traceparent"
)
EXPOSED = (
    "X-Request-ID, X-KB-Version, RateLimit, RateLimit-Policy, Retry-After, Link, ETag, Idempotency-Replayed, "
    "X-Commit-Seq, X-Replication-Lag-Ms, "
    "Preference-Applied, X-Total-Count, X-Retracted-Count, X-Cascaded-Count, X-Still-Derivable, X-Answer-Warnings, "
    "X-Rule-Warnings, X-Ignored-Fields, X-Time-Warnings, X-Unknown-Predicates, Mcp-Session-Id, "
    "WWW-Authenticate"
)
MAX_AGE_SECONDS = 600


class Cors:
    """WSGI middleware that answers preflight requests and adds CORS headers for allowed origins.

    Responses to other origins are unchanged.
    """

    def __init__(self, application: Application, origins: Sequence[str]) -> None:
        self._application = application
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request as WSGI specifies."""
        origin = environ.get("HTTP_ORIGIN")
        if origin is None or not (allowed := self._allowed(origin)):
            return self._application(environ, self._varying(start_response))
        if (
            environ["REQUEST_METHOD"] == "OPTIONS"
            and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ
        ):
            preflight = [
                ("Access-Control-Allow-Origin", allowed),
                ("Access-Control-Allow-Methods", METHODS),
                ("Access-Control-Allow-Headers", HEADERS),
                ("Access-Control-Max-Age", str(MAX_AGE_SECONDS)),
                ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
                ("Content-Length", "0"),
                *identity_headers(request_id(environ.get("HTTP_X_REQUEST_ID"))),
            ]
            start_response("204 NO CONTENT", preflight)
            return []
        more = [
            ("Access-Control-Allow-Origin", allowed),
            ("Access-Control-Expose-Headers", EXPOSED),
        ]
        return self._application(environ, self._varying(start_response, more))

    def _allowed(self, origin: str) -> str | None:
        if "*" in self._origins:
            return "*"
        return origin if origin.lower() in self._origins else None

    @staticmethod
    def _varying(
        start_response: Callable[..., Any], more: Sequence[tuple[str, str]] = ()
    ) -> Callable[..., Any]:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, *more, ("Vary", "Origin")], *rest)

        return start
