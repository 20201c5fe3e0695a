"""Canonical JSON (RFC 8785), written in parts."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring as _quoted
from typing import Any

MAX_EXACT = 1 << 53
"""Integers of this size and more are not exact as numbers of JSON."""


def canonical_json(value: Any) -> bytes:
    """Return a value in canonical form; raises ValueError for a value that JSON does not have."""
    return "".join(canonical_parts(value)).encode()


def canonical_parts(value: Any) -> Iterator[str]:
    """Yield a value in canonical form, part by part; raises ValueError as `canonical_json` does."""
    if isinstance(value, dict):
        yield "{"
        for number, name in enumerate(sorted(value, key=_utf16)):
            yield ("," if number else "") + _quoted(name) + ":"
            yield from canonical_parts(value[name])
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from canonical_parts(item)
        yield "]"
    elif isinstance(value, str):
        yield _quoted(value)
    elif value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    else:
        yield _number(value)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it (ECMA-262, Number::toString)."""
    if isinstance(value, int):
        if abs(value) >= MAX_EXACT:
            raise ValueError(f"{value} is not exact as a number of JSON")
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no number of JSON")
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + exponent
    text = text.rstrip("0")
    if not text:
        return "0"
    if len(text) <= point <= 21:
        text = text.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{fraction}e{point - 1:+d}"
    return "-" * sign + text
