"""Accounting of requests, used by the fast path and by Flask: ids, common headers, metrics, access
and audit lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kbcore.errors import KBError, StorageFailed
from kbcore.operations.slow_log import REQUEST
from kbcore.tracing import spans
from kbserver.errors import ErrorAnswer, answer_of, challenge
from kbserver.freeing import free_frames
from kbserver.http.request import Request
from kbserver.http.request_span import describe
from kbserver.logs import access, log_request, trace_field
from kbserver.operations import routes
from kbserver.process.instruments import UNMATCHED, HttpMeters
from kbserver.replication.requests import LOG
from kbserver.security import audit
from kbserver.security.protected_resource import metadata_url

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

_MAX_TENANT_CHARS = 128


class Accounting:
    """Accounting of the requests of one application.

    `on_storage_failed` is called when a sync of the disk failed; see `kbserver.app.create_app`.
    """

    def __init__(
        self,
        runtime: Runtime,
        on_storage_failed: Callable[[StorageFailed], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._last_commit = runtime.replication.last_commit
        self._hops = runtime.config.forwarded_hops
        self._on_storage_failed = on_storage_failed
        self._metadata_url = metadata_url(runtime.config) if runtime.config.oauth_issuer else ""
        self._meters = HttpMeters(runtime.metrics)
        self._audited = frozenset(
            route for route, declared in routes().items() if declared.is_audited
        )

    def begin(self, request: Request) -> None:
        """Count a request as active, unless that was done before.

        A request that the fast path passes on to Flask is active already.
        """
        if not request.is_active:
            request.is_active = True
            self._meters.in_progress += 1
            self._last_commit.seq = 0
            REQUEST.set(request.id)
            if spans.tracer is not None:
                request.span = spans.tracer.begin_request(request.environ)

    def failed(self, error: Exception, id: str) -> ErrorAnswer:
        """Count an error and return its answer; `id` is the request id."""
        if isinstance(error, StorageFailed) and self._on_storage_failed is not None:
            self._on_storage_failed(error)
        answer = answer_of(error, id)
        self._meters.error(answer.code)
        if isinstance(error, KBError):
            if self._metadata_url and (text := challenge(error, self._metadata_url)):
                headers = {**answer.headers, "WWW-Authenticate": text}
                answer = replace(answer, headers=headers)
            free_frames(error, self._runtime.yield_now)
        return answer

    def finish(self, request: Request, route: str | None, status: int) -> None:
        """Record the response to a request: metrics, audit line, access line.

        `route` is the template of the path, None if no route matched.
        """
        environ = request.environ
        method = environ.get("REQUEST_METHOD", "")
        seconds = self._clock.monotonic() - request.started
        series = method, UNMATCHED if route is None else route, status
        count, observe_seconds = self._meters.bound.get(series) or self._meters.bind(*series)
        count(1)
        observe_seconds(seconds)
        span = request.span
        if span is not None and span is not spans.DROPPED and span.is_recorded:
            describe(span, method, route, status)
        is_action = ("GET" if method == "HEAD" else method, route) in self._audited
        if is_action and request.is_audited:
            outcome = {"status": status, "id": request.id, **(request.audited or {})}
            audit.log_action(request, f"{method} {route}", self._hops, outcome)
        # Followers ask for the log all the time.
        if access.isEnabledFor(logging.DEBUG if route == LOG else logging.INFO):
            log_request(
                {
                    "method": method,
                    "path": environ.get("PATH_INFO", ""),
                    "status": status,
                    "ms": round(seconds * 1000, 2),
                    "id": request.id,
                    "tenant": environ.get("HTTP_X_TENANT_ID", "")[:_MAX_TENANT_CHARS],
                    **audit.caller_fields(request, self._hops),
                    **trace_field(environ),
                }
            )

    def end(self, request: Request) -> None:
        """Stop counting a request as active; repeated calls have no effect."""
        if request.is_active:
            request.is_active = False
            self._meters.in_progress -= 1
            REQUEST.set("")
            span, request.span = request.span, None
            if span is spans.DROPPED:
                spans.CURRENT.set(None)
            elif span is not None:
                span.end()
