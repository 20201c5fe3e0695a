"""The durable log in one SQLite file: `STORAGE_BACKEND=sqlite`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LogStore, ShardPlaces
from kbplugins.storage_sqlite.shards import SqliteShards
from kbplugins.storage_sqlite.store import SqliteStore

__all__ = ["SqliteStore", "kb_storage_backends", "kb_storage_shards"]


@hookimpl
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
    """Offer the log under the name `sqlite`."""
    return {"sqlite": SqliteStore}


@hookimpl
def kb_storage_shards(config: Config) -> Mapping[str, ShardPlaces]:
    """Offer files for shards."""
    return {"sqlite": SqliteShards()}
