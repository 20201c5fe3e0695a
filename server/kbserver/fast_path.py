"""The entry of every request, and the fast path for common requests of the five hot routes.

The fast path serves POSTs with a small JSON body and common headers, with the same readers, schemas
and core methods as the Flask routes. All other requests, and every invalid body, are passed on to
Flask unchanged. A differential test checks that both give the same bytes. `kbserver.http.request`
describes the way of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbcore.durable.request_key import API_KEY
from kbcore.errors import Forbidden, InvalidInput
from kbcore.operations.conflicts import KEEP_BOTH
from kbcore.operations.evaluated_goal import KEY_NAME
from kbcore.reason.budget import Notes
from kbcore.state.names import is_name
from kbserver.accounting import Accounting
from kbserver.answers import ARROW, JSON, TEXT, noted, rows_written
from kbserver.http.body_memory import Bodies
from kbserver.http.compress import MIN_BYTES, VARY, compressed, compressible, wanted_by
from kbserver.http.cors import Cors
from kbserver.http.json_body import parse_object, read_body, text_limit
from kbserver.http.request import CURRENT, REQUEST, Request
from kbserver.http.request_context import DEFAULT
from kbserver.operations import need_of
from kbserver.replication import requests as replication
from kbserver.schemas.facts import TellBody, spoken
from kbserver.schemas.fields import Json
from kbserver.schemas.reason import InferBody, QueryBody
from kbserver.schemas.requests import seen
from kbserver.security.browser_guard import CHECKED, BrowserGuard
from kbserver.security.guard import Guard
from kbserver.security.permissions import Need

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime
    from kbcore.operations.tenant_kb import TenantKB

MAX_BYTES = 64 * 1024
"""Larger bodies are served by the Flask route."""

UNCOMMON_HEADERS = (
    "HTTP_PREFER",
    "HTTP_X_TRANSACTION_ID",
    "HTTP_TRANSFER_ENCODING",
    "HTTP_CONTENT_ENCODING",
    "HTTP_IDEMPOTENCY_KEY",
    "HTTP_X_MIN_SEQ",
    "HTTP_X_VIEW",
    "HTTP_X_LABELS",
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
    """The outermost WSGI layer: makes the request, and answers it or passes it on to Flask.

    `guard` is None if authentication and limits are off. Without `fast_path` Flask answers every
    request that the browser guard accepts.
    """

    def __init__(
        self,
        flask_app: Application,
        runtime: Runtime,
        accounting: Accounting,
        bodies: Bodies,
        browser_guard: BrowserGuard,
        guard: Guard | None = None,
        *,
        fast_path: bool = True,
    ) -> None:
        self._flask_app = flask_app
        self._runtime = runtime
        self._accounting = accounting
        self._bodies = bodies
        self._browser_guard = browser_guard
        self._guard = guard
        self._max_depth = runtime.config.max_json_depth
        self._limit = text_limit(runtime.config)
        self._max_bytes = min(MAX_BYTES, self._limit.bytes)
        self._routes = _routes() if fast_path else {}
        origins = runtime.config.cors_origins
        self._checked: Application = Cors(self._serve, origins) if origins else self._serve

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a WSGI request.

        It begins without a key, which is forgotten afterwards: several requests, and calls of an
        embedding program, can run in one thread one after the other, and the log must not name the
        key of another one.
        """
        request = environ[REQUEST] = Request(environ, self._runtime)
        outer, key, name = CURRENT.set(request), API_KEY.set(None), KEY_NAME.set(None)
        try:
            if CHECKED not in environ:
                try:
                    self._browser_guard.check(environ)
                except Forbidden as error:
                    return self._refused(request, start_response, error)
            method: str = environ["REQUEST_METHOD"]
            if not method.isupper():  # Flask routes `post` as POST, so all others must see POST too
                environ["REQUEST_METHOD"] = method.upper()
            return self._checked(environ, start_response)
        finally:
            KEY_NAME.reset(name)
            API_KEY.reset(key)
            CURRENT.reset(outer)
            if not request.is_active:
                request.environ = {}  # which holds the request: so both are freed at once

    def _refused(
        self, request: Request, start_response: StartResponse, error: Forbidden
    ) -> list[bytes]:
        """Answer what the browser guard refuses."""
        self._accounting.begin(request)
        answer = self._accounting.failed(error, request.id)
        body = answer.body()
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            *request.answer_headers(answer.headers),
        ]
        start_response(answer.line(), headers)
        is_head = request.environ["REQUEST_METHOD"] == "HEAD"
        self._accounting.finish(request, None, answer.status)
        self._accounting.end(request)
        return [] if is_head else [body]

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a common request of a hot route; pass every other one on to Flask."""
        path = environ.get("PATH_INFO", "")
        route = self._routes.get(path)
        if route is None or not self._is_common(environ):
            return self._flask_app(environ, start_response)
        request: Request = environ[REQUEST]
        self._accounting.begin(request)
        node = self._runtime.replication
        turn, notes = node.turn, Notes()
        headers: list[tuple[str, str]]
        try:
            if self._guard is not None:
                self._guard.admit(request, route.need)
            body = read_body(environ, self._limit, self._bodies)
            try:
                members = parse_object(body, self._max_depth)
                if _has_view(request, members):
                    return self._passed_on(request, body, start_response)
                parsed = route.read(members, strict=False)
            except InvalidInput:
                return self._passed_on(request, body, start_response)
            if parsed.get("conflict", KEEP_BOTH) != KEEP_BOTH:  # the answer may have a header more
                return self._passed_on(request, body, start_response)
            kb = self._runtime.knowledge_base(DEFAULT, environ["HTTP_X_TENANT_ID"], request.caller)
            parts = route.answer(seen(kb, parsed), parsed, notes)
            node.check_answer(turn)
        except Exception as error:  # noqa: BLE001 - the error table has an answer to everything
            answer = self._accounting.failed(error, request.id)
            status, parts = answer.line(), [answer.body()]
            headers = [*answer.headers.items(), ("Content-Type", JSON)]
        else:
            status, headers = "200 OK", [("Content-Type", route.content_type)]
            if notes.warnings or notes.unknown or notes.total is not None:
                headers = [*noted(notes).items(), *headers]
        finally:
            self._bodies.release(environ)
        size, encoding = sum(map(len, parts)), NO_HEADERS
        if size >= MIN_BYTES:
            parts, size, encoding = self._encoded(environ, parts, size, headers[-1][1])
        headers = [
            *headers,
            ("Content-Length", str(size)),
            *request.answer_headers(dict(headers)),
            *replication.headers(self._runtime),
            *encoding,
        ]
        start_response(status, headers)
        self._accounting.finish(request, path, int(status[:3]))
        self._accounting.end(request)
        return parts

    def _passed_on(
        self, request: Request, body: bytes, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Have Flask answer a request whose body was read, as if it had not been."""
        request.ignored = None
        request.environ["wsgi.input"] = BytesIO(body)
        return self._flask_app(request.environ, start_response)

    def _encoded(
        self, environ: Environ, parts: list[bytes], size: int, content_type: str
    ) -> tuple[list[bytes], int, tuple[tuple[str, str], ...]]:
        """Return the body, compressed if the client wants that, its size, and the headers that say
        so.
        """
        if not compressible(content_type, size):
            return parts, size, NO_HEADERS
        if not wanted_by(environ):
            return parts, size, (("Vary", VARY),)
        packed = compressed(parts, size, self._runtime.offload)
        return [packed], len(packed), (("Vary", VARY), ("Content-Encoding", "gzip"))

    def _is_common(self, environ: Environ) -> bool:
        length = environ.get("CONTENT_LENGTH") or ""
        return (
            environ["REQUEST_METHOD"] == "POST"
            and environ.get("CONTENT_TYPE") == JSON
            and not environ.get("QUERY_STRING")
            and environ.keys().isdisjoint(UNCOMMON_HEADERS)
            and ARROW not in environ.get("HTTP_ACCEPT", "").lower()
            and environ.get("HTTP_X_DATABASE", DEFAULT) == DEFAULT
            and is_name(environ.get("HTTP_X_TENANT_ID", ""))
            and length.isascii()
            and length.isdigit()
            and len(length) < 10
            and 0 < int(length) <= self._max_bytes
        )


def _has_view(request: Request, body: Json) -> bool:
    """Return True if a request is answered within a view, or stores something with labels."""
    who = request.principal
    return "view" in body or "labels" in body or (who is not None and bool(who.view or who.labels))


NO_HEADERS: tuple[tuple[str, str], ...] = ()


def _routes() -> dict[str, _Route]:
    return {
        path: _Route(read, answer, content_type, need_of("POST", path))
        for path, read, answer, content_type in (
            ("/tell", TellBody().read, _tell, TEXT),
            ("/assert/fact", TellBody().read, _tell, TEXT),
            ("/query", QueryBody().read, _rows, JSON),
            ("/ask", InferBody().read, _rows, JSON),
            ("/infer", InferBody().read, _rows, JSON),
        )
    }


def _rows(kb: TenantKB, arguments: Json, notes: Notes) -> list[bytes]:
    (goal,) = arguments.values()
    parts: list[bytes] = goal.written(kb, rows_written, notes)
    return parts


def _tell(kb: TenantKB, arguments: Json, notes: Notes) -> list[bytes]:
    kb.assert_facts(**arguments)
    (fact,) = arguments["facts"]
    return [f"Fact Asserted: {spoken(fact.predicate, fact.args)}".encode()]
