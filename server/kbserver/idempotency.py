"""`Idempotency-Key`: a repeated write with the same key returns the first answer.

The write is not executed again. The key is logged with the changes of the request, in one record.
The answer is made again from the request, which is sent again, and from what its changes did
(`Operation.again`); if that would not be the same answer, it is logged in a second record. So a
request in progress when the process ends is either not executed or has a definite answer. Only
successful answers are stored: a failed request has changed nothing and may be sent again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO

from flask import Flask, Response, request

from kbcore.durable.request_key import carrying_out, own_key
from kbcore.errors import Conflict, InvalidInput, KBError
from kbcore.node.runtime import Runtime
from kbcore.operations.views import ALL
from kbcore.state.changes import ChangeSet, NoteAnswer, Outdated
from kbcore.state.idempotency import ANSWER_BYTES, Answered, IdempotentAnswer, Outcome, RequestKey
from kbserver.answers import as_json
from kbserver.http.json_body import read_body
from kbserver.http.request_context import (
    RequestContext,
    bodies,
    current_request,
    grant_of,
    read_headers,
)
from kbserver.operations import Operation, operation_at
from kbserver.replication.requests import COMMIT_SEQ
from kbserver.schemas.requests import load
from kbserver.security.permissions import TokenPrincipal

HEADER = "Idempotency-Key"
ENVIRON = "HTTP_IDEMPOTENCY_KEY"
REPLAYED = "Idempotency-Replayed"

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_RETRY_SECONDS = 1
_NOT_STORED = frozenset(
    (
        "content-length",
        "vary",
        "x-request-id",
        "x-kb-version",
        "ratelimit",
        "ratelimit-policy",
    )
)
"""Headers that belong to one transmission of an answer."""

log = logging.getLogger(__name__)


class InFlight(Conflict):
    """The first request with this key is still in progress."""

    retry_after = _RETRY_SECONDS


@dataclass(slots=True)
class Keyed:
    """State of a request that carries out an idempotency key, until it ends.

    `entry` is the database, the tenant and the key. `last_purge` is the number of the last purge of
    the tenant when it began, and `mark` ends the marking of its change sets. The answer of a
    `is_dry` run is not recorded: it stores nothing, and a reader may send it.
    """

    entry: tuple[str, str, str]
    request_key: RequestKey
    mark: AbstractContextManager[None] | None = None
    last_purge: int = 0
    is_dry: bool = False


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
        declared = _declared()
        if key is None or declared is None or not declared.takes_key:
            return None
        if not _KEY.fullmatch(key):
            raise InvalidInput(
                f"header {HEADER} has 1 to 255 visible ASCII characters", {"header": HEADER}
            )
        context = read_headers(request.environ)
        key = _own(key)
        request_key = RequestKey(key, self._digest(context, declared))
        entry = (context.database, context.tenant, key)
        with self._mutex:
            running = self._in_progress.get(entry)
            known = None if running else self._known(context, key)
            if running is None and known is None:
                self._in_progress[entry] = request_key.digest
                keyed = current_request().keyed = Keyed(entry, request_key)
        if known is not None:
            if known.digest != request_key.digest:
                raise _key_reused()
            return _again(known, declared)
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
        keyed.mark = mark
        keyed.last_purge = self._last_purge(context.database, context.tenant)
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
            *(environ[name] for name in ("HTTP_X_VIEW", "HTTP_X_LABELS") if name in environ),
        )
        return hashlib.blake2b(repr(identity).encode() + b"\0" + body, digest_size=16).hexdigest()

    def _end(self, response: Response) -> Response:
        keyed = current_request().keyed
        if keyed is not None and not keyed.is_dry and response.status_code < 300:
            (database, tenant, _), request_key = keyed.entry, keyed.request_key
            known = self._known(read_headers(request.environ), request_key.key)
            if known is not None and _can_be_made_again(known.outcome, response):
                return response
            answer = _stored(response, None if known is None else known.outcome)
            begun = keyed.last_purge

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
        served = current_request()
        keyed, served.keyed = served.keyed, None
        if keyed is not None:
            if keyed.mark is not None:
                keyed.mark.__exit__(None, None, None)
            with self._mutex:
                self._in_progress.pop(keyed.entry, None)


def _own(key: str) -> str:
    """Return an idempotency key as it is stored: that of a caller with a view belongs to its API
    key, and that of a token to its subject, so that others neither see its answers nor whether it
    is in use.
    """
    who = current_request().principal
    if who is None or (grant_of(who) == ALL and not isinstance(who, TokenPrincipal)):
        return key
    return own_key(who.key or who.name, key)


def _stored(response: Response, outcome: Outcome | None) -> IdempotentAnswer:
    """Return an answer as it is stored: a large body is replaced."""
    headers = [pair for pair in response.headers if pair[0].lower() not in _NOT_STORED]
    body = response.get_data()
    if len(body) > ANSWER_BYTES:
        short = _without_body(outcome, response.status_code)
        body = short.get_data()
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
        headers.append(("Content-Type", short.content_type))
    return IdempotentAnswer(response.status_code, tuple(headers), body.decode())


def _without_body(outcome: Outcome | None, status: int) -> Response:
    """Answer that the request was executed, with the number of its change in the log if known."""
    return as_json(
        {"replayed": True, "seq": None if outcome is None else outcome.seq}, status=status
    )


def _declared() -> Operation | None:
    rule = request.url_rule
    return None if rule is None else operation_at(request.method, rule.rule)


def _made_again(outcome: Outcome | None) -> Response | None:
    """Return the answer to the current request, which was executed; None if it cannot be made."""
    declared = _declared()
    if declared is None or declared.again is None or outcome is None:
        return None
    served = current_request()
    if served.arguments is None:
        try:
            served.arguments = {} if declared.body is None else load(declared.body)
        except KBError:  # the settings have changed: what was accepted then is refused now
            return None
    return declared.again(outcome, {**served.arguments, **(request.view_args or {})})


def _can_be_made_again(outcome: Outcome | None, first: Response) -> bool:
    """Return True if the answer that is made for a repetition is the first one."""
    again, declared = _made_again(outcome), _declared()
    if again is None or declared is None:
        return False
    names = {"Content-Type"}.union(*(reply.headers for reply in declared.replies))
    return (again.status_code, again.get_data()) == (first.status_code, first.get_data()) and all(
        again.headers.get(name) == first.headers.get(name) for name in names
    )


def _again(known: Answered, declared: Operation) -> Response:
    answer, outcome = known.answer, known.outcome
    if answer is not None:
        response = Response(answer.body.encode(), status=answer.status)
        for name, value in answer.headers:
            response.headers[name] = value
    else:
        response = _made_again(outcome) or _without_body(outcome, declared.replies[0].status)
    if outcome is not None:
        response.headers[COMMIT_SEQ] = str(outcome.seq)
    response.headers[REPLAYED] = "true"
    return response


def _key_reused() -> Conflict:
    return Conflict("this key belongs to another request", {"reason": "key_reused"})
