"""Answers as a table of columns, for libraries that read Apache Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbcore.columns import ipc
from kbplanner.engine.columns import ArrowColumn, arrow_schema, arrow_stream
from kbplanner.syntax.diagnostics import counted


class AnswerTable:
    """A table of answers: a column for each variable of the goal, in order of appearance.

    Libraries that know the Arrow PyCapsule interface read the table directly: `pyarrow.table(t)`,
    `polars.DataFrame(t)`, `duckdb.sql("SELECT * FROM t")`, `nanoarrow.Array(t)`. Text columns are
    dictionary-encoded: each distinct text is stored once.
    """

    __slots__ = ("_columns", "_row_count")

    def __init__(self, columns: Sequence[ArrowColumn], row_count: int) -> None:
        self._columns = list(columns)
        self._row_count = row_count

    @property
    def num_rows(self) -> int:
        """The number of answers."""
        return self._row_count

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return [column[0] for column in self._columns]

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of the Arrow C data interface."""
        return arrow_schema(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the answers as a capsule of the Arrow C stream interface, in one batch.

        `requested_schema` is ignored, as the interface allows.
        """
        return arrow_stream(self._columns, self._row_count)

    def ipc_stream(self) -> Iterator[bytes]:
        """Yield the answers as an Arrow IPC stream, in parts."""
        return ipc.stream(self._columns, self._row_count)

    def __repr__(self) -> str:
        return f"AnswerTable({', '.join(self.column_names)}; {counted(self._row_count, 'row')})"
