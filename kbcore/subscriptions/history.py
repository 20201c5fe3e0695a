"""The latest changes of the answers of one standing goal, so that a reader can continue."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from itertools import islice

from kbcore.state.subscriptions import StatePosition

MAX_CHANGES = 10_000
MAX_ROWS = 200_000
"""Changes, and rows of all of them together, that are kept for readers."""


@dataclass(frozen=True, slots=True)
class AnswerChange:
    """The answers of a goal that appeared and disappeared with one change of its knowledge base.

    `previous` is the state that the one of `moment` is compared with: normally that before the
    commit. If several commits changed the answers in between, this is their joint effect. The
    answers are flat arrays of symbols; an answer of a goal without variables has none, so they are
    counted too.
    """

    previous: StatePosition
    moment: StatePosition
    appeared: array[int]
    appeared_count: int
    disappeared: array[int]
    disappeared_count: int

    @property
    def row_count(self) -> int:
        """The number of answers that changed."""
        return self.appeared_count + self.disappeared_count


class History:
    """Changes of one goal since the state `start`; thread-safe for one writer and several
    readers.
    """

    def __init__(self) -> None:
        self._changes: deque[AnswerChange] = deque()
        self._rows = 0
        self.start = StatePosition(0, 0)

    def begin(self, moment: StatePosition) -> None:
        """Forget all changes; those after a state follow."""
        self._changes.clear()
        self._rows = 0
        self.start = moment

    def add(self, change: AnswerChange) -> None:
        """Append a change, and drop the oldest ones beyond the limits."""
        self._changes.append(change)
        self._rows += change.row_count
        while len(self._changes) > 1 and (
            len(self._changes) > MAX_CHANGES or self._rows > MAX_ROWS
        ):
            dropped = self._changes.popleft()
            self._rows -= dropped.row_count
            self.start = dropped.moment

    def after(
        self, position: StatePosition, limit: int | None = None
    ) -> list[AnswerChange] | StatePosition:
        """Return the changes after a state, oldest first, at most `limit`.

        If they are not all kept, return the state from which on they are: an earlier state, or one
        in the middle of several commits with one joint change, has to be compared with it.
        """
        changes = list(self._changes)
        if position.precedes(self.start):
            return self.start
        first = next(
            (at for at, each in enumerate(changes) if position.precedes(each.moment)), len(changes)
        )
        if first < len(changes) and changes[first].previous.precedes(position):
            return changes[first].moment
        return list(islice(changes, first, None if limit is None else first + limit))
