"""Strict parsing of JSON: of request bodies, and of the lines of files.

Input that two JSON parsers may read differently is refused: duplicate keys, NaN and infinities,
unpaired surrogates, and anything after the document. Integers are exact at any size.

An ordinary document is parsed by orjson and then checked for the errors that orjson accepts. A
document that may contain one is parsed again by the standard library, which is slower, has precise
messages and decides the result.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import orjson

from kbcore.errors import InvalidInput
from kbplanner.pacing import YieldNow, go_on

_EXACT = float(1 << 63)
"""From here on orjson may have read an integer as a float; the slow parser decides."""

_DOUBTFUL_ESCAPE = re.compile(rb"\\u00(?:00|3[aA])")
"""NUL, which is refused, and a colon, which would change the count of keys."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKET = re.compile(r'[\[\]{}]|"[^"]*"?')
"""A bracket, or a whole string so that brackets inside it do not count; for texts without escaped
quotes."""

_MESSAGE_KEY = 60


class NotJson(InvalidInput):
    """A document that is not JSON: its syntax, its encoding or a number is wrong.

    `problem` is the message of the parser and `column` the position in the line, from 1, of an
    error of syntax.
    """

    problem = ""
    column = 0

    @classmethod
    def of_syntax(cls, subject: str, problem: str, line: int, column: int) -> NotJson:
        """Return the error for a position in a document."""
        error = cls(
            f"{subject} is not valid JSON: {problem} at line {line}, column {column}",
            {"line": line, "column": column},
        )
        error.problem, error.column = problem, column
        return error


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """Position of a piece in its document.

    The first byte of the piece, the number of bytes put in front of it, and its size in bytes.
    """

    document: bytes
    start: int
    before: int
    size: int

    def offset(self, position: int) -> int:
        """Return the position in the document of a byte of the piece."""
        return self.start + min(max(position - self.before, 0), self.size)

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Return the line and the column in the document, from 1, of a byte of the piece."""
        at = self.offset(position)
        begin = self.document.rfind(b"\n", 0, at) + 1
        line = self.document.count(b"\n", 0, at) + 1
        return line, len(self.document[begin:at].decode("utf-8", "replace")) + 1


def parse_json(
    document: bytes,
    max_depth: int,
    subject: str = "the body",
    piece: JsonPlace | None = None,
    yield_now: YieldNow = go_on,
) -> Any:
    """Return the value of a JSON document; messages call it `subject`.

    `piece` says which part of a larger document it is, for positions in messages; `yield_now` is
    called between the passes over it. Raises
    InvalidInput, NotJson if it is no JSON at all.
    """
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError:
        return read_slowly(document, max_depth, subject, piece)
    yield_now()
    is_sure = _plain(value, max_depth) and not _DOUBTFUL_ESCAPE.search(document)
    yield_now()
    # Each key has one colon, so fewer of them in the value written out again mean that a key
    # occurs twice. Colons inside strings are the same on both sides, as long as none was written
    # `\u003a`.
    if not is_sure or orjson.dumps(value).count(b":") != document.count(b":"):
        return read_slowly(document, max_depth, subject, piece)
    return value


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


def read_slowly(body: bytes, max_depth: int, subject: str, piece: JsonPlace | None = None) -> Any:
    """Return the value that the standard library reads; see `parse_json`."""
    piece = piece or JsonPlace(body, 0, 0, len(body))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        at = piece.offset(error.start)
        raise NotJson(f"{subject} is not valid UTF-8 at byte {at}") from error
    if text.startswith("\ufeff"):
        raise NotJson(f"{subject} starts with a byte order mark; JSON has none")
    _check_depth(text, max_depth, subject)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        line, column = piece.line_and_column(len(text[: error.pos].encode()))
        raise NotJson.of_syntax(subject, error.msg, line, column) from error
    except ValueError as error:
        raise InvalidInput(f"an integer in {subject} has too many digits") from error
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
        raise InvalidInput(f"the number {digits[:_MESSAGE_KEY]} is too large")
    return value


def _check_depth(text: str, max_depth: int, subject: str) -> None:
    """Refuse deep nesting before a recursive parser runs; takes time linear in the text."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for token in _BRACKET.finditer(text.replace("\\\\", "").replace('\\"', "")):
        mark = token.group()[0]
        if mark in "[{":
            depth += 1
            if depth > max_depth:
                raise too_deep(max_depth, subject)
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


def given_twice(key: str) -> InvalidInput:
    """Return the error for a key that an object has twice."""
    part = key[:_MESSAGE_KEY]
    shortened = json.dumps(key if part == key else part + "…")
    return InvalidInput(f"key {shortened} is given twice", {"key": part})


def too_deep(max_depth: int, subject: str = "the body") -> InvalidInput:
    """Return the error for a document that nests too deep."""
    return InvalidInput(
        f"{subject} nests deeper than {max_depth} levels",
        {"limit": "MAX_JSON_DEPTH", "value": max_depth},
    )
