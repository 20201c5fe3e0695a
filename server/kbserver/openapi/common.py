"""Shared parts of the OpenAPI operations: parameters, headers and errors, defined once and
referenced.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kbcore.state.keys import WRITER
from kbcore.state.names import NAME_PATTERN, NAME_RULE
from kbserver.answers import JSON
from kbserver.http.compress import compressible
from kbserver.http.request_context import LABELS, VIEW
from kbserver.idempotency import HEADER, REPLAYED
from kbserver.notices import IGNORED_HEADER, MAX_NAMES, TIMES_HEADER
from kbserver.operations import TEXT, Operation, OperationReply
from kbserver.schemas.fields import Json
from kbserver.security.permissions import PUBLIC
from kbtypes.errors import STATUS

ERROR_STATUSES: dict[int, tuple[str, ...]] = {
    status: tuple(code for code in STATUS if STATUS[code] == status)
    for status in sorted(set(STATUS.values()))
} | {410: ("LOG_TRUNCATED", "NOT_FOUND"), 415: ("VALIDATION_ERROR",)}
"""The codes of each status of an error."""

_MEANINGS = {
    400: "The request is not sound; nothing was changed.",
    401: "No key, or one that is not known.",
    403: "The key does not allow this.",
    404: "What was addressed does not exist.",
    409: "The present state does not allow this, or this node takes no writes.",
    410: "The route is gone, or the records that were asked for are.",
    413: "Too large.",
    415: "The body is not JSON in UTF-8.",
    422: "The work went over a limit.",
    429: "Too much at once.",
    500: "A bug; the log has more.",
    501: "This needs a language model, and none is configured.",
    502: "The language model failed.",
    503: "The server is not ready, or stopping.",
    507: "No room on the disk; reads go on.",
}

_NAME = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_PAGE_ROWS = {"type": "integer", "minimum": 1, "maximum": 1_000_000}

PARAMETERS: dict[str, dict[str, Any]] = {
    "X-Tenant-ID": {
        "required": True,
        "schema": _NAME,
        "description": f"Whose knowledge: {NAME_RULE}.",
    },
    "X-Database": {
        "schema": {**_NAME, "default": "default"},
        "description": "The database; 404 if it does not exist.",
    },
    "X-Transaction-ID": {
        "schema": TEXT,
        "description": "The transaction the request belongs to; 404 where it is not known, 409 where it has ended.",
    },
    VIEW: {
        "schema": TEXT,
        "description": "What the request may see, as a JSON object of levels and groups by dimension, "
        'such as `{"trust": "user"}`; a body may have it as `view`.',
    },
    LABELS: {
        "schema": TEXT,
        "description": "The labels of what the request stores, as such an object; a body may have it as `labels`.",
    },
    HEADER: {
        "schema": {"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
        "description": "A write that is sent again with the same key is not carried out again, and has the answer it had.",
    },
    "If-None-Match": {
        "schema": TEXT,
        "description": "The ETag of what is known already; 304 where it is still so.",
    },
    "X-Request-ID": {
        "schema": TEXT,
        "description": "Echoed if it is 1 to 128 of `A-Z a-z 0-9 . _ -`; else a new one is made.",
    },
    "traceparent": {
        "schema": TEXT,
        "description": "A W3C trace; its id goes into the log line of the request.",
    },
}
"""Parameters of many operations, all of them headers."""

HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {"schema": TEXT, "description": "The number of the request, also in the log."},
    "X-KB-Version": {"schema": TEXT, "description": "The version of the server."},
    "X-Content-Type-Options": {
        "schema": {"type": "string", "enum": ["nosniff"]},
        "description": "Browsers do not guess another content type.",
    },
    "RateLimit": {
        "schema": TEXT,
        "description": "Where rates are limited: what is left, and seconds until it is full.",
    },
    "RateLimit-Policy": {
        "schema": TEXT,
        "description": "Where rates are limited: requests and seconds of the limit.",
    },
    "X-Commit-Seq": {
        "schema": TEXT,
        "description": "Of a write: its place in the log, for `X-Min-Seq` of later reads.",
    },
    "X-Replication-Lag-Ms": {
        "schema": TEXT,
        "description": "Of a follower: how old, at most, what it shows is.",
    },
    IGNORED_HEADER: {
        "schema": TEXT,
        "description": "Of a request with fields that are not known and were ignored: their paths, percent-encoded, "
        f"joined by commas; `...` after {MAX_NAMES}. With `Prefer: handling=strict` such a request is refused.",
    },
    TIMES_HEADER: {
        "schema": TEXT,
        "description": "Of a request with instants that look like seconds, where milliseconds are meant: warnings, "
        "percent-encoded, joined by `; `.",
    },
    "Content-Encoding": {
        "schema": {**TEXT, "enum": ["gzip"]},
        "description": "Of a long answer, where the client takes gzip.",
    },
    "Vary": {"schema": TEXT, "description": "What the answer depends on beside the address."},
    "ETag": {
        "schema": TEXT,
        "description": "Changes with every change of the answer, for `If-None-Match`.",
    },
    "Cache-Control": {"schema": TEXT, "description": "Who may keep the answer, and for how long."},
    "Link": {
        "schema": TEXT,
        "description": 'Of a page that is not the last: the next, with `rel="next"`.',
    },
    REPLAYED: {
        "schema": {**TEXT, "enum": ["true"]},
        "description": f"The answer of an earlier request with the same `{HEADER}`.",
    },
}
"""Headers of many answers."""

_APPLIED = {"Preference-Applied": {**TEXT, "description": "The preferences that were honoured."}}

SECURITY: dict[str, dict[str, str]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key, where the server asks for keys.",
    },
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The same key in another header.",
    },
}
"""The ways to send a key."""

PAGED: dict[str, Json] = {
    "limit": {
        **_PAGE_ROWS,
        "description": "Maximum number of rows; if there are more, `Link` has the address of the "
        "next page.",
    },
    "cursor": {
        **TEXT,
        "description": "Where the page begins: from the `Link` of the page before. 409 after a "
        "change.",
    },
}


def error_schema(status: int) -> Json:
    """Return the schema of the errors of a status."""
    return {
        "type": "object",
        "required": ["code", "message", "details"],
        "properties": {
            "code": {**TEXT, "enum": list(ERROR_STATUSES[status])},
            "message": {**TEXT, "description": "What is wrong, for a person."},
            "details": {
                "type": ["object", "null"],
                "description": "Values that a program may act on.",
            },
        },
    }


_ALWAYS = (
    "X-Request-ID",
    "X-KB-Version",
    "X-Content-Type-Options",
    "RateLimit",
    "RateLimit-Policy",
    "X-Commit-Seq",
    "X-Replication-Lag-Ms",
)
_COMPRESSED = ("Content-Encoding", "Vary")
_LARGE = 1 << 20
_OF_KEYS, _OF_RATES = frozenset((401, 403)), frozenset((429,))
"""Statuses that routes which ask for no key, and those that count against no limit, never answer at
the door.
"""


def parameters(path: str, declared: Operation) -> Iterator[str | Json]:
    """Yield the parameters of an operation; shared parameters are references."""
    for name in re.findall(r"{(\w+)}", path):
        yield {"name": name, "in": "path", "required": True, "schema": _NAME}
    if declared.tenant:
        yield "X-Tenant-ID"
        yield "X-Database"
    if declared.transaction:
        yield "X-Transaction-ID"
    if declared.viewed:
        yield VIEW
    if declared.viewed and declared.role == WRITER:
        yield LABELS
    if declared.takes_key:
        yield HEADER
    if declared.tagged:
        yield "If-None-Match"
    yield "X-Request-ID"
    yield "traceparent"
    if declared.body is not None:
        preferences = (
            "handling=strict",
            *("wait=SECONDS" if name == "wait" else name for name in declared.prefer),
        )
        text = f"Any of {', '.join(f'`{each}`' for each in preferences)}, joined by commas."
        yield {"name": "Prefer", "in": "header", "schema": TEXT, "description": text}
    for name, schema in {**declared.query, **(PAGED if declared.paged else {})}.items():
        yield {"name": name, "in": "query", "schema": schema}
    for name, schema in declared.headers.items():
        yield {"name": name, "in": "header", "schema": schema}


def security(declared: Operation) -> list[dict[str, list[str]]]:
    """Return the ways to send the API key; a server without authentication requires none."""
    return [] if declared.role == PUBLIC else [{"bearer": []}, {"header": []}, {}]


def statuses(declared: Operation) -> list[int]:
    """Return every error status that an operation may return."""
    codes = {*declared.statuses(), *((409,) if declared.takes_key else ())}
    if declared.role == PUBLIC:
        codes -= _OF_KEYS if declared.counted else _OF_KEYS | _OF_RATES
    return sorted(codes.union(declared.errors))


def responses(declared: Operation, example: Mapping[str, Any]) -> Json:
    """Return the responses of an operation by status."""
    more: list[str] = [REPLAYED] if declared.takes_key else []
    more += [IGNORED_HEADER, TIMES_HEADER] if declared.body is not None else []
    more += ["ETag", "Cache-Control", "Vary"] if declared.tagged else []
    more += ["Link"] if declared.paged else []
    applied = _APPLIED if declared.prefer else {}
    by_status = {
        str(reply.status): _response(reply, more, applied, example) for reply in declared.replies
    }
    if declared.tagged:
        by_status["304"] = {
            "description": "Not changed since.",
            "headers": _references(*_ALWAYS, "ETag", "Cache-Control", "Vary"),
        }
    for status in statuses(declared):
        by_status.setdefault(str(status), {"$ref": f"#/components/responses/Error{status}"})
    return dict(sorted(by_status.items()))


def error(status: int, example: Mapping[str, Any] | None) -> Json:
    """Return the response object of an error, which is the same for all operations."""
    headers: Json = _references(*_ALWAYS, *_COMPRESSED)
    if status in (409, 429, 503):
        headers["Retry-After"] = {"schema": {"type": "integer", "description": "Seconds."}}
    if status == 401:
        headers["WWW-Authenticate"] = {"schema": {**TEXT, "description": "How to send a key."}}
    schema = {"$ref": f"#/components/schemas/Error{status}"}
    media = {"schema": schema, **({"example": example} if example is not None else {})}
    return {"description": _MEANINGS[status], "headers": headers, "content": {JSON: media}}


def _response(
    reply: OperationReply, more: list[str], applied: Mapping[str, Json], example: Mapping[str, Any]
) -> Json:
    happened = example.get("answers", {}).get(str(reply.status), {})
    content = {
        media: {
            "schema": schema if isinstance(schema, type) else copy.deepcopy(schema),
            **({"example": happened[media]} if media in happened else {}),
        }
        for media, schema in reply.content.items()
    }
    compressed = _COMPRESSED if any(compressible(media, _LARGE) for media in reply.content) else ()
    own = {name: {"schema": schema} for name, schema in {**reply.headers, **applied}.items()}
    return {
        "description": reply.description,
        "headers": {**_references(*_ALWAYS, *compressed, *more), **own},
        "content": content,
    }


def _references(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
