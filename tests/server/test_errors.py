"""Mapping of exceptions to HTTP error responses."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from marshmallow import Schema, ValidationError, fields
from werkzeug.exceptions import (
    BadRequest,
    InternalServerError,
    MethodNotAllowed,
    NotFound,
    RequestEntityTooLarge,
)

import kbcore.errors
import kbplanner.errors
from kbcore.errors import (
    EngineFault,
    InvalidInput,
    KBError,
    LogCorrupted,
    NotReady,
    PluginFailed,
    RateLimited,
    StorageFailed,
    StorageFull,
    Unauthorized,
    UnknownDatabase,
)
from kbserver.errors import UnsupportedMedia, answer_of, invalid
from kbtypes.errors import STATUS

START_UP_ONLY = {"ConfigError", "StorageBusy", "LogCorrupted"}


def _all(kind: type[KBError]) -> Iterator[type[KBError]]:
    yield kind
    for below in kind.__subclasses__():
        if not below.__module__.startswith("kbcore_client."):
            yield from _all(below)


@pytest.mark.parametrize("kind", sorted(set(_all(KBError)), key=lambda kind: kind.__name__))
def test_every_error_has_a_status(kind: type[KBError]) -> None:
    assert kind.__module__.startswith(("kbcore", "kbplanner", "kbplugins", "kbserver", "kbtypes"))
    assert kind.code in STATUS
    assert kbcore.errors
    assert kbplanner.errors


def test_a_core_error_keeps_its_message() -> None:
    answer = answer_of(UnknownDatabase("x"))
    assert answer.status == 404
    assert json.loads(answer.body()) == {
        "code": "NOT_FOUND",
        "message": "database 'x' does not exist",
        "details": {"database": "x"},
    }


def test_headers_of_errors() -> None:
    most = RateLimited("slow down", 2.1, {"limit": "TX_MAX_OPEN", "value": 100})
    limit = {"RateLimit-Policy": '"TX_MAX_OPEN";q=100', "RateLimit": '"TX_MAX_OPEN";r=0;t=3'}
    assert answer_of(most).headers == {"Retry-After": "3", **limit}
    assert answer_of(Unauthorized("who?")).headers == {"WWW-Authenticate": "Bearer"}
    assert answer_of(NotReady("soon")).headers == {"Retry-After": "1"}
    assert answer_of(UnsupportedMedia("json")).status == 415


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound(), 404, "NOT_FOUND"),
        (MethodNotAllowed(valid_methods=["POST"]), 405, "VALIDATION_ERROR"),
        (RequestEntityTooLarge(), 413, "PAYLOAD_TOO_LARGE"),
        (BadRequest(), 400, "VALIDATION_ERROR"),
    ],
)
def test_http_errors(error: Exception, status: int, code: str) -> None:
    answer = answer_of(error)
    assert (answer.status, answer.code) == (status, code)
    assert answer.message


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), InternalServerError("secret"), KBError("secret bug")]
)
def test_an_unexpected_error_is_logged_with_the_request_id(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = answer_of(error, "r-1")
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert b"Traceback" not in answer.body()
    assert b"secret" not in answer.body()
    assert caplog.records[0].fields == {"id": "r-1"}


class Element(Schema):
    predicate = fields.String(required=True)


class Envelope(Schema):
    facts = fields.List(fields.Nested(Element), required=True)


def test_marshmallow_errors_name_the_fields() -> None:
    with pytest.raises(ValidationError) as found:
        Envelope().load({"facts": [{"predicate": "p"}, {}], "more": 1})
    error = invalid(found.value)
    assert error.details == {
        "fields": {
            "facts[1].predicate": ["Missing data for required field."],
            "more": ["Unknown field."],
        }
    }
    assert error.message == "facts[1].predicate: Missing data for required field."


@pytest.mark.parametrize(
    "error",
    [
        PluginFailed("plugin p failed in h: OSError(2, '/srv/kb/wal')", {"file": "/srv/kb/wal"}),
        EngineFault("a durable change could not be applied: KeyError('/srv/kb/wal')"),
        StorageFailed("/srv/kb/wal: [Errno 5]", {"file": "/srv/kb/wal"}),
        StorageFull("no space on /srv/kb", {"folder": "/srv/kb", "freeBytes": 1}),
        LogCorrupted("/srv/kb/wal: checksum", directory="/srv/kb", segment="wal", offset=0),
        OSError(2, "No such file or directory", "/srv/kb/wal"),
    ],
)
def test_clients_see_neither_paths_nor_exception_texts(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answer = answer_of(error, "r-1")
    for hidden in (b"/srv", b"Errno", b"Error(", b"No such file"):
        assert hidden not in answer.body()
    assert "/srv" in caplog.text


def test_a_lone_surrogate_in_a_message_is_escaped() -> None:
    body = json.loads(answer_of(InvalidInput("half \ud800", {"x": "\ud800"})).body())
    assert body["message"] == "half \\ud800"
