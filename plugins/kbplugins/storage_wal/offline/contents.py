"""The part of `kbcore fsck` that decrypts: every record and snapshot of an encrypted log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbcore.encryption.sealer import RECORD, SNAPSHOT, Sealer, is_sealed
from kbcore.errors import LogCorrupted
from kbcore.plug.sealed_store import Encryption
from kbplugins.storage_wal import segment, snapshots
from kbplugins.storage_wal.files import READ, Disk
from kbplugins.storage_wal.manifest import Manifest
from kbplugins.storage_wal.manifest import load as load_manifest


def check(disk: Disk, report: dict[str, Any], encryption: Encryption) -> None:
    """Add to a report what cannot be decrypted although its checksum is right, and `encrypted`.

    Raises ConfigError for an encrypted log without its key, and for a plain log with a key.
    """
    manifest = load_manifest(disk)
    sealer: Sealer | None = None
    report["encrypted"] = encryption.is_on
    for entry in report["snapshots"]:
        if entry["named"] and not entry["problem"]:
            sealer = sealer or _sealer(
                _is_snapshot_sealed(disk, manifest, entry), encryption, manifest
            )
            if sealer is None:
                return
            chunks = snapshots.read(disk, manifest.log_id_bytes, entry["seq"])
            problem = _problem_in_chunks(sealer, entry["seq"], chunks)
            if problem:
                entry["problem"] = problem
                _add(report, entry["file"], problem)
    for entry in report["segments"]:
        for seq, kind, version, payload in _records(disk, manifest, entry):
            sealer = sealer or _sealer(kind == RECORD, encryption, manifest)
            if sealer is None:
                return
            try:
                sealer.opened_record(seq, kind, version, payload)
            except LogCorrupted as error:
                _add(report, entry["file"], error.message)
                break


def _sealer(sealed: bool, encryption: Encryption, manifest: Manifest) -> Sealer | None:
    encryption.check(is_sealed=sealed)
    return encryption.sealer(manifest.log_id) if sealed else None


def _is_snapshot_sealed(disk: Disk, manifest: Manifest, entry: dict[str, Any]) -> bool:
    return any(map(is_sealed, snapshots.read(disk, manifest.log_id_bytes, entry["seq"])))


def _problem_in_chunks(sealer: Sealer, seq: int, chunks: Iterator[bytes]) -> str:
    try:
        for _ in sealer.opened_chunks(seq, chunks, SNAPSHOT):
            pass
    except LogCorrupted as error:
        return error.message
    return ""


def _records(
    disk: Disk, manifest: Manifest, entry: dict[str, Any]
) -> Iterator[tuple[int, int, int, bytes]]:
    name = entry["file"]
    fd = disk.open(name, READ)
    try:
        yield from segment.SegmentReader(
            disk,
            name,
            fd,
            manifest.id_crc,
            seq=entry["first"],
            offset=segment.HEADER_BYTES,
            limit=entry["end"],
        ).records()
    finally:
        disk.close(fd)


def _add(report: dict[str, Any], file: str, problem: str) -> None:
    report["problems"].append({"file": file, "found": problem})
    report["sound"] = report["opens"] = False
