"""MANIFEST: which files must be there, and how the log was left.

Three lines of text: `KBMANIFEST <format>`, one JSON object, the CRC-32 of the two lines before as 8 hex digits.
It is replaced as a whole and never changed in place, so it is always one of two sound versions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from kbcore.errors import ConfigError, LogCorrupted
from kbplugins.storage_wal.files import Disk

NAME = "MANIFEST"
FORMAT = 1
_MAGIC = b"KBMANIFEST"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a log and how it was left.

    `segments` are first sequence numbers, `snapshots` sequence numbers, both rising. `durable` is the highest
    sequence number synced when this was written: no start may find less. With `clean`, `end` is where the last
    segment ends and `durable` the last record: no start may find anything else.
    """

    log_id: str
    epoch: int
    segments: tuple[int, ...] = ()
    snapshots: tuple[int, ...] = ()
    durable: int = 0
    clean: bool = False
    end: int = 0


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of the file."""
    body = json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":")).encode()
    text = b"%s %d\n%s\n" % (_MAGIC, FORMAT, body)
    return text + b"%08x\n" % crc32(text)


def decode(data: bytes, folder: str) -> Manifest:
    """Read the bytes of the file; raises LogCorrupted, or ConfigError for a format newer than ours."""
    lines = data.split(b"\n")
    if len(lines) < 4 or lines[-1] or lines[-2] != b"%08x" % crc32(data[: -len(lines[-2]) - 1]):
        raise _damaged(folder, "its checksum does not fit")
    magic, _, number = lines[0].partition(b" ")
    if magic != _MAGIC or not number.isdigit():
        raise _damaged(folder, "it is not a manifest")
    if int(number) > FORMAT:
        raise ConfigError(
            f"{folder} has log format {int(number)}; this version reads formats up to {FORMAT}"
        )
    try:
        return _parse(json.loads(lines[1]))
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(folder, f"its fields cannot be read ({error})") from error


def load(disk: Disk) -> Manifest:
    """Read and check the file."""
    return decode(disk.read_file(NAME), disk.folder)


def save(disk: Disk, manifest: Manifest) -> None:
    """Replace the file; when this returns the new version is durable."""
    disk.replace(NAME, encode(manifest))


def _parse(fields: dict[str, Any]) -> Manifest:
    manifest = Manifest(
        log_id=fields["log_id"],
        epoch=fields["epoch"],
        segments=tuple(fields["segments"]),
        snapshots=tuple(fields["snapshots"]),
        durable=fields["durable"],
        clean=fields["clean"],
        end=fields["end"],
    )
    numbers = (
        manifest.epoch,
        manifest.durable,
        manifest.end,
        *manifest.segments,
        *manifest.snapshots,
    )
    if (
        any(type(number) is not int or number < 0 for number in numbers)
        or type(manifest.clean) is not bool
    ):
        raise ValueError("a field has the wrong type")
    if list(manifest.segments) != sorted(set(manifest.segments)):
        raise ValueError("segments are out of order")
    if len(bytes.fromhex(manifest.log_id)) != 16:
        raise ValueError("the log id is not 16 bytes")
    return manifest


def _damaged(folder: str, problem: str) -> LogCorrupted:
    return LogCorrupted(
        f"{folder}/{NAME}: damaged: {problem}. Ways out: `kbcore restore`, `kbcore salvage`",
        directory=folder,
        segment=NAME,
        offset=0,
        problem=problem,
    )
