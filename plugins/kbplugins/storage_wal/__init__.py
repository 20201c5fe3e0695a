"""The durable log on files: `STORAGE_BACKEND=wal`. See docs/reference/log-format.md for every byte of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LogStore
from kbplugins.storage_wal.store import WalStore

__all__ = ["WalStore", "kb_storage_backends"]


@hookimpl
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
    """Offer the log under the name `wal`."""
    return {"wal": WalStore}
