"""Reading the body, the query string and the limits of the current request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import has_request_context, request

from kbcore.errors import InvalidInput
from kbcore.reason.budget import NO_LIMITS, RequestLimits
from kbserver.errors import UnsupportedMedia
from kbserver.http.json_body import bulk_limit, parse_object, read_body
from kbserver.http.request import Request
from kbserver.http.request_context import (
    bodies,
    current,
    current_request,
    enter_transaction,
    reader,
    viewed,
    wait_wanted,
    whole,
    writer,
)
from kbserver.pace import reading
from kbserver.schemas.base import Body, instance
from kbserver.schemas.fields import Instant, Json, ReadScope, Whole

if TYPE_CHECKING:
    from kbcore.operations.tenant_kb import TenantKB


class Nothing(Body):
    """The body of a route without arguments: an empty object or no body."""


class Budgeted(Body):
    """Run budget of a request; the limits of the settings cap it."""

    timeout_ms = Whole(1)
    max_rows = Whole(1)
    max_steps = Whole(1)
    max_bytes = Whole(1)
    max_answers = Whole(1)


class KnownAt(NamedTuple):
    """The instant in epoch milliseconds whose state a request reads, and limits for rebuilding
    it.
    """

    instant: int
    request_limits: RequestLimits


KNOWN_AT = "knownAt"
"""The member of a body, and the parameter of a query string, that names an instant."""

_KNOWN_AT_MEANS = (
    "Answer from what was known at this instant: epoch milliseconds, or ISO 8601 with an offset."
)
KNOWN_AT_PARAMETER: Json = {**Instant.schema, "description": _KNOWN_AT_MEANS}
"""The JSON Schema of `knownAt` in a query string."""


class OfAnyInstant(Body):
    """A read that can be answered from an earlier state."""

    known_at = Instant(description=_KNOWN_AT_MEANS)

    def _arguments(self, fields: Json) -> Json:
        known_at = fields.pop("known_at", None)
        arguments = self.arguments(fields)
        if known_at is None:
            return arguments
        return {**arguments, "known_at": KnownAt(known_at, request_limits(fields))}


class Historic(OfAnyInstant, Budgeted):
    """A read that has a run budget and can be answered from an earlier state."""


_LIMITS = ("max_rows", "max_steps", "max_bytes", "max_answers")
_SCOPE = ReadScope()
_INSTANT = Instant()
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def load(body: type[Body]) -> Json:
    """Read the body of the current request; its headers are checked first."""
    strict = current().strict
    served = current_request()
    data = _object(served)
    if served.is_of_present:
        require_present(data)
    _take_view(served, data, instance(body))
    served.ignored = None
    return instance(body).read(data, strict=strict)


def opened(
    body: type[Body] | None, knowledge_base: Callable[[], TenantKB] = reader
) -> tuple[TenantKB, Json]:
    """Return the knowledge base of a request, and the arguments of its body.

    The body may name the view of the knowledge base, so it is read first; in a transaction, which
    an error in the body ends, after the transaction was entered.
    """
    if body is None:
        return knowledge_base(), {}
    if (transaction := current().transaction) is not None:
        enter_transaction(current(), transaction, writes=knowledge_base is writer)
        arguments = load(body)
        return knowledge_base(), arguments
    kb = whole()  # first, because the database must exist
    arguments = load(body)
    return viewed(kb, current_request()), arguments


def take_view(data: Json, body: Body | None) -> Json:
    """Remove the view and the labels from the members of a body, unless the body has members of
    these names itself; return them.
    """
    names = [name for name in ("view", "labels") if name in data]
    return {name: data.pop(name) for name in names if body is None or not body.has(name)}


def _take_view(served: Request, data: Json, body: Body) -> None:
    """Move the view and the labels of a request from its body to the request.

    Raises InvalidInput where the operation has none: an answer with more than the view would be
    wrong.
    """
    if members := take_view(data, body):
        if not served.takes_view:
            raise InvalidInput.at(next(iter(members)), "is not available here")
        served.viewed = members


def require_present(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a read that shows the present only is asked about an earlier instant.

    Other unknown arguments are ignored and named in a header, but an answer from another time than
    the one asked about would be wrong.
    """
    if arguments.get(KNOWN_AT) is not None:
        raise InvalidInput.at(KNOWN_AT, "is not available here: this reads the present state only")


def seen(kb: TenantKB, arguments: Json) -> TenantKB:
    """Return a knowledge base as it was known at the instant in the arguments of a read, if any.

    The instant is removed from the arguments. Raises what `TenantKB.known_at` raises.
    """
    known_at: KnownAt | None = arguments.pop("known_at", None)
    return kb if known_at is None else kb.known_at(*known_at)


def seen_asked(kb: TenantKB, query: Mapping[str, str]) -> TenantKB:
    """Return a knowledge base as it was known at the instant in a query string, if any.

    Raises what `TenantKB.known_at` raises.
    """
    text = query.get(KNOWN_AT)
    if text is None:
        return kb
    try:
        instant = _INSTANT.read(int(text) if _NUMBER.fullmatch(text) else text)
    except ValueError as error:
        raise InvalidInput.at(KNOWN_AT, str(error)) from error
    return kb.known_at(instant, request_limits({}))


def scope_asked(query: Mapping[str, str], default: str | None) -> str | None:
    """Read the scope in a query string."""
    if "scope" not in query:
        return default
    try:
        return _SCOPE.read(query["scope"])
    except ValueError as error:
        raise InvalidInput.at("scope", str(error)) from error


def whole_asked(query: Mapping[str, str], name: str, field: Whole, default: int) -> int:
    """Read a whole number in a query string; raises InvalidInput."""
    text = query.get(name)
    if text is None:
        return default
    try:
        return field.read(int(text) if text.isascii() and text.isdigit() else text)
    except ValueError as error:
        raise InvalidInput.at(name, str(error)) from error


def proof_asked(fields: Mapping[str, Any]) -> bool:
    """Return True if the body or the query string asks for proofs."""
    if fields.get("with_proof"):
        return True
    return has_request_context() and request.args.get("proof", "").lower() in ("true", "1")


def request_limits(fields: Mapping[str, Any]) -> RequestLimits:
    """Return the run budget of a request: limits in the body; the lower of `timeoutMs` and `Prefer:
    wait` applies.
    """
    timeout = fields.get("timeout_ms")
    if has_request_context() and (wait := wait_wanted()) is not None:
        timeout = wait if timeout is None else min(timeout, wait)
    if timeout is None and fields.keys().isdisjoint(_LIMITS):
        return NO_LIMITS
    return RequestLimits(
        timeout,
        fields.get("max_rows"),
        fields.get("max_steps"),
        fields.get("max_bytes"),
        fields.get("max_answers"),
    )


def _object(served: Request) -> dict[str, Any]:
    config, environ = served.runtime.config, served.environ
    if environ.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in environ:
        check_media(environ)
    limit = served.body_limit or bulk_limit(config)
    body = read_body(environ, limit, bodies())
    with reading({}):
        return parse_object(body, config.max_json_depth)


def check_media(environ: Mapping[str, Any]) -> None:
    """Refuse a body that is not JSON in UTF-8; raises UnsupportedMedia."""
    content_type = environ.get("CONTENT_TYPE", "")
    if content_type != "application/json":
        media_type, *parameters = content_type.split(";")
        if media_type.strip().lower() != "application/json":
            raise UnsupportedMedia(
                "a body needs Content-Type: application/json", {"header": "Content-Type"}
            )
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in (
                "utf-8",
                "utf8",
            ):
                raise UnsupportedMedia(
                    "the only charset of a body is utf-8", {"header": "Content-Type"}
                )
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() not in ("identity", ""):
        raise UnsupportedMedia("a body is not compressed", {"header": "Content-Encoding"})
