"""A backup in one file: the state of a node at one moment, with checksums over every part and over the whole.

    head      8 "KBBACKUP" | 2 format 1 | 4 length of the description | 4 its CRC-32 | description, JSON
    section   4 length | 4 CRC-32 of the data | data           (one a snapshot chunk, in order)
    foot      4 FF FF FF FF | 8 sections | 8 bytes of data in all | 4 CRC-32 and 32 SHA-256 of all bytes before each

All numbers are little endian; nothing follows the foot. The description has the id, term and sequence number of the log, and
the time it was made, in epoch milliseconds.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import orjson

from kbcore.errors import ConfigError, LogCorrupted

FORMAT = 1
MAX_SECTION = 64 << 20
_MAGIC = b"KBBACKUP"
_HEAD = struct.Struct("<8sHII")
_SECTION = struct.Struct("<II")
_END = 0xFFFFFFFF
_FOOT = struct.Struct("<IQQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """Whose state a backup is: log id, term, the last record it includes, and when it was made (epoch milliseconds)."""

    log_id: str
    epoch: int
    seq: int
    made_at: int


def written(info: BackupInfo, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a backup file, piece by piece."""
    about = orjson.dumps({"logId": info.log_id, "epoch": info.epoch, "seq": info.seq, "madeAt": info.made_at})
    crc, digest = 0, hashlib.sha256()

    def summed(data: bytes) -> bytes:
        nonlocal crc
        crc = crc32(data, crc)
        digest.update(data)
        return data

    yield summed(_HEAD.pack(_MAGIC, FORMAT, len(about), crc32(about)) + about)
    sections = total = 0
    for chunk in chunks:
        yield summed(_SECTION.pack(len(chunk), crc32(chunk)) + chunk)
        sections += 1
        total += len(chunk)
    yield summed(_FOOT.pack(_END, sections, total))
    yield summed(_CRC.pack(crc))
    yield digest.digest()


def verify(path: Path) -> BackupInfo:
    """Read a whole backup file and check every sum in it; raises LogCorrupted, ConfigError for a newer format."""
    with path.open("rb") as file:
        reading = _Reading(path, file)
        for _ in reading.sections():
            pass
        return reading.info


def chunks_of(path: Path) -> Iterator[bytes]:
    """The chunks of a backup file; raises LogCorrupted where it is damaged."""
    with path.open("rb") as file:
        yield from _Reading(path, file).sections()


class _Reading:
    """One pass over an open backup file, with its running sums."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._offset = 0
        self._crc = 0
        self._digest = hashlib.sha256()
        self.info = self._head()

    def sections(self) -> Iterator[bytes]:
        count = total = 0
        while True:
            length, crc = _SECTION.unpack(self._take(_SECTION.size))
            if length == _END:
                break
            if length > MAX_SECTION:
                raise self._damaged(f"a section of {length} bytes")
            data = self._take(length)
            if crc32(data) != crc:
                raise self._damaged("a section with a wrong checksum")
            count += 1
            total += length
            yield data
        foot = _SECTION.pack(length, crc) + self._take(_FOOT.size - _SECTION.size)
        if _FOOT.unpack(foot) != (_END, count, total):
            raise self._damaged("a foot that counts other sections")
        running = self._crc
        if _CRC.unpack(self._take(_CRC.size))[0] != running:
            raise self._damaged("a wrong checksum of the whole file")
        whole = self._digest.digest()
        if self._take(len(whole)) != whole:
            raise self._damaged("a wrong SHA-256 of the whole file")
        if self._file.read(1):
            raise self._damaged("bytes after the end")

    def _head(self) -> BackupInfo:
        magic, number, length, crc = _HEAD.unpack(self._take(_HEAD.size))
        if magic != _MAGIC:
            raise self._damaged("no backup at all")
        if number != FORMAT:
            raise ConfigError(f"{self._path} has backup format {number}; this version reads format {FORMAT}")
        if length > MAX_SECTION:
            raise self._damaged("a description without end")
        about = self._take(length)
        if crc32(about) != crc:
            raise self._damaged("a damaged description")
        found: dict[str, Any] = orjson.loads(about)
        return BackupInfo(found["logId"], found["epoch"], found["seq"], found["madeAt"])

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            raise self._damaged("the end of the file too early")
        self._crc = crc32(data, self._crc)
        self._digest.update(data)
        self._offset += count
        return data

    def _damaged(self, found: str) -> LogCorrupted:
        return LogCorrupted(
            f"{self._path}: not a sound backup: near byte {self._offset}: {found}",
            directory=str(self._path.parent),
            segment=self._path.name,
            offset=self._offset,
            found=found,
        )
