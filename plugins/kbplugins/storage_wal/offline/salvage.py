"""`kbcore salvage`: the intact parts of a damaged log, and a report of the losses by tenant and
time.

Every file is read, whether MANIFEST names it or not. The copy begins with the snapshot that has the
longest run of intact records after it. The remaining records are renumbered without gaps, so the
copy has a higher term, and followers of the damaged log start again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from kbcore.encryption.sealer import RECORD, SNAPSHOT, Sealer, is_sealed
from kbcore.errors import ConfigError, KBError, LogCorrupted
from kbcore.plug.ports import LogSeed
from kbcore.plug.sealed_store import Encryption
from kbcore.timestamps import time_text
from kbplugins.storage_wal import frame, segment, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import READ, Disk
from kbplugins.storage_wal.segment import SegmentHeader

BATCH = 4 << 20
Owners = Callable[[bytes], Iterable[tuple[str, str]]]
LoggedAt = Callable[[bytes], int | None]


@dataclass(slots=True)
class _Position:
    file: str
    offset: int
    end: int


class Salvage:
    """The content of a damaged folder, which is not changed. Raises LogCorrupted if no file is
    readable.
    """

    def __init__(
        self,
        disk: Disk,
        owners: Owners,
        logged_at: LoggedAt,
        *,
        skip_damaged: bool,
        encryption: Encryption,
    ) -> None:
        self._disk = disk
        self._owners = owners
        self._logged_at = logged_at
        self._times: dict[int, str | None] = {}
        self._names = disk.names()
        self._epoch = 1
        self._highest = 0
        self._log_id = self._identity()
        self._encryption = encryption
        self._sealer: Sealer | None = None
        if encryption.is_on:
            self._sealer = encryption.sealer(self._log_id.hex(), skips_lost=True)
        self._positions: dict[int, _Position] = {}
        # Unreadable bytes, with the record expected where they begin.
        self._debris: list[tuple[int, bytes]] = []
        for name in self._names:
            if segment.first_of(name) is not None:
                self._read_segment(name)
        self._base, self._reach = self._choose()
        self._highest = max(self._highest, self._reach, *self._positions)
        later = sorted(seq for seq in self._positions if seq > self._reach)
        self._later = later if skip_damaged else []
        self._dropped = [] if skip_damaged else later

    @property
    def seed(self) -> LogSeed:
        """Return the identity and start of the copy."""
        return LogSeed(self._log_id.hex(), self._epoch + 1, self._base)

    def chunks(self) -> Iterator[bytes]:
        """Return the chunks of the snapshot that the copy begins with."""
        return self._chunks(self._base)

    def _chunks(self, seq: int) -> Iterator[bytes]:
        chunks = snapshots.read(self._disk, self._log_id, seq)
        if self._sealer is None:
            return chunks
        return self._sealer.opened_chunks(seq, chunks, SNAPSHOT)

    def batches(self) -> Iterator[list[tuple[int, int, bytes]]]:
        """Yield the records after the snapshot, in order."""
        batch: list[tuple[int, int, bytes]] = []
        size = 0
        for seq in (*range(self._base + 1, self._reach + 1), *self._later):
            kind, version, payload = self._record(seq)
            batch.append((kind, version, payload))
            size += len(payload)
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def report(self) -> dict[str, Any]:
        """Return the kept and lost ranges of sequence numbers and times, in total and for each
        tenant.

        Each range of numbers has a range of times, [first, last] in ISO 8601. Where a record is
        unreadable, they are the times of its readable neighbours, None if it has none.
        `certain` is False if a record is unreadable and its tenant is a guess from its bytes.
        """
        kept_seqs = set(self._later)
        missing = [seq for seq in range(self._reach + 1, self._highest + 1) if seq not in kept_seqs]
        by_tenant: dict[tuple[str | None, str | None, bool], list[int]] = {}
        for seq in missing:
            if seq in self._positions:
                owners: set[tuple[str | None, str | None]] = set(self._owners(self._record(seq)[2]))
                certain = bool(owners)
            else:
                owners = self._guess(seq)
                certain = False
            for owner in owners or {(None, None)}:
                by_tenant.setdefault((*owner, certain), []).append(seq)
        lost = _ranges(missing)
        readable = sorted(self._positions)
        order = sorted(by_tenant.items(), key=lambda item: (item[1][0], str(item[0])))
        return {
            "from": self._disk.folder,
            "logId": self._log_id.hex(),
            "epoch": self._epoch + 1,
            "snapshot": self._base,
            "soundPrefix": self._reach,
            "soundPrefixTime": self._time(self._reach),
            "keptAfterDamage": len(self._later),
            "head": self._reach + len(self._later),
            "headTime": self._time(self._later[-1] if self._later else self._reach),
            "lost": lost,
            "lostTimes": self._lost_times(lost, readable),
            "lostByTenant": [
                {
                    "database": database,
                    "tenant": tenant,
                    "certain": certain,
                    "ranges": (ranges := _ranges(numbers)),
                    "times": self._lost_times(ranges, readable),
                }
                for (database, tenant, certain), numbers in order
            ],
            "lostKeys": [] if self._sealer is None else sorted(map(bytes.hex, self._sealer.lost)),
        }

    def _lost_times(self, ranges: list[list[int]], readable: list[int]) -> list[list[str | None]]:
        """Return between which times the records of each range were logged.

        `readable` has the numbers of all readable records, ascending.
        """
        times: list[list[str | None]] = []
        for first, last in ranges:
            before = bisect_right(readable, first) - 1
            after = bisect_left(readable, last)
            times.append(
                [
                    self._time(max(readable[before] if before >= 0 else 0, self._base)),
                    self._time(readable[after]) if after < len(readable) else None,
                ]
            )
        return times

    def _time(self, seq: int) -> str | None:
        """Return when a readable record was logged, or when the state of the snapshot was known."""
        if seq not in self._times:
            if seq in self._positions:
                at = self._logged_at(self._record(seq)[2])
            else:
                known = map(self._logged_at, self.chunks() if seq else ())
                at = max((each for each in known if each is not None), default=None)
            self._times[seq] = None if at is None else time_text(at)
        return self._times[seq]

    def _guess(self, seq: int) -> set[tuple[str | None, str | None]]:
        """Return the owners named in the unreadable bytes at the position of a record."""
        before = [(first, data) for first, data in self._debris if first <= seq]
        return (
            set(self._owners(max(before, key=lambda candidate: candidate[0])[1]))
            if before
            else set()
        )

    def _identity(self) -> bytes:
        log_id: bytes | None = None
        try:
            manifest = manifests.load(self._disk)
            log_id = manifest.log_id_bytes
            self._epoch = manifest.epoch
            self._highest = max(manifest.durable, *manifest.snapshots, 0)
        except KBError:
            self._highest = 0  # MANIFEST is damaged: segments and snapshots have the log id too
        for name in self._names:
            header = None
            if segment.first_of(name) is not None:
                try:
                    header = SegmentHeader.decode(
                        self._disk.read_file(name)[: segment.HEADER_BYTES]
                    )
                except ConfigError:
                    continue
            elif snapshots.seq_of(name) is not None:
                log_id = log_id or snapshots.log_id_of(self._disk, name)
            if header is not None and log_id in (None, header.log_id):
                log_id, self._epoch = header.log_id, max(self._epoch, header.epoch)
        if log_id is None:
            raise LogCorrupted(
                f"{self._disk.folder}: no file of a log can be read",
                directory=self._disk.folder,
                segment="",
                offset=0,
            )
        return log_id

    def _read_segment(self, name: str) -> None:
        data = self._disk.read_file(name).rstrip(b"\0")
        first = segment.first_of(name) or 1
        at, end, expected = segment.HEADER_BYTES, segment.HEADER_BYTES, first
        for offset, seq, _ in frame.find(data[at:], first, crc32(self._log_id)):
            start = at + offset
            if start > end:
                self._debris.append((expected, data[end:start]))
            length = frame.HEADER.unpack_from(data, start)[0]
            end, expected = start + frame.HEADER_BYTES + length, seq + 1
            if self._is_authentic(data, start, end, seq):
                self._positions.setdefault(seq, _Position(name, start, end))
        if len(data) > end:
            self._debris.append((expected, data[end:]))

    def _is_authentic(self, data: bytes, start: int, end: int, seq: int) -> bool:
        """Return True for a record that can be decrypted, or of a plain log."""
        kind, version, payload = _parts(data[start:end])
        self._encryption.check(is_sealed=kind == RECORD)
        if self._sealer is not None:
            try:
                self._sealer.opened_record(seq, kind, version, payload)
            except LogCorrupted:
                return False
        return True

    def _choose(self) -> tuple[int, int]:
        """Return the snapshot to begin with, and the last record after it without a gap."""
        stored = (seq for name in self._names if (seq := snapshots.seq_of(name)) is not None)
        bases = [0, *(seq for seq in stored if self._is_sound(seq))]
        return max(
            ((base, self._reached(base)) for base in bases), key=lambda reach: (reach[1], reach[0])
        )

    def _is_sound(self, seq: int) -> bool:
        try:
            if snapshots.verify(self._disk, self._log_id, seq):
                return False
        except ConfigError:
            return False
        sealed = any(map(is_sealed, snapshots.read(self._disk, self._log_id, seq)))
        self._encryption.check(is_sealed=sealed)
        try:
            for _ in self._chunks(seq):
                pass
        except LogCorrupted:
            return False
        return True

    def _reached(self, base: int) -> int:
        while base + 1 in self._positions:
            base += 1
        return base

    def _record(self, seq: int) -> tuple[int, int, bytes]:
        index = self._positions[seq]
        fd = self._disk.open(index.file, READ)
        try:
            data = self._disk.read(index.file, fd, index.end - index.offset, index.offset)
        finally:
            self._disk.close(fd)
        record = _parts(data)
        return record if self._sealer is None else self._sealer.opened_record(seq, *record)


def _parts(record: bytes) -> tuple[int, int, bytes]:
    _, _, _, _, _, kind, version, _ = frame.HEADER.unpack_from(record)
    return kind, version, record[frame.HEADER_BYTES :]


def _ranges(numbers: list[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] of each run."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges
