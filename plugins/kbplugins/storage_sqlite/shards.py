"""Shards of a SQLite storage: FILE lists them, and the files `FILE-shard-000` and so on are the
logs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from kbcore.config import Config
from kbcore.config.storage_urls import path_of
from kbplugins import shard_file
from kbplugins.storage_sqlite.store import NAME
from kbplugins.storage_wal.files import Disk, OsFiles


class SqliteShards:
    """`ShardPlaces` of the log in SQLite files."""

    def recorded(self, config: Config) -> Sequence[str] | None:
        """Return the log ids of the shards, nothing for a database, None for a new storage."""
        disk, name = _file(config)
        path = disk.path(name)
        if not os.path.exists(path):
            if os.path.exists(f"{path}-{shard_file.name_of(0)}"):
                raise shard_file.damaged(disk, name, "it is missing, but its shards exist")
            return None
        with open(path, "rb") as file:
            is_list = file.read(len(shard_file.MAGIC)) == shard_file.MAGIC
        return shard_file.load(disk, name) if is_list else ()

    def record(self, config: Config, log_ids: Sequence[str]) -> None:
        """Replace the file that lists the shards."""
        disk, name = _file(config)
        disk.make_folder()
        shard_file.save(disk, name, log_ids)

    def place(self, config: Config, shard: int, *, new: bool) -> Config:
        """Return the settings for the file of a shard."""
        disk, name = _file(config)
        name = f"{name}-{shard_file.name_of(shard)}"
        if not new:
            shard_file.check_exists(disk, name, shard)
        return replace(config, storage_url=f"sqlite:{disk.path(name)}")


def _file(config: Config) -> tuple[Disk, str]:
    path = os.path.abspath(path_of(config.storage_url) or os.path.join(config.storage_dir, NAME))
    return Disk(OsFiles(), os.path.dirname(path)), os.path.basename(path)
