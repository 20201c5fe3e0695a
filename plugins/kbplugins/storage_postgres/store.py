"""The log in PostgreSQL: an append is one statement and one transaction; its commit is the sync.

When the connection breaks, it is unknown whether the statement was committed. The store reconnects,
takes the lock, and reads the head. An unchanged head means that the statement was not committed: it
is sent again. A head one batch further means that it was committed. Any other head is impossible
while the token is ours. If the server does not answer within STORAGE_TIMEOUT_MS, the write is
refused, or the process ends if the statement may have been committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kbcore.config import Config
from kbcore.errors import InvalidInput, NotReady, StorageFailed, StorageFull
from kbcore.plug.ports import LogSeed
from kbplugins import table_log
from kbplugins.storage_postgres.driver import Driver, Unreachable, not_ready
from kbplugins.storage_postgres.rows import PostgresRows
from kbplugins.storage_postgres.session import PostgresSession, channel_of, wait_for
from kbplugins.storage_postgres.snapshots import SnapshotWriter
from kbplugins.table_log import LogMeta, SnapshotRow, TableStore

_APPEND = """
WITH moved AS (
    UPDATE kbcore_meta SET head = %s WHERE head = %s AND writer = %s RETURNING head
), notified AS (
    SELECT pg_notify(%s, head::text) FROM moved
)
INSERT INTO kbcore_log
SELECT r.* FROM unnest(%s::int8[], %s::int2[], %s::int2[], %s::int8[], %s::bytea[]) AS r, notified
"""
_RETRY_SECONDS = 0.1


class PostgresStore(TableStore):
    """A `LogStore` in a PostgreSQL database, in the first schema of the connection's search_path.

    Locks, always taken in this order: `_snapshotting`, then the lock of the session.
    """

    def __init__(
        self,
        config: Config,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
        verified: tuple[SnapshotRow | None, int] = (None, 0),
    ) -> None:
        """Open the log. `verified` are a snapshot and the last record that were read from it just
        before, and need no check.
        """
        super().__init__(config.fsync_policy)
        self._driver = Driver(config)
        self._full = False
        try:
            self._session = PostgresSession(self._driver, random_bytes(16))
        except Unreachable as error:
            # Only at start-up: the operator reads this message, no client.
            raise NotReady(str(error)) from None
        self._rows = PostgresRows(self._driver.location, self._fetch)
        self._writer = SnapshotWriter(self._driver, self._session.token)
        try:
            self._load(self._session.meta, verified)
            erased = self._fetch("SELECT seq FROM kbcore_erased", ())
            self._erased = int(str(erased[0][0])) if erased else 0
            self._drop_rows()
        except BaseException:
            self._session.drop()
            raise

    @property
    def _tables(self) -> PostgresRows:
        return self._rows

    def _fetch(self, query: str, values: Sequence[object]) -> list[tuple[object, ...]]:
        with self._session.use():
            rows: list[tuple[object, ...]] = self._session.execute(query, values).fetchall()
            return rows

    @contextmanager
    def _connection(self) -> Iterator[None]:
        """Check that the log is open, and hold a working connection."""
        with self._session.lock:
            self._check()
            with self._session.use():
                yield

    def _accepts_writes(self) -> bool:
        return self._session.connected and not self._full

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Commit records, all or none, and return the last number.

        Raises NotReady while the server does not answer.
        """
        with self._session.lock:
            self._check()
            if not records:
                return self._head
            rows = table_log.encoded(records, self._head + 1, self._seed)
            try:
                with self._recording_failure():
                    self._commit(rows, self._head + len(rows))
            except StorageFull:
                self._full = True
                raise
            self._full = False
            self._head += len(rows)
            if self._policy == "always":
                self._durable = self._head
            return self._head

    def _commit(self, rows: list[tuple[int, int, int, int, bytes]], head: int) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        sent = False
        channel = channel_of(self._meta.log_id)
        deadline = time.monotonic() + self._driver.timeout
        while True:
            try:
                was_connected = self._session.connected
                self._session.reconnect()
                if not was_connected and self._is_stored(head):
                    if not sent:
                        raise StorageFailed(
                            f"{self._driver.location}: the log has records this process did not write"
                        )
                    return
                sent = True
                done = self._session.execute(
                    _APPEND, (head, self._head, self._session.token, channel, *columns)
                )
            except Unreachable as error:
                self._wait_to_retry(deadline, sent, error)
            else:
                if done.rowcount != len(rows):
                    raise self._session.taken_over()
                return

    def _is_stored(self, head: int) -> bool:
        """Return True if the batch that ends at `head` was committed before the connection
        broke.
        """
        stored_head = self._session.meta.head
        if stored_head not in (self._head, head):
            raise StorageFailed(
                f"{self._driver.location}: the log ends at {stored_head} and not at {self._head}: "
                "the server lost records, or another process wrote some"
            )
        return stored_head == head

    def _wait_to_retry(self, deadline: float, sent: bool, error: Unreachable) -> None:
        if time.monotonic() >= deadline or self._closing.wait(_RETRY_SECONDS):
            if sent:
                raise StorageFailed(f"{error}; whether a write was committed is unknown") from None
            raise not_ready(error) from None

    def sync(self) -> None:
        """Do nothing: the server synced at the commit, as far as FSYNC_POLICY requires."""
        self._check()

    # -- reading ------------------------------------------------------------

    def wait(self, after: int, timeout: float) -> int:
        """Wait up to `timeout` seconds until the log grows beyond `after`; return its head."""
        self._check()
        if self._head > after:
            return self._head
        try:
            return wait_for(self._driver, channel_of(self._meta.log_id), after, timeout)
        except Unreachable as error:
            raise not_ready(error) from None

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, on its own connection, and keep the one before
        it.
        """
        with self._snapshotting:
            self._check_snapshot(seq)
            head = self._head
            self._save(seq, chunks)
            # Its commit was a synced one, and the server syncs its own log in order.
            self._durable = max(self._durable, head)

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot of another log; the next record is seq + 1."""
        with self._snapshotting, self._session.lock:
            self._check_empty()
            self._save(seq, chunks, begin=True)
            self._set_start(replace(self._meta, first=seq + 1, head=seq))

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Replace this log by another, in one transaction."""
        with self._snapshotting, self._session.lock:
            self._check()
            if self._erased:  # a number of the log that is replaced
                with self._session.use():
                    self._session.execute("DELETE FROM kbcore_erased")
                self._erased = 0
            row = self._writer.replace(seed, chunks)
            self._snapshots = [] if row is None else [row]
            log_id = bytes.fromhex(seed.log_id)
            self._seed = table_log.seed(log_id)
            self._set_start(LogMeta(log_id, seed.epoch, first=seed.seq + 1, head=seed.seq))

    def _set_start(self, meta: LogMeta) -> None:
        self._meta = meta
        self._head = self._durable = meta.head

    def _save(self, seq: int, chunks: Iterable[bytes], *, begin: bool = False) -> None:
        previous = self._previous_snapshots(seq)
        ids = [row.id for row in previous]
        row = self._writer.save(self._seed, seq, chunks, keep=ids, begin=begin)
        self._snapshots = [*previous, row]

    def drop_before(self, seq: int) -> None:
        """Delete records up to `seq` that both kept snapshots cover; with fewer than two, none."""
        with self._snapshotting:
            first = self._first_to_keep(seq)
            if first > self._meta.first:
                with self._session.use():
                    query = "UPDATE kbcore_meta SET first = %s WHERE writer = %s"
                    moved = self._session.execute(query, (first, self._session.token))
                    if moved.rowcount != 1:
                        raise self._session.taken_over()
                    self._meta = replace(self._meta, first=first)
                self._drop_rows()

    def erase_before(self, seq: int) -> None:
        """Delete the snapshots before `seq` and the records up to it, and rewrite the tables.

        Appends wait for that. The server's own log and its archives are not affected.
        """
        with self._snapshotting:
            snapshots = self._kept_from(seq)
            ids = [row.id for row in snapshots]
            first = max(self._meta.first, seq + 1)
            with self._session.use(), self._session.synced_transaction():
                query = "UPDATE kbcore_meta SET first = %s WHERE writer = %s"
                if self._session.execute(query, (first, self._session.token)).rowcount != 1:
                    raise self._session.taken_over()
                for table, column in (("kbcore_snapshots", "id"), ("kbcore_chunks", "snapshot")):
                    statement = f"DELETE FROM {table} WHERE {column} <> ALL(%s)"  # noqa: S608 - our own names  # nosec B608
                    self._session.execute(statement, (ids,))
            self._meta, self._snapshots = replace(self._meta, first=first), snapshots
            self._drop_rows()
            for table in ("kbcore_log", "kbcore_snapshots", "kbcore_chunks"):
                with self._session.use():
                    self._session.execute(f"VACUUM FULL {table}", binary=False)
            with self._session.use():
                self._session.execute(
                    "INSERT INTO kbcore_erased VALUES (1, %s)"
                    " ON CONFLICT (one) DO UPDATE SET seq = excluded.seq",
                    (seq,),
                )
            self._erased = seq

    def _drop_rows(self) -> None:
        """Delete dropped records in parts, so that appends wait only briefly.

        What is dropped is read from the table: another process may be the writer by now.
        """
        query = (
            "DELETE FROM kbcore_log WHERE seq IN (SELECT seq FROM kbcore_log"
            " WHERE seq < (SELECT first FROM kbcore_meta) LIMIT 5000)"
        )
        is_done = False
        while not is_done:
            with self._session.use():
                is_done = not self._session.execute(query).rowcount

    # -- terms and leaders --------------------------------------------------

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; the commit is synced under every policy."""
        with self._snapshotting, self._connection():
            if not self._meta.epoch < epoch < 1 << 31:
                raise InvalidInput(f"term {epoch} is not later than {self._meta.epoch}")
            with self._session.synced_transaction():
                query = "UPDATE kbcore_meta SET epoch = %s WHERE writer = %s"
                moved = self._session.execute(query, (epoch, self._session.token))
            if moved.rowcount != 1:
                raise self._session.taken_over()
            self._meta = replace(self._meta, epoch=epoch)

    def leader(self) -> str:
        """Return the address of the leader that the node follows, "" for none."""
        with self._connection():
            row = self._session.execute("SELECT url FROM kbcore_leader").fetchone()
        return "" if row is None else str(row[0])

    def remember(self, leader: str) -> None:
        """Store the leader that the node follows; the commit is synced under every policy."""
        with self._connection(), self._session.synced_transaction():
            self._session.execute("DELETE FROM kbcore_leader")
            if leader:
                query = "INSERT INTO kbcore_leader SELECT 1, %s FROM kbcore_meta WHERE writer = %s"
                self._session.execute(query, (leader, self._session.token))

    def close(self, *, clean: bool = True) -> None:
        """Close the connection, which releases the lock."""
        self._closing.set()
        with self._snapshotting, self._session.lock:
            self._session.drop()
