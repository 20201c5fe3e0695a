"""Read access to the tables of a log in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kbplugins.table_log import SnapshotRow, Tables


class PostgresRows(Tables):
    """The tables through `fetch`, which runs a query in PostgreSQL's syntax and returns its
    rows.
    """

    def __init__(self, location: str, fetch: Callable[[str, Any], list[tuple[Any, ...]]]) -> None:
        self.location = location
        self._fetch = fetch

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, with the names of the tables and values as PostgreSQL has
        them.
        """
        return self._fetch(text.replace(" FROM ", " FROM kbcore_").replace("?", "%s"), values)

    def first(self) -> int:
        """Return the number of the lowest stored record."""
        return int(self.query("SELECT first FROM meta")[0][0])

    def snapshots(self) -> Sequence[SnapshotRow]:
        """Return the finished snapshots, oldest first; others are never committed."""
        columns = 'SELECT id, seq, chunks, size, crc, "check" '
        return [SnapshotRow(*row) for row in self.query(columns + "FROM snapshots ORDER BY id")]
