"""Mapping of exceptions to HTTP error answers; no other module knows HTTP statuses.

Every error leaves as `{code, message, details}`; `details` is an object or null.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.http import HTTP_STATUS_CODES

from kbcore.errors import (
    CallerLeft,
    Forbidden,
    InvalidInput,
    KBError,
    LogCorrupted,
    NotFound,
    PluginFailed,
    RateLimited,
    SnapshotFailed,
    StorageBusy,
    StorageFailed,
    StorageFull,
    Unauthorized,
)
from kbserver.rate_headers import rate_headers, used_up
from kbtypes.errors import STATUS

_CODES_OF_HTTP = {
    404: "NOT_FOUND",
    410: "NOT_FOUND",
    413: "PAYLOAD_TOO_LARGE",
    429: "RATE_LIMITED",
    503: "NOT_READY",
}
"""Codes of errors that werkzeug raises; other 4xx are VALIDATION_ERROR and keep their status."""

_CLIENT_MESSAGES: dict[type[KBError], str] = {
    StorageFull: "the disk of the server is full; writes are refused until there is free space, reads go on",
    StorageFailed: "the storage of the server failed; the server log has the details",
    SnapshotFailed: "the server could not store a snapshot; the server log has the details",
    StorageBusy: "the storage of the server is in use by another process; the server log has the details",
    LogCorrupted: "the storage of the server is damaged; the server log has the details",
    PluginFailed: "a plugin of the server failed; the server log has the details",
}
"""Messages for clients: those of the errors name files and exceptions, which only the server log
may show."""

_CLIENT_DETAILS = ("freeBytes", "neededBytes")
"""Details of these errors, and of internal errors, that clients may see."""

_NOT_READY_RETRY_SECONDS = "1"

log = logging.getLogger(__name__)


class UnsupportedMedia(InvalidInput):
    """A body that is not JSON in UTF-8."""

    status = 415


class Gone(NotFound):
    """A route past its sunset."""

    status = 410


class InvalidToken(Unauthorized):
    """A key or an access token that is not valid."""


class ExpiredToken(InvalidToken):
    """A genuine access token outside of its time."""


class InsufficientScope(Forbidden):
    """A valid access token that lacks a scope; `scope` is the one that the request needs."""

    def __init__(self, message: str, scope: str, details: Mapping[str, Any]) -> None:
        super().__init__(message, {**details, "scope": scope})
        self.scope = scope


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An HTTP error: status, body members and extra headers."""

    status: int
    code: str
    message: str
    details: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Return the status line in the form that Flask writes."""
        return f"{self.status} {HTTP_STATUS_CODES[self.status].upper()}"

    def shape(self) -> dict[str, Any]:
        """Return the members of the JSON body."""
        return {"code": self.code, "message": self.message, "details": self.details}

    def body(self) -> bytes:
        """Return the JSON body."""
        shape = self.shape()
        try:
            return orjson.dumps(shape, default=str)
        except TypeError:  # text that UTF-8 cannot hold, such as a lone surrogate in a refused name
            shape["message"] = self.message.encode("ascii", "backslashreplace").decode()
            return orjson.dumps({**shape, "details": None})


UNEXPECTED = ErrorAnswer(
    500, "INTERNAL_ERROR", "the server failed to handle this request; the log has more"
)
"""The answer to an unexpected exception."""


def answer_of(error: BaseException, id: str = "-") -> ErrorAnswer:
    """Return the answer to an exception; `id` is the request id for the log.

    Unexpected exceptions are logged and answered without any detail.
    """
    if isinstance(error, KBError):
        return _kb_answer(error, id)
    if isinstance(error, ValidationError):
        return _kb_answer(invalid(error), id)
    if isinstance(error, HTTPException) and (
        (error.code or 500) < 500 or error.code in _CODES_OF_HTTP
    ):
        return _http_answer(error)
    log.error("unexpected failure", exc_info=error, extra={"fields": {"id": id}})
    return UNEXPECTED


USUAL_SCOPES = "kbcore:read kbcore:write"
"""The scopes that a client without a token is advised to request: not those of administrators."""


def challenge(error: KBError, metadata_url: str) -> str | None:
    """Return the header `WWW-Authenticate` of an error (RFC 6750, RFC 9728), None for one without.

    `metadata_url` is the address of the metadata for OAuth clients.
    """
    parts = [f'scope="{USUAL_SCOPES}"', f'resource_metadata="{metadata_url}"']
    if isinstance(error, InsufficientScope):
        parts = ['error="insufficient_scope"', f'scope="{error.scope}"', parts[1]]
    elif isinstance(error, InvalidToken):
        parts = ['error="invalid_token"', *parts]
    elif not isinstance(error, Unauthorized):
        return None
    return f"Bearer {', '.join(parts)}"


def _kb_answer(error: KBError, id: str) -> ErrorAnswer:
    headers = {}
    if isinstance(error, RateLimited):
        wait = max(1, math.ceil(error.retry_after or 0))
        headers = {"Retry-After": str(wait), **rate_headers(used_up(error.details, wait))}
    elif (seconds := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(seconds)
    elif error.code == "UNAUTHORIZED":
        headers["WWW-Authenticate"] = "Bearer"
    elif error.code == "NOT_READY":
        headers["Retry-After"] = _NOT_READY_RETRY_SECONDS
    if isinstance(error, CallerLeft):
        log.info("client disconnected", extra={"fields": {"id": id}})
    if error.code == "INTERNAL_ERROR":
        log.error(
            "%s: %s",
            type(error).__name__,
            error.message,
            exc_info=error,
            extra={"fields": {"id": id}},
        )
    status = error.status if isinstance(error, UnsupportedMedia | Gone) else STATUS[error.code]
    message, details = _for_clients(error, id)
    return ErrorAnswer(status, error.code, message, details, headers)


def _for_clients(error: KBError, id: str) -> tuple[str, Mapping[str, Any] | None]:
    """Return the message and details of an error without paths of the server and exception
    texts.
    """
    message = next(
        (text for kind, text in _CLIENT_MESSAGES.items() if isinstance(error, kind)), None
    )
    if message is None and error.code != UNEXPECTED.code:
        return error.message, error.details
    if isinstance(error, StorageFull):
        log.warning("write refused: %s", error.message, extra={"fields": {"id": id}})
    details = error.details or {}
    client_details = {key: details[key] for key in _CLIENT_DETAILS if key in details}
    return message or UNEXPECTED.message, client_details or None


def _http_answer(error: HTTPException) -> ErrorAnswer:
    status = error.code or 500
    if status < 400:  # a redirect to the same path with other slashes, which is no route here
        return ErrorAnswer(404, "NOT_FOUND", "no such path")
    if isinstance(error, MethodNotAllowed):
        allowed = sorted(error.valid_methods or ())
        message = f"this path does not take that method; it takes {', '.join(allowed)}"
        return ErrorAnswer(
            405, "VALIDATION_ERROR", message, {"allowed": allowed}, {"Allow": ", ".join(allowed)}
        )
    message = "no such path" if status == 404 else (error.description or error.name)
    return ErrorAnswer(status, _CODES_OF_HTTP.get(status, "VALIDATION_ERROR"), message)


def invalid(error: ValidationError, path: str = "") -> InvalidInput:
    """Convert an error of marshmallow: `details.fields` maps the path of each field to its
    problems.
    """
    fields: dict[str, list[str]] = {}
    for name, problem in _flat(error.messages, path):
        fields.setdefault(name, []).append(problem)
    first = next(iter(fields), "")
    message = (
        f"{first}: {fields[first][0]}" if first else "; ".join(fields.get("", ["invalid request"]))
    )
    return InvalidInput(message, {"fields": fields})


def _flat(messages: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, Mapping):
        for key, below in messages.items():
            if key == "_schema":
                yield from _flat(below, path)
            elif isinstance(key, int):
                yield from _flat(below, f"{path}[{key}]")
            else:
                yield from _flat(below, f"{path}.{key}" if path else str(key))
    elif isinstance(messages, list):
        for below in messages:
            yield from _flat(below, path)
    else:
        yield path, str(messages)
