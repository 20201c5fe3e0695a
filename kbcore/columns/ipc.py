"""Tables of columns as an Arrow IPC stream: arrow.apache.org/docs/format/Columnar.html.

The stream is written here rather than by pyarrow, so that a server needs no library of 100 MB for a
format that takes these few lines: the columns are arrays in the layout of Arrow already, and only
the messages around them are written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kbcore.columns.flatbuffers import Scalar, Structs, Table, encode
from kbplanner.engine.columns import ArrowColumn, Buffers

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
"""The media type of an Arrow IPC stream."""

BATCH_ROWS = 1 << 16
"""Rows of a record batch: a multiple of 8, so that batches begin at a byte of a bitmap."""

_METADATA_V5 = 4
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_ALIGNMENT = 8
_END = struct.pack("<Ii", 0xFFFFFFFF, 0)

_WIDTHS = {"i": 32, "l": 64, "g": 64, "b": 1}
"""Bits of a value, by the format strings of the Arrow C data interface."""

_INT32: Table = (Scalar("i", 32), Scalar("b", 1))
_TYPES: dict[str, tuple[int, Table]] = {
    "i": (2, _INT32),
    "l": (2, (Scalar("i", 64), Scalar("b", 1))),
    "g": (3, (Scalar("h", 2),)),
    "u": (5, ()),
    "b": (6, ()),
}
"""The number and the table of each type, by format string."""


def stream(columns: Sequence[ArrowColumn], row_count: int) -> Iterator[bytes]:
    """Yield an Arrow stream in parts: the schema and the dictionaries, then each record batch."""
    head = [_schema(columns)]
    for number, (*_, dictionary) in enumerate(columns):
        if dictionary is not None:
            _, length, buffers = dictionary
            record, body = _batch(length, [(length, 0)], buffers)
            head.append(_message(_DICTIONARY_BATCH, (Scalar("q", number), record), body))
    yield b"".join(head)
    for start in range(0, row_count, BATCH_ROWS):
        rows = min(BATCH_ROWS, row_count - start)
        nodes, parts = [], []
        for _, format, _, null_count, (validity, *values), _ in columns:
            has_nulls = null_count and validity is not None
            valid = _slice(validity, 1, start, rows) if has_nulls else None
            nodes.append((rows, _nulls(valid, rows)))
            parts.append(valid)
            parts += [_slice(buffer, _WIDTHS[format], start, rows) for buffer in values]
        record, body = _batch(rows, nodes, tuple(parts))
        yield _message(_RECORD_BATCH, record, body)
    yield _END


def _slice(buffer: bytes | bytearray | None, width: int, start: int, rows: int) -> bytes:
    """Return `rows` values of `width` bits each; `start` is a multiple of 8."""
    if buffer is None:
        return b""
    first = start * width // 8
    return bytes(memoryview(buffer)[first : first + (rows * width + 7) // 8])


def _nulls(valid: bytes | None, rows: int) -> int:
    """Return the number of nulls; the bits after the last row are 0."""
    return 0 if valid is None else rows - int.from_bytes(valid, "little").bit_count()


def _schema(columns: Sequence[ArrowColumn]) -> bytes:
    fields = [_field(number, column) for number, column in enumerate(columns)]
    return _message(_SCHEMA, (None, fields), b"")


def _field(number: int, column: ArrowColumn) -> Table:
    name, format, nullable, _, _, dictionary = column
    kind, shape = _TYPES[format if dictionary is None else dictionary[0]]
    encoding: Table | None = None if dictionary is None else (Scalar("q", number), _INT32)
    return name, Scalar("b", nullable), Scalar("b", kind), shape, encoding, []


def _batch(rows: int, nodes: list[tuple[int, int]], buffers: Buffers) -> tuple[Table, bytes]:
    """Return the description of a record batch and its body."""
    places, body = [], bytearray()
    for buffer in buffers:
        size = 0 if buffer is None else len(buffer)
        places.append((len(body), size))
        if buffer is not None:
            body += buffer
            body += bytes(-size % _ALIGNMENT)
    return (Scalar("q", rows), Structs(nodes), Structs(places)), bytes(body)


def _message(kind: int, header: Table, body: bytes) -> bytes:
    metadata = encode(
        (Scalar("h", _METADATA_V5), Scalar("b", kind), header, Scalar("q", len(body)))
    )
    return struct.pack("<Ii", 0xFFFFFFFF, len(metadata)) + metadata + body
