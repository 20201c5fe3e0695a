"""A log in PostgreSQL as a process reads it while another one writes it, to take it over soon."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kbcore.config import Config
from kbcore.errors import LogCorrupted, LogTruncated
from kbcore.plug.ports import LogRecord, LogStore
from kbplugins import table_log
from kbplugins.storage_postgres.driver import Driver, Unreachable, not_ready
from kbplugins.storage_postgres.rows import PostgresRows
from kbplugins.storage_postgres.store import PostgresStore
from kbplugins.table_log import SnapshotRow

_META = "SELECT log_id, first, head FROM kbcore_meta"


class PostgresReader:
    """`LogReader` on a connection of its own, without the lock and the token of the writer.

    A snapshot that the writer replaces while it is read raises LogTruncated: begin again.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._driver = Driver(config)
        self._lock = threading.Lock()
        self._rows = PostgresRows(self._driver.location, self._fetch)
        self._verified: SnapshotRow | None = None
        self._read = 0
        try:
            self._connection: Any = self._driver.connect("reader")
        except Unreachable as error:
            raise not_ready(error) from None
        with self._closing_on_failure():
            log_id, _, _ = self._meta()
        self._seed = table_log.seed(log_id)

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot; each chunk is verified when it is read."""
        snapshots = self._rows.snapshots()
        if not snapshots:
            return None
        row = snapshots[-1]
        if (
            table_log.snapshot_check(self._seed, row.seq, row.chunks, row.size, row.crc)
            != row.check
        ):
            problem = "a snapshot whose row has a wrong checksum"
            raise table_log.corrupted(self._driver.location, "snapshots", row.seq, problem)
        return row.seq, self._chunks(row)

    def read(self, after: int) -> Iterator[LogRecord]:
        """Yield the records over `after` up to the present head; raises LogTruncated."""
        _, first, head = self._meta()
        if after + 1 < first:
            raise LogTruncated(f"records up to {first - 1} are no longer kept", {"first": first})
        yield from table_log.records(self._rows, self._seed, after, head)
        self._read = max(self._read, head)

    def open(self) -> LogStore:
        """Open the log as its writer, without verifying again what this reader has read."""
        return PostgresStore(self._config, verified=(self._verified, self._read))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _chunks(self, row: SnapshotRow) -> Iterator[bytes]:
        try:
            yield from table_log.chunks(self._rows, row)
        except LogCorrupted:
            if row not in self._rows.snapshots():
                raise LogTruncated("the snapshot was replaced while it was read") from None
            raise
        self._verified, self._read = row, max(self._read, row.seq)

    def _meta(self) -> tuple[bytes, int, int]:
        rows = self._fetch(_META, ())
        if not rows:
            raise table_log.corrupted(self._driver.location, "kbcore_meta", 1, "no row")
        log_id, first, head = rows[0]
        return log_id, first, head

    def _fetch(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                cursor = self._connection.cursor(binary=True).execute(query, values)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows
            except self._driver.psycopg.Error as error:
                translated = self._driver.translated(error)
                if isinstance(translated, Unreachable):
                    raise not_ready(translated) from None
                raise translated from None

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise
