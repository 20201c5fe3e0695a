"""Relations of the C engine: rows in, rows out, attribute cells, always in batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kbplanner.engine import backend
from kbplanner.engine.backend import (
    NO_ROW,
    REAL_ATTRIBUTES,
    Attribute,
    RelationCounts,
    RelationDifference,
    Total,
    YieldNow,
)
from kbplanner.engine.binding import ffi, lib, new_array
from kbplanner.engine.salience import Salience
from kbplanner.errors import EngineFault
from kbplanner.pacing import current_yield

if TYPE_CHECKING:
    from kbplanner.engine.engine import Engine, Run

ROWS_PER_TOTAL_CALL = 100_000
"""Rows summed in one call of a total: about a millisecond."""


def _mask(columns: Sequence[int]) -> int:
    mask = 0
    for column in columns:
        mask |= 1 << column
    return mask


class Relation:
    """A set of rows; see `backend.Relation`. Without `drop()`, it lives as long as its engine."""

    def __init__(self, engine: Engine, handle: int, arity: int, run: Run | None = None) -> None:
        self.engine = engine
        self.handle = handle
        self._arity = arity
        self._run = run  # the owner of a derived relation must outlive it

    @property
    def arity(self) -> int:
        """Columns of a row."""
        return self._arity

    def _rows(self, rows: array[int], count: int) -> Any:
        view = ffi.from_buffer("kb_sym[]", rows)
        if count < 0 or len(view) < count * self._arity:
            raise EngineFault("engine: the array has fewer rows than its count")
        return view

    def insert(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Add `count` rows; return the id of each row, and how many are new (id >= counts().rows
        before).
        """
        view, ids, added = self._rows(rows, count), new_array(count), ffi.new("size_t *")
        ids_view = ffi.from_buffer("uint32_t[]", ids)
        self.engine.call(lib.kb_insert, self.handle, view, count, ids_view, added)
        return ids, int(added[0])

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; return how many existed."""
        view, removed = self._rows(rows, count), ffi.new("size_t *")
        self.engine.call(lib.kb_delete, self.handle, view, count, removed)
        return int(removed[0])

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide rows from plans and plain matches, or show them again; return how many changed."""
        view, changed = self._rows(rows, count), ffi.new("size_t *")
        self.engine.call(lib.kb_hide, self.handle, view, count, hidden, changed)
        return int(changed[0])

    def locate(self, rows: array[int], count: int) -> array[int]:
        """Return the id of each row, including hidden ones; NO_ROW where it does not exist."""
        view, ids = self._rows(rows, count), new_array(count)
        ids_view = ffi.from_buffer("uint32_t[]", ids)
        self.engine.call(lib.kb_locate, self.handle, view, count, ids_view)
        return ids

    def missing(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Return those of `count` rows that do not exist, in their order, and their number."""
        view, missing, missing_count = (
            self._rows(rows, count),
            new_array(len(rows)),
            ffi.new("size_t *"),
        )
        self.engine.call(
            lib.kb_missing,
            self.handle,
            view,
            count,
            ffi.from_buffer("kb_sym[]", missing),
            missing_count,
        )
        del missing[missing_count[0] * self._arity :]
        return missing, int(missing_count[0])

    def match(
        self,
        pattern: Sequence[int],
        *,
        hidden: bool = False,
        limit: int = 0,
        yield_now: YieldNow | None = None,
    ) -> tuple[array[int], array[int]]:
        """Return matching rows (0 = any value, `SAME | j` = as column j) and ids, ordered by id;
        limit 0 = all.
        """
        pieces = self.pieces(pattern, hidden=hidden, limit=limit)
        rows, ids = next(pieces)
        for piece_rows, piece_ids in pieces:
            if yield_now is not None:
                yield_now()
            rows.extend(piece_rows)
            ids.extend(piece_ids)
        return rows, ids

    def match_many(
        self, patterns: array[int], count: int, *, hidden: bool = False
    ) -> tuple[array[int], array[int]]:
        """Return the ids of the rows that match each of `count` patterns, as `match` finds them,
        and for each id the number of its pattern; in order of the patterns.
        """
        view, flags = self._rows(patterns, count), lib.KB_MATCH_HIDDEN if hidden else 0
        cursor, filled = ffi.new("uint64_t[2]"), ffi.new("size_t *")
        all_ids, all_numbers = array("I"), array("I")
        room = max(2 * count, 64)
        while True:
            ids, numbers = new_array(room), new_array(room)
            ids_view, numbers_view = (
                ffi.from_buffer("uint32_t[]", ids),
                ffi.from_buffer("uint32_t[]", numbers),
            )
            self.engine.call(
                lib.kb_match_many,
                self.handle,
                view,
                count,
                flags,
                cursor,
                ids_view,
                numbers_view,
                room,
                filled,
            )
            all_ids.extend(ids[: filled[0]])
            all_numbers.extend(numbers[: filled[0]])
            if cursor[0] >= count:
                return all_ids, all_numbers

    def match_rows(self, pattern: Sequence[int], yield_now: YieldNow | None = None) -> array[int]:
        """Return the rows that `match` returns, without their ids."""
        if any(pattern) or not self._arity or len(pattern) != self._arity:
            return self.match(pattern, yield_now=yield_now)[0]
        rows = array("I", [0]) * (self.counts().visible * self._arity)
        view, values = ffi.from_buffer("kb_sym[]", rows), ffi.new("kb_sym[]", list(pattern))
        cursor, filled = ffi.new("uint64_t *"), ffi.new("size_t *")
        room, start = 1 << 18, 0
        while True:
            room = min(room, len(rows) // self._arity - start)
            if not room:
                return rows
            target = view + start * self._arity
            self.engine.call(
                lib.kb_match, self.handle, values, 0, cursor, target, ffi.NULL, room, filled
            )
            if filled[0] < room:
                raise EngineFault("engine: the relation has changed while it was read")
            start += room
            if yield_now is not None:
                yield_now()

    def pieces(
        self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0
    ) -> Iterator[tuple[array[int], array[int]]]:
        """Yield what `match` returns, in pieces."""
        if len(pattern) != self._arity:
            raise EngineFault("engine: the pattern has another arity than the relation")
        total = 0
        values = ffi.new("kb_sym[]", list(pattern))
        cursor, filled = ffi.new("uint64_t *"), ffi.new("size_t *")
        flags = lib.KB_MATCH_HIDDEN if hidden else 0
        size = 64
        while True:
            wanted_count = min(size, limit - total) if limit else size
            piece_rows, piece_ids = new_array(wanted_count * self._arity), new_array(wanted_count)
            rows_view, ids_view = (
                ffi.from_buffer("kb_sym[]", piece_rows),
                ffi.from_buffer("uint32_t[]", piece_ids),
            )
            self.engine.call(
                lib.kb_match,
                self.handle,
                values,
                flags,
                cursor,
                rows_view,
                ids_view,
                wanted_count,
                filled,
            )
            count = filled[0]
            total += count
            yield piece_rows[: count * self._arity], piece_ids[:count]
            if count < wanted_count or (limit and total >= limit):
                return
            size = min(size * 8, 1 << 16)

    def rows(self, ids: array[int]) -> array[int]:
        """Return the rows with these ids, which must exist, in the given order."""
        rows = new_array(len(ids) * self._arity)
        ids_view, rows_view = ffi.from_buffer("uint32_t[]", ids), ffi.from_buffer("kb_sym[]", rows)
        self.engine.call(lib.kb_rows_at, self.handle, ids_view, len(ids), rows_view)
        return rows

    def total(
        self, pattern: Sequence[int], column: int | None, yield_now: YieldNow | None = None
    ) -> Total:
        """Sum a column over the rows that `match` would return; None: count the rows."""
        if len(pattern) != self._arity:
            raise EngineFault("engine: the pattern has another arity than the relation")
        sums, cursor = ffi.new("kb_total *"), ffi.new("uint64_t *")
        values, position = ffi.new("kb_sym[]", list(pattern)), NO_ROW if column is None else column
        while (
            self.engine.call(
                lib.kb_total_add, self.handle, values, position, cursor, ROWS_PER_TOTAL_CALL, sums
            )
            != lib.KB_DONE
        ):
            if yield_now is not None:
                yield_now()
        added, words, reals = sums.sum, ffi.unpack(sums.sum.exact.words, lib.KB_EXACT_WORDS), None
        if added.reals:
            reals = Fraction(
                sum(word << 32 * i for i, word in enumerate(words)), 1 << 1074
            )  # a bit of the first is 2^-1074
        whole = (added.high << 64) + added.low
        seen = sums.min, sums.max, sums.first_text
        return Total(sums.matched, added.count, whole, reals, bool(added.infinite), *seen)

    def counts(self) -> RelationCounts:
        """Return the numbers of rows, and the epoch."""
        out = ffi.new("uint64_t[4]")
        self.engine.call(lib.kb_count, self.handle, out, out + 1, out + 2, out + 3)
        return RelationCounts(*ffi.unpack(out, 4))

    def index(self, columns: Sequence[int]) -> None:
        """Build the index on these columns now, so that no query pays for it."""
        self.engine.call(lib.kb_index, self.handle, _mask(columns))

    def distinct(self, columns: Sequence[int]) -> int:
        """Return the distinct keys of these columns: exact with an index, else estimated; 0 when
        unknown.
        """
        out = ffi.new("uint64_t *")
        self.engine.call(lib.kb_distinct, self.handle, _mask(columns), out)
        return int(out[0])

    def set_attribute(
        self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]
    ) -> None:
        """Write one cell for each id."""
        if len(ids) != len(values):
            raise EngineFault("engine: as many values as ids are required")
        cells: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", values)
        cells_view, ids_view = (
            ffi.from_buffer("int64_t[]", cells),
            ffi.from_buffer("uint32_t[]", ids),
        )
        self.engine.call(
            lib.kb_attribute_set, self.handle, attribute, ids_view, cells_view, len(ids)
        )

    def fill_attribute(
        self, attribute: Attribute, first: int, count: int, value: int | float
    ) -> None:
        """Write one value into the cells of ids first .. first+count-1."""
        cell: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", [value])
        bits = ffi.from_buffer("int64_t[]", cell)[0]
        self.engine.call(lib.kb_attribute_fill, self.handle, attribute, first, count, bits)

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Return one cell for each id."""
        cells: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", bytes(8 * len(ids)))
        cells_view, ids_view = (
            ffi.from_buffer("int64_t[]", cells),
            ffi.from_buffer("uint32_t[]", ids),
        )
        self.engine.call(
            lib.kb_attribute_get, self.handle, attribute, ids_view, len(ids), cells_view
        )
        return cells

    def uses(self, attribute: Attribute) -> bool:
        """Return True if a cell of this attribute was ever set."""
        out = ffi.new("uint32_t *")
        self.engine.call(lib.kb_attribute_used, self.handle, attribute, out)
        return bool(out[0])

    def copy(self) -> Relation:
        """Return a copy with the same rows in the same order, hidden flags and attributes; ids may
        differ.
        """
        out = ffi.new("kb_rel *")
        self.engine.call(lib.kb_relation_copy, self.handle, out)
        return Relation(self.engine, out[0], self._arity)

    def settle(self, rows: int) -> bool:
        """Copy about this many rows more of a snapshot; return True when it is complete and can be
        read.
        """
        return self.engine.call(lib.kb_snapshot_copy, self.handle, rows) == lib.KB_DONE

    def compare(self, other: backend.Relation) -> RelationDifference:
        """Compare rows, including hidden ones, and the cells for validity and confidence, with
        another relation, which must not change until then; gives way between some rows.
        """
        yield_now = current_yield()
        there = handle_of(other, self.engine)
        lists = array("I"), array("I"), array("I"), array("I")
        cursor, out = ffi.new("uint64_t *"), ffi.new("kb_difference *")
        size, equal = 4096, 0
        while True:
            buffers = [new_array(size) for _ in lists]
            views = [ffi.from_buffer("uint32_t[]", buffer) for buffer in buffers]
            out.only_here, out.only_there, out.modified_here, out.modified_there = views
            out.room = size
            self.engine.call(lib.kb_relation_compare, self.handle, there, cursor, out)
            counts = (
                out.only_here_count,
                out.only_there_count,
                out.modified_count,
                out.modified_count,
            )
            for ids, buffer, count in zip(lists, buffers, counts, strict=True):
                ids.extend(buffer[:count])
            equal += out.equal
            if not out.more:
                return RelationDifference(*lists, equal)
            yield_now()
            size = min(size * 8, 1 << 16)

    def salience(self, ids: array[int], scoring: Salience) -> array[float]:
        """Return the score of each row."""
        scores = array("d", bytes(8 * len(ids)))
        ids_view, scores_view = (
            ffi.from_buffer("uint32_t[]", ids),
            ffi.from_buffer("double[]", scores),
        )
        self.engine.call(
            lib.kb_salience_scores,
            self.handle,
            _scoring_struct(scoring),
            ids_view,
            len(ids),
            scores_view,
        )
        return scores

    def most_salient(
        self, k: int, scoring: Salience, minimum: float = 0.0, pattern: Sequence[int] | None = None
    ) -> tuple[array[int], array[float]]:
        """Return ids and scores of the `k` visible matching rows with the highest scores >=
        `minimum`, best first.
        """
        if k < 0 or (pattern is not None and len(pattern) != self._arity):
            raise EngineFault(
                "engine: k is negative, or the pattern has another arity than the relation"
            )
        values = ffi.NULL if pattern is None else ffi.new("kb_sym[]", list(pattern))
        filled = ffi.new("size_t *")
        k = min(k, self.counts().visible)
        ids, scores = new_array(k), array("d", bytes(8 * k))
        ids_view, scores_view = (
            ffi.from_buffer("uint32_t[]", ids),
            ffi.from_buffer("double[]", scores),
        )
        self.engine.call(
            lib.kb_salience_top,
            self.handle,
            _scoring_struct(scoring),
            values,
            minimum,
            ids_view,
            scores_view,
            k,
            filled,
        )
        return ids[: filled[0]], scores[: filled[0]]

    def least_salient(self, threshold: float, scoring: Salience) -> array[int]:
        """Return the ids of the visible rows that score below a threshold, in order of id."""
        ids = array("I")
        cursor, filled, weights = (
            ffi.new("uint64_t *"),
            ffi.new("size_t *"),
            _scoring_struct(scoring),
        )
        size = 64
        while True:
            buffer = new_array(size)
            view = ffi.from_buffer("uint32_t[]", buffer)
            self.engine.call(
                lib.kb_salience_below, self.handle, weights, threshold, cursor, view, size, filled
            )
            ids.extend(buffer[: filled[0]])
            if filled[0] < size:
                return ids
            size = min(size * 8, 1 << 16)

    def touch(self, ids: array[int], now: int) -> None:
        """Record an access of each row: LAST_ACCESS becomes `now` unless it is later, ACCESSES
        increases by one.
        """
        self.engine.call(
            lib.kb_record_access, self.handle, ffi.from_buffer("uint32_t[]", ids), len(ids), now
        )

    def bytes(self) -> int:
        """Return the bytes held: rows, set, attribute columns, indexes."""
        out = ffi.new("uint64_t *")
        self.engine.call(lib.kb_relation_bytes, self.handle, out)
        return int(out[0])

    def drop(self) -> None:
        """Free the memory; the relation must not be used afterwards. Refused while a paused run
        reads it.
        """
        self.engine.call(lib.kb_relation_drop, self.handle)


def _scoring_struct(scoring: Salience) -> Any:
    return ffi.new(
        "kb_salience *",
        (
            scoring.recency,
            scoring.frequency,
            scoring.priority,
            scoring.half_life_ms,
            scoring.now_ms,
        ),
    )


def handle_of(relation: backend.Relation, engine: Engine) -> int:
    """Return the handle of a relation that must be one of this engine."""
    if not isinstance(relation, Relation) or relation.engine is not engine:
        raise EngineFault("engine: a relation of another engine")
    return relation.handle
