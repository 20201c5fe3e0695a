"""A snapshot in one transaction, on its own connection so that appends continue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from kbcore.errors import KBError, SnapshotFailed, StorageFailed
from kbcore.plug.ports import LogSeed
from kbplugins import table_log
from kbplugins.storage_postgres.driver import Driver, Unreachable
from kbplugins.storage_postgres.rows import PostgresRows
from kbplugins.table_log import SnapshotEncoder, SnapshotRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Writes snapshots for the store that has the writer's `token`.

    Raises StorageFull or SnapshotFailed with nothing changed, and any error of making the chunks.
    """

    driver: Driver
    token: bytes

    def save(
        self, start: int, seq: int, chunks: Iterable[bytes], *, keep: list[int], begin: bool = False
    ) -> SnapshotRow:
        """Store a snapshot and delete all but those in `keep`; with `begin` the log begins with
        it.
        """

        def work(connection: Any) -> SnapshotRow:
            row = self._write(connection, start, seq, chunks, keep)
            if begin:
                query = (
                    "UPDATE kbcore_meta SET first = %s, head = %s WHERE head = 0 AND writer = %s"
                )
                if connection.execute(query, (seq + 1, seq, self.token)).rowcount != 1:
                    raise SnapshotFailed(f"{self.driver.location}: the log is not empty any more")
            return row

        return self._transaction(seq, work)

    def replace(self, seed: LogSeed, chunks: Iterable[bytes]) -> SnapshotRow | None:
        """Replace the log by another; return its snapshot, None for a log that begins at 0."""
        log_id = bytes.fromhex(seed.log_id)

        def work(connection: Any) -> SnapshotRow | None:
            row = None
            if seed.seq:
                row = self._write(connection, table_log.seed(log_id), seed.seq, chunks, [])
            else:
                connection.execute("DELETE FROM kbcore_snapshots")
                connection.execute("DELETE FROM kbcore_chunks")
            connection.execute("DELETE FROM kbcore_log")
            query = "UPDATE kbcore_meta SET log_id = %s, epoch = %s, first = %s, head = %s WHERE writer = %s"
            values = (log_id, seed.epoch, seed.seq + 1, seed.seq, self.token)
            if connection.execute(query, values).rowcount != 1:
                raise self._taken_over()
            return row

        return self._transaction(seed.seq, work)

    def _transaction(self, seq: int, work: Callable[[Any], T]) -> T:
        try:
            connection = self.driver.connect("snapshot")
        except Unreachable as error:
            raise SnapshotFailed(f"snapshot at {seq} was not stored: {error}") from None
        try:
            with connection.transaction():
                # Under every policy: nothing may depend on a snapshot that the server can still
                # lose.
                connection.execute("SET LOCAL synchronous_commit = on")
                return work(connection)
        except self.driver.psycopg.Error as error:
            translated = self.driver.translated(error)
            if isinstance(translated, KBError) and not isinstance(translated, StorageFailed):
                raise translated from error
            raise SnapshotFailed(f"snapshot at {seq} was not stored: {translated}") from error
        finally:
            connection.close()

    def _write(
        self, connection: Any, start: int, seq: int, chunks: Iterable[bytes], keep: list[int]
    ) -> SnapshotRow:
        cursor = connection.cursor(binary=True)
        query = "SELECT nextval(pg_get_serial_sequence('kbcore_snapshots', 'id')) FROM kbcore_meta WHERE writer = %s"
        id_row = cursor.execute(query, (self.token,)).fetchone()
        if id_row is None:
            raise self._taken_over()
        encoder = SnapshotEncoder(id_row[0], seq, start)
        query = "COPY kbcore_chunks (snapshot, number, crc, data) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(query) as copy:
            copy.set_types(["int8", "int8", "int8", "bytea"])
            for chunk_row in encoder.chunk_rows(chunks):
                copy.write_row(chunk_row)
        row = encoder.row()
        rows = PostgresRows(
            self.driver.location, lambda text, values: cursor.execute(text, values).fetchall()
        )
        if problem := table_log.snapshot_problem(rows, start, row):
            raise SnapshotFailed(f"snapshot at {seq} was not stored: read back, {problem}")
        cursor.execute(
            "INSERT INTO kbcore_snapshots VALUES (%s, %s, %s, %s, %s, %s)",
            (row.id, seq, row.chunks, row.size, row.crc, row.check),
        )
        ids = ([*keep, row.id],)
        cursor.execute("DELETE FROM kbcore_snapshots WHERE NOT id = ANY(%s)", ids)
        cursor.execute("DELETE FROM kbcore_chunks WHERE NOT snapshot = ANY(%s)", ids)
        return row

    def _taken_over(self) -> SnapshotFailed:
        return SnapshotFailed(f"{self.driver.location}: another writer has taken over")
