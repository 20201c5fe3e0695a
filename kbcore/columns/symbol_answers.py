"""Answers of a goal as symbols, converted to tuples of names only where they are read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.build import scope_column, table_of_symbols
from kbplanner.engine.backend import Engine
from kbplanner.engine.columns import rows_of
from kbplanner.evaluate.deferred import FIRST, DeferredRows

CHUNK = 1000
"""Number of answers converted to tuples at once."""

FEW_SYMBOLS = 64
"""Number of symbols whose texts are looked up one by one, among those used recently."""

_NO_SYMBOLS = array("I")


class SymbolAnswers:
    """The answers of a goal, in answer order, as of the time when the goal was asked.

    An answer takes four bytes for each column; many answers of one scope stay in their goal table
    until they are read. Symbols never change, so that later writes do not change the answers.
    `warnings` is how often a function or an aggregate had no value.
    """

    __slots__ = ("_arity", "_count", "_deferred", "_engine", "_parts", "_symbols", "warnings")

    def __init__(self, engine: Engine, arity: int) -> None:
        self._engine = engine
        self._arity = arity
        self._symbols = _NO_SYMBOLS
        self._deferred: DeferredRows | None = None
        self._count = 0
        self._parts: list[tuple[str | None, int]] = []
        self.warnings = 0

    def __len__(self) -> int:
        return self._count

    def append(self, scope: str | None, symbols: array[int], count: int) -> None:
        """Add the answers in a scope as flat rows."""
        if self._parts:
            symbols = self._all() + symbols
        self._parts.append((scope, count))
        self._symbols = symbols
        self._count += count

    def defer(self, scope: str | None, rows: DeferredRows, count: int) -> None:
        """Add the answers in the only scope, which a goal table keeps until they are read."""
        self._parts.append((scope, count))
        self._deferred = rows
        self._count = count

    def skip(self, count: int) -> None:
        """Remove the first answers."""
        self._symbols = self._all()[count * self._arity :]
        self._count = max(self._count - count, 0)
        parts, self._parts = self._parts, []
        for scope, size in parts:
            skipped = min(count, size)
            count -= skipped
            self._parts.append((scope, size - skipped))

    def truncate(self, count: int) -> None:
        """Remove all answers after the first `count`."""
        self._symbols = self._all()[: count * self._arity]
        self._count = min(self._count, count)
        parts, self._parts = self._parts, []
        for scope, size in parts:
            self._parts.append((scope, min(count, size)))
            count -= min(count, size)

    def scopes(self) -> Iterator[str | None]:
        """Yield the scope of each answer."""
        return chain.from_iterable(repeat(scope, count) for scope, count in self._parts)

    def tuples(self, start: int = 0, stop: int | None = None) -> list[tuple[str, ...]]:
        """Return the answers from `start` up to, not including, `stop`; None: to the end."""
        return self.converted(None, start, stop)

    def converted(
        self, convert: Callable[[str], Any] | None, start: int = 0, stop: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return answers as `tuples` does, each distinct text replaced by `convert`."""
        arity = self._arity
        stop = self._count if stop is None else min(stop, self._count)
        count = max(stop - start, 0)
        if not arity or not count:
            return [()] * count
        deferred = self._deferred
        if deferred is not None and stop <= FIRST:
            symbols = deferred.first_rows()[start * arity : stop * arity]
        elif count < self._count:
            symbols = self._all()[start * arity : stop * arity]
        else:
            symbols = self._all()
        if len(symbols) <= FEW_SYMBOLS:
            texts: list[Any] = self._engine.texts(symbols)
            if convert is not None:
                texts = list(map(convert, texts))
            return list(zip(*[iter(texts)] * arity, strict=True))
        return rows_of(self._engine, symbols, arity, convert).tuples(0, count)

    def chunks(
        self, convert: Callable[[str], Any] | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all answers, some at a time; a text that several answers share is made once."""
        if not self._arity:
            yield [()] * self._count
            return
        rows = rows_of(self._engine, self._all(), self._arity, convert)
        for start in range(0, self._count, CHUNK):
            yield rows.tuples(start, min(start + CHUNK, self._count))

    def table(
        self, variables: Mapping[str, int], *, scoped: bool = False, typed: bool = False
    ) -> AnswerTable:
        """Return the columns of these variables, by name, as a table for Arrow.

        `scoped` adds the scope of each answer; `typed` is described in `kbcore.columns.build`.
        """
        return table_of_symbols(
            self._engine,
            self._all(),
            self._count,
            self._arity,
            variables,
            further=[scope_column(self._parts)] if scoped else (),
            typed=typed,
        )

    def _all(self) -> array[int]:
        """Return the rows of all answers."""
        deferred = self._deferred
        if deferred is not None:
            self._symbols = deferred.rows()
            self._deferred = None
        return self._symbols
