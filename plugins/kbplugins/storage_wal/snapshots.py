"""Snapshot files: written under a temporary name, synced, verified, and then renamed.

    header   6 magic "KBSNAP" | 2 format 1 | 1 checksum kind 2 | 16 log id | 4 epoch | 8 base seq
             | 8 created ms | 15 zeros | 4 CRC-32 of the 60 bytes before
    section  4 length | 4 CRC-32 of the data | data             (one for each chunk, in order)
    footer   4 FF FF FF FF | 8 number of sections | 8 bytes of data in all
             | 4 CRC-32 of all bytes before

All numbers are little endian. Nothing follows the footer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

from kbcore.errors import ConfigError, LogCorrupted, SnapshotFailed, TooLarge
from kbplugins.storage_wal import frame
from kbplugins.storage_wal.files import CREATE, READ, Disk, FileFailed
from kbplugins.store_base import MAX_PAYLOAD

FORMAT = 1

_MAGIC = b"KBSNAP"
_HEADER = struct.Struct("<6sHB16sIQQ15x")
_HEADER_BYTES = 64
_CRC = struct.Struct("<I")
_SECTION = struct.Struct("<II")
_END = 0xFFFFFFFF
_FOOTER = struct.Struct("<IQQ")
_BUFFER = 256 << 10


def name_of(seq: int) -> str:
    """Return the file name of the snapshot at `seq`."""
    return f"snap-{seq:020d}.kbs"


def seq_of(name: str) -> int | None:
    """Return the sequence number of a snapshot by its file name, None for other files."""
    digits = name[5:-4]
    if (
        name.startswith("snap-")
        and name.endswith(".kbs")
        and len(digits) == 20
        and digits.isdigit()
    ):
        return int(digits)
    return None


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The header of a snapshot; `created` is in epoch milliseconds, for information only."""

    log_id: bytes
    epoch: int
    seq: int
    created: int

    def encode(self) -> bytes:
        """Return the 64 bytes on disk."""
        fields = self.log_id, self.epoch, self.seq, self.created
        data = _HEADER.pack(_MAGIC, FORMAT, frame.CHECKSUM_CRC32, *fields)
        return data + _CRC.pack(crc32(data))


def write(disk: Disk, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
    """Store a snapshot under its name, durably; the caller writes MANIFEST.

    Raises StorageFull or SnapshotFailed, with no file left, and StorageFailed after a failed sync.
    """
    seq = header.seq
    name = name_of(seq)
    aside = name + ".tmp"
    try:
        try:
            _write(disk, aside, header.encode(), chunks)
            if problem := _problem(disk, aside, header.log_id, seq):
                raise SnapshotFailed(f"snapshot at {seq} was not stored: read back, {problem}")
            disk.rename(aside, name)
        except FileFailed as error:
            raise SnapshotFailed(
                f"snapshot at {seq} was not stored: {error.message}", error.details
            ) from error
    except BaseException:
        disk.discard(aside)
        raise
    # Before MANIFEST names it: a named snapshot must exist after a power loss.
    disk.sync_folder()


def _write(disk: Disk, name: str, header: bytes, chunks: Iterable[bytes]) -> None:
    fd = disk.open(name, CREATE)
    try:
        parts = [header]
        waiting = len(header)
        offset = crc = sections = total = 0

        def flush() -> None:
            nonlocal offset, crc, waiting
            data = b"".join(parts)
            parts.clear()
            waiting = 0
            crc = crc32(data, crc)
            offset = disk.write(name, fd, data, offset)

        for chunk in chunks:
            if len(chunk) > MAX_PAYLOAD:
                raise TooLarge(
                    f"a snapshot chunk of {len(chunk)} bytes is over the limit of {MAX_PAYLOAD}",
                    {"limit": "recordBytes", "value": MAX_PAYLOAD, "bytes": len(chunk)},
                )
            parts += (_SECTION.pack(len(chunk), crc32(chunk)), chunk)
            waiting += len(chunk) + _SECTION.size
            sections += 1
            total += len(chunk)
            if waiting >= _BUFFER:
                flush()
        parts.append(_FOOTER.pack(_END, sections, total))
        flush()
        disk.write(name, fd, _CRC.pack(crc), offset)
        # Before the rename: a file with its final name must have its content on the disk.
        disk.fsync(name, fd)
    finally:
        disk.close(fd)


def log_id_of(disk: Disk, name: str) -> bytes | None:
    """Return the log id in the header of a snapshot file, None if the header is damaged."""
    data = disk.read_file(name)[:_HEADER_BYTES]
    if len(data) < _HEADER_BYTES or _CRC.unpack_from(data, _HEADER.size)[0] != crc32(
        data[: _HEADER.size]
    ):
        return None
    log_id: bytes = _HEADER.unpack_from(data)[3]
    return log_id


def verify(disk: Disk, log_id: bytes, seq: int) -> str:
    """Read a whole snapshot; return "" if it is intact, otherwise what is wrong with it."""
    return _problem(disk, name_of(seq), log_id, seq)


def _problem(disk: Disk, name: str, log_id: bytes, seq: int) -> str:
    try:
        for _ in _sections(disk, name, log_id, seq):
            pass
    except LogCorrupted as error:
        return error.message
    return ""


def read(disk: Disk, log_id: bytes, seq: int) -> Iterator[bytes]:
    """Return the chunks of a snapshot; raises LogCorrupted if it is damaged."""
    return _sections(disk, name_of(seq), log_id, seq)


def _sections(disk: Disk, name: str, log_id: bytes, seq: int) -> Iterator[bytes]:
    fd = disk.open(name, READ)
    try:
        yield from _Sections(disk, name, fd, log_id, seq).all()
    finally:
        disk.close(fd)


class _Sections:
    """One pass over an open snapshot, with its running checksum."""

    def __init__(self, disk: Disk, name: str, fd: int, log_id: bytes, seq: int) -> None:
        self._disk = disk
        self._name = name
        self._fd = fd
        self._log_id = log_id
        self._seq = seq
        self._size = disk.size(name, fd)
        self._offset = 0
        self._crc = 0

    def all(self) -> Iterator[bytes]:
        self._check_header(self._take(_HEADER_BYTES))
        sections = total = 0
        while True:
            length, crc = _SECTION.unpack(self._take(_SECTION.size, peek=True))
            if length == _END:
                break
            self._take(_SECTION.size)
            data = self._take(length)
            if crc32(data) != crc:
                raise self._damaged("a section with a wrong checksum")
            sections += 1
            total += length
            yield data
        if _FOOTER.unpack(self._take(_FOOTER.size)) != (_END, sections, total):
            raise self._damaged("a footer that counts other sections")
        running = self._crc
        if _CRC.unpack(self._take(_CRC.size))[0] != running:
            raise self._damaged("a wrong checksum of the whole file")
        if self._offset != self._size:
            raise self._damaged("bytes after the end")

    def _check_header(self, data: bytes) -> None:
        if _CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
            raise self._damaged("a damaged header")
        magic, number, kind, log_id, _, seq, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC or log_id != self._log_id or seq != self._seq:
            raise self._damaged("a header of another file")
        if number > FORMAT or kind != frame.CHECKSUM_CRC32:
            raise ConfigError(
                f"{self._name} has format {number}; this version reads format {FORMAT}"
            )

    def _take(self, count: int, *, peek: bool = False) -> bytes:
        if count > self._size - self._offset:
            raise self._damaged("the end of the file too early")
        data = self._disk.read(self._name, self._fd, count, self._offset)
        if len(data) != count:
            raise self._damaged("the end of the file too early")
        if not peek:
            self._crc = crc32(data, self._crc)
            self._offset += count
        return data

    def _damaged(self, problem: str) -> LogCorrupted:
        return LogCorrupted(
            f"{self._disk.path(self._name)}: damaged near byte {self._offset}: {problem}",
            directory=self._disk.folder,
            segment=self._name,
            offset=self._offset,
            found=problem,
        )
