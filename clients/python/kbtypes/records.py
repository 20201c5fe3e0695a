"""Records of JSON: a dataclass whose fields say how answers write them.

The key of a field is its name in camel case, unless `member` names another. `of` reads a record
from an answer. The server describes and writes the same answer from the same fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Json = Mapping[str, Any]
"""An object of JSON."""

R = TypeVar("R", bound="Record")
Read = Callable[[Any], Any]

KEY, ABOUT, IS_TIME, SPARSE = "key", "about", "time", "sparse"
"""Keys of the metadata of a field: its key, its description, True for epoch milliseconds, and True
for a member that an answer has only if it is true or not empty.
"""

TIME: Mapping[str, Any] = {IS_TIME: True}
"""Metadata of a field for a point in time, in epoch milliseconds."""


def member(
    key: str | None = None, *, about: str | None = None, sparse: bool = False
) -> Mapping[str, Any]:
    """Return the metadata of a field: its key in JSON, its description, and if answers leave it out
    where it is false or empty.
    """
    return {KEY: key, ABOUT: about, SPARSE: sparse}


def camel_case(name: str) -> str:
    """Return a name such as `becomes_true` as JSON has it: `becomesTrue`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def key_of(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field in JSON."""
    return field.metadata.get(KEY) or camel_case(field.name)


class Record:
    """A result that an answer of the HTTP interface describes."""

    __slots__ = ()

    @classmethod
    def of(cls: type[R], answer: Json) -> R:
        """Return the record that an answer describes; absent members have their defaults."""
        return cls(
            **{
                name: read(answer[key]) if read is not None else answer[key]
                for name, key, read, is_needed in _members(cls)
                if is_needed or key in answer
            }
        )


Members = tuple[tuple[str, str, Read | None, bool], ...]
"""Name, key and reader of each field of a record, and whether an answer always has it."""

_MEMBERS: dict[type[Any], Members] = {}


def _members(cls: type[Any]) -> Members:
    members = _MEMBERS.get(cls)
    if members is None:
        types = get_type_hints(cls)
        members = _MEMBERS[cls] = tuple(
            (each.name, key_of(each), _reader(types[each.name]), _is_needed(each))
            for each in dataclasses.fields(cls)
        )
    return members


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _reader(type_: Any) -> Read | None:
    """Return the function that reads a value of a type from JSON; None if it is as JSON has it."""
    origin, args = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType) and NoneType in args:
        inner = [_reader(each) for each in args if each is not NoneType]
        return partial(_optional, inner[0]) if len(inner) == 1 and inner[0] is not None else None
    if origin is None and isinstance(type_, type) and issubclass(type_, Record):
        return type_.of
    each = _reader(args[0]) if origin in (list, tuple) else None
    if origin is tuple:
        return tuple if each is None else lambda values: tuple(map(each, values))
    if origin is list and each is not None:
        return lambda values: list(map(each, values))
    if origin is dict and (value := _reader(args[1])) is not None:
        return lambda values: {name: value(inner) for name, inner in values.items()}
    return None


def _optional(read: Read, value: Any) -> Any:
    return None if value is None else read(value)
