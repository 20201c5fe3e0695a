"""Shards of a PostgreSQL storage: a schema for each, named after the schema of the storage.

The table `kbcore_shards` of the storage's schema lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from kbcore.config import Config
from kbcore.config.storage_urls import redacted
from kbcore.errors import ConfigError, LogCorrupted, NotReady
from kbcore.plug.ports import LogReader
from kbplugins.shard_file import name_of
from kbplugins.storage_postgres.driver import Driver, Unreachable
from kbplugins.storage_postgres.reader import PostgresReader

T = TypeVar("T")

_TABLE = "CREATE TABLE IF NOT EXISTS kbcore_shards (shard int PRIMARY KEY, log_id text NOT NULL)"


class PostgresShards:
    """`ShardPlaces` of the log in PostgreSQL."""

    def recorded(self, config: Config) -> Sequence[str] | None:
        """Return the log ids of the shards, nothing for a storage with one log, None for a new
        one.
        """

        def read(connection: Any) -> Sequence[str] | None:
            def exists(table: str) -> bool:
                query = "SELECT to_regclass(quote_ident(current_schema()) || %s)"
                return connection.execute(query, (f".{table}",)).fetchone()[0] is not None

            if exists("kbcore_shards"):
                rows = connection.execute("SELECT shard, log_id FROM kbcore_shards ORDER BY shard")
                pairs = rows.fetchall()
                if [shard for shard, _ in pairs] != list(range(len(pairs))) or not pairs:
                    raise _missing(config, "rows of the table kbcore_shards are missing")
                return [log_id for _, log_id in pairs]
            return () if exists("kbcore_meta") else None

        return _connected(config, read)

    def record(self, config: Config, log_ids: Sequence[str]) -> None:
        """Replace the rows of the table `kbcore_shards`."""

        def write(connection: Any) -> None:
            with connection.transaction():
                connection.execute("SET LOCAL synchronous_commit = on")
                connection.execute(_TABLE)
                connection.execute("DELETE FROM kbcore_shards")
                connection.cursor().executemany(
                    "INSERT INTO kbcore_shards VALUES (%s, %s)", list(enumerate(log_ids))
                )

        _connected(config, write)

    def place(self, config: Config, shard: int, *, new: bool) -> Config:
        """Return the settings for the schema of a shard."""

        def find(connection: Any) -> str:
            base: str = connection.execute("SELECT current_schema()").fetchone()[0]
            schema = f"{base}_{name_of(shard)}".replace("-", "_")
            if new:
                identifier = connection.execute("SELECT quote_ident(%s)", (schema,)).fetchone()[0]
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier}")
            elif connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone()[0] is None:
                raise _missing(config, f"shard {shard} is missing: there is no schema {schema}")
            return schema

        return replace(config, storage_url=_in_schema(config.storage_url, _connected(config, find)))

    def reader(self, config: Config, shard: int) -> LogReader:
        """Return a reader of the log of a shard, which another process may be writing."""
        return PostgresReader(self.place(config, shard, new=False))


def _missing(config: Config, problem: str) -> LogCorrupted:
    location = redacted(config.storage_url)
    return LogCorrupted(f"{location}: {problem}", directory=location, segment="", offset=0)


def _connected(config: Config, use: Callable[[Any], T]) -> T:
    driver = Driver(config)
    try:
        connection = driver.connect("shards")
    except Unreachable as error:
        raise NotReady(str(error)) from None
    with connection:
        try:
            if connection.execute("SELECT current_schema()").fetchone()[0] is None:
                raise ConfigError(
                    f"STORAGE_URL={driver.location!r}: the schema of its search_path does not exist"
                )
            return use(connection)
        except driver.psycopg.Error as error:
            raise driver.translated(error) from None


def _in_schema(url: str, schema: str) -> str:
    """Return a URL with another search_path."""
    address, _, text = url.partition("?")
    query = dict(parse_qsl(text))
    query["options"] = f"{query.get('options', '')} -csearch_path={schema}".strip()
    return f"{address}?{urlencode(query, quote_via=quote)}"
