"""Request bodies: reading within the limits of size and memory, and strict parsing to an object."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, NamedTuple

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput, TooLarge
from kbcore.strict_json import JsonPlace, parse_json
from kbplanner.pacing import current_yield
from kbserver.http.body_memory import Bodies
from kbserver.http.json_pieces import PIECE_BYTES, parse_in_pieces

_CHUNK = 1 << 16
"""Bytes of the first part of a body, and of each chunk of a body without a length."""


class BodyLimit(NamedTuple):
    """The most bytes of a body, and the name of the setting that says so."""

    bytes: int
    name: str


def bulk_limit(config: Config) -> BodyLimit:
    """Return the limit of a body with many facts."""
    return BodyLimit(config.max_body_bytes, "MAX_BODY_BYTES")


def text_limit(config: Config) -> BodyLimit:
    """Return the limit of all other bodies."""
    own = BodyLimit(config.max_text_body_bytes, "MAX_TEXT_BODY_BYTES")
    return min(own, bulk_limit(config), key=lambda limit: limit.bytes)


def read_body(environ: MutableMapping[str, Any], limit: BodyLimit, bodies: Bodies) -> bytes:
    """Read the body of a WSGI request and count its bytes in `bodies`.

    The caller releases the count when the request is answered. Raises TooLarge as soon as the body
    is known to be over `limit` bytes, and TooManyBodies as soon as the memory limit is reached.
    """
    stated = environ.get("CONTENT_LENGTH") or ""
    try:
        if stated:
            if not (stated.isascii() and stated.isdigit()):
                raise InvalidInput("Content-Length is not a number", {"header": "Content-Length"})
            length = int(stated) if len(stated) < 20 else limit.bytes + 1
            if length > limit.bytes:
                raise _too_large(limit)
            body: bytes
            if 0 < length <= _CHUNK:  # the usual body is there at once
                bodies.hold(environ, length)
                body = environ["wsgi.input"].read(length)
                if 0 < len(body) < length:
                    body += _stated(environ, length - len(body), bodies)
            else:
                body = _stated(environ, length, bodies) if length else b""
            if len(body) < length:
                raise InvalidInput("the body ended before the stated Content-Length")
            return body
        return _unstated(environ, limit, bodies) if environ.get("wsgi.input_terminated") else b""
    except OSError as error:
        raise InvalidInput("the body could not be read to its end") from error


def _stated(environ: MutableMapping[str, Any], length: int, bodies: Bodies) -> bytes:
    """Read in parts, each as large as all parts before it.

    This needs few calls and never counts more than twice the bytes received.
    """
    bodies.check(environ, length)
    parts, size, part = [], 0, b""
    while size < length:
        chunk_bytes = min(max(_CHUNK, size), length - size)
        bodies.hold(environ, size + chunk_bytes)
        part = environ["wsgi.input"].read(chunk_bytes)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return part if len(parts) == 1 else b"".join(parts)


def _unstated(environ: MutableMapping[str, Any], limit: BodyLimit, bodies: Bodies) -> bytes:
    parts, size = [], 0
    while part := environ["wsgi.input"].read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > limit.bytes:
            raise _too_large(limit)
        bodies.hold(environ, size)
    return b"".join(parts)


def _too_large(limit: BodyLimit) -> TooLarge:
    return TooLarge(
        f"a request body has at most {limit.bytes} bytes",
        {"limit": limit.name, "value": limit.bytes},
    )


def parse_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """Return the JSON object in a body; an empty body is an empty object.

    A large body is parsed in pieces, between which the current `yield_now` is called. Raises
    InvalidInput, NotJson if the body is no JSON at all, and what `yield_now` raises.
    """
    if not body:
        return {}
    if len(body) <= PIECE_BYTES:
        value = parse_json(body, max_depth)
    else:
        yield_now = current_yield()

        def parse(text: bytes, piece: JsonPlace) -> Any:
            return parse_json(text, max_depth, piece=piece, yield_now=yield_now)

        value = parse_in_pieces(body, max_depth, parse, yield_now)
    if type(value) is not dict:
        raise InvalidInput(f"the body is a JSON object, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"
