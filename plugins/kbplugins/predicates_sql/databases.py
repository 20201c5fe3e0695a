"""Connections to SQLite, PostgreSQL and DuckDB that only read, and how each compares texts.

An input is a text. A database compares it with a column of numbers only if it is a number, and
never by the text of the number alone, which no index knows: so inputs are sorted out by the type of
the column.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kbcore.config.storage_urls import NOT_WELL_FORMED, is_well_formed, redacted
from kbcore.errors import ConfigError

MAX_IDLE = 4
"""Connections of a database that are kept open while no call uses them."""

GRACE_SECONDS = 0.1
"""Time after which a query is stopped when its result is not awaited any more."""

INTEGER, NUMBER, TEXT, OTHER = "integer", "number", "text", "other"
"""Kinds of columns: what inputs they are compared with, `OTHER` by their text."""

_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,2})?")


class SqlDatabase(ABC):
    """A database whose tables are read. Threads may share it; each call has its own connection."""

    placeholder = "?"

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._idle: list[Any] = []
        self._kinds: dict[tuple[str, str], str] = {}
        weakref.finalize(self, _close_all, self._idle)

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection."""

    @abstractmethod
    def types(self, connection: Any, table: str, columns: Sequence[str]) -> list[str]:
        """Return the names of the types of columns, lower case."""

    def cancel(self, connection: Any) -> None:
        """Stop the query of a connection; called by another thread."""
        connection.interrupt()

    @contextmanager
    def connection(self, seconds: float) -> Iterator[Any]:
        """Provide a connection, whose query is stopped some time after `seconds`.

        A connection on which a query failed is closed.
        """
        with self._mutex:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        timer = threading.Timer(seconds + GRACE_SECONDS, self.cancel, (connection,))
        timer.daemon = True
        timer.start()
        try:
            yield connection
        except BaseException:
            timer.cancel()
            timer.join()
            connection.close()
            raise
        timer.cancel()
        timer.join()
        with self._mutex:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def query(self, connection: Any, statement: str, values: Sequence[Any]) -> Iterator[Any]:
        """Run a query and yield its rows."""
        return iter(connection.execute(statement, values))

    def kinds(self, connection: Any, table: str, columns: Sequence[str]) -> list[str]:
        """Return the kind of each column; they are looked up once."""
        missing = [column for column in columns if (table, column) not in self._kinds]
        if missing:
            types = self.types(connection, table, missing)
            for column, name in zip(missing, types, strict=True):
                self._kinds[table, column] = kind_of(name)
        return [self._kinds[table, column] for column in columns]

    def as_text(self, column: str) -> str:
        """Return the expression for the text of a column."""
        return f"CAST({column} AS TEXT)"


class SQLite(SqlDatabase):
    """A SQLite file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._uri = f"file:{quote(str(Path(path).absolute()))}?mode=ro"

    def connect(self) -> Any:
        """Open the file, which must exist."""
        return sqlite3.connect(self._uri, uri=True, check_same_thread=False)

    def types(self, connection: Any, table: str, columns: Sequence[str]) -> list[str]:
        """Return `any` for each column: SQLite converts inputs by the affinity of the column."""
        return ["any"] * len(columns)


class Postgres(SqlDatabase):
    """A PostgreSQL database."""

    placeholder = "%s"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._psycopg = _driver("psycopg", "psycopg[binary]")

    def connect(self) -> Any:
        """Open a connection that cannot write."""
        connection = self._psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        connection.execute("SET default_transaction_read_only = on")
        return connection

    def cancel(self, connection: Any) -> None:
        """Stop the query of a connection."""
        connection.cancel()

    def types(self, connection: Any, table: str, columns: Sequence[str]) -> list[str]:
        """Return the types as PostgreSQL names them."""
        names = ", ".join(f"pg_typeof({column_of(column)})::text" for column in columns)
        row = connection.execute(
            f"SELECT {names} FROM (SELECT 1) AS one LEFT JOIN {table_of(table)} ON true LIMIT 1"  # nosec B608
        ).fetchone()
        return list(row)


class DuckDB(SqlDatabase):
    """A DuckDB file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._duckdb = _driver("duckdb", "duckdb")

    def connect(self) -> Any:
        """Open the file, which must exist, for reading."""
        return self._duckdb.connect(self._path, read_only=True)

    def query(self, connection: Any, statement: str, values: Sequence[Any]) -> Iterator[Any]:
        """Run a query and yield its rows, some at a time."""
        result = connection.execute(statement, list(values))
        while rows := result.fetchmany(1000):
            yield from rows

    def types(self, connection: Any, table: str, columns: Sequence[str]) -> list[str]:
        """Return the types as DuckDB names them."""
        names = ", ".join(map(column_of, columns))
        described = connection.execute(f"DESCRIBE SELECT {names} FROM {table_of(table)}")  # nosec B608
        return [row[1].lower() for row in described.fetchall()]


def _close_all(connections: Sequence[Any]) -> None:
    for connection in connections:
        connection.close()


def open_database(url: str) -> SqlDatabase:
    """Return the database of a URL, without connecting to it.

    Raises ConfigError for an unknown kind, and naming a driver that is not installed.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        return SQLite(rest)
    if scheme == "duckdb" and rest:
        return DuckDB(rest)
    if scheme in ("postgresql", "postgres"):
        if not is_well_formed(url):
            raise ConfigError(f"SQL_PREDICATES: {redacted(url)!r}: {NOT_WELL_FORMED}")
        return Postgres(url)
    raise ConfigError(
        f"SQL_PREDICATES: {redacted(url)!r} must begin with sqlite:FILE, duckdb:FILE or postgresql://"
    )


def kind_of(name: str) -> str:
    """Return the kind of a column with this type."""
    name = name.split("(")[0].strip()
    if name in ("smallint", "integer", "bigint", "int", "tinyint"):
        return INTEGER
    if name in ("numeric", "decimal", "real", "double", "double precision", "float"):
        return NUMBER
    if name in ("any", "text", "varchar", "character varying"):
        return TEXT
    return OTHER


def comparable(kind: str, text: str) -> bool:
    """Return True if a column of this kind can be equal to a text."""
    if kind == INTEGER:
        return _INTEGER.fullmatch(text) is not None
    if kind == NUMBER:
        return _NUMBER.fullmatch(text) is not None
    return True


def column_of(name: str) -> str:
    """Return the name of a column of the table that is read, quoted.

    Without the name of the table, SQLite would take a name that does not exist as a text.
    """
    return f"t.{_quoted(name)}"


def table_of(name: str) -> str:
    """Return the name of a table, quoted, with an alias; a dot separates its schema."""
    return f"{'.'.join(map(_quoted, name.split('.')))} AS t"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _driver(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"SQL_PREDICATES needs {name}: install it with `pip install '{package}'` ({error})"
        ) from error
