"""Shards of a storage folder: the folders `shard-000` and so on, and the file SHARDS."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbplugins import shard_file
from kbplugins.storage_wal import manifest, segment, snapshots
from kbplugins.storage_wal.files import Disk, OsFiles

NAME = "SHARDS"

MIN_SEGMENT_MB = 4
"""Smallest size of a segment: the shards together allocate about as much as one log, but not
less.
"""


class WalShards:
    """`ShardPlaces` of the durable log on files."""

    def recorded(self, config: Config) -> Sequence[str] | None:
        """Return the log ids of the shards, nothing for a folder with one log, None for a new
        one.
        """
        disk = _disk(config)
        names = disk.names() if os.path.isdir(disk.folder) else []
        if NAME in names:
            return shard_file.load(disk, NAME)
        if manifest.NAME in names or any(
            segment.first_of(name) is not None or snapshots.seq_of(name) is not None
            for name in names
        ):
            return ()
        if shard_file.name_of(0) in names:
            raise shard_file.damaged(disk, NAME, f"it is missing, but {names[0]} exists")
        return None

    def record(self, config: Config, log_ids: Sequence[str]) -> None:
        """Replace the file SHARDS."""
        disk = _disk(config)
        disk.make_folder()
        shard_file.save(disk, NAME, log_ids)

    def place(self, config: Config, shard: int, *, new: bool) -> Config:
        """Return the settings for the folder of a shard."""
        disk, name = _disk(config), shard_file.name_of(shard)
        if not new:
            shard_file.check_exists(disk, name, shard)
        segment_mb = min(config.wal_segment_mb, MIN_SEGMENT_MB)
        return replace(
            config, storage_dir=disk.path(name), storage_url="", wal_segment_mb=segment_mb
        )


def _disk(config: Config) -> Disk:
    return Disk(OsFiles(), path_of(config.storage_url) or config.storage_dir)
