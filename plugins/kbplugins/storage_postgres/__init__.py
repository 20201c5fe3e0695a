"""The durable log in a PostgreSQL database: `STORAGE_BACKEND=postgres`. psycopg comes with the
extra `postgres`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import LogStore, ShardPlaces
from kbplugins.storage_postgres.shards import PostgresShards
from kbplugins.storage_postgres.store import PostgresStore

__all__ = ["PostgresStore", "kb_storage_backends", "kb_storage_shards"]


@hookimpl
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
    """Offer the log under the name `postgres`."""
    return {"postgres": PostgresStore}


@hookimpl
def kb_storage_shards(config: Config) -> Mapping[str, ShardPlaces]:
    """Offer schemas for shards."""
    return {"postgres": PostgresShards()}
