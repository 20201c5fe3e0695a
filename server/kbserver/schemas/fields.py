"""Fields that several bodies share: what a value may look like, and what it becomes.

Each reader is a plain function from a JSON value to ours that raises ValueError with the reason; null means absent. The
marshmallow fields wrap these, and bulk bodies call them directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from marshmallow import ValidationError, fields

from kbcore.instants import LAST_INSTANT, instant
from kbserver.request_context import NAME_RULE, is_name

MAX_METADATA_BYTES = 32 * 1024
EVERY_SCOPE = "*"

Reader = Callable[[Any], Any]


class Read(fields.Field[Any]):
    """A field read by one of the functions below; null counts as absent."""

    def __init__(self, reader: Reader, **more: Any) -> None:
        super().__init__(allow_none=not more.get("required", False), **more)
        self.reader = reader

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        try:
            return self.reader(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


def flag(value: Any) -> bool:
    """Read a boolean."""
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def text(value: Any) -> str:
    """Read a text."""
    if type(value) is not str:
        raise ValueError("must be a text")
    return value


def scope_to_write(value: Any) -> str:
    """Read the name of one scope."""
    if value == EVERY_SCOPE:
        raise ValueError('"*" is every scope, which can be read but not written')
    return scope_to_read(value)


def scope_to_read(value: Any) -> str:
    """Read the name of a scope, or `*` for every one."""
    if type(value) is not str or not (is_name(value) or value == EVERY_SCOPE):
        raise ValueError(f"is not a name of a scope: it has {NAME_RULE}")
    return value


def fraction(value: Any) -> float:
    """Read a number from 0 to 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError("must be a number from 0 to 1")
    return float(value)


def whole(low: int, high: int = LAST_INSTANT) -> Reader:
    """Make a reader of integers from `low` to `high`; `3.0` is one too."""

    def read(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            bounds = f"of at least {low}" if high == LAST_INSTANT else f"from {low} to {high}"
            raise ValueError(f"must be a whole number {bounds}")
        return value

    return read


def one_of(*words: str) -> Reader:
    """Make a reader of one of some words."""

    def read(value: Any) -> str:
        if type(value) is not str or value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return read


milliseconds = whole(1)
"""Read a positive number of milliseconds."""


moment = instant
"""Read an instant, epoch milliseconds or ISO 8601 with an offset, as epoch milliseconds."""


def metadata(value: Any) -> dict[str, Any]:
    """Read an object of anything, of limited size."""
    if type(value) is not dict:
        raise ValueError("must be an object")
    try:
        size = len(orjson.dumps(value))
    except TypeError as error:
        raise ValueError("holds an integer of more than 64 bits; write it as a text") from error
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"has at most {MAX_METADATA_BYTES} bytes as JSON, this one has {size}")
    return value


def anything(value: Any) -> Any:
    """Read whatever it is: somebody else judges it."""
    return value
