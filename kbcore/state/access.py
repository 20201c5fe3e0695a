"""Access counts and access times of stored facts.

A goal over stored facts appends one note, which costs well under a microsecond. Notes are written
to the attribute cells in batches: before salience is read, before a snapshot, and when many are
pending.
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
"""Access count up to which context windows raise a fact, by one per state of the knowledge."""

MAX_NOTES = 1024
"""Number of pending notes at which the thread that adds one writes all of them to the cells."""

MAX_NOTED_SYMBOLS = 64
"""Largest answer, in symbols, that a note stores as rows; for a larger answer it stores the
pattern."""

MAX_SYMBOLS_PER_NOTE = 1 << 16
"""Symbols in one note at which all notes are written: with a clock that stands still, a note has no
other limit."""

_Note = tuple["StoredRelation", "array[int] | tuple[int, ...]", int]


class _Shown:
    """The facts of one relation that were put in windows.

    `symbols` are their rows, `count` in number, one after another. `ids` are the row ids whose rows
    are in `symbols`; they hold while the relation has been renumbered `renumbered` times. A row may
    be in `symbols` twice if it has got another id.
    """

    __slots__ = ("count", "ids", "renumbered", "symbols")

    def __init__(self) -> None:
        self.renumbered = -1
        self.ids: set[int] = set()
        self.symbols = array("I")
        self.count = 0


class Accesses:
    """Accesses of one tenant's facts that are not yet written to the attribute cells.

    Writing attribute cells changes no answer, and the engine admits one call at a time. So notes
    are written under the read lock, which keeps row ids stable; several readers may do so at once.

    Goals on one relation within one millisecond share a note, `_latest`. Rows that a thread adds to
    a note while another thread writes that note may be lost: a lock would cost more than the note.

    Facts that were put in a context window are recorded separately (`show`). They raise only the
    access count, not the access time, and only when the knowledge has changed or when something
    other than a window reads the counts: two windows over the same state must be equal. `epoch`
    increases whenever access cells are written.
    """

    def __init__(self) -> None:
        self._notes: deque[_Note] = deque()
        self._latest: dict[StoredRelation, tuple[int, array[int]]] = {}
        self._shown: dict[StoredRelation, _Shown] = {}
        self._mutex = threading.Lock()
        self.epoch = 0

    def note(
        self, stored: StoredRelation, rows: array[int], pattern: Sequence[int], at: int
    ) -> None:
        """Note that a goal with this pattern was answered with `rows` at `at` (epoch milliseconds).

        Rows that are not stored in the relation are ignored later. The caller holds the read lock.
        """
        is_small = 0 < len(rows) <= MAX_NOTED_SYMBOLS
        latest = self._latest.get(stored)
        if is_small and latest is not None and latest[0] == at:
            latest[1].extend(rows)
            if len(latest[1]) > MAX_SYMBOLS_PER_NOTE:
                self.settle()
            return
        notes = self._notes
        if is_small:
            noted_rows = rows[:]
            self._latest[stored] = at, noted_rows
            notes.append((stored, noted_rows, at))
        else:
            notes.append((stored, tuple(pattern), at))
        if len(notes) >= MAX_NOTES:
            self.settle()

    def count(self, stored: StoredRelation, ids: array[int], at: int) -> None:
        """Write accesses of rows at `at` (epoch milliseconds); the caller holds the read lock."""
        with self._mutex:
            stored.touch(ids, 1, at)
            self.epoch += 1

    def show(self, stored: StoredRelation, ids: array[int]) -> None:
        """Record rows that were put in a context window, until `settle_shown`.

        The caller holds the read lock.
        """
        with self._mutex:
            seen = self._shown.get(stored)
            if seen is None:
                seen = self._shown[stored] = _Shown()
            if seen.renumbered != stored.renumbered:
                seen.renumbered, seen.ids = stored.renumbered, set()
            if new := array("I", [row_id for row_id in ids if row_id not in seen.ids]):
                seen.ids.update(new)
                seen.symbols.extend(stored.relation.rows(new))
                seen.count += len(new)

    def settle_shown(self) -> None:
        """Raise the access counts of facts that were in windows.

        The caller holds the read or the write lock.
        """
        if not self._shown:
            return
        with self._mutex:
            accessed, self._shown = self._shown, {}
            for stored, seen in accessed.items():
                if not stored.gone:
                    # Located now: facts may have been removed or have other row ids since.
                    located = stored.relation.locate(seen.symbols, seen.count)
                    stored.raise_accesses(located, SHOWN_ACCESSES)
            self.epoch += 1

    def settle(self) -> None:
        """Write every pending note to the cells; the caller holds the read lock or the write lock.

        Facts that were in windows are left to `settle_shown`.
        """
        if not self._notes:
            return
        times_by_pattern: dict[tuple[StoredRelation, tuple[int, ...]], list[int]] = {}
        take = self._notes.popleft
        with self._mutex:
            self.epoch += 1
            self._latest.clear()
            while self._notes:
                stored, noted, at = take()
                if stored.gone:
                    continue
                if isinstance(noted, tuple):
                    times_by_pattern.setdefault((stored, noted), []).append(at)
                else:
                    rows = noted[
                        :
                    ]  # a copy: a reader may extend the note, which the engine's buffers do not allow
                    stored.touch(
                        stored.relation.locate(rows, len(rows) // stored.schema.arity), 1, at
                    )
            for (stored, pattern), times in times_by_pattern.items():
                stored.touch(stored.relation.match(pattern)[1], len(times), max(times))


class Uncounted(Accesses):
    """Accesses that are discarded: a transaction may read its own copies of relations."""

    def note(
        self, stored: StoredRelation, rows: array[int], pattern: Sequence[int], at: int
    ) -> None:
        """Discard the note."""

    def show(self, stored: StoredRelation, ids: array[int]) -> None:
        """Discard the rows."""

    def count(self, stored: StoredRelation, ids: array[int], at: int) -> None:
        """Discard the accesses."""
