"""Columns of answers, read from the engine without a Python object per row.

A column holds each of its texts once, in UTF-8 one after the other, and for each row the number of
its text. These are the arrays of a dictionary-encoded column of Apache Arrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from kbplanner._answers import arrow_schema, arrow_stream, dicts, texts, tuples
from kbplanner.engine import backend
from kbplanner.engine.binding import check, ffi, lib
from kbplanner.engine.engine import Engine
from kbplanner.errors import InvalidInput

__all__ = [
    "ArrowColumn",
    "Column",
    "arrow_schema",
    "arrow_stream",
    "column_of",
    "dicts_of",
    "distinct",
    "encoded",
    "rows_of",
]

MAX_TEXT_BYTES = (1 << 31) - 1
"""Bytes that the distinct texts of one column may take: offsets have 32 bits."""

Buffers: TypeAlias = "tuple[bytearray | bytes | None, ...]"

ArrowColumn: TypeAlias = "tuple[str, str, bool, int, Buffers, tuple[str, int, Buffers] | None]"
"""Name, format, nullable, number of nulls, buffers, dictionary.

The format is a string of the Arrow C data interface, such as `i` for 32-bit integers. The
dictionary is None, or format, length and buffers of the values that the integers refer to.
"""

_new = ffi.new_allocator(should_clear_after_alloc=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of texts.

    `codes` has the number of its text for each row and `offsets` the place of each text in `text`,
    and its end, as 32-bit integers.
    """

    codes: bytearray
    offsets: bytearray
    text: bytearray

    def __len__(self) -> int:
        """Return the number of distinct texts."""
        return len(self.offsets) // 4 - 1

    def texts(self) -> list[str]:
        """Return the distinct texts."""
        return texts(self.text, self.offsets)

    def arrow(self, name: str) -> ArrowColumn:
        """Return the column as Arrow has it: dictionary-encoded text without nulls."""
        values = "u", len(self), (None, self.offsets, self.text)
        return name, "i", False, 0, (None, self.codes), values


class Rows:
    """Rows of a relation, or a part of them, that share one list of values."""

    def __init__(self, codes: bytearray, values: list[Any], arity: int) -> None:
        self._codes = codes
        self._values = values
        self._arity = arity

    def tuples(self, start: int, stop: int) -> list[tuple[Any, ...]]:
        """Return the rows from `start` up to, not including, `stop`."""
        return tuples(self._codes, self._values, self._arity, start, stop)


def rows_of(engine: backend.Engine, symbols: array[int], arity: int, convert: Any = None) -> Rows:
    """Return rows as tuples of texts, each text made once; `convert` replaces each text."""
    column = column_of(engine, symbols, 0, 1)
    values: list[Any] = column.texts()
    return Rows(column.codes, values if convert is None else list(map(convert, values)), arity)


def dicts_of(
    template: dict[str, Any], count: int, columns: Mapping[str, list[Any]]
) -> list[dict[str, Any]]:
    """Return `count` copies of a dict, each with a value of every column; new keys come last."""
    return dicts(template, count, tuple(columns), tuple(columns.values()))


def column_of(engine: backend.Engine, symbols: array[int], first: int, stride: int) -> Column:
    """Return the column of every `stride`-th symbol from `first` on.

    Raises InvalidInput if its texts have more than 2 GiB.
    """
    if not isinstance(engine, Engine):
        return encoded(engine.texts(symbols[first::stride]))
    codes, values, size = _numbered(engine, symbols, first, stride)
    filled = ffi.new("size_t *")
    offsets = bytearray(4 * (size + 1))
    offsets_view = ffi.from_buffer("int32_t[]", offsets)
    with engine._lock:
        handle = engine._locked_handle()
        check(lib.kb_text_offsets(handle, values, size, offsets_view, filled))
        _check_size(filled[0] == size)
        text = bytearray(offsets_view[size])
        view = ffi.from_buffer("char[]", text)
        check(lib.kb_texts(handle, values, size, view, len(text)))
    return Column(codes, offsets, text)


def encoded(values: Iterable[str]) -> Column:
    """Return a column of texts that are Python strings."""
    numbers: dict[str, int] = {}
    codes = array("I", [numbers.setdefault(value, len(numbers)) for value in values])
    parts = [text.encode() for text in numbers]
    ends = list(accumulate(map(len, parts), initial=0))
    _check_size(ends[-1] <= MAX_TEXT_BYTES)
    return Column(
        bytearray(codes.tobytes()),
        bytearray(array("i", ends).tobytes()),
        bytearray(b"".join(parts)),
    )


def distinct(engine: backend.Engine, symbols: array[int], first: int, stride: int) -> Sequence[int]:
    """Return the distinct symbols of such a column, in order of first appearance."""
    if not isinstance(engine, Engine):
        return list(dict.fromkeys(symbols[first::stride]))
    _, values, size = _numbered(engine, symbols, first, stride)
    return ffi.unpack(values, size) if size else []


def _numbered(
    engine: Engine, symbols: array[int], first: int, stride: int
) -> tuple[bytearray, Any, int]:
    """Return the numbers of the symbols of a column, its distinct symbols, and how many there
    are.
    """
    count = len(range(first, len(symbols), stride))
    codes = bytearray(4 * count)
    codes_view, cells = ffi.from_buffer("uint32_t[]", codes), ffi.from_buffer("kb_sym[]", symbols)
    values, filled = _new("kb_sym[]", max(count, 1)), ffi.new("size_t *")
    engine.call(lib.kb_column_codes, cells + first, stride, count, codes_view, values, filled)
    return codes, values, filled[0]


def _check_size(fits: bool) -> None:
    if not fits:
        raise InvalidInput("the texts of one column of the answers have more than 2 GiB")
