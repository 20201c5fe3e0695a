"""Leases in a PostgreSQL database: `postgresql://user@host/database`. psycopg comes with the extra
`postgres`.

A lease is a row with its token and its end in time of the server. Each operation is a single
statement that commits by itself, so that a process that is stopped in the middle holds no lock that
other processes wait for. A row stays after its lease has ended, so that its tokens continue.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kbcore.config import Config
from kbcore.errors import ConfigError, KBError, NotReady
from kbcore.plug.coordination import (
    Change,
    ChangeKind,
    Coordinator,
    Held,
    Lease,
    check_lease,
    check_value,
    differences,
    encode_name,
)
from kbcore.plug.hookspecs import hookimpl
from kbplugins.storage_postgres.driver import Driver, Unreachable

TIMEOUT_MS = 5_000
"""Limit for a statement."""

MAX_WAIT_SECONDS = 5.0
"""A watch lists the leases at least in this interval, also without a notification."""

RETRY_SECONDS = 0.5
"""Interval in which a watch tries to connect again."""

TABLE = """
CREATE TABLE IF NOT EXISTS kbcore_leases (
    name bytea PRIMARY KEY, token bigint NOT NULL, value bytea NOT NULL, expires timestamptz NOT NULL,
    stored bytea
) WITH (fillfactor = 50)
"""

# clock_timestamp() is evaluated after the wait for a lock on the row, unlike now().
ACQUIRE = """
WITH acquired AS (
    INSERT INTO kbcore_leases AS lease VALUES (%(name)s, 1, %(value)s, clock_timestamp() + %(ttl)s * interval '1 ms')
    ON CONFLICT (name) DO UPDATE
        SET token = lease.token + 1, value = excluded.value, expires = clock_timestamp() + %(ttl)s * interval '1 ms'
        WHERE lease.expires <= clock_timestamp()
    RETURNING token
) SELECT token, pg_notify('kbcore_leases', current_schema()) FROM acquired
"""
RENEW = """
UPDATE kbcore_leases SET expires = clock_timestamp() + %(ttl)s * interval '1 ms'
WHERE name = %(name)s AND token = %(token)s AND expires > clock_timestamp() RETURNING token
"""
# The rows are locked in the order of their names, so that two calls never wait for each other.
RENEW_ALL = """
WITH wanted AS (
    SELECT lease.name FROM kbcore_leases AS lease
    JOIN unnest(%(names)s::bytea[], %(tokens)s::bigint[]) AS held(name, token) USING (name, token)
    ORDER BY lease.name FOR UPDATE OF lease
)
UPDATE kbcore_leases AS lease SET expires = clock_timestamp() + held.ttl * interval '1 ms'
FROM unnest(%(names)s::bytea[], %(tokens)s::bigint[], %(ttls)s::bigint[]) AS held(name, token, ttl), wanted
WHERE wanted.name = lease.name AND lease.name = held.name AND lease.token = held.token
    AND lease.expires > clock_timestamp() RETURNING lease.name, lease.token
"""
RELEASE = """
WITH released AS (
    UPDATE kbcore_leases SET expires = '-infinity', value = ''
    WHERE name = %(name)s AND token = %(token)s AND expires > clock_timestamp() RETURNING token
) SELECT token, pg_notify('kbcore_leases', current_schema()) FROM released
"""
STORE = """
UPDATE kbcore_leases SET stored = %(value)s
WHERE name = %(name)s AND token = %(token)s AND expires > clock_timestamp() RETURNING token
"""
STORED = "SELECT stored FROM kbcore_leases WHERE name = %(name)s"
LIST = """
SELECT name, token, value, extract(epoch FROM expires - clock_timestamp())::float8 FROM kbcore_leases
WHERE expires > clock_timestamp() AND substring(name FOR length(%(prefix)s)) = %(prefix)s ORDER BY name
"""

logger = logging.getLogger(__name__)


@hookimpl
def kb_coordinators() -> Mapping[str, Callable[[str], Coordinator]]:
    """Offer the coordinator for URLs that begin with `postgresql:` or `postgres:`."""
    return {"postgresql": PostgresCoordinator, "postgres": PostgresCoordinator}


class _Driver(Driver):
    subject = "coordinator "
    needed_by = "a coordinator in PostgreSQL"


class PostgresCoordinator:
    """Leases in the table `kbcore_leases`, in the first schema of the connection's search path.

    Raises ConfigError for an unusable URL or login, and NotReady if the server does not answer.
    """

    def __init__(self, url: str) -> None:
        config = Config(
            storage_backend="postgres",
            storage_url=url,
            storage_timeout_ms=TIMEOUT_MS,
            fsync_policy="always",
        )
        self._driver = _Driver(config)
        self._lock = threading.Lock()
        self._connection: Any = None
        self._closed = False
        self._held: set[Lease] = set()
        self._watches: set[_PostgresWatch] = set()
        try:
            with self._lock:
                self._create_table()
        except BaseException:
            self._disconnect()
            raise

    def acquire(self, name: str, ttl_ms: int, value: bytes) -> Lease | None:
        """Insert the row of the name, or update it if its lease has ended."""
        key = check_lease(name, ttl_ms, value)
        rows = self._run(ACQUIRE, {"name": key, "value": bytes(value), "ttl": ttl_ms})
        if not rows:
            return None
        lease = Lease(name, rows[0][0], ttl_ms, value)
        self._held.add(lease)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Set a later end, unless the row has another token or has ended."""
        if self._closed:
            return False
        key = encode_name(lease.name)
        rows = self._run(RENEW, {"name": key, "token": lease.token, "ttl": lease.ttl_ms})
        if not rows:
            self._held.discard(lease)
        return bool(rows)

    def renew_all(self, leases: Sequence[Lease]) -> Sequence[bool]:
        """Renew many leases with one statement."""
        if self._closed or not leases:
            return [False] * len(leases)
        names = [encode_name(lease.name) for lease in leases]
        values = {
            "names": names,
            "tokens": [lease.token for lease in leases],
            "ttls": [lease.ttl_ms for lease in leases],
        }
        renewed = {(bytes(row[0]), row[1]) for row in self._run(RENEW_ALL, values)}
        results = [
            (name, lease.token) in renewed for name, lease in zip(names, leases, strict=True)
        ]
        self._held -= {lease for lease, result in zip(leases, results, strict=True) if not result}
        return results

    def release(self, lease: Lease) -> None:
        """Set an end in the past, unless the row has another token."""
        if self._closed:
            return
        self._held.discard(lease)
        self._run(RELEASE, {"name": encode_name(lease.name), "token": lease.token})

    def store(self, lease: Lease, value: bytes) -> bool:
        """Set the stored value of the row, unless the row has another token or has ended."""
        check_value(value)
        key = encode_name(lease.name)
        return bool(self._run(STORE, {"name": key, "token": lease.token, "value": bytes(value)}))

    def stored(self, name: str) -> bytes | None:
        """Select the stored value of the row."""
        rows = self._run(STORED, {"name": encode_name(name)})
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def leases(self, prefix: str) -> Sequence[Held]:
        """Select the rows that have not ended."""
        return held_rows(self._run(LIST, {"prefix": encode_name(prefix)}))

    def watch(self, prefix: str) -> _PostgresWatch:
        """Compare listings, after each notification and when the next lease ends.

        The watch has a connection of its own. GAP is reported after a lost connection.
        """
        if self._closed:
            raise NotReady("the coordinator is closed")
        watch = _PostgresWatch(self, self._driver, encode_name(prefix))
        self._watches.add(watch)
        return watch

    def forget_watch(self, watch: _PostgresWatch) -> None:
        """Drop a closed watch."""
        self._watches.discard(watch)

    def close(self) -> None:
        """End watches, release leases if the server answers, and disconnect."""
        for watch in list(self._watches):
            watch.close()
        with suppress(KBError):  # the leases end by themselves
            for lease in list(self._held):
                self.release(lease)
        with self._lock:
            self._closed = True
            self._disconnect()

    def _create_table(self) -> None:
        for _ in range(2):
            if self._execute("SELECT to_regclass('kbcore_leases')")[0][0] is not None:
                return
            try:
                self._execute(TABLE)
            except self._created_meanwhile:
                continue  # another process has just created it: CREATE TABLE IF NOT EXISTS races

    @property
    def _created_meanwhile(self) -> tuple[type[Exception], ...]:
        """The errors of a server when two processes create the same table at once."""
        errors = self._driver.psycopg.errors
        return errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject

    def _run(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._closed:
                raise NotReady("the coordinator is closed")
            return self._execute(query, values)

    def _execute(
        self, query: str, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement once; a lost connection is replaced by the next call."""
        try:
            if self._connection is None:
                self._connection = connect(self._driver)
            cursor = self._connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []
        except Unreachable as error:
            raise not_ready(error) from None
        except self._created_meanwhile:
            raise
        except self._driver.psycopg.Error as error:
            self._disconnect()
            raise translated(self._driver, error) from None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _PostgresWatch:
    """Changes between listings, on a connection that listens."""

    def __init__(self, coordinator: PostgresCoordinator, driver: Driver, prefix: bytes) -> None:
        self._coordinator, self._driver, self._prefix = coordinator, driver, prefix
        self._pending: deque[Change] = deque()
        self._closed = threading.Event()
        self._wake, self._woken = os.pipe()
        self._reading = threading.Lock()
        self._connection: Any = None
        self._seen: list[Held] = []
        self._deadline = 0.0
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> _PostgresWatch:
        return self

    def __next__(self) -> Change:
        with self._reading:
            while not self._closed.is_set():
                if self._pending:
                    return self._pending.popleft()
                try:
                    self._wait()
                except (self._driver.psycopg.Error, Unreachable) as error:
                    logger.warning(
                        "a watch lost its connection: %s", self._driver.clean(str(error))
                    )
                    self._reconnect()
            raise StopIteration

    def close(self) -> None:
        """End the iteration. The thread that waits in it, or else this one, disconnects."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._coordinator.forget_watch(self)
        os.write(self._woken, b"\0")
        with self._reading:
            self._disconnect()
            os.close(self._wake)
            os.close(self._woken)

    def _connect(self) -> None:
        """Listen, then list: a change in between is listed, a later one is announced."""
        try:
            self._connection = connect(self._driver)
            self._connection.execute("LISTEN kbcore_leases")
            self._seen = self._list()
        except self._driver.psycopg.Error as error:
            raise translated(self._driver, error) from None
        except Unreachable as error:
            raise not_ready(error) from None

    def _reconnect(self) -> None:
        """Connect again, as often as necessary; then report that changes may be missing."""
        self._disconnect()
        while not self._closed.is_set():
            try:
                self._connect()
            except KBError:
                self._disconnect()
                select.select([self._wake], [], [], RETRY_SECONDS)
            else:
                self._pending.append(Change(ChangeKind.GAP))
                return

    def _wait(self) -> None:
        """Wait for a notification, the end of a lease, or `close`; then list."""
        timeout = max(0.0, self._deadline - time.monotonic())
        select.select([self._wake, self._connection.fileno()], [], [], timeout)
        if self._closed.is_set():
            return
        for _ in self._connection.notifies(timeout=0):
            pass
        leases = self._list()
        self._pending.extend(differences(self._seen, leases))
        self._seen = leases

    def _list(self) -> list[Held]:
        rows = self._connection.execute(LIST, {"prefix": self._prefix}).fetchall()
        wait = min((row[3] for row in rows), default=MAX_WAIT_SECONDS)
        self._deadline = time.monotonic() + min(wait + 0.001, MAX_WAIT_SECONDS)
        return held_rows(rows)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def connect(driver: Driver) -> Any:
    """Return a connection whose commits are durable on the server; raises ConfigError,
    Unreachable.
    """
    connection = driver.connect("coordinator")
    connection.prepare_threshold = (
        None  # a pooler in between may give each statement another session
    )
    return connection


def held_rows(rows: Sequence[tuple[Any, ...]]) -> list[Held]:
    """Return the leases of rows of LIST."""
    return [Held(bytes(row[0]).decode(), row[1], bytes(row[2])) for row in rows]


def translated(driver: Driver, error: Exception) -> KBError:
    """Translate an error of a statement: a missing privilege or schema is a mistake in the
    setup.
    """
    errors = driver.psycopg.errors
    text = f"coordinator {driver.location!r}: {driver.clean(str(error))}"
    if isinstance(error, (errors.InsufficientPrivilege, errors.InvalidSchemaName)):
        return ConfigError(text)
    return not_ready(text)


def not_ready(error: object) -> NotReady:
    """Return the error for a server that does not answer; the log has the details."""
    logger.warning("the coordinator does not answer: %s", error)
    return NotReady("the coordinator does not answer; the log has the details")
