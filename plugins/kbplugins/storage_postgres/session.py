"""The connection that writes: the tables, the lock of the single writer, reconnection, and LISTEN.

Two mechanisms exclude a second writer. An advisory lock of the connection protects opening; the
server releases it when the connection ends. Each opening also writes a token into `kbcore_meta`
that every append requires: a process that lost its lock with its connection cannot write after
another process has opened the log.

The nodes of a cluster decide by leases which of them opens a log, and a node that does not answer
must not keep the others from it. They share the lock, which then excludes only processes outside
the cluster; the token alone excludes the node that had the log before.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from kbcore.errors import ConfigError, StorageBusy, StorageFailed
from kbplugins.storage_postgres.driver import Driver, Unreachable, not_ready
from kbplugins.table_log import FORMAT, ConnectionLock, LogMeta, corrupted

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
CREATE TABLE IF NOT EXISTS kbcore_erased (one int PRIMARY KEY CHECK (one = 1), seq bigint NOT NULL);
CREATE TABLE IF NOT EXISTS kbcore_leader (one int PRIMARY KEY CHECK (one = 1), url text NOT NULL);
"""


class PostgresSession:
    """The writer's connection. `token` marks its rows; hold `lock` while using the connection."""

    def __init__(self, driver: Driver, log_id: bytes) -> None:
        self.driver = driver
        self.lock = ConnectionLock()
        self.token = os.urandom(16)
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

    @contextmanager
    def use(self) -> Iterator[None]:
        """Hold the lock and a working connection; raises NotReady if the server does not answer."""
        with self.lock:
            try:
                self.reconnect()
                yield
            except Unreachable as error:
                raise not_ready(error) from None

    def reconnect(self) -> None:
        """Connect and lock again if necessary.

        Raises Unreachable, and StorageFailed if another writer has taken over.
        """
        if self.connected:
            return
        self.drop()
        connection = self.driver.connect("log")
        self._connection = connection
        try:
            self._take_lock(old_pid=self._pid)
            meta = read_meta(self._execute, self.token)
            if meta is None:
                raise self.taken_over()
            self.meta, self._pid = meta, connection.info.backend_pid
        except BaseException:
            self.drop()
            raise

    def execute(self, query: str, values: Any = None, *, binary: bool = True) -> Any:
        """Run a statement and return its cursor. Raises the driver's translation of an error."""
        try:
            return self._execute(query, values, binary=binary)
        except self.driver.psycopg.Error as error:
            translated = self.driver.translated(error)
            if isinstance(translated, Unreachable):
                self.drop()
            raise translated from error

    @contextmanager
    def synced_transaction(self) -> Iterator[None]:
        """Run statements as one transaction that is synced under every policy."""
        try:
            with self._connection.transaction():
                self._execute("SET LOCAL synchronous_commit = on", binary=False)
                yield
        except self.driver.psycopg.Error as error:
            raise self.driver.translated(error) from error

    def taken_over(self) -> StorageFailed:
        """Return the error for a log in which another process has stored its token."""
        return StorageFailed(
            f"{self.driver.location}: another writer has taken over; this one must stop"
        )

    def drop(self) -> None:
        """Close the connection and, with it, release the lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, query: str, values: Any = None, *, binary: bool = True) -> Any:
        return self._connection.cursor(binary=binary).execute(query, values)

    def _take_lock(self, old_pid: int = 0) -> None:
        try:
            schema = self._execute("SELECT current_schema()").fetchone()[0]
            if schema is None:
                raise ConfigError(
                    f"STORAGE_URL={self.driver.location!r}: the schema of its search_path does not exist"
                )
            key = struct.unpack("<i", struct.pack("<I", crc32(schema.encode())))[0]
            if old_pid and not self.driver.is_shared:
                # After a network failure the server may still have our old connection, with the
                # lock.
                self._execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN kbcore_meta m ON m.writer = %s"
                    " WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s::int8::bit(32)::int8 AND l.pid = %s"
                    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    (self.token, _LOCK_CLASS, key, old_pid),
                )
            self._execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            try:
                lock = "pg_advisory_lock_shared" if self.driver.is_shared else "pg_advisory_lock"
                self._execute(f"SELECT {lock}(%s, %s)", (_LOCK_CLASS, key))
            except self.driver.psycopg.errors.LockNotAvailable:
                raise StorageBusy(*self._busy(key)) from None
            self._execute("SET lock_timeout = 0")
        except self.driver.psycopg.Error as error:
            raise self.driver.translated(error) from error

    def _busy(self, key: int) -> tuple[str, dict[str, Any]]:
        row = self._execute(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted"
            " AND classid = %s AND objid = %s::int8::bit(32)::int8"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (_LOCK_CLASS, key),
        ).fetchone()
        holder = (row[0] if row else "").removeprefix("kbcore ") or "an unknown process"
        return f"{self.driver.location} is in use by {holder}", {
            "directory": self.driver.location,
            "holder": holder,
        }

    def _begin(self, log_id: bytes) -> LogMeta:
        """Create missing tables and store the token."""
        try:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL client_min_messages = error")
                self._connection.execute(TABLES)
                self._execute(
                    "INSERT INTO kbcore_meta VALUES (1, %s, %s, 1, %s, 1, 0) ON CONFLICT DO NOTHING",
                    (FORMAT, log_id, self.token),
                )
                # An older version must not open the tables again: it reads no higher format.
                self._execute(
                    "UPDATE kbcore_meta SET writer = %s, format = greatest(format, %s)",
                    (self.token, FORMAT),
                )
                meta = read_meta(self._execute, self.token)
                number = self._execute("SELECT format FROM kbcore_meta").fetchone()
                if number[0] > FORMAT:
                    raise ConfigError(
                        f"{self.driver.location} has format {number[0]}; this version reads format {FORMAT}"
                    )
        except self.driver.psycopg.Error as error:
            raise self.driver.translated(error) from error
        if meta is None or len(meta.log_id) != 16:
            raise corrupted(
                self.driver.location, "kbcore_meta", 1, "no row that says whose log it is"
            )
        return meta


def read_meta(execute: Callable[..., Any], token: bytes) -> LogMeta | None:
    """Return the row of kbcore_meta, None if it has another token."""
    query = "SELECT log_id, epoch, first, head FROM kbcore_meta WHERE writer = %s"
    row = execute(query, (token,)).fetchone()
    return None if row is None else LogMeta(*row)


def channel_of(log_id: bytes) -> str:
    """Return the channel on which appends to a log are announced, with the new head as text."""
    return f"kbcore_{log_id.hex()}"


def wait_for(driver: Driver, channel: str, after: int, timeout: float) -> int:
    """Wait up to `timeout` seconds until the log grows beyond `after`; return its head.

    Raises Unreachable.
    """
    connection = driver.connect("listen")
    try:
        connection.execute(f"LISTEN {channel}")
        # Read after LISTEN: an append in between is either read here or announced.
        row = connection.execute("SELECT head FROM kbcore_meta").fetchone()
        head = int(row[0]) if row else 0
        if head <= after:
            for notification in connection.notifies(timeout=timeout):
                head = int(notification.payload)
                if head > after:
                    break
        return head
    except driver.psycopg.Error as error:
        raise driver.translated(error) from error
    finally:
        connection.close()
