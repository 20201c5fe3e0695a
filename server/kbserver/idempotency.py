"""`Idempotency-Key`: a repeated write with the same key returns the first answer.

The write is not executed again. The key is logged with the changes of the request, and the answer
after it, so both survive a restart. Only successful answers are stored: a failed request has
changed nothing and may be sent again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from contextlib import AbstractContextManager
from io import BytesIO

from flask import Flask, Response, g, request

from kbcore.durable.request_key import carrying_out
from kbcore.errors import Conflict, InvalidInput, KBError
from kbcore.node.runtime import Runtime
from kbcore.state.changes import ChangeSet, NoteAnswer, Outdated
from kbcore.state.idempotency import ANSWER_BYTES, Answer, Answered, RequestKey
from kbserver.http.json_body import read_body
from kbserver.http.request_context import RequestContext, bodies, read_headers
from kbserver.operations import Operation, operation_at

HEADER = "Idempotency-Key"
ENVIRON = "HTTP_IDEMPOTENCY_KEY"
REPLAYED = "Idempotency-Replayed"

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_RETRY_SECONDS = 1
_NOT_STORED = frozenset(
    (
        *("content-length", "vary", "x-request-id", "x-kb-version"),
        *("ratelimit", "ratelimit-policy"),
    )
)
"""Headers that belong to one transmission of an answer."""

log = logging.getLogger(__name__)


class InFlight(Conflict):
    """The first request with this key is still in progress."""

    retry_after = _RETRY_SECONDS


class Idempotency:
    """The active requests with an idempotency key; `install` adds the checks to an application."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._in_progress: dict[tuple[str, str, str], str] = {}

    def install(self, app: Flask) -> None:
        """Check each request before its route, and record its answer."""
        app.before_request(self._begin)
        app.after_request(self._end)
        app.teardown_request(self._leave)

    def _begin(self) -> Response | None:
        key = request.environ.get(ENVIRON)
        rule = request.url_rule
        declared = None if rule is None else operation_at(request.method, rule.rule)
        if key is None or declared is None or not declared.takes_key:
            return None
        if not _KEY.fullmatch(key):
            raise InvalidInput(
                f"header {HEADER} has 1 to 255 visible ASCII characters", {"header": HEADER}
            )
        context = read_headers(request.environ)
        request_key = RequestKey(key, self._digest(context, declared))
        entry = (context.database, context.tenant, key)
        with self._mutex:
            running = self._in_progress.get(entry)
            known = None if running else self._known(context, key)
            if running is None and known is None:
                self._in_progress[entry] = request_key.digest
                g.idempotent = (entry, request_key)
        if known is not None:
            return _again(known, request_key)
        if running is not None:
            if running != request_key.digest:
                raise _key_reused()
            raise InFlight(
                "the first request with this key is still in progress",
                {"reason": "in_flight"},
            )
        mark: AbstractContextManager[None] = carrying_out(
            context.database, context.tenant, request_key
        )
        mark.__enter__()
        g.idempotent_mark = mark
        g.last_purge = self._last_purge(context.database, context.tenant)
        return None

    def _known(self, context: RequestContext, key: str) -> Answered | None:
        tenant = self._runtime.find_tenant(context.database, context.tenant)
        return None if tenant is None else tenant.answered.get(key, self._runtime.clock.now_ms())

    def _last_purge(self, database: str, tenant: str) -> int:
        """Return the sequence number of the last purge of a tenant, 0 if there was none."""
        known = self._runtime.find_tenant(database, tenant)
        return 0 if known is None else known.purges.last_seq()

    def _digest(self, context: RequestContext, declared: Operation) -> str:
        environ = request.environ
        body = read_body(environ, declared.body_limit(self._runtime.config), bodies())
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(body), str(len(body))
        identity = (
            request.path,
            environ.get("QUERY_STRING"),
            environ.get("HTTP_PREFER"),
            context.transaction,
        )
        return hashlib.blake2b(repr(identity).encode() + b"\0" + body, digest_size=16).hexdigest()

    def _end(self, response: Response) -> Response:
        if "idempotent" in g and response.status_code < 300:
            (database, tenant, _), request_key = g.idempotent
            headers = [pair for pair in response.headers if pair[0].lower() not in _NOT_STORED]
            body = response.get_data()
            answer = None
            if len(body) <= ANSWER_BYTES:
                answer = Answer(response.status_code, tuple(headers), body.decode())
            begun = g.last_purge

            def check() -> None:
                if self._last_purge(database, tenant) != begun:
                    raise Outdated("the answer may have text that was purged")

            note = ChangeSet(database, tenant, (NoteAnswer(request_key, answer),), check)
            try:
                try:
                    self._runtime.commit(note)
                except Outdated:
                    without = NoteAnswer(request_key, None)
                    self._runtime.commit(ChangeSet(database, tenant, (without,)))
            except KBError as error:
                log.warning("the answer of an idempotency key was not stored: %s", error.message)
        return response

    def _leave(self, error: BaseException | None) -> None:
        mark = g.pop("idempotent_mark", None)
        if mark is not None:
            mark.__exit__(None, None, None)
        held = g.pop("idempotent", None)
        if held is not None:
            with self._mutex:
                self._in_progress.pop(held[0], None)


def _again(known: Answered, request_key: RequestKey) -> Response:
    if known.digest != request_key.digest:
        raise _key_reused()
    if known.answer is None:
        raise Conflict(
            "the request with this key was executed, but its answer was not stored; it is not executed again",
            {"reason": "answer_lost"},
        )
    response = Response(known.answer.body.encode(), status=known.answer.status)
    for name, value in known.answer.headers:
        response.headers[name] = value
    response.headers[REPLAYED] = "true"
    return response


def _key_reused() -> Conflict:
    return Conflict("this key belongs to another request", {"reason": "key_reused"})
