"""Answers of a goal as symbols, converted to tuples of names only where they are read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain, repeat

from kbplanner.engine.backend import Engine


class SymbolAnswers:
    """The answers of a goal, in answer order, as of the time when the goal was asked.

    An answer takes four bytes for each column. Symbols never change, so that later writes do not
    change the answers.
    """

    def __init__(self, engine: Engine, arity: int) -> None:
        self._engine = engine
        self._arity = arity
        self._symbols = array("I")
        self._count = 0
        self._parts: list[tuple[str | None, int]] = []

    def __len__(self) -> int:
        return self._count

    def append(self, scope: str | None, symbols: array[int], count: int) -> None:
        """Add the answers in a scope as flat rows."""
        self._parts.append((scope, count))
        self._symbols = self._symbols + symbols if self._symbols else symbols
        self._count += count

    def skip(self, count: int) -> None:
        """Remove the first answers."""
        self._symbols = self._symbols[count * self._arity :]
        self._count = max(self._count - count, 0)
        parts, self._parts = self._parts, []
        for scope, size in parts:
            skipped = min(count, size)
            count -= skipped
            self._parts.append((scope, size - skipped))

    def scopes(self) -> Iterator[str | None]:
        """Yield the scope of each answer."""
        return chain.from_iterable(repeat(scope, count) for scope, count in self._parts)

    def tuples(self, start: int = 0, stop: int | None = None) -> list[tuple[str, ...]]:
        """Return the answers from `start` up to, not including, `stop`; None: to the end."""
        arity = self._arity
        stop = self._count if stop is None else min(stop, self._count)
        if not arity:
            return list(repeat((), max(stop - start, 0)))
        texts = self._engine.texts(self._symbols[start * arity : stop * arity])
        return list(zip(*[iter(texts)] * arity, strict=True))
