"""Fast path for common requests of the five hot routes, in front of Flask.

It serves POSTs with a small JSON body and common headers, with the same readers, schemas and core methods as the Flask
routes. All other requests, and every invalid body, are passed on to Flask unchanged. A differential test checks that
both give the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbcore import __version__
from kbcore.errors import InvalidInput
from kbcore.kb.slow_log import REQUEST
from kbcore.reason.budget import Notes
from kbserver.answers import JSON, TEXT, noted, rows_written
from kbserver.errors import ErrorAnswer
from kbserver.http.body_memory import Bodies
from kbserver.http.compress import VARY, compressed, compressible, wanted_by
from kbserver.http.json_body import parse_object, read_body
from kbserver.http.request_context import CALLER, DEFAULT, is_name
from kbserver.http.request_id import request_id
from kbserver.logs import access, log_request, traced
from kbserver.notices import IgnoredFields, ignored_fields
from kbserver.process.instruments import HttpMeters
from kbserver.replication import requests as following
from kbserver.schemas.facts import Told, one_fact, spoken
from kbserver.schemas.reason import Pattern, Question, pattern, question
from kbserver.security.guard import Guard
from kbserver.security.limits import headers_of
from kbserver.security.permissions import need_of

if TYPE_CHECKING:
    from kbcore.kb.knowledge_base import KnowledgeBase
    from kbcore.node.runtime import Runtime

MAX_BYTES = 64 * 1024
"""Larger bodies are served by the Flask route."""

UNUSUAL = (
    *("HTTP_PREFER", "HTTP_X_TRANSACTION_ID", "HTTP_TRANSFER_ENCODING", "HTTP_CONTENT_ENCODING"),
    *("HTTP_IDEMPOTENCY_KEY", "HTTP_X_MIN_SEQ"),
)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]
Fail = Callable[[Exception, str], ErrorAnswer]


class FastPath:
    """The fast path as a WSGI application; `fail` handles an error of the core and returns its answer.

    `guard` is None if authentication and limits are off.
    """

    def __init__(
        self,
        flask_app: Application,
        runtime: Runtime,
        fail: Fail,
        meters: HttpMeters,
        bodies: Bodies,
        guard: Guard | None = None,
    ) -> None:
        self._flask_app = flask_app
        self._runtime = runtime
        self._fail = fail
        self._meters = meters
        self._bodies = bodies
        self._guard = guard
        self._max_depth = runtime.config.max_json_depth
        self._max_bytes = min(MAX_BYTES, runtime.config.max_body_bytes)
        self._routes: dict[
            str, tuple[Callable[..., Any], Callable[[KnowledgeBase, Any, Notes], list[bytes]], str]
        ] = {
            "/tell": (one_fact, _tell, TEXT),
            "/assert/fact": (one_fact, _tell, TEXT),
            "/query": (pattern, self._rows, JSON),
            "/ask": (question, self._rows, JSON),
            "/infer": (question, self._rows, JSON),
        }
        self._needs = {path: need_of("POST", path) for path in self._routes}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a WSGI request."""
        route = self._routes.get(environ.get("PATH_INFO", ""))
        if route is None or not self._usual(environ):
            return self._flask_app(environ, start_response)
        clock, meters = self._runtime.clock, self._meters
        started = clock.monotonic()
        meters.under_way += 1
        read, answer, kind = route
        notes, ignored = Notes(), IgnoredFields()
        self._runtime.replication.last_commit.seq = 0
        number = request_id(environ.get("HTTP_X_REQUEST_ID"))
        REQUEST.set(number)
        guard = self._guard
        try:
            if guard is not None:
                guard.admit(environ, self._needs[environ["PATH_INFO"]])
            body = read_body(environ, self._max_bytes, self._bodies)
            try:
                with ignored_fields() as ignored:
                    asked = read(parse_object(body, self._max_depth), strict=False)
            except InvalidInput:
                environ["wsgi.input"] = BytesIO(body)
                meters.under_way -= 1
                return self._flask_app(environ, start_response)
            kb = self._runtime.knowledge_base(
                DEFAULT, environ["HTTP_X_TENANT_ID"], environ.get(CALLER)
            )
            parts = answer(kb, asked, notes)
        except Exception as error:  # noqa: BLE001 - the error table has an answer to everything
            failed = self._fail(error, number)
            status, parts = failed.line(), [failed.body()]
            headers = [*failed.headers.items(), ("Content-Type", JSON)]
        else:
            status, headers = "200 OK", [*noted(notes).items(), ("Content-Type", kind)]
        finally:
            self._bodies.release(environ)
        size = sum(map(len, parts))
        more: list[tuple[str, str]] = []
        rated: list[tuple[str, str]] = []
        if guard is not None:  # an error already names the limit that was exceeded
            rated = [
                pair
                for pair in headers_of(environ).items()
                if all(pair[0] != name for name, _ in headers)
            ]
        if compressible(headers[-1][1], size):
            more.append(("Vary", VARY))
            if wanted_by(environ):
                parts = [compressed(parts, size, self._runtime.offload)]
                size = len(parts[0])
                more.append(("Content-Encoding", "gzip"))
        headers += [
            ("Content-Length", str(size)),
            ("X-Request-ID", number),
            ("X-KB-Version", __version__),
        ]
        headers += [*ignored.headers(), *rated]
        headers += [*following.headers(self._runtime), *more]
        start_response(status, headers)
        code, seconds = int(status[:3]), clock.monotonic() - started
        meters.under_way -= 1
        meters.answered("POST", environ["PATH_INFO"], code, seconds)
        REQUEST.set("")
        if access.isEnabledFor(logging.INFO):
            log_request(
                {
                    "method": "POST",
                    "path": environ["PATH_INFO"],
                    "status": code,
                    "ms": round(seconds * 1000, 2),
                    "id": number,
                    "tenant": environ["HTTP_X_TENANT_ID"],
                    **traced(environ),
                }
            )
        return parts

    def _usual(self, environ: Environ) -> bool:
        length = environ.get("CONTENT_LENGTH") or ""
        return (
            environ["REQUEST_METHOD"] == "POST"
            and environ.get("CONTENT_TYPE") == JSON
            and not environ.get("QUERY_STRING")
            and not any(name in environ for name in UNUSUAL)
            and environ.get("HTTP_X_DATABASE", DEFAULT) == DEFAULT
            and is_name(environ.get("HTTP_X_TENANT_ID", ""))
            and length.isascii()
            and length.isdigit()
            and len(length) < 10
            and 0 < int(length) <= self._max_bytes
        )

    def _rows(self, kb: KnowledgeBase, asked: Question | Pattern, notes: Notes) -> list[bytes]:
        return asked.written(kb, rows_written, notes)


def _tell(kb: KnowledgeBase, told: Told, notes: Notes) -> list[bytes]:
    kb.assert_facts(told.facts, conflict=told.conflict)
    return [f"Fact Asserted: {spoken(told.facts[0].predicate, told.facts[0].args)}".encode()]
