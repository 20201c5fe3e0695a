"""Pauses of long loops, so that other work gets its turn."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

YieldNow = Callable[[], None]
"""Called between pieces of about a millisecond of work: it lets other work run, and raises when the
request must end."""


def go_on() -> None:
    """Do nothing: there is no other work to let run."""


_CURRENT: ContextVar[YieldNow] = ContextVar("kbplanner-yield", default=go_on)


current_yield = _CURRENT.get
"""Return what the innermost block of `yielding` calls; `go_on` outside of any."""


class yielding:  # noqa: N801  used like a function, in `with yielding(yield_now):`
    """Context manager: have the readers of texts and the compiler of rules in this block call
    `yield_now`, unless they are given another one.

    The block reads the body of a request, or evaluates one: it has texts and rules in many places.
    While it holds a lock, other work waits only if it needs the same lock.
    """

    __slots__ = ("_token", "_yield_now")

    def __init__(self, yield_now: YieldNow) -> None:
        self._yield_now = yield_now

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._yield_now)

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self._token)


begin_yielding = _CURRENT.set
end_yielding = _CURRENT.reset
"""The two halves of `yielding`, for blocks that are entered for each short request."""

STEPS_PER_YIELD = 10_000
"""Steps of Python between two calls of `yield_now`: about a millisecond."""


def paced(
    items: Iterable[T], yield_now: Callable[[], None], every: int = STEPS_PER_YIELD
) -> Iterator[T]:
    """Yield the items, and call `yield_now` after every `every` of them."""
    if yield_now is go_on or (isinstance(items, (tuple, list)) and len(items) <= every):
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
    """Return False if a text has no match of a pattern, whose matches have at most `longest`
    characters.

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


def sorted_in_parts(
    items: Iterable[T], yield_now: Callable[[], None], key: Callable[[T], Any] | None = None
) -> list[T]:
    """Return the items sorted as `sorted` does, with `yield_now` called between pieces of the work.

    `key` is called once for each item. The items must have an order, or their keys.
    """
    if key is None:
        return _merged(list(paced(items, yield_now)), yield_now)
    unsorted = list(paced(items, yield_now))
    order = _merged(
        [(key(item), at) for at, item in enumerate(paced(unsorted, yield_now, KEYS_PER_YIELD))],
        yield_now,
    )
    in_order = [unsorted[at] for _, at in paced(order, yield_now)]
    if yield_now is not go_on and len(order) > STEPS_PER_YIELD:
        let_go(order, yield_now)
    return in_order


KEYS_PER_YIELD = 1000
"""Sort keys made between two calls of `yield_now`: about a millisecond."""

SORTED_PER_YIELD = 4000
"""Items sorted between two calls of `yield_now`: about a millisecond."""


MERGED_PER_YIELD = 20_000
"""Items merged with others between two calls of `yield_now`: some milliseconds."""


def _merged(items: list[Any], yield_now: Callable[[], None]) -> list[Any]:
    """Sort a list: first parts of it, then two neighbours at a time, which `sort` merges."""
    size = SORTED_PER_YIELD
    if len(items) <= size or yield_now is go_on:
        items.sort()
        return items
    parts = [sorted(part) for part in in_parts(items, yield_now, size)]
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], []] if len(parts) % 2 else parts[1::2], strict=True)
        parts = [_united(*pair, yield_now) for pair in paced(pairs, yield_now, 1)]
    return parts[0]


def _united(first: list[Any], second: list[Any], yield_now: Callable[[], None]) -> list[Any]:
    """Return the elements of two sorted lists in order; of equal ones those of `first` come first.

    `first` is taken in pieces, each with the smaller elements of `second`: `sort` merges two runs
    with as many comparisons as the shorter one has elements, times a logarithm.
    """
    united: list[Any] = []
    begin = 0
    for part in in_parts(first, yield_now, MERGED_PER_YIELD):
        end = bisect_left(second, part[-1], begin)
        piece = [*part, *second[begin:end]]
        piece.sort()
        united += piece
        begin = end
    united += second[begin:]
    return united


def let_go(items: list[Any] | dict[Any, Any] | set[Any], yield_now: Callable[[], None]) -> None:
    """Empty a container in pieces: the memory of many objects is not released in an instant."""
    while items:
        if isinstance(items, list):
            del items[-OBJECTS_PER_YIELD:]
        else:
            pop = items.popitem if isinstance(items, dict) else items.pop
            for _ in range(min(len(items), OBJECTS_PER_YIELD)):
                pop()
        yield_now()


OBJECTS_PER_YIELD = 2000
"""Small objects released between two calls of `yield_now`: about a millisecond."""
