"""Strict parsing of request bodies: JSON bytes to an object.

Input that two JSON parsers may read differently is refused: duplicate keys, NaN and infinities,
unpaired surrogates, and anything after the document. Integers are exact at any size.

An ordinary body is parsed by orjson and then checked for the errors that orjson accepts. A body
that may contain one is parsed again by the standard library, which is slower, has precise messages
and decides the result.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import MutableMapping
from typing import Any, NamedTuple

import orjson

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput, TooLarge
from kbplanner.pacing import current_rest
from kbserver.http.body_memory import Bodies
from kbserver.http.json_pieces import (
    MESSAGE_KEY,
    PIECE_BYTES,
    Place,
    given_twice,
    parse_in_pieces,
    too_deep,
)

_EXACT = float(1 << 63)
"""From here on orjson may have read an integer as a float; the slow parser decides."""

_DOUBTFUL_ESCAPE = re.compile(rb"\\u00(?:00|3[aA])")
"""NUL, which is refused, and a colon, which would change the count of keys."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKET = re.compile(r'[\[\]{}]|"[^"]*"?')
"""A bracket, or a whole string so that brackets inside it do not count; for texts without escaped
quotes."""

_CHUNK = 1 << 16
"""Bytes of the first part of a body, and of each chunk of a body without a length."""


class NotJson(InvalidInput):
    """The body is no JSON: its syntax, its encoding or a number is wrong."""


class BodyLimit(NamedTuple):
    """The most bytes of a body, and the setting that says so."""

    bytes: int
    setting: str


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
        {"limit": limit.setting, "value": limit.bytes},
    )


def parse_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """Return the JSON object in a body; an empty body is an empty object.

    A large body is parsed in pieces, between which the current `rest` is called. Raises InvalidInput,
    NotJson if the body is no JSON at all, and what `rest` raises.
    """
    if not body:
        return {}
    if len(body) <= PIECE_BYTES:
        value = _parse(body, Place(body, 0, 0, len(body)), max_depth)
    else:
        value = parse_in_pieces(
            body, max_depth, lambda text, place: _parse(text, place, max_depth), current_rest()
        )
    if type(value) is not dict:
        raise InvalidInput(f"the body is a JSON object, not {_kind(value)}")
    return value


def _parse(text: bytes, place: Place, max_depth: int) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _read_slowly(text, place, max_depth)
    if (
        _plain(value, max_depth)
        and not _DOUBTFUL_ESCAPE.search(text)
        and not _drops_keys(value, text)
    ):
        return value
    return _read_slowly(text, place, max_depth)


def _plain(value: Any, max_depth: int) -> bool:
    """Return True if a parsed value is within the depth limit and its numbers are surely exact."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(max_depth):
        below = []
        for container in level:
            for item in container.values() if type(container) is dict else container:
                kind = type(item)
                if kind is dict or kind is list:
                    below.append(item)
                elif kind is float and not -_EXACT < item < _EXACT:
                    return False
        if not below:
            return True
        level = below
    return False


def _drops_keys(value: Any, body: bytes) -> bool:
    r"""Return True if a key occurs twice: the value, written out again, then has fewer colons.

    Each key has one colon, and colons inside strings are the same on both sides as long as none was
    written `\u003a`.
    """
    return orjson.dumps(value).count(b":") != body.count(b":")


def _read_slowly(body: bytes, place: Place, max_depth: int) -> Any:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        at = place.offset(error.start)
        raise NotJson(f"the body is not valid UTF-8 at byte {at}") from error
    if text.startswith("\ufeff"):
        raise NotJson("the body starts with a byte order mark; JSON has none")
    _check_depth(text, max_depth)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        line, column = place.line_and_column(len(text[: error.pos].encode()))
        raise NotJson(
            f"the body is not valid JSON: {error.msg} at line {line}, column {column}",
            {"line": line, "column": column},
        ) from error
    except ValueError as error:
        raise InvalidInput("an integer in the body has too many digits") from error
    _check_strings(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise given_twice(key)
            seen.add(key)
    return known


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidInput(f"the number {digits[:MESSAGE_KEY]} is too large")
    return value


def _check_depth(text: str, max_depth: int) -> None:
    """Refuse deep nesting before a recursive parser runs; takes time linear in the text."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for token in _BRACKET.finditer(text.replace("\\\\", "").replace('\\"', "")):
        mark = token.group()[0]
        if mark in "[{":
            depth += 1
            if depth > max_depth:
                raise too_deep(max_depth)
        elif mark in "]}":
            depth -= 1


def _check_strings(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is str:
            if "\0" in item:
                raise InvalidInput("the character NUL is not allowed in text")
            if not item.isascii() and _SURROGATE.search(item):
                raise InvalidInput("half a surrogate pair is not a character")
        elif type(item) is dict:
            pending.extend(item)
            pending.extend(item.values())
        elif type(item) is list:
            pending.extend(item)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"
