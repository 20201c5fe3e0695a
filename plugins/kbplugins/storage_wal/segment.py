"""One file of the log: a header of 64 bytes, then records, then zeros up to its allocated size.

offset  size  field
     0     6  magic      "KBWAL", 0
     6     2  format     1
     8     1  checksum   2 = CRC-32
     9    16  log id
    25     4  epoch      leadership term in which the segment was created
    29     8  first seq  of the first record
    37     4  crc        of the last record of the segment before, 0 for none: links the files
    41     8  created    epoch milliseconds, information only
    49    11  zeros
    60     4  crc        CRC-32 of the 60 bytes before
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

from kbcore.errors import ConfigError, StorageBusy, StorageFailed, StorageFull
from kbplugins.storage_wal import frame
from kbplugins.storage_wal.files import CREATE, Disk
from kbplugins.store_base import MAX_PAYLOAD

FORMAT = 1
HEADER_BYTES = 64
_MAGIC = b"KBWAL\0"
_HEADER = struct.Struct("<6sHB16sIQIQ11x")
_CRC = struct.Struct("<I")
_MARK_BYTES = 64 << 10
_CHUNK = 256 << 10


def name_of(first: int) -> str:
    """Return the file name of the segment whose first record is `first`."""
    return f"wal-{first:020d}.log"


def first_of(name: str) -> int | None:
    """Return the first record of a segment by its file name, None for other files."""
    digits = name[4:-4]
    if name.startswith("wal-") and name.endswith(".log") and len(digits) == 20 and digits.isdigit():
        return int(digits)
    return None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment."""

    log_id: bytes
    epoch: int
    first: int
    crc_before: int
    created: int

    def encode(self) -> bytes:
        """Return the 64 bytes on disk."""
        data = _HEADER.pack(
            _MAGIC,
            FORMAT,
            frame.CHECKSUM_CRC32,
            self.log_id,
            self.epoch,
            self.first,
            self.crc_before,
            self.created,
        )
        return data + _CRC.pack(crc32(data))

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader | None:
        """Read 64 bytes; return None for a damaged header. Raises ConfigError for a newer
        format.
        """
        if len(data) < HEADER_BYTES or _CRC.unpack_from(data, _HEADER.size)[0] != crc32(
            data[: _HEADER.size]
        ):
            return None
        magic, number, kind, log_id, epoch, first, crc_before, created = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            return None
        if number > FORMAT or kind != frame.CHECKSUM_CRC32:
            raise ConfigError(
                f"a log segment has format {number} and checksum {kind}; "
                f"this version reads format {FORMAT} with checksum {frame.CHECKSUM_CRC32}"
            )
        return cls(log_id, epoch, first, crc_before, created)


@dataclass(slots=True)
class Extent:
    """Content of a segment: its first record, its end in bytes, and offsets to start reading at.

    `marks` has (seq, offset) of a record every 64 KiB, so that a reader can start near a record.
    """

    first: int
    end: int = HEADER_BYTES
    marks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file name."""
        return name_of(self.first)

    def mark(self, seq: int, offset: int) -> None:
        """Store the offset of a record unless the last mark is less than 64 KiB before it."""
        if not self.marks or offset - self.marks[-1][1] >= _MARK_BYTES:
            self.marks.append((seq, offset))

    def start_for(self, seq: int) -> tuple[int, int]:
        """Return the last marked (seq, offset) at or before a record."""
        index = bisect_right(self.marks, (seq, self.end))
        return self.marks[index - 1] if index else (self.first, HEADER_BYTES)


class SegmentReader:
    """Reads records in order and stops at the first that is not valid.

    Afterwards `offset` is the position of that record, `seq` its expected number, and `crc` and
    `epoch` are those of the last valid record. `problem` describes the bytes there; it is empty at
    zeros or the end of the file, and then the caller must check that only zeros follow.
    """

    def __init__(
        self, disk: Disk, name: str, fd: int, id_crc: int, *, seq: int, offset: int, limit: int
    ) -> None:
        self._disk = disk
        self._name = name
        self._fd = fd
        self._id_crc = id_crc
        self._limit = limit
        self.seq = seq
        self.offset = offset
        self.crc = 0
        self.epoch = 0
        self.problem = ""

    def records(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield each record as (seq, type, version, payload)."""
        data = b""
        at = 0  # position in data of self.offset
        unpack = frame.HEADER.unpack_from
        size = frame.HEADER_BYTES
        while True:
            if len(data) - at < size:
                data, at = self._fill(size), 0
                if len(data) < size:
                    self.problem = "a cut-off record header" if data.strip(b"\0") else ""
                    return
            length, crc, seq, _, epoch, kind, version, flags = unpack(data, at)
            if length == 0:
                return
            if length > MAX_PAYLOAD or self.offset + size + length > self._limit:
                self.problem = f"a length of {length} bytes"
                return
            end = at + size + length
            if end > len(data):
                data, at = self._fill(size + length), 0
                end = size + length
                if len(data) < end:
                    self.problem = "a cut-off record"
                    return
            payload = data[at + size : end]
            if frame.checksum(data[at : at + size], payload, self._id_crc) != crc:
                self.problem = "a record with a wrong checksum"
                return
            if seq != self.seq or epoch < self.epoch:
                self.problem = f"record {seq} of epoch {epoch}"
                return
            if flags:
                raise ConfigError(
                    f"record {seq} has flags {flags:#x}, which this version does not know"
                )
            yield seq, kind, version, payload
            self.offset += size + length
            self.seq = seq + 1
            self.crc = crc
            self.epoch = epoch
            at = end

    def _fill(self, need: int) -> bytes:
        count = min(max(need, _CHUNK), self._limit - self.offset)
        return self._disk.read(self._name, self._fd, count, self.offset) if count > 0 else b""


def only_zeros(disk: Disk, name: str, fd: int, offset: int, size: int) -> bool:
    """Return True if nothing was written from `offset` to the end of the file."""
    while offset < size:
        data = disk.read(name, fd, min(1 << 20, size - offset), offset)
        if not data:
            return True
        if data.count(0) != len(data):
            return False
        offset += len(data)
    return True


def create(
    disk: Disk, header: SegmentHeader, body: Iterable[bytes], want: int, need: int
) -> tuple[int, int]:
    """Create a durable segment from its header and framed records; return descriptor and capacity.

    `want` bytes are allocated, or on a small disk fewer, but at least `need`: a full disk is
    detected here, before any record is written. The file is written under a temporary name and then
    renamed, so a segment with its own name is always complete.
    """
    name = name_of(header.first)
    aside = name + ".tmp"
    fd = disk.open(aside, CREATE)
    try:
        hold(disk, name, fd)
        capacity = _allocate(disk, aside, fd, max(want, need), need)
        offset = disk.write(aside, fd, header.encode(), 0)
        for part in body:
            offset = disk.write(aside, fd, part, offset)
        # Content, then name, then manifest: after any crash, a named file is readable.
        disk.fsync(aside, fd)
        disk.rename(aside, name)
        disk.sync_folder()
    except BaseException:
        disk.close(fd)
        disk.discard(aside)
        raise
    return fd, capacity


def _allocate(disk: Disk, name: str, fd: int, want: int, need: int) -> int:
    size = want
    while True:
        try:
            if not disk.allocate(name, fd, size):
                return want
        except StorageFull:
            disk.truncate(name, fd, 0)  # a failed allocation may have taken part of the space
            if size <= need:
                raise
            size = max(need, size // 2)
        else:
            return size


def hold(disk: Disk, name: str, fd: int) -> None:
    """Lock an open segment until it is closed. Raises StorageBusy."""
    if not disk.lock(name, fd):
        holder = f"another process, which has {name} open"
        details = {"directory": disk.folder, "holder": holder}
        raise StorageBusy(f"{disk.folder} is in use by {holder}", details)


class Tail:
    """The segment that is written, `capacity` bytes long: each batch is appended whole or not at
    all.
    """

    def __init__(self, disk: Disk, fd: int, capacity: int, extent: Extent) -> None:
        self._disk = disk
        self.fd = fd
        self.capacity = capacity
        self.extent = extent

    @classmethod
    def begin(cls, disk: Disk, header: SegmentHeader, needed: int, segment_bytes: int) -> Tail:
        """Create an empty last segment with at least `needed` bytes for records; durable on
        return.
        """
        fd, capacity = create(disk, header, (), segment_bytes, HEADER_BYTES + needed)
        return cls(disk, fd, capacity, Extent(header.first))

    def write(self, data: bytes) -> None:
        """Write a batch in one call; after a failure the file has no part of it.

        Raises StorageFull on a full disk, also after a short write; StorageFailed otherwise.
        """
        end = self.extent.end
        try:
            done = self._disk.write_once(self.extent.name, self.fd, data, end)
        except StorageFull:
            self._cut_back()
            raise
        if done != len(data):
            self._cut_back()
            raise StorageFull(
                f"the disk of {self._disk.folder} is full: {done} of {len(data)} bytes were written",
                {"call": "write", "file": self.extent.name},
            )
        self.extent.end = end + len(data)

    def sync(self) -> None:
        """Put the records on the disk."""
        self._disk.fdatasync(self.extent.name, self.fd)

    def close(self) -> None:
        """Close the file; the caller has synced it if necessary."""
        self._disk.close(self.fd)

    def _cut_back(self) -> None:
        """Remove a partly written batch, durably, because its numbers will be used for other
        records.

        Without the sync the refused records could return after a power loss. The allocation after
        the end is lost too, so the next batch begins a new segment.
        """
        name, end = self.extent.name, self.extent.end
        try:
            self._disk.truncate(name, self.fd, end)
        except StorageFull as error:
            raise StorageFailed(
                f"{name} cannot be cut back to {end} bytes: {error.message}"
            ) from error
        self._disk.fdatasync(name, self.fd)
        self.capacity = end
