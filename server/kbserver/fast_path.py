"""Fast path for common requests of the five hot routes, in front of Flask.

It serves POSTs with a small JSON body and common headers, with the same readers, schemas and core methods as the Flask
routes. All other requests, and every invalid body, are passed on to Flask unchanged. A differential test checks that
both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbcore.errors import InvalidInput
from kbcore.operations.conflicts import KEEP_BOTH
from kbcore.reason.budget import Notes
from kbcore.state.names import is_name
from kbserver.accounting import Accounting
from kbserver.answers import ARROW, JSON, TEXT, noted, rows_written
from kbserver.http.body_memory import Bodies
from kbserver.http.compress import VARY, compressed, compressible, wanted_by
from kbserver.http.json_body import parse_object, read_body, text_limit
from kbserver.http.request_context import CALLER, DEFAULT
from kbserver.notices import IgnoredFields, ignored_fields
from kbserver.operations import need_of
from kbserver.pace import bodies_of
from kbserver.replication import requests as replication
from kbserver.schemas.facts import TellBody, spoken
from kbserver.schemas.fields import Json
from kbserver.schemas.reason import InferBody, QueryBody
from kbserver.schemas.requests import seen
from kbserver.security.guard import Guard
from kbserver.security.permissions import Need

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB

MAX_BYTES = 64 * 1024
"""Larger bodies are served by the Flask route."""

UNCOMMON_HEADERS = (
    *("HTTP_PREFER", "HTTP_X_TRANSACTION_ID", "HTTP_TRANSFER_ENCODING", "HTTP_CONTENT_ENCODING"),
    *("HTTP_IDEMPOTENCY_KEY", "HTTP_X_MIN_SEQ"),
)
"""Requests with one of these headers are served by Flask."""

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class _Route:
    """A route of the fast path: reader of the body, function that answers, and content type."""

    read: Callable[..., Any]
    answer: Callable[[TenantKB, Any, Notes], list[bytes]]
    content_type: str
    need: Need


class FastPath:
    """The fast path as a WSGI application; `guard` is None if authentication and limits are off."""

    def __init__(
        self,
        flask_app: Application,
        runtime: Runtime,
        accounting: Accounting,
        bodies: Bodies,
        guard: Guard | None = None,
    ) -> None:
        self._flask_app = flask_app
        self._runtime = runtime
        self._accounting = accounting
        self._bodies = bodies
        self._guard = guard
        self._max_depth = runtime.config.max_json_depth
        self._limit = text_limit(runtime.config)
        self._max_bytes = min(MAX_BYTES, self._limit.bytes)
        self._routes = {
            path: _Route(read, answer, content_type, need_of("POST", path))
            for path, read, answer, content_type in (
                ("/tell", TellBody().read, _tell, TEXT),
                ("/assert/fact", TellBody().read, _tell, TEXT),
                ("/query", QueryBody().read, _rows, JSON),
                ("/ask", InferBody().read, _rows, JSON),
                ("/infer", InferBody().read, _rows, JSON),
            )
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a WSGI request."""
        path = environ.get("PATH_INFO", "")
        route = self._routes.get(path)
        if route is None or not self._is_common(environ):
            return self._flask_app(environ, start_response)
        record = self._accounting.begin(environ)
        turn = self._runtime.replication.turn
        notes, ignored = Notes(), IgnoredFields()
        headers: list[tuple[str, str]]
        try:
            if self._guard is not None:
                self._guard.admit(environ, route.need)
            body = read_body(environ, self._limit, self._bodies)
            try:
                with ignored_fields() as ignored, bodies_of(self._runtime):
                    parsed = route.read(parse_object(body, self._max_depth), strict=False)
            except InvalidInput:
                environ["wsgi.input"] = BytesIO(body)
                return self._flask_app(environ, start_response)
            if parsed.get("conflict", KEEP_BOTH) != KEEP_BOTH:  # the answer may have a header more
                environ["wsgi.input"] = BytesIO(body)
                return self._flask_app(environ, start_response)
            kb = self._runtime.knowledge_base(
                DEFAULT, environ["HTTP_X_TENANT_ID"], environ.get(CALLER)
            )
            parts = route.answer(seen(kb, parsed), parsed, notes)
            self._runtime.replication.check_answer(turn)
        except Exception as error:  # noqa: BLE001 - the error table has an answer to everything
            answer = self._accounting.failed(error, record.id)
            status, parts = answer.line(), [answer.body()]
            headers = [*answer.headers.items(), ("Content-Type", JSON)]
        else:
            status, headers = (
                "200 OK",
                [*noted(notes).items(), ("Content-Type", route.content_type)],
            )
        finally:
            self._bodies.release(environ)
        parts, encoding = self._encoded(environ, parts, headers[-1][1])
        headers = [
            *headers,
            ("Content-Length", str(sum(map(len, parts)))),
            *self._accounting.headers(environ, dict(headers)),
            *ignored.headers(),
            *replication.headers(self._runtime),
            *encoding,
        ]
        start_response(status, headers)
        self._accounting.finish(environ, path, int(status[:3]))
        self._accounting.end(environ)
        return parts

    def _encoded(
        self, environ: Environ, parts: list[bytes], content_type: str
    ) -> tuple[list[bytes], list[tuple[str, str]]]:
        """Return the body, compressed if the client wants that, and the headers that say so."""
        size = sum(map(len, parts))
        if not compressible(content_type, size):
            return parts, []
        headers = [("Vary", VARY)]
        if wanted_by(environ):
            parts = [compressed(parts, size, self._runtime.offload)]
            headers.append(("Content-Encoding", "gzip"))
        return parts, headers

    def _is_common(self, environ: Environ) -> bool:
        length = environ.get("CONTENT_LENGTH") or ""
        return (
            environ["REQUEST_METHOD"] == "POST"
            and environ.get("CONTENT_TYPE") == JSON
            and not environ.get("QUERY_STRING")
            and not any(name in environ for name in UNCOMMON_HEADERS)
            and ARROW not in environ.get("HTTP_ACCEPT", "").lower()
            and environ.get("HTTP_X_DATABASE", DEFAULT) == DEFAULT
            and is_name(environ.get("HTTP_X_TENANT_ID", ""))
            and length.isascii()
            and length.isdigit()
            and len(length) < 10
            and 0 < int(length) <= self._max_bytes
        )


def _rows(kb: TenantKB, arguments: Json, notes: Notes) -> list[bytes]:
    (goal,) = arguments.values()
    parts: list[bytes] = goal.written(kb, rows_written, notes)
    return parts


def _tell(kb: TenantKB, arguments: Json, notes: Notes) -> list[bytes]:
    kb.assert_facts(**arguments)
    (fact,) = arguments["facts"]
    return [f"Fact Asserted: {spoken(fact.predicate, fact.args)}".encode()]
