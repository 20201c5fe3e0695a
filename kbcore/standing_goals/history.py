"""The latest changes of the answers of one standing goal, so that a reader can continue."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

MAX_CHANGES = 10_000
MAX_ROWS = 200_000
"""Changes, and rows of all of them together, that are kept for readers."""


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """The answers of a goal that appeared and disappeared with one change of its knowledge base.

    `position` counts the changes of the goal from 1. `seq` is the sequence number of the commit, and
    `previous_seq` that of the state it is compared with: if commits in between changed the answers,
    this is their joint effect. `at` is the time of the state in epoch milliseconds. The answers are
    flat arrays of symbols; an answer of a goal without variables has none, so they are counted too.
    """

    position: int
    seq: int
    previous_seq: int
    at: int
    appeared: array[int]
    appeared_count: int
    disappeared: array[int]
    disappeared_count: int

    @property
    def row_count(self) -> int:
        """The number of answers that changed."""
        return self.appeared_count + self.disappeared_count


class History:
    """Changes of one goal, the latest of them; thread-safe for one writer and several readers."""

    def __init__(self) -> None:
        self._changes: deque[AnswerChange] = deque()
        self._rows = 0
        self.position = 0
        """The position of the latest change, 0 before the first."""

    def add(self, change: AnswerChange) -> None:
        """Append a change, and drop the oldest ones beyond the limits."""
        self._changes.append(change)
        self.position = change.position
        self._rows += change.row_count
        while len(self._changes) > 1 and (
            len(self._changes) > MAX_CHANGES or self._rows > MAX_ROWS
        ):
            self._rows -= self._changes.popleft().row_count

    def clear(self) -> None:
        """Forget all changes; the next change continues the positions."""
        self._changes.clear()
        self._rows = 0
        self.position += 1

    def after(self, position: int, limit: int | None = None) -> list[AnswerChange] | None:
        """Return the changes after a position, oldest first, at most `limit`.

        None if they are not all kept, or the position does not exist.
        """
        if position == self.position:
            return []
        changes = list(self._changes)
        if not changes or not changes[0].position - 1 <= position < changes[-1].position:
            return None
        return list(islice(self._from(changes, position), limit))

    @staticmethod
    def _from(changes: list[AnswerChange], position: int) -> Iterator[AnswerChange]:
        return islice(changes, position - changes[0].position + 1, None)
