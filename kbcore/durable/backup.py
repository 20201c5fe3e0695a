"""A backup in one file: the state of a node at one point of the log, with checksums.

    head      8 "KBBACKUP" | 2 format | 4 length of the description | 4 its CRC-32
              | description, JSON
    section   4 length | 4 CRC-32 of the data | data           (one per snapshot chunk, in order)
    foot      4 FF FF FF FF | 8 sections | 8 bytes of data in all
              | 4 CRC-32 and 32 SHA-256 of all bytes before each

All numbers are little endian; nothing follows the foot. Every part and the whole file have
checksums. The description has the id, term and sequence number of the log, and the time of the
backup in epoch milliseconds. Format 2 is for a node with several shards: the description lists the
logs of all, and an empty section follows the sections of each shard. Format 3 has the form of
format 2 for any number of shards, and its sections are encrypted (`kbcore/encryption/sealer.py`);
it has no keys.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import orjson

from kbcore.errors import ConfigError, LogCorrupted
from kbcore.plug.ports import LogSeed

FORMAT, FORMAT_OF_SHARDS, FORMAT_ENCRYPTED = 1, 2, 3
MAX_SECTION = 64 << 20
MAX_SHARDS = 1024
_MAGIC = b"KBBACKUP"
_LOG_ID = re.compile(r"[0-9a-f]{32}")
_HEAD = struct.Struct("<8sHII")
_SECTION = struct.Struct("<II")
_END = 0xFFFFFFFF
_FOOT = struct.Struct("<IQQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """Origin of a backup.

    The log of each shard with its term and the sequence number of its last record, the creation
    time (epoch milliseconds), and whether the sections are encrypted.
    """

    logs: tuple[LogSeed, ...]
    made_at: int
    is_encrypted: bool = False

    @property
    def seq(self) -> int:
        """Sequence number of the last record in the log of the first shard."""
        return self.logs[0].seq


def written(info: BackupInfo, chunks_of_shards: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the bytes of a backup file, piece by piece."""
    first, number = info.logs[0], FORMAT
    fields: dict[str, Any] = {
        "logId": first.log_id,
        "epoch": first.epoch,
        "seq": first.seq,
        "madeAt": info.made_at,
    }
    if len(info.logs) > 1 or info.is_encrypted:
        number = FORMAT_ENCRYPTED if info.is_encrypted else FORMAT_OF_SHARDS
        fields["shards"] = [[log.log_id, log.epoch, log.seq] for log in info.logs]
    description = orjson.dumps(fields)
    crc, digest = 0, hashlib.sha256()

    def summed(data: bytes) -> bytes:
        nonlocal crc
        crc = crc32(data, crc)
        digest.update(data)
        return data

    yield summed(_HEAD.pack(_MAGIC, number, len(description), crc32(description)) + description)
    sections = total = 0
    for chunks in chunks_of_shards:
        end = () if number == FORMAT else (b"",)
        for chunk in chain(chunks, end):
            yield summed(_SECTION.pack(len(chunk), crc32(chunk)) + chunk)
            sections += 1
            total += len(chunk)
    yield summed(_FOOT.pack(_END, sections, total))
    yield summed(_CRC.pack(crc))
    yield digest.digest()


def verify(path: Path) -> BackupInfo:
    """Read a whole backup file and check every checksum in it.

    Raise LogCorrupted, ConfigError for a newer format.
    """
    with path.open("rb") as file:
        reading = _Reading(path, file)
        for _ in reading.sections():
            pass
        return reading.info


def chunks_of(path: Path) -> Iterator[Iterator[bytes]]:
    """Yield the chunks of each shard in a backup file, to be read in order.

    Chunks that are not read are skipped: an empty log needs none. Raises LogCorrupted if the file
    is damaged.
    """
    with path.open("rb") as file:
        reading = _Reading(path, file)
        sections = reading.sections()
        for _ in reading.info.logs:
            chunks = takewhile(len, sections)
            yield chunks
            for _ in chunks:
                pass


def _read_description(description: bytes) -> BackupInfo | None:
    """Return what a description says, None if it does not have the form that `written` gives it."""
    try:
        fields = orjson.loads(description)
        logs = fields.get("shards", [[fields["logId"], fields["epoch"], fields["seq"]]])
        info = BackupInfo(tuple(LogSeed(*log) for log in logs), fields["madeAt"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    is_readable = 0 < len(info.logs) <= MAX_SHARDS and all(map(_is_log, info.logs))
    return info if is_readable and _is_count(info.made_at) else None


def _is_log(log: LogSeed) -> bool:
    return (
        type(log.log_id) is str
        and _LOG_ID.fullmatch(log.log_id) is not None
        and _is_count(log.epoch)
        and _is_count(log.seq)
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


class _Reading:
    """One pass over an open backup file, with its running checksums."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._offset = 0
        self._crc = 0
        self._digest = hashlib.sha256()
        self.info = self._head()

    def sections(self) -> Iterator[bytes]:
        count = total = ends = 0
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
            ends += not length
            yield data
        foot = _SECTION.pack(length, crc) + self._take(_FOOT.size - _SECTION.size)
        if _FOOT.unpack(foot) != (_END, count, total):
            raise self._damaged("a foot that does not match the sections")
        if ends != (len(self.info.logs) if self._has_ends else 0):
            raise self._damaged("sections of another number of shards")
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
            raise self._damaged("not a backup file")
        if number not in (FORMAT, FORMAT_OF_SHARDS, FORMAT_ENCRYPTED):
            raise ConfigError(
                f"{self._path} has backup format {number};"
                f" this version reads formats up to {FORMAT_ENCRYPTED}"
            )
        if length > MAX_SECTION:
            raise self._damaged("a description that is too long")
        description = self._take(length)
        if crc32(description) != crc:
            raise self._damaged("a damaged description")
        info = _read_description(description)
        if info is None or (
            number != FORMAT_ENCRYPTED and (len(info.logs) > 1) != (number == FORMAT_OF_SHARDS)
        ):
            raise self._damaged("a description that cannot be read")
        self._has_ends = number != FORMAT
        return replace(info, is_encrypted=number == FORMAT_ENCRYPTED)

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            raise self._damaged("an unexpected end of the file")
        self._crc = crc32(data, self._crc)
        self._digest.update(data)
        self._offset += count
        return data

    def _damaged(self, problem: str) -> LogCorrupted:
        return LogCorrupted(
            f"{self._path}: not a sound backup: near byte {self._offset}: {problem}",
            directory=str(self._path.parent),
            segment=self._path.name,
            offset=self._offset,
            found=problem,
        )
