"""Bulk runs on DuckDB: a database file that spills to disk beyond a memory limit.

DuckDB reads and writes the Parquet files itself. Functions of expressions and patterns are
evaluated in Python, once for each combination of distinct arguments, so that their values are the
same as everywhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbcore.bulk.files import column_names
from kbcore.errors import Cancelled, ConfigError, EngineFault, InvalidInput
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import (
    BulkDatabase,
    BulkEngine,
    BulkFacts,
    BulkOptions,
    SqlDialect,
    SqlUnion,
)
from kbplanner.compile.bulkplan import BulkPlan, ClauseVersion
from kbplanner.ir.conditions import generate
from kbplanner.ir.operators import GENERATOR
from kbplanner.ir.program import AggregateClause
from kbplanner.ir.terms import Variable
from kbplanner.ir.values.compute import compute
from kbplanner.ir.values.pattern import compile_pattern, matches
from kbplugins.tables.parquet import counted, literal, quoted, text_query

if TYPE_CHECKING:
    from types import ModuleType

INSTALL = "bulk runs on DuckDB need the packages duckdb and sqlglot: pip install duckdb sqlglot"

BATCH_ROWS = 20_000
"""Calls of functions that are evaluated in Python at once."""


class DuckDBDatabase:
    """DuckDB, if it is installed."""

    def open(self, options: BulkOptions) -> BulkEngine:
        """Open a database file in the folder of the options."""
        duckdb, _ = _packages()
        return DuckDBRun(duckdb, options)

    def statements(self, version: ClauseVersion, plan: BulkPlan) -> Sequence[str]:
        """Return the queries of a clause version: of the arguments of its functions, then of its
        rows.
        """
        _packages()
        from kbplugins.bulk_sql import clauses, values

        return clauses.statements(version, plan.constant, values.DUCKDB)


def _packages() -> tuple[Any, ModuleType]:
    """Return duckdb and sqlglot; raise ConfigError if one is not installed."""
    try:
        import duckdb
        import sqlglot
    except ImportError as error:
        raise ConfigError(INSTALL) from error
    return duckdb, sqlglot


def _sqlglot() -> None:
    """Raise ConfigError if sqlglot is not installed."""
    try:
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "conditions in SQL need the package sqlglot: pip install sqlglot"
        ) from error


class DuckDBRun:
    """One bulk run, as `BulkEngine`. `run` executes SQL; all names in it are made by the
    planner.
    """

    def __init__(self, duckdb: Any, options: BulkOptions) -> None:
        self._duckdb = duckdb
        config = {
            "temp_directory": str(Path(options.folder) / "spill"),
            "preserve_insertion_order": "false",
        }
        if options.memory_limit is not None:
            config["memory_limit"] = options.memory_limit
        config |= options.settings
        try:
            self._db = duckdb.connect(str(Path(options.folder) / "run.duckdb"), config=config)
        except duckdb.Error as error:
            raise ConfigError(f"DuckDB does not start: {_first_line(error)}") from error
        self._constants: dict[str, int] = {}
        self._texts = 0
        self._functions: set[str] = set()
        self._closed = self._cancelled = False
        self._lock = threading.Lock()

    # -- the protocol ------------------------------------------------------------------------------

    def bind(self, plan: BulkPlan, facts: Sequence[BulkFacts]) -> int:
        """Read the facts: first all texts into the dictionary, then each relation as ids."""
        self._run(
            "CREATE TABLE kb_text (id UINTEGER, text VARCHAR, whole BIGINT, real DOUBLE, rank VARCHAR)"
        )
        self._constants = {text: index for index, text in enumerate(plan.constants, 1)}
        self._encode("SELECT unnest(?::VARCHAR[]) AS text", [list(plan.constants)], ordered=True)
        for each in facts:
            self._raw(each)
        columns = [
            f"SELECT {quoted(f'c{index}')} AS text FROM raw_{each.relation}"  # nosec B608
            for each in facts
            for index in range(each.arity)
        ]
        if columns:
            self._encode(" UNION ALL ".join(columns))
        return sum(self._relation(each) for each in facts)

    def restore(self, plan: BulkPlan, rounds: Mapping[str, int | None]) -> None:
        """Drop what is not kept; the dictionary and the functions stay."""
        self._constants = {text: index for index, text in enumerate(plan.constants, 1)}
        for (view,) in self._run(
            "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall():
            self._run(f"DROP VIEW {view}")
        tables = {row[0] for row in self._run("SELECT table_name FROM duckdb_tables()").fetchall()}
        if missing := set(rounds) - tables:
            raise InvalidInput(f"the stopped run has no {plan.titles[min(missing)]}")
        self._functions = {table for table in tables if table.startswith("fn_")}
        for table in tables - {"kb_text"} - self._functions - set(rounds):
            self._run(f"DROP TABLE {table}")
        for relation, last in rounds.items():
            if last is not None:
                self._run(f"DELETE FROM {relation} WHERE kb_round > {last}")  # nosec B608
        self._texts = int(self._run("SELECT COALESCE(MAX(id), 0) FROM kb_text").fetchone()[0])

    def make(self, relation: str, arity: int, rows: Sequence[tuple[str, ...]] = ()) -> None:
        """Create a table with the rows as those of round 0."""
        columns = "".join(f", c{index} UINTEGER" for index in range(arity))
        self._run(f"CREATE TABLE {relation} (kb_round INTEGER{columns})")
        for row in rows:
            values = ", ".join(str(self._constants[text]) for text in row)
            self._run(f"INSERT INTO {relation} VALUES (0{', ' if values else ''}{values})")  # nosec B608

    def extend(self, relation: str, versions: Sequence[ClauseVersion], round_: int) -> int:
        """Collect the distinct rows in a table of their own, so that their number is known when
        DuckDB chooses the sides of the anti-join.
        """
        queries = [self._rows(version, round_ - 1) for version in versions]
        if not queries:
            return 0
        self._run(f"CREATE TABLE kb_new AS SELECT DISTINCT * FROM ({' UNION ALL '.join(queries)})")  # nosec B608
        arity = len(versions[0].args)
        columns = [f"c{index}" for index in range(arity)]
        same = " AND ".join(f"f.{name} = n.{name}" for name in columns) or "TRUE"
        names = "".join(f", n.{name}" for name in columns)
        count = self._changed(
            f"INSERT INTO {relation} SELECT {round_}{names} FROM kb_new AS n"  # nosec B608
            f" WHERE NOT EXISTS (SELECT 1 FROM {relation} AS f WHERE {same})"
        )
        self._run("DROP TABLE kb_new")
        return count

    def answers(self, plan: BulkPlan, path: str) -> int:
        """Decode the answers while they are written."""
        from kbplugins.bulk_sql import clauses, values

        answers = clauses.answers_of(plan, column_names(plan.goal), self._constants.__getitem__)
        query = values.DUCKDB.text(answers)
        return self._changed(f"COPY ({query}) TO {literal(path)} (FORMAT parquet)")

    def drop(self, relation: str) -> None:
        """Drop the table."""
        self._run(f"DROP TABLE {relation}")

    def cancel(self) -> None:
        """Interrupt the statement at work; later statements are refused too."""
        with self._lock:
            self._cancelled = True
            if not self._closed:
                self._db.interrupt()

    def close(self) -> None:
        """Close the database; its files stay in the folder of the options."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()

    # -- facts and the dictionary ------------------------------------------------------------------

    def _raw(self, facts: BulkFacts) -> None:
        """Create the view `raw_...` of a predicate's facts as texts; refuse files that do not
        fit.
        """
        selects = [self._file(facts, file) for file in facts.files]
        names = [f"c{index}" for index in range(facts.arity)]
        if facts.rows or not selects:
            table = f"stated_{facts.relation}"
            columns = ", ".join(f"{name} VARCHAR" for name in names) or "held BOOLEAN"
            self._run(f"CREATE TABLE {table} ({columns})")
            rows = facts.rows
            if rows and names:
                unnested = ", ".join("unnest(?::VARCHAR[])" for _ in names)
                self._run(
                    f"INSERT INTO {table} SELECT {unnested}",
                    [list(c) for c in zip(*rows, strict=True)],
                )
            elif rows:
                self._run(f"INSERT INTO {table} VALUES (TRUE)")  # nosec B608
            selects.append(f"SELECT * FROM {table}")  # nosec B608
        self._run(f"CREATE VIEW raw_{facts.relation} AS {' UNION ALL '.join(selects)}")

    def _file(self, facts: BulkFacts, file: str) -> str:
        """Return the SELECT of a Parquet file, its columns as texts."""
        try:
            query, arity = text_query(self._run, file)
        except EngineFault as error:
            raise InvalidInput(f"{file} is not a Parquet file: {error}") from error
        if arity != facts.arity:
            columns = counted(arity, "column") if arity else "facts without arguments"
            raise InvalidInput(
                f"{file}: the rules read {facts.title}, with {counted(facts.arity, 'argument')}, "
                f"but the file has {columns}"
            )
        return query

    def _relation(self, facts: BulkFacts) -> int:
        """Create the table of a stored relation from its view; return the number of its rows."""
        name, columns = facts.relation, range(facts.arity)
        ids = ", ".join(f"t{index}.id AS c{index}" for index in columns) or "r.held"
        joins = "".join(
            f" JOIN kb_text AS t{index} ON t{index}.text = r.c{index}" for index in columns
        )
        self._run(f"CREATE TABLE {name} AS SELECT DISTINCT {ids} FROM raw_{name} AS r{joins}")  # nosec B608
        return int(self._run(f"SELECT COUNT(*) FROM {name}").fetchone()[0])  # nosec B608

    def _encode(self, texts: str, parameters: Sequence[Any] = (), ordered: bool = False) -> None:
        """Add the texts of a query to the dictionary, those that it lacks.

        With `ordered` they are distinct and new, and get ids in their order.
        """
        from sqlglot import exp

        from kbplugins.bulk_sql.values import DUCKDB, number_columns

        text = exp.column("text", table="n")
        columns = ", ".join(map(DUCKDB.text, number_columns(text, DUCKDB)))
        if not ordered:
            texts = (
                f"SELECT DISTINCT text FROM ({texts}) AS s WHERE text IS NOT NULL"  # nosec B608
                " AND NOT EXISTS (SELECT 1 FROM kb_text AS k WHERE k.text = s.text)"
            )
        number = "generate_subscripts(?::VARCHAR[], 1)" if ordered else "row_number() OVER ()"
        if ordered:
            texts, parameters = f"{texts}, {number} AS id", [*parameters, *parameters]
        else:
            texts = f"SELECT text, {number} AS id FROM ({texts}) AS d"  # nosec B608
        self._texts += self._changed(
            f"INSERT INTO kb_text SELECT {self._texts} + n.id, n.text, {columns} FROM ({texts}) AS n",  # nosec B608
            parameters,
        )

    # -- clauses -----------------------------------------------------------------------------------

    def _rows(self, version: ClauseVersion, round_: int) -> str:
        """Return the query of the rows of a clause version, after its functions are evaluated."""
        from kbplugins.bulk_sql import clauses
        from kbplugins.bulk_sql.values import DUCKDB

        if clauses.has_aggregates(version):
            return self._groups(version, DUCKDB.text(clauses.groups_of(version, DUCKDB)))
        context = clauses.ClauseContext.of(round_, self._constants.__getitem__, DUCKDB)
        for at, item in enumerate(version.items):
            if clauses.is_call(item):
                query = clauses.arguments_of(version, at, context)
                function, args = clauses.call_of(item)
                table = clauses.function_table(function, len(args))
                self._evaluate(function, table, len(args), DUCKDB.text(query))
        return DUCKDB.text(clauses.rows_of(version, context))

    def _evaluate(self, function: str, table: str, count: int, query: str) -> None:
        """Add the values of a function for the arguments of a query that its table lacks."""
        names = [f"c{index}" for index in range(count)]
        if table not in self._functions:
            self._functions.add(table)
            columns = ", ".join(f"{name} UINTEGER" for name in names)
            self._run(f"CREATE TABLE {table} ({columns}, value UINTEGER)")
        same = " AND ".join(f"f.{name} = q.{name}" for name in names)
        self._run(
            f"CREATE TABLE kb_calls AS SELECT * FROM ({query}) AS q"  # nosec B608
            f" WHERE NOT EXISTS (SELECT 1 FROM {table} AS f WHERE {same})"
        )
        ids = ", ".join(f"q.{name}" for name in names)
        texts = ", ".join(f"t{index}.text" for index in range(count))
        joins = "".join(
            f" JOIN kb_text AS t{index} ON t{index}.id = q.{name}"
            for index, name in enumerate(names)
        )
        self._run(
            f"CREATE TABLE kb_values ({', '.join(f'{n} UINTEGER' for n in names)}, text VARCHAR)"
        )
        for rows in self._batches(f"SELECT {ids}, {texts} FROM kb_calls AS q{joins}"):  # nosec B608
            for values in _chunks(_values(function, rows, count), BATCH_ROWS):
                lists = [list(column) for column in zip(*values, strict=True)]
                unnested = ", ".join("unnest(?::UINTEGER[])" for _ in names)
                self._run(
                    f"INSERT INTO kb_values SELECT {unnested}, unnest(?::VARCHAR[])",  # nosec B608
                    lists,
                )
        ids = ", ".join(f"v.{name}" for name in names)
        if function == "matches":
            self._run(
                f"INSERT INTO {table} SELECT {ids}, CAST(v.text AS UINTEGER) FROM kb_values AS v"  # nosec B608
            )
        else:
            self._encode("SELECT text FROM kb_values")
            self._run(
                f"INSERT INTO {table} SELECT {ids}, k.id FROM kb_values AS v"  # nosec B608
                " LEFT JOIN kb_text AS k ON k.text = v.text"
            )
        self._run("DROP TABLE kb_calls")
        self._run("DROP TABLE kb_values")

    def _groups(self, version: ClauseVersion, query: str) -> str:
        """Return the query of the rows of a clause with aggregates, after their values have ids."""
        from kbplugins.bulk_sql.values import finished

        functions = {
            item.target: item.function
            for item in version.items
            if isinstance(item, AggregateClause)
        }
        name = f"kb_groups_{version.head}"
        self._run(f"CREATE TABLE {name} AS {query}")
        selected, joins = [], []
        for index, arg in enumerate(version.args):
            function = functions.get(arg) if isinstance(arg, Variable) else None
            if function is None:
                selected.append(f"g.c{index}")
                continue
            source = f"g.c{index}"
            if function in ("sum", "avg"):
                table = f"{name}_{index}"
                self._run(f"CREATE TABLE {table} (raw VARCHAR, text VARCHAR)")
                for rows in self._batches(f"SELECT DISTINCT c{index} FROM {name}"):  # nosec B608
                    raw = [row[0] for row in rows]
                    self._run(
                        f"INSERT INTO {table} SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
                        [raw, [finished(text) for text in raw]],
                    )
                self._encode(f"SELECT text FROM {table}")  # nosec B608
                joins.append(f" JOIN {table} AS w{index} ON w{index}.raw = {source}")
                source = f"w{index}.text"
            else:
                self._encode(f"SELECT c{index} AS text FROM {name}")  # nosec B608
            joins.append(f" JOIN kb_text AS k{index} ON k{index}.text = {source}")
            selected.append(f"k{index}.id AS c{index}")
        return f"SELECT {', '.join(selected)} FROM {name} AS g{''.join(joins)}"  # nosec B608

    # -- statements --------------------------------------------------------------------------------

    def _batches(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query in batches, through a cursor of its own."""
        cursor = self._db.cursor()
        try:
            cursor.execute(query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield rows
        finally:
            cursor.close()

    def _changed(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return int(self._run(statement, parameters).fetchone()[0])

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        if self._cancelled:
            raise Cancelled("the bulk run was stopped")
        try:
            return self._db.execute(statement, list(parameters) or None)
        except self._duckdb.InterruptException as error:
            raise Cancelled("the bulk run was stopped") from error
        except RuntimeError as error:  # what DuckDB makes of Ctrl-C while a statement runs
            if "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise
        except self._duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"the memory limit is too small for this run: {_first_line(error)}"
            ) from error
        except self._duckdb.IOException as error:
            raise InvalidInput(f"DuckDB: {_first_line(error)}") from error
        except self._duckdb.Error as error:
            raise EngineFault(f"DuckDB: {_first_line(error)}") from error


def _values(function: str, rows: Iterable[Sequence[Any]], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the ids of the arguments of each call with a value; rows have ids, then texts.

    A generator has a row for each value. Calls without a value have one row with None.
    """
    for row in rows:
        ids, args = tuple(row[:count]), row[count:]
        if function == "matches":
            yield *ids, str(int(matches(compile_pattern(args[1]), args[0])))
        elif function in GENERATOR:
            values = iter(generate(function, args) or ())
            yield *ids, next(values, None)
            for value in values:
                yield *ids, value
        else:
            yield *ids, compute(function, args)


def _chunks(rows: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows in lists of at most `size`."""
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        yield chunk


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class SqlglotDialect:
    """A dialect of conditions, written by sqlglot if it is installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def condition(self, table: str, column: str, answers: SqlUnion) -> str:
        """Return the condition as text."""
        _sqlglot()
        from kbplugins.bulk_sql import conditions

        return conditions.condition(self._name, table, column, answers)


@hookimpl
def kb_sql_dialects() -> Mapping[str, SqlDialect]:
    """Offer the dialects of databases that compare texts by their characters.

    Others ignore case unless a collation says otherwise.
    """
    return {name: SqlglotDialect(name) for name in ("postgres", "sqlite", "duckdb")}


@hookimpl
def kb_bulk_engines() -> Mapping[str, BulkDatabase]:
    """Offer `duckdb`."""
    return {"duckdb": DuckDBDatabase()}
