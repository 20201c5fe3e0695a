"""Answers that stay in their goal table until a reader wants them.

A count of millions of answers would otherwise copy and sort them all.
"""

from __future__ import annotations

import threading
from array import array
from typing import Protocol

MIN_DEFERRED = 4000
"""Minimum number of answers that stay in their table: fewer are copied at once."""


FIRST = 1000
"""Number of rows that can be read without the others."""


class RowSource(Protocol):
    """A goal table that has the answers."""

    def read_rows(self) -> array[int]:
        """Return all answers in answer order."""

    def read_first_rows(self, count: int) -> array[int]:
        """Return the first answers in answer order."""


class DeferredRows:
    """A place where a goal may leave its answers: whole rows, in order, as of the time of the goal.

    The table is asked when the rows are first read, or before it changes, whichever is earlier. It
    is kept as long as this object, and never closed before.
    """

    __slots__ = ("__weakref__", "_first", "_mutex", "_rows", "_table", "is_used")

    _mutex: threading.Lock
    _table: RowSource | None
    _rows: array[int]
    _first: array[int] | None

    def __init__(self) -> None:
        self.is_used = False
        """True if a goal has left its answers here; most goals have too few for that."""

    def leave(self, table: RowSource) -> None:
        """Leave the answers in a table."""
        self._mutex = threading.Lock()
        self._table = table
        self._first = None
        self.is_used = True

    def rows(self) -> array[int]:
        """Return the rows, and let go of the table."""
        with self._mutex:
            if self._table is not None:
                self._rows = self._table.read_rows()
                self._table = None
            return self._rows

    def first_rows(self) -> array[int]:
        """Return at least the first FIRST rows; the table is searched for them once."""
        with self._mutex:
            if self._first is None and self._table is not None:
                self._first = self._table.read_first_rows(FIRST)
            if self._first is not None:
                return self._first
        return self.rows()
