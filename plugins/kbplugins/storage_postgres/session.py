"""The one connection that writes: the tables, the lock of the single writer, and reconnection.

Two mechanisms exclude a second writer. An advisory lock of the session decides who may open the log; the server
releases it when the connection ends. And each opening writes a token into `kbcore_meta` that every append
requires: a writer whose lock was lost with its connection cannot write after its successor has started.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from kbcore.errors import ConfigError, StorageBusy, StorageFailed
from kbplugins.storage_postgres.driver import Driver, Unreachable
from kbplugins.table_log import FORMAT, corrupted

LOCK_SECONDS = 1
"""Seconds to wait for a lock whose holder may just have died."""

_LOCK_CLASS = 0x6B626C67

TABLES = """
CREATE TABLE IF NOT EXISTS kbcore_meta (
    one int PRIMARY KEY CHECK (one = 1), format int NOT NULL, log_id bytea NOT NULL, epoch int NOT NULL,
    writer bytea NOT NULL, first bigint NOT NULL, head bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS kbcore_log (
    seq bigint PRIMARY KEY, type smallint NOT NULL, version smallint NOT NULL, crc bigint NOT NULL, payload bytea NOT NULL
);
ALTER TABLE kbcore_log ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS kbcore_snapshots (
    id bigserial PRIMARY KEY, seq bigint NOT NULL, chunks bigint NOT NULL, size bigint NOT NULL, crc bigint NOT NULL,
    "check" bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS kbcore_chunks (
    snapshot bigint, number bigint, crc bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (snapshot, number)
);
CREATE TABLE IF NOT EXISTS kbcore_leader (one int PRIMARY KEY CHECK (one = 1), url text NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Meta:
    """Description of the log in the database."""

    log_id: bytes
    epoch: int
    writer: bytes
    first: int
    head: int


class Session:
    """The writer's connection. Use `lock` around everything that depends on it."""

    def __init__(self, driver: Driver, log_id: bytes) -> None:
        self.driver = driver
        self.lock = threading.RLock()
        self._token = os.urandom(16)
        self._connection: Any = None
        self._pid = 0
        with self.lock:
            self._connection = driver.connect("log")
            try:
                self._take_lock()
                self.meta = self._begin(log_id)
                self._pid = self._connection.info.backend_pid
            except BaseException:
                self._connection.close()
                raise

    @property
    def connected(self) -> bool:
        """True if the connection was open when it was last used."""
        return (
            self._connection is not None
            and not self._connection.broken
            and not self._connection.closed
        )

    def again(self) -> None:
        """Reconnect and lock; raises Unreachable, and StorageFailed where another writer has taken over."""
        if self.connected:
            return
        self.drop()
        connection = self.driver.connect("log")
        self._connection = connection
        try:
            self._take_lock(mine=self._pid)
            meta = read_meta(self._execute)
            if meta is None or meta.writer != self._token:
                raise StorageFailed(
                    f"{self.driver.place}: another writer has taken over; this one must stop"
                )
            self.meta, self._pid = meta, connection.info.backend_pid
        except BaseException:
            self.drop()
            raise

    def execute(self, query: str, values: Any = None, *, binary: bool = True) -> Any:
        """Run a statement and return a cursor. Raises the driver's translation of an error."""
        try:
            return self._execute(query, values, binary=binary)
        except self.driver.psycopg.Error as error:
            verdict = self.driver.verdict(error)
            if isinstance(verdict, Unreachable):
                self.drop()
            raise verdict from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run statements as one transaction."""
        try:
            with self._connection.transaction():
                yield
        except self.driver.psycopg.Error as error:
            raise self.driver.verdict(error) from error

    @property
    def token(self) -> bytes:
        """The token that an append must find."""
        return self._token

    def drop(self) -> None:
        """Close the connection and, with it, release the lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, query: str, values: Any = None, *, binary: bool = True) -> Any:
        return self._connection.cursor(binary=binary).execute(query, values)

    def _take_lock(self, mine: int = 0) -> None:
        try:
            schema = self._execute("SELECT current_schema()").fetchone()[0]
            if schema is None:
                raise ConfigError(
                    f"STORAGE_URL={self.driver.place!r}: the schema of its search_path does not exist"
                )
            key = struct.unpack("<i", struct.pack("<I", crc32(schema.encode())))[0]
            if mine:
                # Our previous connection may still hold the lock on the other side of a dead network.
                self._execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN kbcore_meta m ON m.writer = %s"
                    " WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s::int8::bit(32)::int8 AND l.pid = %s"
                    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    (self._token, _LOCK_CLASS, key, mine),
                )
            self._execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            try:
                self._execute("SELECT pg_advisory_lock(%s, %s)", (_LOCK_CLASS, key))
            except self.driver.psycopg.errors.LockNotAvailable:
                raise StorageBusy(*self._busy(key)) from None
            self._execute("SET lock_timeout = 0")
        except self.driver.psycopg.Error as error:
            raise self.driver.verdict(error) from error

    def _busy(self, key: int) -> tuple[str, dict[str, Any]]:
        row = self._execute(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted"
            " AND classid = %s AND objid = %s::int8::bit(32)::int8"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (_LOCK_CLASS, key),
        ).fetchone()
        holder = (row[0] if row else "").removeprefix("kbcore ") or "an unknown process"
        return f"{self.driver.place} is in use by {holder}", {
            "directory": self.driver.place,
            "holder": holder,
        }

    def _begin(self, log_id: bytes) -> Meta:
        """Create missing tables, and store our token."""
        try:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL client_min_messages = error")
                self._connection.execute(TABLES)
                self._execute(
                    "INSERT INTO kbcore_meta VALUES (1, %s, %s, 1, %s, 1, 0) ON CONFLICT DO NOTHING",
                    (FORMAT, log_id, self._token),
                )
                self._execute("UPDATE kbcore_meta SET writer = %s", (self._token,))
                meta = read_meta(self._execute)
                number = self._execute("SELECT format FROM kbcore_meta").fetchone()
                if number[0] > FORMAT:
                    raise ConfigError(
                        f"{self.driver.place} has format {number[0]}; this version reads format {FORMAT}"
                    )
        except self.driver.psycopg.Error as error:
            raise self.driver.verdict(error) from error
        if meta is None or len(meta.log_id) != 16:
            raise corrupted(self.driver.place, "kbcore_meta", 1, "no row that says whose log it is")
        return meta


def read_meta(execute: Callable[[str], Any]) -> Meta | None:
    """Return the row of kbcore_meta."""
    row = execute("SELECT log_id, epoch, writer, first, head FROM kbcore_meta").fetchone()
    return None if row is None else Meta(*row)
