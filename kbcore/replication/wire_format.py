r"""Wire format of the log and of snapshots for followers, with checksums over every part.

Records travel in the frames of the durable log (kbcore/durable/LOG_FORMAT.md): a header of 32
bytes, then the payload. A snapshot has these parts:

    head      8 "KBSHIP\0\1" | 16 log id | 4 epoch | 8 sequence number
              | 4 CRC-32 of the bytes before
    section   4 length | 4 CRC-32 of the data | data           (one per chunk, in order)
    foot      4 FF FF FF FF | 8 sections | 8 bytes of data in all | 4 CRC-32 of all bytes before

All numbers are little endian. Two records are equal if their number, type, version and payload are
equal, in any storage. Therefore `record_crc` covers these fields and the log id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from kbcore.errors import BadShipment
from kbcore.plug.ports import LogRecord, LogSeed

MAX_PAYLOAD = 64 << 20
"""Maximum payload of a record or chunk in bytes, as in every log."""

FRAME = struct.Struct("<IIQQIBBH")
_CHECKED = struct.Struct("<IQQIBBH")
_RECORD = struct.Struct("<QBBI")
_MAGIC = b"KBSHIP\0\1"
_HEAD = struct.Struct("<8s16sIQ")
_SECTION = struct.Struct("<II")
_END = 0xFFFFFFFF
_FOOT = struct.Struct("<IQQ")
_CRC = struct.Struct("<I")


def record_crc(log_id: str, record: LogRecord) -> int:
    """Return the checksum that tells a record apart from others with the same number."""
    head = _RECORD.pack(record.seq, record.type, record.version, len(record.payload))
    return crc32(record.payload, crc32(head, crc32(bytes.fromhex(log_id))))


def framed(record: LogRecord, log_crc: int, durable: int, epoch: int) -> bytes:
    """Encode a record for shipping.

    `log_crc` is the CRC-32 of the log id, `durable` the leader's last synced record.
    """
    rest = _CHECKED.pack(
        len(record.payload), record.seq, durable, epoch, record.type, record.version, 0
    )
    crc = crc32(record.payload, crc32(rest, log_crc))
    return rest[:4] + _CRC.pack(crc) + rest[4:] + record.payload


def unframed(data: bytes, log_id: str) -> Iterator[LogRecord]:
    """Yield the records of a leader's answer; raises BadShipment at the first damaged one."""
    start, log_crc, view = 0, crc32(bytes.fromhex(log_id)), memoryview(data)
    while start < len(data):
        if start + FRAME.size > len(data):
            raise BadShipment(f"the answer ends within a header, at byte {start}")
        length, crc, seq, _, _, kind, version, flags = FRAME.unpack_from(data, start)
        end = start + FRAME.size + length
        if not 0 < length <= MAX_PAYLOAD or end > len(data) or flags:
            raise BadShipment(
                f"the answer ends within a record, or its header is damaged, at byte {start}"
            )
        header = crc32(
            view[start + 8 : start + FRAME.size], crc32(view[start : start + 4], log_crc)
        )
        if crc32(view[start + FRAME.size : end], header) != crc:
            raise BadShipment(f"a record with a wrong checksum, at byte {start}")
        yield LogRecord(seq, kind, version, data[start + FRAME.size : end])
        start = end


def packed(seed: LogSeed, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Encode a snapshot for shipping, in pieces."""
    head = _HEAD.pack(_MAGIC, bytes.fromhex(seed.log_id), seed.epoch, seed.seq)
    head += _CRC.pack(crc32(head))
    crc, sections, total = crc32(head), 0, 0
    yield head
    for chunk in chunks:
        section = _SECTION.pack(len(chunk), crc32(chunk))
        crc = crc32(chunk, crc32(section, crc))
        sections, total = sections + 1, total + len(chunk)
        yield section + chunk
    foot = _FOOT.pack(_END, sections, total)
    yield foot + _CRC.pack(crc32(foot, crc))


@dataclass(slots=True)
class Unpacking:
    """Decoder of a snapshot that arrives in pieces.

    `seed` is set once the head has arrived; `whole` is true once everything has.
    """

    limit: int
    """Maximum bytes of data."""
    seed: LogSeed | None = None
    whole: bool = False
    size: int = 0
    _data: bytes = b""
    _crc: int = 0
    _sections: int = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the verified chunks completed by this piece; raises BadShipment."""
        self._data += piece
        if self.seed is None:
            if len(self._data) < _HEAD.size + _CRC.size:
                return
            self._head()
        while not self.whole and len(self._data) >= _SECTION.size:
            length, crc = _SECTION.unpack_from(self._data)
            if length == _END:
                self._foot()
                return
            if length > MAX_PAYLOAD or self.size + length > self.limit:
                raise BadShipment(
                    f"a snapshot of more than {self.limit} bytes, or a chunk of {length}"
                )
            end = _SECTION.size + length
            if len(self._data) < end:
                return
            chunk = self._data[_SECTION.size : end]
            if crc32(chunk) != crc:
                raise BadShipment("a chunk of a snapshot with a wrong checksum")
            self._crc = crc32(self._data[:end], self._crc)
            self._data = self._data[end:]
            self._sections, self.size = self._sections + 1, self.size + length
            yield chunk
        if self.whole and self._data:
            raise BadShipment("bytes after the end of a snapshot")

    def _head(self) -> None:
        head = self._data[: _HEAD.size + _CRC.size]
        magic, log_id, epoch, seq = _HEAD.unpack_from(head)
        if magic != _MAGIC or _CRC.unpack_from(head, _HEAD.size)[0] != crc32(head[: _HEAD.size]):
            raise BadShipment("not a snapshot, or its head is damaged")
        self.seed = LogSeed(log_id.hex(), epoch, seq)
        self._crc = crc32(head)
        self._data = self._data[len(head) :]

    def _foot(self) -> None:
        if len(self._data) < _FOOT.size + _CRC.size:
            return
        foot = self._data[: _FOOT.size]
        right = _FOOT.unpack(foot) == (_END, self._sections, self.size)
        if not right or _CRC.unpack_from(self._data, _FOOT.size)[0] != crc32(foot, self._crc):
            raise BadShipment("a snapshot whose foot does not fit what came before")
        self._data = self._data[_FOOT.size + _CRC.size :]
        self.whole = True
        if self._data:
            raise BadShipment("bytes after the end of a snapshot")
