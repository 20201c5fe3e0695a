"""Accounting of requests, used by the fast path and by Flask: ids, common headers, metrics, access and audit lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbcore.errors import KBError, StorageFailed
from kbcore.kb.slow_log import REQUEST
from kbserver.errors import ErrorAnswer, answer_of
from kbserver.freeing import free_frames
from kbserver.http.request_id import identity_headers, request_id
from kbserver.logs import access, log_request, trace_field
from kbserver.operations import operation_at
from kbserver.process.instruments import UNMATCHED, HttpMeters
from kbserver.replication.requests import LOG
from kbserver.security import audit
from kbserver.security.limits import headers_of

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

RECORD = "kbcore.request"
"""Key in the WSGI environment of the RequestRecord."""

_MAX_TENANT_CHARS = 128


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Id of a request, and the time it began in seconds of the monotonic clock."""

    id: str
    started: float


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
        self._meters = HttpMeters(runtime.metrics)

    def begin(self, environ: dict[str, Any]) -> RequestRecord:
        """Return the record of a request, and count the request unless that was done before.

        A request that the fast path passes on to Flask keeps its record.
        """
        record: RequestRecord | None = environ.get(RECORD)
        if record is None:
            id = request_id(environ.get("HTTP_X_REQUEST_ID"))
            record = environ[RECORD] = RequestRecord(id, self._clock.monotonic())
            self._meters.in_progress += 1
            self._last_commit.seq = 0
            REQUEST.set(id)
        return record

    def headers(self, environ: dict[str, Any], present: Container[str]) -> list[tuple[str, str]]:
        """Return the headers of every response: request id, version and rate limit.

        Rate limit headers in `present` are kept: an error names the limit that was exceeded.
        """
        limits = headers_of(environ).items()
        return [
            *identity_headers(self.begin(environ).id),
            *(pair for pair in limits if pair[0] not in present),
        ]

    def failed(self, error: Exception, id: str) -> ErrorAnswer:
        """Count an error and return its answer; `id` is the request id."""
        if isinstance(error, StorageFailed) and self._on_storage_failed is not None:
            self._on_storage_failed(error)
        answer = answer_of(error, id)
        self._meters.error(answer.code)
        if isinstance(error, KBError):
            free_frames(error, self._runtime.yield_now)
        return answer

    def finish(
        self,
        environ: dict[str, Any],
        route: str | None,
        status: int,
        audited: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the response to a request: metrics, audit line, access line.

        `route` is the template of the path, None if no route matched; `audited` are further fields
        of the audit line.
        """
        record = self.begin(environ)
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        seconds = self._clock.monotonic() - record.started
        self._meters.answered(method, UNMATCHED if route is None else route, status, seconds)
        declared = None if route is None else operation_at(method, route)
        if declared is not None and declared.is_audited:
            outcome = {"status": status, "id": record.id, **(audited or {})}
            audit.log_action(environ, f"{method} {route}", self._hops, outcome)
        # Followers ask for the log all the time.
        if access.isEnabledFor(logging.DEBUG if route == LOG else logging.INFO):
            log_request(
                {
                    "method": method,
                    "path": path,
                    "status": status,
                    "ms": round(seconds * 1000, 2),
                    "id": record.id,
                    "tenant": environ.get("HTTP_X_TENANT_ID", "")[:_MAX_TENANT_CHARS],
                    **audit.caller_fields(environ, self._hops),
                    **trace_field(environ),
                }
            )

    def end(self, environ: dict[str, Any]) -> None:
        """Stop counting a request as active; repeated calls have no effect."""
        if environ.pop(RECORD, None) is not None:
            self._meters.in_progress -= 1
            REQUEST.set("")
