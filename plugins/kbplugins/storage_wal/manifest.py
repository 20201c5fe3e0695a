"""MANIFEST: the files that must exist, and whether the log was closed cleanly.

Three lines of text: `KBMANIFEST <format>`, one JSON object, the CRC-32 of the two lines before as 8
hex digits. It is replaced as a whole and never changed in place, so a crash leaves the old or the
new version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from kbcore.durable.records import VERSION
from kbcore.errors import ConfigError, LogCorrupted
from kbplugins.storage_wal.files import Disk

NAME = "MANIFEST"
FORMAT = 2
"""2 has `content`; a reader refuses a newer one."""

_MAGIC = b"KBMANIFEST"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a log and its state when MANIFEST was written.

    `segments` has first sequence numbers and `snapshots` sequence numbers, both ascending.
    `durable` is the highest sequence number synced at that time: every later start must have that
    record. If `clean`, `durable` is the last record and the last segment ends at byte `end`,
    exactly. `content` is the version of the newest payloads that may be in the log or in a
    snapshot: a version that does not know it must not open the folder, even if it would not meet
    such a payload.
    """

    log_id: str
    epoch: int
    segments: tuple[int, ...] = ()
    snapshots: tuple[int, ...] = ()
    durable: int = 0
    clean: bool = False
    end: int = 0
    content: int = VERSION

    @property
    def log_id_bytes(self) -> bytes:
        """The 16 bytes of the log id."""
        return bytes.fromhex(self.log_id)

    @property
    def id_crc(self) -> int:
        """The start value of every record's checksum."""
        return crc32(self.log_id_bytes)


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of the file."""
    body = json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":")).encode()
    text = b"%s %d\n%s\n" % (_MAGIC, FORMAT, body)
    return text + b"%08x\n" % crc32(text)


def decode(data: bytes, folder: str) -> Manifest:
    """Read the bytes of the file; raises LogCorrupted, and ConfigError for a newer format."""
    lines = data.split(b"\n")
    if len(lines) < 4 or lines[-1] or lines[-2] != b"%08x" % crc32(data[: -len(lines[-2]) - 1]):
        raise _damaged(folder, "its checksum is wrong")
    magic, _, number = lines[0].partition(b" ")
    if magic != _MAGIC or not number.isdigit():
        raise _damaged(folder, "it is not a manifest")
    if int(number) > FORMAT:
        raise ConfigError(
            f"{folder} has log format {int(number)}; this version reads formats up to {FORMAT}"
        )
    try:
        fields = json.loads(lines[1])
        content = fields.get("content", 0)
        if type(content) is int and content > VERSION:
            raise ConfigError(
                f"{folder} was written by a newer version: it has payloads of version {content}, "
                f"this version reads payloads up to {VERSION}"
            )
        return _parse(fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
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
    if len(manifest.log_id_bytes) != 16:
        raise ValueError("the log id is not 16 bytes")
    return manifest


def _damaged(folder: str, problem: str) -> LogCorrupted:
    return LogCorrupted(
        f"{folder}/{NAME}: damaged: {problem}. Run `kbcore restore` or `kbcore salvage`",
        directory=folder,
        segment=NAME,
        offset=0,
        problem=problem,
    )
