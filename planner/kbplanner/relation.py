"""Relations of the C engine: rows in, rows out, attribute cells, always in batches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbplanner import backend
from kbplanner.backend import REAL_ATTRIBUTES, Attribute, RelationCounts
from kbplanner.binding import ffi, lib, room
from kbplanner.errors import EngineFault

if TYPE_CHECKING:
    from kbplanner.engine import Engine, Run


def _mask(columns: Sequence[int]) -> int:
    mask = 0
    for column in columns:
        mask |= 1 << column
    return mask


class Relation:
    """A set of rows; see `backend.Relation`. One that is lost without `drop()` lives as long as its engine."""

    def __init__(self, engine: Engine, handle: int, arity: int, run: Run | None = None) -> None:
        self.engine = engine
        self.handle = handle
        self._arity = arity
        self._run = run  # the owner of a derived relation must outlive it

    @property
    def arity(self) -> int:
        """Columns of a row."""
        return self._arity

    def _call(self, function: Any, *arguments: Any) -> int:
        return self.engine.call(function, self.handle, *arguments)

    def _rows(self, rows: array[int], count: int) -> Any:
        view = ffi.from_buffer("kb_sym[]", rows)
        if count < 0 or len(view) < count * self._arity:
            raise EngineFault("engine: fewer rows than announced")
        return view

    def insert(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Add `count` rows; returns the id of each row, and how many were new (id >= counts().rows before)."""
        view, ids, added = self._rows(rows, count), room(count), ffi.new("size_t *")
        ids_view = ffi.from_buffer("uint32_t[]", ids)
        self._call(lib.kb_insert, view, count, ids_view, added)
        return ids, int(added[0])

    def delete(self, rows: array[int], count: int) -> int:
        """Remove rows; returns how many were there."""
        view, removed = self._rows(rows, count), ffi.new("size_t *")
        self._call(lib.kb_delete, view, count, removed)
        return int(removed[0])

    def hide(self, rows: array[int], count: int, hidden: bool) -> int:
        """Hide rows from plans and plain matches, or show them again; returns how many changed."""
        view, changed = self._rows(rows, count), ffi.new("size_t *")
        self._call(lib.kb_hide, view, count, hidden, changed)
        return int(changed[0])

    def locate(self, rows: array[int], count: int) -> array[int]:
        """The id of each row, hidden ones included; NO_ROW where it is not there."""
        view, ids = self._rows(rows, count), room(count)
        ids_view = ffi.from_buffer("uint32_t[]", ids)
        self._call(lib.kb_locate, view, count, ids_view)
        return ids

    def match(self, pattern: Sequence[int], *, hidden: bool = False, limit: int = 0) -> tuple[array[int], array[int]]:
        """Rows that match (0 = anything, `SAME | j` = as column j) and their ids, in order of id; limit 0 = all."""
        if len(pattern) != self._arity:
            raise EngineFault("engine: the pattern has another arity than the relation")
        rows, ids = array("I"), array("I")
        wanted = ffi.new("kb_sym[]", list(pattern))
        cursor, filled = ffi.new("uint64_t *"), ffi.new("size_t *")
        flags = lib.KB_MATCH_HIDDEN if hidden else 0
        size = 64
        while True:
            ask = min(size, limit - len(ids)) if limit else size
            some_rows, some_ids = room(ask * self._arity), room(ask)
            rows_view, ids_view = ffi.from_buffer("kb_sym[]", some_rows), ffi.from_buffer("uint32_t[]", some_ids)
            self._call(lib.kb_match, wanted, flags, cursor, rows_view, ids_view, ask, filled)
            got = filled[0]
            rows.extend(some_rows[: got * self._arity])
            ids.extend(some_ids[:got])
            if got < ask or (limit and len(ids) >= limit):
                return rows, ids
            size = min(size * 8, 1 << 16)

    def counts(self) -> RelationCounts:
        """How many rows, and the epoch."""
        out = ffi.new("uint64_t[4]")
        self._call(lib.kb_count, out, out + 1, out + 2, out + 3)
        return RelationCounts(*ffi.unpack(out, 4))

    def index(self, columns: Sequence[int]) -> None:
        """Make the index on these columns now, so that no question pays for it."""
        self._call(lib.kb_index, _mask(columns))

    def distinct(self, columns: Sequence[int]) -> int:
        """Distinct keys of these columns, counted by their index, else estimated; 0 when nothing is known."""
        out = ffi.new("uint64_t *")
        self._call(lib.kb_distinct, _mask(columns), out)
        return int(out[0])

    def set_attribute(self, attribute: Attribute, ids: array[int], values: Sequence[int] | Sequence[float]) -> None:
        """Write one cell for each id."""
        if len(ids) != len(values):
            raise EngineFault("engine: not one value for each id")
        cells: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", values)
        cells_view, ids_view = ffi.from_buffer("int64_t[]", cells), ffi.from_buffer("uint32_t[]", ids)
        self._call(lib.kb_attribute_set, attribute, ids_view, cells_view, len(ids))

    def fill_attribute(self, attribute: Attribute, first: int, count: int, value: int | float) -> None:
        """Write one value into the cells of ids first .. first+count-1."""
        cell: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", [value])
        bits = ffi.from_buffer("int64_t[]", cell)[0]
        self._call(lib.kb_attribute_fill, attribute, first, count, bits)

    def attributes(self, attribute: Attribute, ids: array[int]) -> Sequence[int] | Sequence[float]:
        """Read one cell for each id."""
        cells: array[Any] = array("d" if attribute in REAL_ATTRIBUTES else "q", bytes(8 * len(ids)))
        cells_view, ids_view = ffi.from_buffer("int64_t[]", cells), ffi.from_buffer("uint32_t[]", ids)
        self._call(lib.kb_attribute_get, attribute, ids_view, len(ids), cells_view)
        return cells

    def uses(self, attribute: Attribute) -> bool:
        """Whether a cell of this attribute was ever set."""
        out = ffi.new("uint32_t *")
        self._call(lib.kb_attribute_used, attribute, out)
        return bool(out[0])

    def copy(self) -> Relation:
        """A relation of its own with the same rows, ids, hidden flags and attributes."""
        out = ffi.new("kb_rel *")
        self._call(lib.kb_relation_copy, out)
        return Relation(self.engine, out[0], self._arity)

    def drop(self) -> None:
        """Give the memory back; the relation must not be used any more."""
        self._call(lib.kb_relation_drop)


def handle_of(relation: backend.Relation, engine: Engine) -> int:
    """The handle of a relation that must be one of this engine."""
    if not isinstance(relation, Relation) or relation.engine is not engine:
        raise EngineFault("engine: a relation of another engine")
    return relation.handle
