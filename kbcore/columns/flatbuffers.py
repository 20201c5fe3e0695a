"""Writer of FlatBuffers, the encoding of the metadata of an Arrow stream.

The format is described at flatbuffers.dev/internals. A table is written after the positions of its
fields and before the values it refers to, so a single pass is enough.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Field: TypeAlias = "Scalar | Structs | Table | str | list[Table] | None"
"""A field of a table: a number, structs, a table, a text, tables, or None for the default."""

Table: TypeAlias = "tuple[Field, ...]"
"""The fields of a table, by their ids."""

_ALIGNMENT = 8
"""Alignment of tables and structs: that of the largest scalar."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number with its `struct` format: `b` 8, `h` 16, `i` 32 or `q` 64 bits."""

    format: str
    value: int


@dataclass(frozen=True, slots=True)
class Structs:
    """A vector of structs of two 64-bit integers."""

    rows: Sequence[tuple[int, int]]


def encode(root: Table) -> bytes:
    """Return a buffer with this root table."""
    out = bytearray(4)
    struct.pack_into("<I", out, 0, _table(out, root))
    _pad(out, _ALIGNMENT)
    return bytes(out)


def _pad(out: bytearray, alignment: int, before: int = 0) -> None:
    """Pad so that the position `before` bytes further on is aligned."""
    out += bytes(-(len(out) + before) % alignment)


def _table(out: bytearray, fields: Table) -> int:
    """Write a table and what it refers to; return its position."""
    slots, size = [], 4
    for field in fields:
        if field is None:
            slots.append(0)
            continue
        width = struct.calcsize(field.format) if isinstance(field, Scalar) else 4
        size += -size % width
        slots.append(size)
        size += width
    directory = 4 + 2 * len(slots)
    _pad(out, _ALIGNMENT, directory)
    out += struct.pack(f"<HH{len(slots)}H", directory, size, *slots)
    start = len(out)
    out += struct.pack("<i", directory) + bytes(size - 4)
    for field, slot in zip(fields, slots, strict=True):
        if isinstance(field, Scalar):
            struct.pack_into(f"<{field.format}", out, start + slot, field.value)
        elif field is not None:
            struct.pack_into("<I", out, start + slot, _reference(out, field) - start - slot)
    return start


def _reference(out: bytearray, field: Structs | Table | str | list[Table]) -> int:
    """Write what a field refers to; return its position."""
    if isinstance(field, Structs):
        _pad(out, _ALIGNMENT, 4)
        start = len(out)
        out += struct.pack("<I", len(field.rows))
        for row in field.rows:
            out += struct.pack("<qq", *row)
        return start
    if isinstance(field, str):
        _pad(out, 4)
        start = len(out)
        text = field.encode()
        out += struct.pack("<I", len(text)) + text + b"\0"
        return start
    if isinstance(field, list):
        _pad(out, 4)
        start = len(out)
        out += struct.pack("<I", len(field)) + bytes(4 * len(field))
        for index, table in enumerate(field):
            slot = start + 4 + 4 * index
            struct.pack_into("<I", out, slot, _table(out, table) - slot)
        return start
    return _table(out, field)
