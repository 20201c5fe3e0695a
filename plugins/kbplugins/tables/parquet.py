"""Tables of facts as Parquet files, written and read by DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbcore.errors import ConfigError, InvalidInput
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import TableFormat

BATCH_ROWS = 20_000

_INTEGERS = frozenset(
    f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")
) | {"INTEGER", "UINTEGER"}


class ParquetTables:
    """Parquet files."""

    def write(
        self, path: str, columns: Sequence[str], batches: Iterable[Sequence[Sequence[str]]]
    ) -> int:
        """Collect the rows in a database file, which DuckDB then copies to the Parquet file."""
        duckdb = _package()
        names = ", ".join(f"{quoted(name)} VARCHAR" for name in columns) or "holds BOOLEAN"
        values = ", ".join("unnest(?::VARCHAR[])" for _ in columns) or "unnest(?::BOOLEAN[])"
        with (
            tempfile.TemporaryDirectory(prefix=".table-", dir=Path(path).parent) as folder,
            duckdb.connect(f"{folder}/rows.duckdb") as db,
        ):
            db.execute(f"CREATE TABLE t ({names})")
            for rows in filter(None, batches):
                lists = [list(column) for column in zip(*rows, strict=True)] or [[True] * len(rows)]
                db.execute(f"INSERT INTO t SELECT {values}", lists)
            copied = db.execute(f"COPY t TO {literal(path)} (FORMAT parquet)").fetchone()
        return int(copied[0])

    def read(self, path: str) -> Iterator[list[tuple[str, ...]]]:
        """Read the rows in batches; only one batch is in memory."""
        duckdb = _package()
        with duckdb.connect() as db:

            def run(statement: str) -> Any:
                try:
                    return db.execute(statement)
                except duckdb.Error as error:
                    message = str(error).partition("\n")[0]
                    raise InvalidInput(f"{path} is not a Parquet file: {message}") from error

            query, arity = text_query(run, path)
            cursor = run(query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield rows if arity else [()] * len(rows)


def text_query(run: Callable[[str], Any], path: str) -> tuple[str, int]:
    """Return the SELECT of a Parquet file with the columns as texts, `c0`, `c1`, ..., and their
    number.

    A file with one column of booleans has facts without arguments; then the only column is `held`.
    `run` executes a statement and returns its cursor. Raises InvalidInput naming the file for other
    types and for NULL.
    """
    source = f"read_parquet({literal(path)}, hive_partitioning = false)"
    columns = run(f"DESCRIBE SELECT * FROM {source}").fetchall()  # nosec B608
    if [kind for _, kind, *_ in columns] == ["BOOLEAN"]:
        return f"SELECT TRUE AS held FROM {source}", 0  # nosec B608
    selected = []
    for index, (name, kind, *_) in enumerate(columns):
        if kind != "VARCHAR" and kind not in _INTEGERS:
            raise InvalidInput(
                f"{path}: column {index + 1} ({name}) has the type {kind}; write it as text or as "
                "integers"
            )
        selected.append(f"CAST({quoted(name)} AS VARCHAR) AS c{index}")
    empty = " OR ".join(f"{quoted(name)} IS NULL" for name, *_ in columns)
    row = run(f"SELECT COUNT(*) FROM {source} WHERE {empty}").fetchone()  # nosec B608
    if row[0]:
        raise InvalidInput(
            f"{path}: {counted(row[0], 'row')} with NULL; a fact has a value in every column"
        )
    return f"SELECT {', '.join(selected)} FROM {source}", len(columns)  # nosec B608


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _package() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError("Parquet files need the package duckdb: pip install duckdb") from error
    return duckdb


@hookimpl
def kb_table_formats() -> Mapping[str, TableFormat]:
    """Offer `parquet`."""
    return {"parquet": ParquetTables()}
