"""A file that keeps the vectors of a tenant's facts, so that a restart need not make them again.

    header   6 magic "KBVECT" | 2 format 1 | 32 digest of the model's name | 4 dimension
             | 8 number of the last purge whose text is not in the file
             | 4 CRC-32 of the bytes before
    entry    16 digest of a text | 4 factor (float) | one byte for each number
             | 4 CRC-32 of the bytes before

With encryption the format is 2, and the entries are in blocks, as they were added:

    block    4 length | 4 CRC-32 of the sealed entries | sealed entries, bound to their position

All numbers are little endian. The file is a cache: what is damaged or belongs to another model is
left out and made again. Entries are appended without a sync; a file is replaced by renaming.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from kbcore.encryption.sealer import FileSealer
from kbcore.search.vectors.store import VectorEntry
from kbcore.system_calls import sync_file, sync_folder

SUFFIX = ".kbv"
TEMPORARY = ".tmp"
"""Suffix of a file that is to replace another one."""

FORMAT, FORMAT_ENCRYPTED = 1, 2

_MAGIC = b"KBVECT"
_HEADER = struct.Struct("<6sH32sIQ")
_CRC = struct.Struct("<I")
_BLOCK = struct.Struct("<II")
HEADER_BYTES = _HEADER.size + _CRC.size

_log = logging.getLogger("kbcore.vectors")


class VectorFile:
    """The vectors of one tenant, made by the model `model`, of `dimension` numbers each.

    With `sealer` they are encrypted. Not safe for several threads at once. Methods that write raise
    OSError, and with a sealer KBError.
    """

    def __init__(
        self, path: Path, model: str, dimension: int, sealer: FileSealer | None = None
    ) -> None:
        self.path = path
        self._sealer = sealer
        self._format = FORMAT if sealer is None else FORMAT_ENCRYPTED
        self._model = hashlib.blake2b(model.encode(), digest_size=32).digest()
        self._dimension = dimension
        self._entry = struct.Struct(f"<16sf{dimension}s")
        self._size = 0
        self.entries = 0
        self.erased: int | None = None
        """Number of the last purge whose text is not in the file, None without a file."""

    def read(self) -> list[VectorEntry]:
        """Return the vectors that are intact, from the first on; what is damaged is written
        over.
        """
        self._size = self.entries = 0
        self.erased = None
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("vectors of facts cannot be read and are made again: %s", error)
            return []
        header = _header_of(data)
        self.erased = 0 if header is None else header[4]
        if header is None or header[1] != self._format:
            _log.warning(
                "%s is damaged or of another version: its vectors are made again", self.path
            )
            return []
        if header[2:4] != (self._model, self._dimension):
            _log.info("%s has the vectors of another model: they are made again", self.path)
            return []
        entries: list[VectorEntry] = []
        if self._sealer is None:
            at = HEADER_BYTES + self._read_entries(data[HEADER_BYTES:], entries)
        else:
            at = self._read_blocks(data, self._sealer, entries)
        if at != len(data):
            _log.warning("%s is damaged at byte %d: later vectors are made again", self.path, at)
        self._size, self.entries = at, len(entries)
        return entries

    def _read_entries(self, data: bytes, entries: list[VectorEntry]) -> int:
        """Add the intact entries at the beginning of `data`; return their bytes."""
        at, size = 0, self._entry.size
        while at + size + _CRC.size <= len(data):
            if _CRC.unpack_from(data, at + size)[0] != crc32(data[at : at + size]):
                break
            entries.append(VectorEntry(*self._entry.unpack_from(data, at)))
            at += size + _CRC.size
        return at

    def _read_blocks(self, data: bytes, sealer: FileSealer, entries: list[VectorEntry]) -> int:
        """Add the entries of the intact blocks of a file; return where the last one ends."""
        at = HEADER_BYTES
        while at + _BLOCK.size <= len(data):
            length, crc = _BLOCK.unpack_from(data, at)
            end = at + _BLOCK.size + length
            sealed = data[at + _BLOCK.size : end]
            if end > len(data) or crc32(sealed) != crc:
                break
            block = sealer.open(sealed, self._bound_to(data[:HEADER_BYTES], at))
            if block is None:
                break
            self._read_entries(block, entries)
            at = end
        return at

    def _block(self, data: bytes, header: bytes, at: int) -> bytes:
        """Return entries as they are written at a position of the file."""
        if self._sealer is None or not data:
            return data
        sealed = self._sealer.seal(data, self._bound_to(header, at))
        return _BLOCK.pack(len(sealed), crc32(sealed)) + sealed

    def _bound_to(self, header: bytes, at: int) -> bytes:
        return b"vectors" + at.to_bytes(8, "little") + header

    def append(self, entries: Iterable[VectorEntry], erased: int) -> None:
        """Add vectors; `erased` is the number of the last purge if the file is new."""
        data = b"".join(map(self._encoded, entries))
        if not data:
            return
        if not self._size:
            self._replace(data, erased)
            return
        with self.path.open("r+b") as file:
            block = self._block(data, file.read(HEADER_BYTES), self._size)
            file.truncate(self._size)
            file.seek(self._size)
            file.write(block)
        self._grown(data, block)

    def replace(self, entries: Iterable[VectorEntry], erased: int) -> None:
        """Replace all vectors, durably; no text of the purges up to `erased` is among them."""
        self._replace(b"".join(map(self._encoded, entries)), erased)

    def _replace(self, data: bytes, erased: int) -> None:
        header = _HEADER.pack(_MAGIC, self._format, self._model, self._dimension, erased)
        header += _CRC.pack(crc32(header))
        block = self._block(data, header, HEADER_BYTES)
        aside = self.path.with_suffix(TEMPORARY)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(header)
                file.write(block)
                file.flush()
                sync_file(file.fileno())
            aside.replace(self.path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        # so that the file before does not come back after a power loss
        sync_folder(self.path.parent)
        self._size, self.entries, self.erased = HEADER_BYTES, 0, erased
        self._grown(data, block)

    def _grown(self, data: bytes, block: bytes) -> None:
        self._size += len(block)
        self.entries += len(data) // (self._entry.size + _CRC.size)

    def _encoded(self, entry: VectorEntry) -> bytes:
        data = self._entry.pack(*entry)
        return data + _CRC.pack(crc32(data))


def erased_in(path: Path) -> int | None:
    """Return the number of the last purge whose text is not in a file of vectors.

    None without a file; 0 if the header is damaged.
    """
    try:
        with path.open("rb") as file:
            header = _header_of(file.read(HEADER_BYTES))
    except FileNotFoundError:
        return None
    return 0 if header is None else header[4]


def _header_of(data: bytes) -> tuple[bytes, int, bytes, int, int] | None:
    """Return the fields of a header, None if it is damaged."""
    if len(data) < HEADER_BYTES:
        return None
    fields: tuple[bytes, int, bytes, int, int] = _HEADER.unpack_from(data)
    crc = _CRC.unpack_from(data, _HEADER.size)[0]
    return fields if fields[0] == _MAGIC and crc == crc32(data[: _HEADER.size]) else None
