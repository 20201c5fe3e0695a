"""Rows of one relation as a flat array of symbols: conclusions of which there may be many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import NamedTuple

from kbplanner.engine.backend import Engine, Relation, YieldNow
from kbplanner.engine.columns import distinct

MIN_GROUP_SIZE = 8
"""With this many rows, one goal with their common constants is faster than one goal per row."""

MAX_GROUPS = 32
"""Maximum number of such goals: each run has its own limits."""


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows without duplicates; `symbols` holds them one after the other."""

    symbols: array[int]
    count: int
    arity: int

    @classmethod
    def of(cls, rows: Sequence[tuple[int, ...]], arity: int) -> RowSet:
        """Return rows that are tuples as a flat array."""
        return cls(array("I", chain.from_iterable(rows)), len(rows), arity)

    def without(self, rows: Collection[tuple[int, ...]]) -> RowSet:
        """Return the rows that are not among the given ones."""
        if not rows or not self.count:
            return self
        keys = zip(*[iter(self.symbols)] * self.arity, strict=True) if self.arity else [()]
        return self.chosen(key not in rows for key in keys)

    @classmethod
    def in_relation(cls, relation: Relation, arity: int, yield_now: YieldNow) -> RowSet:
        """Return the visible rows of a relation."""
        count = relation.counts().visible
        return cls(relation.match_rows([0] * arity, yield_now), count, arity)

    def chosen(self, flags: Iterable[bool]) -> RowSet:
        """Return the rows with a true flag."""
        indexes = list(compress(range(self.count), flags))
        if len(indexes) == self.count:
            return self
        arity, symbols = self.arity, array("I")
        for index in indexes:
            symbols.extend(self.symbols[index * arity : (index + 1) * arity])
        return RowSet(symbols, len(indexes), arity)

    def common(self) -> list[int]:
        """Return for each column the symbol that all rows share, or 0; there is at least one
        row.
        """
        return [self._shared(column) for column in range(self.arity)]

    def patterns(self, engine: Engine) -> list[list[int]]:
        """Return the common constants of groups of rows, which are equal in one column.

        The column is the one with the fewest values. Return [] if there are too many groups, or
        they are too small.
        """
        if not self.arity:
            return []
        sizes = [
            len(distinct(engine, self.symbols, column, self.arity)) for column in range(self.arity)
        ]
        groups = min(sizes)
        first = sizes.index(groups)
        if groups > MAX_GROUPS or groups * MIN_GROUP_SIZE > self.count:
            return []
        if groups == 1:
            return [self.common()]
        order = [first, *(column for column in range(self.arity) if column != first)]
        patterns = []
        for group in self._grouped(engine, order):
            pattern = [0] * self.arity
            for column, symbol in zip(order, group.common(), strict=True):
                pattern[column] = symbol
            patterns.append(pattern)
        return patterns

    def _grouped(self, engine: Engine, order: list[int]) -> list[RowSet]:
        """Return the rows with their columns in another order, by the value of the first."""
        symbols = array("I", bytes(4 * len(self.symbols)))
        for target, column in enumerate(order):
            symbols[target :: self.arity] = self.symbols[column :: self.arity]
        symbols = engine.sort(symbols, self.arity, in_place=True)
        firsts = symbols[:: self.arity]
        numbers: dict[int, int] = {}
        codes = [numbers.setdefault(symbol, len(numbers)) for symbol in firsts]  # ascending
        starts = [bisect_left(codes, number) for number in range(len(numbers))]
        arity = self.arity
        return [
            RowSet(symbols[start * arity : end * arity], end - start, arity)
            for start, end in zip(starts, [*starts[1:], self.count], strict=True)
        ]

    def _shared(self, column: int) -> int:
        values = self.symbols[column :: self.arity]
        return values[0] if values == array("I", [values[0]]) * self.count else 0


class Difference(NamedTuple):
    """Rows that hold only after a change, and rows that held only before it."""

    appeared: RowSet
    disappeared: RowSet
