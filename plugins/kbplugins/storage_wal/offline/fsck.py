"""`kbcore fsck`: read and check every file of a log without changing it."""

from __future__ import annotations

from typing import Any

from kbcore.errors import ConfigError, KBError, LogCorrupted, StorageFailed
from kbplugins.storage_wal import frame, opening, recovery, segment, snapshots
from kbplugins.storage_wal import manifest as manifests
from kbplugins.storage_wal.files import READ, Disk
from kbplugins.storage_wal.manifest import Manifest
from kbplugins.storage_wal.segment import SegmentHeader, SegmentReader


def check(disk: Disk) -> dict[str, Any]:
    """Return a report on every file and problem; `sound`: no damage, `opens`: a start would
    succeed.
    """
    names = disk.names()
    report: dict[str, Any] = {
        "directory": disk.folder,
        "sound": False,
        "opens": False,
        "head": None,
        "problems": [],
    }
    try:
        manifest = manifests.load(disk)
    except KBError as error:
        missing = {"file": manifests.NAME, "found": "MANIFEST does not exist"}
        report["problems"].append(_problem(error) if manifests.NAME in names else missing)
        return report
    report |= {
        "logId": manifest.log_id,
        "epoch": manifest.epoch,
        "clean": manifest.clean,
        "durable": manifest.durable,
    }
    problems: list[dict[str, Any]] = report["problems"]
    report["segments"] = [
        _segment(disk, name, manifest) for name in names if segment.first_of(name) is not None
    ]
    report["snapshots"] = [
        _snapshot(disk, seq, seq in manifest.snapshots, manifest)
        for seq in _snapshots(names, manifest)
    ]
    problems += [
        {"file": entry["file"], "found": entry["problem"]}
        for entry in report["snapshots"]
        if entry["problem"]
    ]
    try:
        log_content = recovery.examine(disk, names, manifest)
        report |= {"head": log_content.head, "tornTailBytes": log_content.dropped}
        opening.sound_snapshots(disk, manifest, log_content.extents, log_content.head)
        report["opens"] = True
    except (LogCorrupted, ConfigError, StorageFailed) as error:
        if not any(known["file"] == (error.details or {}).get("segment") for known in problems):
            problems.append(_problem(error))
    # A start goes on without a segment whose records a snapshot has, but that is damage.
    listed = {problem["file"] for problem in problems}
    problems += [
        {"file": name, "found": "no such file"}
        for name in map(segment.name_of, manifest.segments)
        if name not in names and name not in listed
    ]
    report["sound"] = report["opens"] and not problems
    return report


def _snapshots(names: list[str], manifest: Manifest) -> list[int]:
    stored = {seq for name in names if (seq := snapshots.seq_of(name)) is not None}
    return sorted(stored | set(manifest.snapshots))


def _snapshot(disk: Disk, seq: int, named: bool, manifest: Manifest) -> dict[str, Any]:
    name = snapshots.name_of(seq)
    try:
        problem = snapshots.verify(disk, manifest.log_id_bytes, seq)
    except (ConfigError, StorageFailed) as error:
        problem = error.message
    # The next start removes a snapshot that MANIFEST does not name.
    return {
        "file": name,
        "seq": seq,
        "named": named,
        "problem": (problem or None) if named else None,
    }


def _segment(disk: Disk, name: str, manifest: Manifest) -> dict[str, Any]:
    first = segment.first_of(name) or 0
    fd = disk.open(name, READ)
    try:
        size = disk.size(name, fd)
        try:
            header = SegmentHeader.decode(disk.read(name, fd, segment.HEADER_BYTES, 0))
        except ConfigError:
            header = None
        reader = SegmentReader(
            disk,
            name,
            fd,
            manifest.id_crc,
            seq=first,
            offset=segment.HEADER_BYTES,
            limit=max(size, segment.HEADER_BYTES),
        )
        records = sum(1 for _ in reader.records())
        rest = (
            disk.read(name, fd, size - reader.offset, reader.offset).rstrip(b"\0")
            if size > reader.offset
            else b""
        )
        after = sum(1 for _ in frame.find(rest, reader.seq, manifest.id_crc))
        return {
            "file": name,
            "first": first,
            "last": reader.seq - 1,
            "records": records,
            "bytes": size,
            "end": reader.offset,
            "epoch": header.epoch if header else None,
            "headerSound": header is not None,
            "unreadableBytes": len(rest),
            "validAfter": after,
        }
    finally:
        disk.close(fd)


def _problem(error: KBError) -> dict[str, Any]:
    details = error.details or {}
    return {
        "file": details.get("segment"),
        "found": error.message,
        **{k: v for k, v in details.items() if k != "directory"},
    }
