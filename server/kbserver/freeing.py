"""Release of the memory of large requests in pieces.

The last reference to a list of a hundred thousand facts releases all of them in one step of some
fifty milliseconds, in which no other request is served.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from kbplanner.pacing import OBJECTS_PER_YIELD, YieldNow, let_go

MAX_DEPTH = 3
"""Containers and objects inside each other that are searched for long ones."""

MAX_SEARCHED = 50
"""Elements of a short container that are searched for long ones."""


def free_arguments(arguments: dict[str, Any], yield_now: YieldNow) -> None:
    """Empty the arguments of a request, which is answered; `yield_now` is called about once a
    millisecond.
    """
    parts = _long_parts(arguments.values())
    if parts:
        arguments.clear()
        _free(parts, yield_now)


def free_frames(error: BaseException, yield_now: YieldNow) -> None:
    """Drop the traceback of an error and the local variables that it keeps.

    `yield_now` is called about once a millisecond.
    """
    errors: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in errors:
        errors.append(cause)
        cause = cause.__cause__ or cause.__context__
    parts = _long_parts(value for each in errors for value in _locals(each))
    if parts:
        for each in errors:
            each.__traceback__ = None
        _free(parts, yield_now)


def _locals(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        yield from trace.tb_frame.f_locals.values()
        trace = trace.tb_next


def _free(parts: list[Collection[Any]], yield_now: YieldNow) -> None:
    """Release containers that nothing else refers to, and their elements."""
    while parts:
        part = parts.pop()
        if sys.getrefcount(part) == _OWN_REFERENCES:
            if not isinstance(part, list | dict | set):
                part = list(part)
            let_go(part, yield_now)


_OWN_REFERENCES = 2
"""References to a local variable that is an argument of `sys.getrefcount` too."""


def _long_parts(values: Iterable[Any]) -> list[Collection[Any]]:
    """Return the long containers among values and in them, each once."""
    containers: dict[int, Collection[Any]] = {}
    _search(values, MAX_DEPTH, containers)
    return list(containers.values())


def _search(values: Iterable[Any], depth: int, containers: dict[int, Collection[Any]]) -> None:
    for value in values:
        if isinstance(value, dict | list | tuple | set | frozenset):
            if len(value) > OBJECTS_PER_YIELD:
                containers[id(value)] = value
            elif depth and len(value) <= MAX_SEARCHED:
                _search(value.values() if isinstance(value, dict) else value, depth - 1, containers)
        elif depth and is_dataclass(value) and not isinstance(value, type):
            members = (getattr(value, each.name, None) for each in fields(value))
            _search(members, depth - 1, containers)
