"""Pauses of long loops, so that other work gets its turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

Rest = Callable[[], None]
"""Called between pieces of about a millisecond of work: it lets other work run, and raises when the
request must end."""


def no_rest() -> None:
    """Do nothing: there is no other work to let run."""


_CURRENT: ContextVar[Rest] = ContextVar("kbplanner-rest", default=no_rest)


current_rest = _CURRENT.get
"""Return what the innermost block of `resting` calls; `no_rest` outside of any."""


class resting:  # noqa: N801  used like a function, in `with resting(rest):`
    """Context manager: have the readers of texts and the compiler of rules in this block call `rest`, unless they
    are given another one.

    The block reads the body of a request, or evaluates one: it has texts and rules in many places.
    While it holds a lock, other work waits only if it needs the same lock.
    """

    __slots__ = ("_rest", "_token")

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._rest)

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self._token)


begin_resting = _CURRENT.set
end_resting = _CURRENT.reset
"""The two halves of `resting`, for blocks that are entered for each short request."""

STEPS_PER_YIELD = 10_000
"""Steps of Python between two calls of `yield_now`: about a millisecond."""


def paced(
    items: Iterable[T], yield_now: Callable[[], None], every: int = STEPS_PER_YIELD
) -> Iterator[T]:
    """Yield the items, and call `yield_now` after every `every` of them."""
    if yield_now is no_rest or (isinstance(items, (tuple, list)) and len(items) <= every):
        return iter(items)
    return _paced(items, yield_now, every)


def _paced(items: Iterable[T], yield_now: Callable[[], None], every: int) -> Iterator[T]:
    left, more = iter(items), False
    for item in left:
        if more:
            yield_now()
        more = True
        yield item
        yield from islice(left, every - 1)


def in_parts(items: Sequence[T], yield_now: Callable[[], None], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in slices of at most `size`, and call `yield_now` between them."""
    for start in range(0, len(items), size):
        if start:
            yield_now()
        yield items[start : start + size]


CHARS_PER_YIELD = 1 << 16
"""Characters of a text searched or split between two calls of `yield_now`: about a millisecond."""


def may_have(
    text: str, pattern: re.Pattern[str], longest: int, yield_now: Callable[[], None]
) -> bool:
    """Return False if a text has no match of a pattern, whose matches have at most `longest` characters.

    The text is searched in pieces, with `yield_now` called between them. True may be wrong, because
    the end of a piece counts as the end of a word.
    """
    return any(
        pattern.search(text, start, start + CHARS_PER_YIELD + longest)
        for start in paced(range(0, len(text), CHARS_PER_YIELD), yield_now, 1)
    )


def lines_of(text: str, yield_now: Callable[[], None]) -> list[str]:
    """Return the lines of a text, without line breaks; `yield_now` is called between pieces."""
    lines: list[str] = []
    start = 0
    while (end := text.find("\n", start + CHARS_PER_YIELD)) >= 0:
        lines += text[start:end].split("\n")
        start = end + 1
        yield_now()
    lines += text[start:].split("\n")
    return lines


def let_go(items: list[Any] | dict[Any, Any], yield_now: Callable[[], None]) -> None:
    """Empty a container in pieces: the memory of many objects is not released in an instant."""
    while items:
        if isinstance(items, dict):
            for _ in range(min(len(items), OBJECTS_PER_YIELD)):
                items.popitem()
        else:
            del items[-OBJECTS_PER_YIELD:]
        yield_now()


OBJECTS_PER_YIELD = 2000
"""Small objects released between two calls of `yield_now`: about a millisecond."""
