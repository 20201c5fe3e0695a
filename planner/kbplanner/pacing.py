"""Pauses of long loops, so that other work gets its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

STEPS_PER_YIELD = 10_000
"""Steps of Python between two calls of `yield_now`: about a millisecond."""


def paced(
    items: Iterable[T], yield_now: Callable[[], None], every: int = STEPS_PER_YIELD
) -> Iterator[T]:
    """Yield the items, and call `yield_now` after every `every` of them."""
    left, more = iter(items), False
    for item in left:
        if more:
            yield_now()
        more = True
        yield item
        yield from islice(left, every - 1)
