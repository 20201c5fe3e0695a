"""Answers as JSON text, written by the engine from its symbols without a Python object per row.

A row is an object with the same keys for every row: its arguments, and the data of the stored fact,
null for a fact that was not asserted. `RowShape` holds the text between the values.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kbplanner.engine import backend
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, beginning
from kbplanner.engine.binding import ffi, lib
from kbplanner.engine.engine import Engine
from kbplanner.engine.relation import Relation

SLICE_BYTES = 1 << 18
"""Buffer size for the rows of one slice; it grows for a larger row."""

_new = ffi.new_allocator(should_clear_after_alloc=False)
_TIMES = (Attribute.CREATED_AT, Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL)


@dataclass(frozen=True, slots=True)
class RowShape:
    """The text of a row around its values: `head` args `created` n `start` n `until` n `ttl` n
    `end`.

    Each n is an integer or null: creation time, start and end of validity, ttl, all in
    milliseconds.
    """

    head: str
    created: str
    start: str
    until: str
    ttl: str
    end: str
    _pieces: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the pieces, in order."""
        return self.head, self.created, self.start, self.until, self.ttl, self.end

    def pieces(self) -> tuple[Any, Any]:
        """Return the pieces and their lengths as the engine takes them; this shape keeps them
        alive.
        """
        if not self._pieces:
            encoded = [text.encode() for text in self.texts]
            buffers = [ffi.from_buffer("char[]", text) for text in encoded]
            self._pieces[:] = [
                ffi.new("char *[]", buffers),
                ffi.new("size_t[]", list(map(len, encoded))),
                buffers,
            ]
        return self._pieces[0], self._pieces[1]


def rows_json(
    engine: backend.Engine,
    shape: RowShape,
    stored: backend.Relation | None,
    rows: array[int],
    arity: int,
    count: int,
) -> Iterator[bytes]:
    """Yield the objects of `count` rows in slices, each row with a comma before it.

    `stored` holds the asserted facts of the predicate; none of its rows may have a confidence. The
    relations must not change between two slices.
    """
    if not isinstance(engine, Engine) or not (stored is None or isinstance(stored, Relation)):
        yield from _in_python(engine, shape, stored, rows, arity, count)
        return
    pieces, lengths = shape.pieces()
    view = ffi.from_buffer("kb_sym[]", rows)
    counts = ffi.new("size_t[2]")
    handle = 0 if stored is None else stored.handle
    size = min(SLICE_BYTES, 256 * count + 256)
    buffer = _new("char[]", size)
    written = 0
    while written < count:
        remaining_view, left = view + written * arity, count - written
        engine.call(
            lib.kb_rows_json,
            handle,
            remaining_view,
            arity,
            left,
            pieces,
            lengths,
            buffer + 1,
            size - 1,
            counts,
            counts + 1,
        )
        if not counts[0]:
            size *= 4
            buffer = _new("char[]", size)
            continue
        written += counts[0]
        buffer[0] = b","
        yield ffi.buffer(buffer, counts[1] + 1)[:]


def _in_python(
    engine: backend.Engine,
    shape: RowShape,
    stored: backend.Relation | None,
    rows: array[int],
    arity: int,
    count: int,
) -> Iterator[bytes]:
    texts = engine.texts(rows)
    for i in range(count):
        row = rows[i * arity : (i + 1) * arity]
        values = _values(stored, row) if stored is not None else (None,) * 4
        args = ",".join(
            json.dumps(text, ensure_ascii=False) for text in texts[i * arity : (i + 1) * arity]
        )
        parts = [",", shape.head, args]
        for piece, value in zip(shape.texts[1:], values, strict=False):
            parts += [piece, "null" if value is None else str(value)]
        yield "".join([*parts, shape.end]).encode()


def _values(stored: backend.Relation, row: array[int]) -> tuple[int | None, ...]:
    ids = stored.locate(row, 1)
    if ids[0] == NO_ROW or not len(stored.match(row)[1]):
        return (None,) * 4
    created, start, until, ttl = (int(stored.attributes(attribute, ids)[0]) for attribute in _TIMES)
    return created, beginning(start, created), None if until == FOREVER else until, ttl or None
