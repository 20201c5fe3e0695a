"""Release of the memory of large requests in pieces.

The last reference to a list of a hundred thousand facts releases all of them in one step of some
fifty milliseconds, in which no other request is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    parts = list(_long_parts(arguments.values(), MAX_DEPTH))
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
    parts = [part for each in errors for part in _long_locals(each)]
    if parts:
        for each in errors:
            each.__traceback__ = None
        _free(parts, yield_now)


def _long_locals(error: BaseException) -> Iterator[list[Any]]:
    trace = error.__traceback__
    while trace is not None:
        yield from _long_parts(trace.tb_frame.f_locals.values(), MAX_DEPTH)
        trace = trace.tb_next


def _free(parts: list[list[Any]], yield_now: YieldNow) -> None:
    """Release the elements of lists, whose containers were released before."""
    for part in parts:
        let_go(part, yield_now)


def _long_parts(values: Iterable[Any], depth: int) -> Iterator[list[Any]]:
    """Yield the elements of the long containers among values and in them."""
    for value in values:
        if isinstance(value, dict | list | tuple | set | frozenset):
            if len(value) > OBJECTS_PER_YIELD:
                yield list(value)
                if isinstance(value, dict):
                    yield list(value.values())
            elif depth and len(value) <= MAX_SEARCHED:
                inside = value.values() if isinstance(value, dict) else value
                yield from _long_parts(inside, depth - 1)
        elif depth and is_dataclass(value) and not isinstance(value, type):
            members = (getattr(value, each.name, None) for each in fields(value))
            yield from _long_parts(members, depth - 1)
