"""Accesses of stored facts, counted when somebody wants to know.

A goal that finds stored facts only leaves a note, which costs a small part of a microsecond. The notes are worked into the
attribute cells, many at a time, before salience is read, before a snapshot, and when there are many.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbcore.state.partition import StoredRelation

SHOWN_ACCESSES = 10
"""Context windows raise the access count of a fact up to this number, by one per state of the knowledge."""

MAX_NOTES = 1024
"""Notes after which they are worked in by whoever makes the next one."""

FEW = 64
"""Symbols of answers up to which a note holds them; of longer ones it holds the pattern that they match."""

FULL = 1 << 16
"""Symbols in one note after which the notes are worked in: where time stands still a note has no other end."""

_Note = tuple["StoredRelation", "array[int] | tuple[int, ...]", int]


class Accesses:
    """The accesses of one tenant's facts that are not in their cells yet.

    Cells are no rows: writing them changes no answer, and the engine lets one call in at a time. So notes are worked in
    under the read lock, which keeps rows where they are; several readers may do so at once.

    Goals on a relation within one millisecond share a note, `_latest`. What a thread adds to it at the very moment when
    another one works it in may be lost: a lock would cost more than the note.

    Facts that were put in a context window are kept apart (`show`). They raise the access count only, not the access time,
    and only when the knowledge has changed or something else than a window reads the counts: a window that is asked for
    twice on the same state must be the same. `epoch` goes up whenever access cells are written.
    """

    def __init__(self) -> None:
        self._notes: deque[_Note] = deque()
        self._latest: dict[StoredRelation, tuple[int, array[int]]] = {}
        self._shown: dict[StoredRelation, set[tuple[int, ...]]] = {}
        self._mutex = threading.Lock()
        self.epoch = 0

    def note(self, stored: StoredRelation, rows: array[int], pattern: Sequence[int], at: int) -> None:
        """A goal with this pattern was answered with `rows` at a time in epoch milliseconds; those stored were accessed.

        Rows that are not stored in the relation are passed over later. The caller holds the read lock.
        """
        few = 0 < len(rows) <= FEW
        latest = self._latest.get(stored)
        if few and latest is not None and latest[0] == at:
            latest[1].extend(rows)
            if len(latest[1]) > FULL:
                self.settle()
            return
        notes = self._notes
        if few:
            kept = rows[:]
            self._latest[stored] = at, kept
            notes.append((stored, kept, at))
        else:
            notes.append((stored, tuple(pattern), at))
        if len(notes) >= MAX_NOTES:
            self.settle()

    def count(self, stored: StoredRelation, ids: array[int], at: int) -> None:
        """Rows were accessed at a time in epoch milliseconds; the caller holds the read lock."""
        with self._mutex:
            stored.touch(ids, 1, at)
            self.epoch += 1

    def show(self, stored: StoredRelation, ids: array[int]) -> None:
        """Keep the rows that were put in a context window until `settle_shown`; the caller holds the read lock."""
        arity = stored.schema.arity
        rows = stored.relation.rows(ids)
        with self._mutex:
            kept = self._shown.setdefault(stored, set())
            kept.update(tuple(rows[start * arity : (start + 1) * arity]) for start in range(len(ids)))

    def settle_shown(self) -> None:
        """Raise the access counts of facts that windows held; the caller holds the read lock or the write lock."""
        if not self._shown:
            return
        with self._mutex:
            shown, self._shown = self._shown, {}
            for stored, rows in shown.items():
                if not stored.gone:
                    symbols = array("I", [symbol for row in sorted(rows) for symbol in row])
                    stored.raise_accesses(stored.relation.locate(symbols, len(rows)), SHOWN_ACCESSES)
            self.epoch += 1

    def settle(self) -> None:
        """Write every noted access into the cells; the caller holds the read lock or the write lock.

        Facts that windows held are left to `settle_shown`.
        """
        if not self._notes:
            return
        many: dict[tuple[StoredRelation, tuple[int, ...]], list[int]] = {}
        take = self._notes.popleft
        with self._mutex:
            self.epoch += 1
            self._latest.clear()
            while self._notes:
                stored, what, at = take()
                if stored.gone:
                    continue
                if isinstance(what, tuple):
                    many.setdefault((stored, what), []).append(at)
                else:
                    rows = what[:]  # a reader may be adding to it, which the engine's buffers do not allow
                    stored.touch(stored.relation.locate(rows, len(rows) // stored.schema.arity), 1, at)
            for (stored, pattern), times in many.items():
                stored.touch(stored.relation.match(pattern)[1], len(times), max(times))


class Uncounted(Accesses):
    """Where accesses do not count: what a transaction reads may be a copy of its own."""

    def note(self, stored: StoredRelation, rows: array[int], pattern: Sequence[int], at: int) -> None:
        """Nothing is noted."""

    def show(self, stored: StoredRelation, ids: array[int]) -> None:
        """Nothing is kept."""

    def count(self, stored: StoredRelation, ids: array[int], at: int) -> None:
        """Nothing is written."""
