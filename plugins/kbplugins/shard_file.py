"""The file that lists the shards of a storage on files.

Three lines of text: `KBSHARDS <format>`, a JSON object with the log id of each shard ("" for a
shard that was not opened yet), and the CRC-32 of the two lines before as 8 hex digits. It is
replaced as a whole, so a crash leaves the old or the new version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from zlib import crc32

from kbcore.errors import ConfigError, LogCorrupted
from kbplugins.storage_wal.files import Disk

MAGIC = b"KBSHARDS"
FORMAT = 1


def name_of(shard: int) -> str:
    """Return the name of a shard's folder, or the end of the name of its file."""
    return f"shard-{shard:03d}"


def save(disk: Disk, name: str, log_ids: Sequence[str]) -> None:
    """Replace the file; the new version is durable on return."""
    body = json.dumps({"logs": list(log_ids)}, separators=(",", ":")).encode()
    text = b"%s %d\n%s\n" % (MAGIC, FORMAT, body)
    disk.replace(name, text + b"%08x\n" % crc32(text))


def load(disk: Disk, name: str) -> list[str]:
    """Return the log ids in the file; raises LogCorrupted, and ConfigError for a newer format."""
    data = disk.read_file(name)
    lines = data.split(b"\n")
    if len(lines) != 4 or lines[3] or lines[2] != b"%08x" % crc32(data[: -len(lines[2]) - 1]):
        raise damaged(disk, name, "its checksum is wrong")
    magic, _, number = lines[0].partition(b" ")
    if magic != MAGIC or not number.isdigit():
        raise damaged(disk, name, "it is not a list of shards")
    if int(number) > FORMAT:
        raise ConfigError(
            f"{disk.path(name)} has format {int(number)}; this version reads formats up to {FORMAT}"
        )
    log_ids: list[str] = json.loads(lines[1])["logs"]
    return log_ids


def damaged(disk: Disk, name: str, problem: str) -> LogCorrupted:
    """Return the error for an unusable list of shards."""
    return LogCorrupted(
        f"{disk.path(name)}: damaged: {problem}. Restore a backup with `kbcore restore`",
        directory=disk.folder,
        segment=name,
        offset=0,
        problem=problem,
    )


def check_exists(disk: Disk, name: str, shard: int) -> None:
    """Raise LogCorrupted if the folder or file of a shard does not exist."""
    if not os.path.exists(disk.path(name)):
        raise LogCorrupted(
            f"shard {shard} is missing: {disk.path(name)} does not exist."
            " Restore a backup with `kbcore restore`",
            directory=disk.folder,
            segment=name,
            offset=0,
            shard=shard,
        )
