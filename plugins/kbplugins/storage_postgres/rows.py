"""The rows of the log as PostgreSQL gives them: `table_log.Tables` over the writer's connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbplugins.storage_postgres.driver import Unreachable, stopped
from kbplugins.storage_postgres.session import Session
from kbplugins.table_log import SnapshotRow


class Rows:
    """Read access; each call reconnects where necessary."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.place = session.driver.place

    def first(self) -> int:
        """Return the lowest record that is kept."""
        return int(self._all("SELECT first FROM kbcore_meta")[0][0])

    def bounds(self, first: int) -> tuple[int, int, int]:
        """Lowest and highest number, and count."""
        query = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM kbcore_log WHERE seq >= %s"
        low, high, count = self._all(query, first)[0]
        return low, high, count

    def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """Numbers and sizes of the next records."""
        query = (
            "SELECT seq, octet_length(payload) FROM kbcore_log WHERE seq > %s ORDER BY seq LIMIT %s"
        )
        return self._all(query, after, limit)

    def rows(self, after: int, upto: int) -> Sequence[tuple[Any, ...]]:
        """Records, as they are stored."""
        query = "SELECT seq, type, version, crc, payload FROM kbcore_log WHERE seq > %s AND seq <= %s ORDER BY seq"
        return self._all(query, after, upto)

    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the snapshots, oldest first; unfinished ones are left out."""
        query = 'SELECT id, seq, chunks, size, crc, "check" FROM kbcore_snapshots ORDER BY id'
        return [SnapshotRow(*row) for row in self._all(query)]

    def chunk(self, snapshot: int, number: int) -> tuple[Any, Any] | None:
        """One chunk."""
        rows = self._all(
            "SELECT crc, data FROM kbcore_chunks WHERE snapshot = %s AND number = %s",
            snapshot,
            number,
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def _all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._session.lock:
            try:
                self._session.again()
                rows: list[tuple[Any, ...]] = self._session.execute(query, values).fetchall()
            except Unreachable as error:
                raise stopped(error) from None
            return rows
