"""One record on disk: a header of 32 bytes, then the payload. All numbers are little endian.

    offset  size  field
         0     4  length    payload bytes, 1 to 64 MiB; 0 is the end of the log if only zeros follow
         4     4  crc       CRC-32 over the log id, this header without this field, and the payload
         8     8  seq       one more than the record before
        16     8  durable   highest sequence number known to be synced when this was written
        24     4  epoch     leadership term, never lower than before
        28     1  type      of the payload, which the log does not interpret
        29     1  version   of the payload
        30     2  flags     bit 0 compressed; none is used yet

The log id is part of the checksum, so a record of another log is never valid in this one. `durable`
shows which earlier records were synced: if such a record is damaged, acknowledged data is lost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from kbcore.errors import InvalidInput, TooLarge
from kbplugins.store_base import MAX_PAYLOAD

HEADER_BYTES = 32
CHECKSUM_CRC32 = 2
"""zlib's CRC-32; 1 is reserved for CRC-32C."""

HEADER = struct.Struct("<IIQQIBBH")
_PREFIX = struct.Struct("<II")
_CHECKED = struct.Struct("<IQQIBBH")
"""The header without its crc: the part that the checksum covers."""

_HIGH_SEQ = 11
"""Offset of the high five bytes of `seq`."""


def encode(
    records: Sequence[tuple[int, int, bytes]], seq: int, durable: int, epoch: int, id_crc: int
) -> tuple[bytes, int]:
    """Encode (type, version, payload) records from `seq` on; return the bytes and the last
    checksum.
    """
    parts: list[bytes] = []
    add = parts.append
    checked_header = _CHECKED.pack
    prefix = _PREFIX.pack
    crc = 0
    for kind, version, payload in records:
        length = len(payload)
        if not 0 < length <= MAX_PAYLOAD:
            raise _bad_length(length)
        try:
            header = checked_header(length, seq, durable, epoch, kind, version, 0)
        except struct.error:
            raise InvalidInput(
                f"record type {kind} or version {version} is not in 0 to 255"
            ) from None
        crc = crc32(payload, crc32(header, id_crc))
        add(prefix(length, crc))
        add(header[4:])
        add(payload)
        seq += 1
    return b"".join(parts), crc


def checksum(header: bytes, payload: bytes | memoryview, id_crc: int) -> int:
    """Return the crc field of a record, from its 32 header bytes and its payload."""
    return crc32(payload, crc32(header[8:], crc32(header[:4], id_crc)))


def _bad_length(length: int) -> Exception:
    if length == 0:
        return InvalidInput("a log record needs at least one byte")
    return TooLarge(
        f"a log record of {length} bytes is over the limit of {MAX_PAYLOAD}",
        {"limit": "recordBytes", "value": MAX_PAYLOAD, "bytes": length},
    )


def find(data: bytes, expected: int, id_crc: int) -> Iterator[tuple[int, int, int]]:
    """Yield the valid records at any byte of `data`, after damage, as (offset, seq, durable).

    Numbers from `expected` up to the maximum number of records in `data` are possible. So the high
    five bytes of the field have one or two values, and the search is a substring search.
    """
    highs = {number >> 24 for number in (expected, expected + len(data) // HEADER_BYTES + 1)}
    pattern = re.compile(b"|".join(re.escape(high.to_bytes(5, "little")) for high in sorted(highs)))
    start = 0
    while (hit := pattern.search(data, start + _HIGH_SEQ)) is not None:
        start = hit.start() - _HIGH_SEQ
        record = _record_at(data, start, expected, id_crc)
        if record is not None:
            end, seq, durable = record
            yield start, seq, durable
            start = end
        else:
            start = max(start + 1, _skip_zeros(data, start))


def _record_at(data: bytes, start: int, expected: int, id_crc: int) -> tuple[int, int, int] | None:
    if start + HEADER_BYTES > len(data):
        return None
    length, crc, seq, durable, _, _, _, _ = HEADER.unpack_from(data, start)
    end = start + HEADER_BYTES + length
    if not 0 < length <= MAX_PAYLOAD or end > len(data) or seq < expected:
        return None
    header = data[start : start + HEADER_BYTES]
    if checksum(header, memoryview(data)[start + HEADER_BYTES : end], id_crc) != crc:
        return None
    return end, seq, durable


def _skip_zeros(data: bytes, start: int) -> int:
    """Return the offset after a long run of zeros, which keeps the search linear.

    Zeros are never a record, because the length of a record is not 0.
    """
    if data[start : start + 64].strip(b"\0"):
        return start + 1
    step = start
    while step < len(data) and not data[step : step + 4096].strip(b"\0"):
        step += 4096
    return step - HEADER_BYTES
