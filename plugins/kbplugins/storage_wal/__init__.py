"""The durable log on files: `STORAGE_BACKEND=wal`. See kbcore/durable/LOG_FORMAT.md for every byte
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LogStore, ShardPlaces, StorageTools
from kbplugins.storage_wal.offline.tools import WalTools
from kbplugins.storage_wal.shards import WalShards
from kbplugins.storage_wal.store import WalStore

__all__ = ["WalStore", "WalTools", "kb_storage_backends", "kb_storage_shards", "kb_storage_tools"]


@hookimpl
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
    """Offer the log under the name `wal`."""
    return {"wal": WalStore}


@hookimpl
def kb_storage_shards(config: Config) -> Mapping[str, ShardPlaces]:
    """Offer folders for shards."""
    return {"wal": WalShards()}


@hookimpl
def kb_storage_tools(config: Config) -> Mapping[str, StorageTools]:
    """Offer fsck, salvage and restore for its folders."""
    return {"wal": WalTools(config)}
