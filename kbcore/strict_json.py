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
from typing import Any

import orjson

from kbcore.errors import InvalidInput

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
    """A document that is not JSON: the message of the parser, with line and column from 1."""

    def __init__(self, subject: str, problem: str, line: int, column: int) -> None:
        super().__init__(
            f"{subject} is not valid JSON: {problem} at line {line}, column {column}",
            {"line": line, "column": column},
        )
        self.problem = problem
        self.column = column


def parse_json(document: bytes, max_depth: int, subject: str = "the body") -> Any:
    """Return the value of a JSON document; messages call it `subject`. Raises InvalidInput."""
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError:
        return read_slowly(document, max_depth, subject)
    if (
        not _plain(value, max_depth)
        or _DOUBTFUL_ESCAPE.search(document)
        or _drops_keys(value, document)
    ):
        return read_slowly(document, max_depth, subject)
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


def _drops_keys(value: Any, body: bytes) -> bool:
    r"""Return True if a key occurs twice: the value, written out again, then has fewer colons.

    Each key has one colon, and colons inside strings are the same on both sides as long as none was
    written `\u003a`.
    """
    return orjson.dumps(value).count(b":") != body.count(b":")


def read_slowly(body: bytes, max_depth: int, subject: str) -> Any:
    """Return the value that the standard library reads. Raises InvalidInput."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{subject} is not valid UTF-8 at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise InvalidInput(f"{subject} starts with a byte order mark; JSON has none")
    _check_depth(text, max_depth, subject)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise NotJson(subject, error.msg, error.lineno, error.colno) from error
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
                raise InvalidInput(f"key {_shown(key)} is given twice", {"key": key[:_MESSAGE_KEY]})
            seen.add(key)
    return known


def _no_constant(name: str) -> Any:
    raise InvalidInput(f"{name} is not a JSON number")


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
                raise InvalidInput(
                    f"{subject} nests deeper than {max_depth} levels",
                    {"limit": "MAX_JSON_DEPTH", "value": max_depth},
                )
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


def _shown(key: str) -> str:
    return json.dumps(key if len(key) <= _MESSAGE_KEY else key[:_MESSAGE_KEY] + "…")
