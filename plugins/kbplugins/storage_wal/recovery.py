"""Recovery at start: an intact log, a torn tail to cut, or damage to refuse.

At the first position without a valid record, the rules of kbcore/durable/LOG_FORMAT.md apply in
order:

1. not in the last segment: corruption, because a segment is synced before the next one is created;
2. `durable` of a valid record after it, or of MANIFEST, shows that the record was synced:
   corruption;
3. MANIFEST has the flag `clean`: corruption, because a clean close syncs every record;
4. otherwise it is a torn tail: records that were written but never acknowledged. It is cut.

The folder is changed only after every file was checked, so a refused folder stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from dataclasses import dataclass

from kbcore.errors import LogCorrupted
from kbplanner.syntax.diagnostics import counted
from kbplugins.storage_wal import frame, segment
from kbplugins.storage_wal.files import READ, Disk
from kbplugins.storage_wal.manifest import NAME as MANIFEST
from kbplugins.storage_wal.manifest import Manifest
from kbplugins.storage_wal.segment import Extent, SegmentHeader, SegmentReader

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogContent:
    """The intact content of a log: its segments, last record, and the bytes of a torn tail."""

    extents: list[Extent]
    head: int
    crc: int
    clean: bool
    dropped: int
    surplus: list[str]
    """Segment files that are not part of the log and may be removed."""


def corrupted(
    folder: str, name: str, offset: int, expected: int, problem: str, after: int, why: str = ""
) -> LogCorrupted:
    """Return the error for a damaged log: position, expected record, stored bytes, and what to
    do.
    """
    return LogCorrupted(
        f"{folder}/{name}: damaged at byte {offset}: expected record {expected}, found {problem}; "
        f"{counted(after, 'valid record')} found after it{'; ' + why if why else ''}. "
        "Restore a backup with `kbcore restore`, or save the intact records with `kbcore salvage`",
        directory=folder,
        segment=name,
        offset=offset,
        expectedSeq=expected,
        found=problem,
        validAfter=after,
    )


def examine(disk: Disk, names: list[str], manifest: Manifest) -> LogContent:
    """Read every segment and check its end; change no file. Raises LogCorrupted."""
    firsts, surplus = _segments(disk, names, manifest)
    log = _Log(disk, manifest, adopted=len(firsts) > len(manifest.segments))
    if not firsts and manifest.segments:
        log.begin_after(manifest.durable)
    for index, first in enumerate(firsts):
        log.segment(first, last=index == len(firsts) - 1, leading=index == 0)
    log.finish()
    return LogContent(log.extents, log.head, log.crc, log.clean, log.dropped, surplus)


def _segments(disk: Disk, names: list[str], manifest: Manifest) -> tuple[list[int], list[str]]:
    """Return the segments to read, and leftovers of a crash to remove: older or empty files."""
    present = {first: name for name in names if (first := segment.first_of(name)) is not None}
    firsts = _after_missing(disk, present, manifest)
    surplus = [segment.name_of(first) for first in manifest.segments if first not in firsts]
    for first, name in sorted(present.items()):
        if first in manifest.segments:
            continue
        if manifest.segments and first < manifest.segments[0]:
            surplus.append(name)
        elif not firsts or first > firsts[-1]:
            # Newer than MANIFEST: a crash after the segment was created and before MANIFEST was
            # written leaves it empty. A segment with records must continue the log.
            if _holds_records(disk, name, manifest):
                firsts.append(first)
            else:
                surplus.append(name)
        else:
            raise corrupted(disk.folder, name, 0, first, "a segment that MANIFEST does not name", 0)
    return firsts, surplus


def _after_missing(disk: Disk, present: Container[int], manifest: Manifest) -> list[int]:
    """Return the segments that MANIFEST names, without those up to a missing one.

    A snapshot must have all their records. That the last one has none after the snapshot is known
    after a clean stop only. Raises LogCorrupted.
    """
    named = list(manifest.segments)
    missing = [first for first in named if first not in present]
    if not missing:
        return named
    after = named[named.index(missing[-1]) + 1 :]
    newest = manifest.snapshots[-1] if manifest.snapshots else 0
    if (
        not newest
        or newest < (after[0] - 1 if after else manifest.durable)
        or not (after or manifest.clean)
    ):
        name, why = segment.name_of(missing[0]), "MANIFEST names the segment"
        raise corrupted(disk.folder, name, 0, missing[0], "no such file", 0, why)
    logger.warning(
        "%s: the segments %s are missing; the snapshot at record %d has their records",
        disk.folder,
        ", ".join(map(segment.name_of, missing)),
        newest,
    )
    return after


def _holds_records(disk: Disk, name: str, manifest: Manifest) -> bool:
    data = disk.read_file(name)[segment.HEADER_BYTES :].rstrip(b"\0")
    first = segment.first_of(name) or 1
    return any(True for _ in frame.find(data, first, manifest.id_crc))


class _Log:
    """The state of one pass over the segments."""

    def __init__(self, disk: Disk, manifest: Manifest, *, adopted: bool) -> None:
        self._disk = disk
        self._manifest = manifest
        self._id = manifest.log_id_bytes
        self._id_crc = manifest.id_crc
        # A segment that MANIFEST does not name was written after its `clean` flag was set.
        self.clean = manifest.clean and not adopted
        self.extents: list[Extent] = []
        self.head = 0
        self.crc = 0
        self.epoch = 0
        self.dropped = 0

    def segment(self, first: int, *, last: bool, leading: bool) -> None:
        """Read one segment after those before it."""
        name = segment.name_of(first)
        fd = self._disk.open(name, READ)
        try:
            size = self._disk.size(name, fd)
            self._check_header(
                name, first, self._disk.read(name, fd, segment.HEADER_BYTES, 0), leading
            )
            extent = Extent(first)
            reader = SegmentReader(
                self._disk,
                name,
                fd,
                self._id_crc,
                seq=first,
                offset=segment.HEADER_BYTES,
                limit=max(size, 64),
            )
            reader.epoch, reader.crc = self.epoch, self.crc
            for seq, _, _, _ in reader.records():
                extent.mark(seq, reader.offset)
            extent.end = reader.offset
            self.extents.append(extent)
            self.head, self.crc, self.epoch = reader.seq - 1, reader.crc, reader.epoch
            if reader.problem or not segment.only_zeros(self._disk, name, fd, reader.offset, size):
                self._check_end(name, fd, reader, size, last)
        finally:
            self._disk.close(fd)

    def begin_after(self, head: int) -> None:
        """Take a log without any segment, whose records are all in a snapshot."""
        self.head, self.clean = head, False

    def finish(self) -> None:
        """Compare the records read with MANIFEST."""
        manifest = self._manifest
        name = self.extents[-1].name if self.extents else MANIFEST
        end = self.extents[-1].end if self.extents else 0
        if self.head < manifest.durable:
            why = f"record {manifest.durable} was synced when MANIFEST was written"
            raise corrupted(
                self._disk.folder, name, end, self.head + 1, "the end of the log", 0, why
            )
        if self.clean and (self.head, end) != (manifest.durable, manifest.end):
            why = (
                f"the log was closed cleanly at byte {manifest.end} after record {manifest.durable}"
            )
            raise corrupted(
                self._disk.folder,
                name,
                end,
                self.head + 1,
                f"record {self.head} as the last",
                0,
                why,
            )

    def _check_header(self, name: str, first: int, data: bytes, leading: bool) -> None:
        header = SegmentHeader.decode(data)
        expected = first if leading else self.head + 1
        problem = ""
        if header is None:
            problem = "a damaged segment header"
        elif header.log_id != self._id:
            problem = f"a segment of log {header.log_id.hex()}"
        elif header.first != first or first != expected:
            problem = f"a segment that begins with record {header.first}"
        elif not leading and header.crc_before != self.crc:
            problem = "a segment that continues another record"
        elif not self.epoch <= header.epoch <= self._manifest.epoch:
            problem = f"a segment of epoch {header.epoch}"
        if header is None or problem:
            raise corrupted(self._disk.folder, name, 0, expected, problem, self._count(name, first))
        self.epoch = header.epoch
        self.crc = header.crc_before

    def _check_end(self, name: str, fd: int, reader: SegmentReader, size: int, last: bool) -> None:
        rest = self._disk.read(name, fd, size - reader.offset, reader.offset).rstrip(b"\0")
        description = reader.problem or "zeros followed by other bytes"
        after = 0
        synced = 0
        for _, _, durable in frame.find(rest, reader.seq, self._id_crc):
            after += 1
            synced = max(synced, durable)
        why = ""
        if not last:
            why = "later segments exist"
        elif synced >= reader.seq:
            why = f"a later record says that record {synced} was synced"
        elif self._manifest.durable >= reader.seq:
            why = f"record {self._manifest.durable} was synced when MANIFEST was written"
        elif self.clean:
            why = "the log was closed cleanly"
        if why:
            raise corrupted(
                self._disk.folder, name, reader.offset, reader.seq, description, after, why
            )
        self.dropped = len(rest)

    def _count(self, name: str, first: int) -> int:
        data = self._disk.read_file(name)[segment.HEADER_BYTES :].rstrip(b"\0")
        return sum(1 for _ in frame.find(data, first, self._id_crc))


def surviving(disk: Disk, extent: Extent, fd: int) -> Iterator[bytes]:
    """Yield the records of a segment as they are on the disk, in pieces, for a copy."""
    offset = segment.HEADER_BYTES
    while offset < extent.end:
        data = disk.read(extent.name, fd, min(1 << 20, extent.end - offset), offset)
        if not data:
            raise corrupted(
                disk.folder, extent.name, offset, extent.first, "a shorter file than before", 0
            )
        yield data
        offset += len(data)
