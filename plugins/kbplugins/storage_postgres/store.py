"""The log in PostgreSQL: an append is one statement, which is one transaction; the server's commit is the sync.

When the connection breaks, it is unknown whether the current statement was committed. The store reconnects, takes
the lock, and checks: the head is where it was (the statement is sent again), or one batch further (it was
committed). No other state is possible while the token is ours. A server that stays away longer than
STORAGE_TIMEOUT_MS ends the process if something may have been written, and otherwise refuses the write.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from kbcore.config import Config
from kbcore.errors import (
    Conflict,
    InvalidInput,
    KBError,
    LogTruncated,
    NotReady,
    StorageFailed,
    StorageFull,
)
from kbcore.plug.ports import LogRecord, LogSeed, LogStatus
from kbplugins import table_log
from kbplugins.storage_postgres.driver import Driver, Unreachable, stopped
from kbplugins.storage_postgres.listening import channel_of, wait_for
from kbplugins.storage_postgres.rows import Rows
from kbplugins.storage_postgres.session import Session
from kbplugins.storage_postgres.snapshots import replace, save
from kbplugins.table_log import KEPT_SNAPSHOTS, SnapshotRow

_APPEND = """
WITH moved AS (
    UPDATE kbcore_meta SET head = %s WHERE head = %s AND writer = %s RETURNING head
), told AS (
    SELECT pg_notify(%s, head::text) FROM moved
)
INSERT INTO kbcore_log
SELECT r.* FROM unnest(%s::int8[], %s::int2[], %s::int2[], %s::int8[], %s::bytea[]) AS r, told
"""
_RETRY_SECONDS = 0.1

logger = logging.getLogger(__name__)


class PostgresStore:
    """A `LogStore` in a PostgreSQL database, in the first schema of the connection's search_path.

    Locks, always in this order: `_snapshotting`, then the one of the session.
    """

    def __init__(
        self, config: Config, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._driver = Driver(config)
        self._policy = config.fsync_policy
        self._failed: StorageFailed | None = None
        self._closing = threading.Event()
        self._snapshotting = threading.Lock()
        self._full = False
        try:
            self._session = Session(self._driver, random_bytes(16))
        except Unreachable as error:
            raise stopped(error) from None
        self._rows = Rows(self._session)
        meta = self._session.meta
        self._log_id, self._epoch, self._first = meta.log_id, meta.epoch, meta.first
        self._seed = table_log.seed(meta.log_id)
        self._channel = channel_of(meta.log_id)
        self._head = self._durable = meta.head
        try:
            self._snapshots: list[SnapshotRow] = table_log.examine(
                self._rows, self._seed, meta.first, meta.head
            )
            self._drop_rows()
        except Unreachable as error:
            self._session.drop()
            raise stopped(error) from None
        except BaseException:
            self._session.drop()
            raise

    # -- writing ------------------------------------------------------------

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Commit records, all or none; returns the last sequence number. Raises NotReady while the server is away."""
        with self._session.lock:
            self._check()
            if not records:
                return self._head
            rows = table_log.encoded(records, self._head + 1, self._seed)
            try:
                self._commit(rows, self._head + len(rows))
            except StorageFailed as error:
                self._fail(error)
                raise
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
        give_up = time.monotonic() + self._driver.timeout
        while True:
            try:
                lost = not self._session.connected
                self._session.again()
                if lost and self._stored(head):
                    if not sent:
                        raise StorageFailed(
                            f"{self._driver.place}: the log has records this process did not write"
                        )
                    return
                sent = True
                done = self._session.execute(
                    _APPEND, (head, self._head, self._session.token, self._channel, *columns)
                )
            except Unreachable as error:
                self._wait(give_up, sent, error)
            else:
                if done.rowcount != len(rows):
                    raise StorageFailed(
                        f"{self._driver.place}: another writer has taken over; this one must stop"
                    )
                return

    def _stored(self, head: int) -> bool:
        """Return True if the current batch was committed, after reconnecting; any other state ends the process."""
        stored_head = self._session.meta.head
        if stored_head not in (self._head, head):
            raise StorageFailed(
                f"{self._driver.place}: the log ends at {stored_head} and not at {self._head}: "
                "what the server lost, or another wrote, is not what is in memory"
            )
        return stored_head == head

    def _wait(self, give_up: float, sent: bool, error: Unreachable) -> None:
        if time.monotonic() >= give_up or self._closing.wait(_RETRY_SECONDS):
            if sent:
                raise StorageFailed(f"{error}; whether a write was committed is unknown") from None
            raise NotReady(f"the storage does not answer: {error}") from None

    def sync(self) -> None:
        """Do nothing: the server synced at the commit, as far as FSYNC_POLICY requires."""
        self._check()

    # -- reading ------------------------------------------------------------

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return every record with a sequence number over `after` up to the head of this moment, in order, streamed."""
        self._check()
        if after + 1 < self._first:
            raise LogTruncated(
                f"records up to {self._first - 1} are no longer kept", {"first": self._first}
            )
        return table_log.records(self._rows, self._seed, after, self._head)

    def wait(self, after: int, timeout: float) -> int:
        """Wait up to `timeout` seconds until the log goes beyond `after`, for those that follow it; returns its head."""
        self._check()
        if self._head > after:
            return self._head
        try:
            return wait_for(self._driver, self._channel, after, timeout)
        except Unreachable as error:
            raise stopped(error) from None

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, over a connection of its own; the one before it is kept."""
        with self._snapshotting:
            self._check()
            newest = self._snapshots[-1].seq if self._snapshots else 0
            if not newest <= seq <= self._head:
                raise InvalidInput(
                    f"a snapshot at {seq} must be from {newest}, the newest, to {self._head}, the head"
                )
            head = self._head
            self._save(seq, chunks)
            self._durable = max(
                self._durable, head
            )  # its commit was a synced one, and the server's log has one order

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot made elsewhere; the next record is seq + 1."""
        with self._snapshotting, self._session.lock:
            self._check()
            if self._head or self._snapshots:
                raise Conflict("only an empty log can begin with a snapshot")
            self._save(seq, chunks, begin=True)
            self._first, self._head, self._durable = seq + 1, seq, seq

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Put another log in the place of this one, in one transaction."""
        with self._snapshotting, self._session.lock:
            self._check()
            row = replace(self._driver, self._session.token, seed, chunks)
            self._snapshots = [] if row is None else [row]
            self._log_id, self._epoch = bytes.fromhex(seed.log_id), seed.epoch
            self._seed = table_log.seed(self._log_id)
            self._channel = channel_of(self._log_id)
            self._first, self._head, self._durable = seed.seq + 1, seed.seq, seed.seq

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; the commit is synced under every policy."""
        with self._snapshotting, self._session.lock:
            self._check()
            if not self._epoch < epoch < 1 << 31:
                raise InvalidInput(f"term {epoch} is not later than {self._epoch}")
            try:
                self._session.again()
                with self._session.transaction():
                    self._session.execute("SET LOCAL synchronous_commit = on", binary=False)
                    query = "UPDATE kbcore_meta SET epoch = %s WHERE writer = %s"
                    moved = self._session.execute(query, (epoch, self._session.token))
            except Unreachable as error:
                raise stopped(error) from None
            if moved.rowcount != 1:
                raise StorageFailed(
                    f"{self._driver.place}: another writer has taken over; this one must stop"
                )
            self._epoch = epoch

    def leader(self) -> str:
        """Return the address of the leader that the node follows, "" for none."""
        with self._session.lock:
            self._check()
            try:
                self._session.again()
                row = self._session.execute("SELECT url FROM kbcore_leader").fetchone()
            except Unreachable as error:
                raise stopped(error) from None
        return "" if row is None else str(row[0])

    def remember(self, leader: str) -> None:
        """Store the leader that the node follows; the commit is synced under every policy."""
        with self._session.lock:
            self._check()
            try:
                self._session.again()
                with self._session.transaction():
                    self._session.execute("SET LOCAL synchronous_commit = on", binary=False)
                    self._session.execute("DELETE FROM kbcore_leader")
                    if leader:
                        query = "INSERT INTO kbcore_leader SELECT 1, %s FROM kbcore_meta WHERE writer = %s"
                        self._session.execute(query, (leader, self._session.token))
            except Unreachable as error:
                raise stopped(error) from None

    def _save(self, seq: int, chunks: Iterable[bytes], *, begin: bool = False) -> None:
        others = [row for row in self._snapshots if row.seq != seq][1 - KEPT_SNAPSHOTS :]
        kept_ids = [row.id for row in others]
        row = save(
            self._driver, self._session.token, self._seed, seq, chunks, keep=kept_ids, begin=begin
        )
        self._snapshots = [*others, row]

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; it was read and found sound when the log was opened or when it was saved."""
        self._check()
        if not self._snapshots:
            return None
        row = self._snapshots[-1]
        return row.seq, table_log.chunks(self._rows, row)

    def drop_before(self, seq: int) -> None:
        """Delete records up to `seq` that both kept snapshots cover; with fewer than two, none."""
        with self._snapshotting:
            self._check()
            if len(self._snapshots) < KEPT_SNAPSHOTS:
                return
            limit = min(seq, *(row.seq for row in self._snapshots))
            if limit >= self._first:
                try:
                    with self._session.lock:
                        self._session.again()
                        self._session.execute(
                            "UPDATE kbcore_meta SET first = %s WHERE writer = %s",
                            (limit + 1, self._session.token),
                        )
                        self._first = limit + 1
                    self._drop_rows()
                except Unreachable as error:
                    raise stopped(error) from None

    def _drop_rows(self) -> None:
        """Delete records that no longer count, in parts, so that no append waits for long."""
        while True:
            with self._session.lock:
                done = self._session.execute(
                    "DELETE FROM kbcore_log WHERE seq IN (SELECT seq FROM kbcore_log WHERE seq < %s LIMIT 5000)",
                    (self._first,),
                )
                if not done.rowcount:
                    return

    # -- state --------------------------------------------------------------

    def status(self) -> LogStatus:
        """Return the state of the log without asking the server; `durable` is what is known to be synced."""
        return LogStatus(
            head=self._head,
            durable=self._durable,
            log_id=self._log_id.hex(),
            epoch=self._epoch,
            snapshot=self._snapshots[-1].seq if self._snapshots else 0,
            tail_bytes_dropped=0,
            writable=self._failed is None
            and not self._closing.is_set()
            and self._session.connected
            and not self._full,
        )

    def close(self, *, clean: bool = True) -> None:
        """Close the connection, and release the lock."""
        self._closing.set()
        with self._snapshotting, self._session.lock:
            self._session.drop()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._closing.is_set():
            raise NotReady("the log is closed")

    def _fail(self, error: KBError) -> None:
        if self._failed is None and isinstance(error, StorageFailed):
            self._failed = error
            logger.error("%s", error.message)
