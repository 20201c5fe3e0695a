"""Bulk runs on Apache Spark, on one machine or on a cluster.

Each relation is a folder of Parquet files with a folder for each round, which Spark reads as the
column `kb_round`. So every round starts from files: a lost executor costs at most a round, and a
run that was stopped can continue. The folder has to be visible to the driver and to all workers.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbcore.bulk.files import column_names
from kbcore.errors import Cancelled, ConfigError, EngineFault, InvalidInput
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import BulkDatabase, BulkEngine, BulkFacts, BulkOptions
from kbplanner.compile.bulkplan import BulkPlan, ClauseVersion
from kbplanner.ir.conditions import generate
from kbplanner.ir.operators import GENERATOR
from kbplanner.ir.program import AggregateClause
from kbplanner.ir.terms import Variable
from kbplanner.ir.values.compute import compute
from kbplanner.ir.values.pattern import compile_pattern, matches
from kbplanner.syntax.diagnostics import counted

INSTALL = "bulk runs on Spark need the packages pyspark and sqlglot: pip install pyspark sqlglot"

SESSION = {
    # It runs each part of a query as a job of its own, which takes longer than small rounds do.
    "spark.sql.adaptive.enabled": "false",
    # It takes exponential time for clauses that test many columns.
    "spark.sql.constraintPropagation.enabled": "false",
    # Casts of texts that are no numbers give NULL.
    "spark.sql.ansi.enabled": "false",
    # The files of many rounds are listed here and not in a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
"""Settings of queries; those of the user go before them."""

CONTEXT = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""Settings of the process; those of the user go before them."""

_SIZE = re.compile(r"([0-9.]+) ?([KMGT]?)i?B", re.IGNORECASE)

_INTEGERS = ("tinyint", "smallint", "int", "bigint", "decimal(20,0)")
"""Types of integer columns; Spark reads unsigned 64-bit integers as decimals."""

_TEXT_COLUMNS = "id BIGINT, text STRING, whole BIGINT, real DOUBLE, rank STRING"


class SparkDatabase:
    """Spark, if it is installed."""

    def open(self, options: BulkOptions) -> BulkEngine:
        """Start Spark, or use the session of this process."""
        _packages()
        return SparkRun(options)

    def statements(self, version: ClauseVersion, plan: BulkPlan) -> Sequence[str]:
        """Return the queries of a clause version: of the arguments of its functions, then of its
        rows.
        """
        _packages()
        from kbplugins.bulk_sql import clauses, values

        return clauses.statements(version, plan.constant, values.SPARK)


def _packages() -> None:
    """Raise ConfigError if pyspark or sqlglot is not installed."""
    try:
        import pyspark.sql  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise ConfigError(INSTALL) from error


def _session(options: BulkOptions) -> tuple[Any, bool]:
    """Return a session with the settings of bulk runs, and True if Spark was started for it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    settings = CONTEXT | dict(options.settings)
    if options.memory_limit is not None:
        size = _mebibytes(options.memory_limit)
        settings |= {"spark.driver.memory": size, "spark.executor.memory": size}
    if running is not None:
        fixed = sorted(set(options.settings) - set(SESSION) - {"spark.sql.shuffle.partitions"})
        if options.memory_limit is not None or fixed:
            raise ConfigError(
                "Spark runs in this process already: a memory limit and settings such as "
                f"{fixed[0] if fixed else 'spark.executor.memory'} belong to its start"
            )
    try:
        builder = SparkSession.builder.appName("kbcore bulk")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = (running or builder.getOrCreate()).newSession()
        context = session.sparkContext
        if running is None and context.pythonExec == "python3":  # PYSPARK_PYTHON names no other
            context.pythonExec = sys.executable
        shuffles = {"spark.sql.shuffle.partitions": str(context.defaultParallelism)}
        for name, value in (shuffles | SESSION | dict(options.settings)).items():
            if name.startswith("spark.sql."):
                session.conf.set(name, value)
    except (PySparkException, Py4JError) as error:
        raise ConfigError(f"Spark does not start: {_message(error)}; it needs Java 17") from error
    return session, running is None


def _mebibytes(size: str) -> str:
    parts = _SIZE.fullmatch(size)
    if parts is None:
        raise ConfigError(f"{size!r} is not a size; write it as 300MB or 4GB")
    power = " KMGT".index(parts[2].upper() or " ")
    return f"{max(int(float(parts[1]) * 1024**power / 1024**2), 1)}m"


class SparkRun:
    """One bulk run, as `BulkEngine`. `_query` executes SQL; all names in it are made by the
    planner.
    """

    def __init__(self, options: BulkOptions) -> None:
        self._folder = Path(options.folder)
        self._closed = self._cancelled = False
        self._session, self._owns_spark = _session(options)
        self._partitions = int(self._session.conf.get("spark.sql.shuffle.partitions"))
        self._constants: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._columns: dict[str, str] = {}
        self._chunks: dict[str, int] = {}
        self._next_id = 0

    # -- the protocol ------------------------------------------------------------------------------

    def bind(self, plan: BulkPlan, facts: Sequence[BulkFacts]) -> int:
        """Read the facts: first all texts into the dictionary, then each relation as ids."""
        self._constants = _constants(plan)
        self._next_id = len(plan.constants) + 1
        rows = [(index, text) for text, index in self._constants.items()]
        self._frame(rows, "id BIGINT, text STRING").createOrReplaceTempView("kb_new")
        self._chunk("kb_text", _TEXT_COLUMNS, f"SELECT id, text, {_numbers()} FROM kb_new AS n")  # nosec B608
        for each in facts:
            self._raw(each)
        texts = [
            f"SELECT c{index} AS text FROM raw_{each.relation}"  # nosec B608
            for each in facts
            for index in range(each.arity)
        ]
        if texts:
            self._encode(" UNION ALL ".join(texts))
        return sum(self._relation(each) for each in facts)

    def restore(self, plan: BulkPlan, rounds: Mapping[str, int | None]) -> None:
        """Remove what is not kept; the dictionary and the functions keep their complete chunks."""
        self._constants = _constants(plan)
        for path in self._folder.iterdir():
            name = path.name
            if name == "kb_text":
                self._restore_chunks(path, _TEXT_COLUMNS)
            elif name.startswith("fn_"):
                self._restore_chunks(path, _call_columns(int(name.rpartition("_")[2])))
            elif name not in rounds:
                shutil.rmtree(path)
        for relation, last in rounds.items():
            folder = self._folder / relation
            if not folder.is_dir():
                raise InvalidInput(f"the stopped run has no {plan.titles[relation]}")
            for path in folder.glob("kb_round=*"):
                if last is not None and int(path.name.partition("=")[2]) > last:
                    shutil.rmtree(path)
            self._declare(relation, plan.arities[relation])
            self._show(relation, self._columns[relation])
            self._totals[relation] = self._count(f"SELECT COUNT(*) FROM {relation}")  # nosec B608
        row = self._query("SELECT MAX(id) FROM kb_text").first()
        self._next_id = (row[0] or 0) + 1

    def make(self, relation: str, arity: int, rows: Sequence[tuple[str, ...]] = ()) -> None:
        """Create the folder, with the rows as those of round 0."""
        self._declare(relation, arity)
        shutil.rmtree(self._folder / relation, ignore_errors=True)
        (self._folder / relation).mkdir()
        self._totals[relation] = 0
        self._show(relation, self._columns[relation])
        if rows:
            ids = [tuple(self._constants[text] for text in row) or (0,) for row in rows]
            columns = self._columns[relation].rpartition(", ")[0]
            self._add_rows(relation, self._frame(ids, columns), 0)

    def extend(self, relation: str, versions: Sequence[ClauseVersion], round_: int) -> int:
        """Write the new distinct rows as the files of this round."""
        queries = [self._rows(version, round_ - 1) for version in versions]
        if not queries:
            return 0
        names = [f"c{index}" for index in range(len(versions[0].args))] or ["c0"]
        new = f"SELECT DISTINCT {', '.join(names)} FROM ({' UNION ALL '.join(queries)})"  # nosec B608
        if self._totals[relation]:
            same = " AND ".join(f"f.{name} = n.{name}" for name in names)
            new = f"SELECT * FROM ({new}) AS n WHERE NOT EXISTS (SELECT 1 FROM {relation} AS f WHERE {same})"  # nosec B608
        return self._add_rows(relation, self._query(new), round_)

    def answers(self, plan: BulkPlan, path: str) -> int:
        """Decode the answers while they are written, to a folder of files."""
        from kbplugins.bulk_sql import clauses, values

        query = clauses.answers_of(plan, column_names(plan.goal), self._constants.__getitem__)
        self._write(self._query(values.SPARK.text(query)), Path(path))
        for extra in [*Path(path).glob("_*"), *Path(path).glob(".*")]:
            extra.unlink()
        return int(self._attempt(lambda: self._session.read.parquet(path).count()))

    def drop(self, relation: str) -> None:
        """Remove the folder."""
        self._session.catalog.dropTempView(relation)
        shutil.rmtree(self._folder / relation)

    def cancel(self) -> None:
        """Cancel the job at work; later ones are refused too."""
        self._cancelled = True
        if not self._closed:
            self._session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop Spark if this run has started it; the files stay in the folder of the options."""
        if not self._closed:
            self._closed = True
            if self._owns_spark:
                self._session.stop()

    # -- facts and the dictionary ------------------------------------------------------------------

    def _raw(self, facts: BulkFacts) -> None:
        """Make the view `raw_...` of a predicate's facts as texts; refuse files that do not fit."""
        names = [f"c{index}" for index in range(facts.arity)]
        frames = [self._file(facts, file) for file in facts.files]
        if facts.rows or not frames:
            columns = ", ".join(f"{name} STRING" for name in names) or "c0 STRING"
            frames.append(self._frame([row or ("",) for row in facts.rows], columns))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        whole.createOrReplaceTempView(f"raw_{facts.relation}")

    def _file(self, facts: BulkFacts, file: str) -> Any:
        """Return a Parquet file as a frame of texts."""
        try:
            frame = self._attempt(lambda: self._session.read.parquet(file))
        except EngineFault as error:
            raise InvalidInput(f"{file} is not a Parquet file: {error.message}") from error
        kinds = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        if facts.arity == 0:
            return frame.selectExpr("'' AS c0")
        if len(kinds) != facts.arity:
            raise InvalidInput(
                f"{file}: the rules read {facts.title}, with {_counted(facts.arity, 'argument')}, "
                f"but the file has {_counted(len(kinds), 'column')}"
            )
        for index, (name, kind) in enumerate(kinds, 1):
            if kind != "string" and kind not in _INTEGERS:
                raise InvalidInput(
                    f"{file}: column {index} ({name}) has the type {kind}; write it as text or as "
                    "integers"
                )
        frame = frame.toDF(*(f"c{index}" for index in range(facts.arity)))
        texts = frame.selectExpr(*(f"CAST({name} AS STRING) AS {name}" for name in frame.columns))
        empty = " OR ".join(f"{name} IS NULL" for name in frame.columns)
        count = self._attempt(lambda: texts.where(empty).count())
        if count:
            raise InvalidInput(
                f"{file}: {_counted(count, 'row')} with NULL; a fact has a value in every column"
            )
        return texts

    def _relation(self, facts: BulkFacts) -> int:
        """Write a stored relation from its view; return the number of its rows."""
        name, columns = facts.relation, range(facts.arity)
        ids = (
            ", ".join(f"t{index}.id AS c{index}" for index in columns) or "CAST(0 AS BIGINT) AS c0"
        )
        joins = "".join(
            f" JOIN kb_text AS t{index} ON t{index}.text = r.c{index}" for index in columns
        )
        self._declare(name, facts.arity)
        frame = self._query(f"SELECT DISTINCT {ids} FROM raw_{name} AS r{joins}")  # nosec B608
        self._totals[name] = 0
        (self._folder / name).mkdir()
        return self._add_rows(name, frame, 0)

    def _encode(self, texts: str) -> None:
        """Add the texts of a query to the dictionary, those that it lacks."""
        # Ids of partition p begin at p times 2 to the power of 33 above the last one.
        numbered = (
            f"SELECT {self._next_id} + monotonically_increasing_id() AS id, d.text FROM ("  # nosec B608
            f"SELECT DISTINCT s.text FROM ({texts}) AS s WHERE s.text IS NOT NULL AND NOT EXISTS ("
            "SELECT 1 FROM kb_text AS k WHERE k.text = s.text)) AS d"
        )
        query = f"SELECT n.id, n.text, {_numbers()} FROM ({numbered}) AS n"  # nosec B608
        self._chunk("kb_text", _TEXT_COLUMNS, query)
        self._next_id += self._partitions << 33

    # -- clauses -----------------------------------------------------------------------------------

    def _rows(self, version: ClauseVersion, round_: int) -> str:
        """Return the query of the rows of a clause version, after its functions are evaluated."""
        from kbplugins.bulk_sql import clauses
        from kbplugins.bulk_sql.values import SPARK

        if clauses.has_aggregates(version):
            return self._groups(version, SPARK.text(clauses.groups_of(version, SPARK)))
        context = clauses.ClauseContext.of(round_, self._constants.__getitem__, SPARK)
        for at, item in enumerate(version.items):
            if clauses.is_call(item):
                query = clauses.arguments_of(version, at, context)
                function, args = clauses.call_of(item)
                table = clauses.function_table(function, len(args))
                self._evaluate(function, table, len(args), SPARK.text(query))
        return SPARK.text(clauses.rows_of(version, context))

    def _evaluate(self, function: str, table: str, count: int, query: str) -> None:
        """Add the values of a function for the arguments of a query that its table lacks."""
        names = [f"c{index}" for index in range(count)]
        columns = _call_columns(count)
        if table not in self._chunks:
            self._show(table, columns)
        same = " AND ".join(f"f.{name} = q.{name}" for name in names)
        ids = ", ".join(f"q.{name}" for name in names)
        texts = ", ".join(f"t{index}.text" for index in range(count))
        joins = "".join(
            f" JOIN kb_text AS t{index} ON t{index}.id = q.{name}"
            for index, name in enumerate(names)
        )
        call = f"kb_call({texts})"
        if function in GENERATOR:
            self._session.udf.register("kb_generate", _generator(function), "array<string>")
            call = f"explode_outer(kb_generate({texts}))"
        else:
            self._session.udf.register("kb_call", _function(function))
        values = self._temporary(
            "kb_values",
            f"SELECT {ids}, {call} AS text FROM ({query}) AS q{joins}"  # nosec B608
            f" WHERE NOT EXISTS (SELECT 1 FROM {table} AS f WHERE {same})",
        )
        ids = ", ".join(f"v.{name}" for name in names)
        if function == "matches":
            self._chunk(
                table,
                columns,
                f"SELECT {ids}, CAST(v.text AS BIGINT) AS value FROM {values} AS v",  # nosec B608
            )
        else:
            self._encode(f"SELECT text FROM {values}")  # nosec B608
            self._chunk(
                table,
                columns,
                f"SELECT {ids}, k.id AS value FROM {values} AS v"  # nosec B608
                " LEFT JOIN kb_text AS k ON k.text = v.text",
            )

    def _groups(self, version: ClauseVersion, query: str) -> str:
        """Return the query of the rows of a clause with aggregates, after their values have ids."""
        functions = {
            item.target: item.function
            for item in version.items
            if isinstance(item, AggregateClause)
        }
        self._session.udf.register("kb_finished", _finished)
        finished = []
        for index, arg in enumerate(version.args):
            function = functions.get(arg) if isinstance(arg, Variable) else None
            value = f"kb_finished(g.c{index})" if function in ("sum", "avg") else f"g.c{index}"
            finished.append(f"{value} AS c{index}")
        groups = self._temporary(
            f"kb_groups_{version.head}",
            f"SELECT {', '.join(finished)} FROM ({query}) AS g",  # nosec B608
        )
        selected, joins = [], []
        for index, arg in enumerate(version.args):
            if isinstance(arg, Variable) and arg in functions:
                self._encode(f"SELECT c{index} AS text FROM {groups}")  # nosec B608
                joins.append(f" JOIN kb_text AS k{index} ON k{index}.text = g.c{index}")
                selected.append(f"k{index}.id AS c{index}")
            else:
                selected.append(f"g.c{index}")
        return f"SELECT {', '.join(selected)} FROM {groups} AS g{''.join(joins)}"  # nosec B608

    # -- files -------------------------------------------------------------------------------------

    def _declare(self, relation: str, arity: int) -> None:
        """Note the columns of a relation; one without arguments has a column for its one row."""
        columns = "".join(f"c{index} BIGINT, " for index in range(arity)) or "c0 BIGINT, "
        self._columns[relation] = f"{columns}kb_round INT"

    def _add_rows(self, relation: str, frame: Any, round_: int) -> int:
        """Write the rows of a round; return their number.

        The number of all rows that can be read afterwards is compared with what was there before,
        so that a file that was lost or written twice is noticed in its round.
        """
        self._write(frame, self._folder / relation / f"kb_round={round_}")
        self._show(relation, self._columns[relation])
        new, total = self._query(
            f"SELECT COUNT_IF(kb_round = {round_}), COUNT(*) FROM {relation}"  # nosec B608
        ).first()
        if total != self._totals[relation] + new:
            raise EngineFault(
                f"round {round_} of {relation} has {counted(new, 'row')}, and the rounds before have "
                f"{total - new} instead of {self._totals[relation]}"
            )
        self._totals[relation] = total
        return int(new)

    def _chunk(self, table: str, columns: str, query: str) -> None:
        """Add the rows of a query to a table that grows by chunks."""
        number = self._chunks.get(table, 0)
        self._write(self._query(query), self._folder / table / f"chunk={number}")
        self._chunks[table] = number + 1
        self._show(table, columns)

    def _restore_chunks(self, folder: Path, columns: str) -> None:
        """Show the complete chunks of a table; remove one that was being written."""
        for path in folder.iterdir():
            if not (path / "_SUCCESS").exists():
                shutil.rmtree(path)
        numbers = [int(path.name.partition("=")[2]) for path in folder.iterdir()]
        self._chunks[folder.name] = max(numbers, default=-1) + 1
        self._show(folder.name, columns)

    def _temporary(self, name: str, query: str) -> str:
        """Write the rows of a query to files of their own, once; return the name of their view."""
        path = self._folder / name
        shutil.rmtree(path, ignore_errors=True)
        self._write(self._query(query), path)
        self._attempt(lambda: self._session.read.parquet(str(path)).createOrReplaceTempView(name))
        return name

    def _show(self, name: str, columns: str) -> None:
        """Make the files of a table, as they are now, the view of its name."""
        path = self._folder / name
        path.mkdir(exist_ok=True)
        self._attempt(
            lambda: (
                self._session.read.schema(columns)
                .option("basePath", str(path))
                .parquet(str(path))
                .createOrReplaceTempView(name)
            )
        )

    def _write(self, frame: Any, path: Path) -> None:
        self._attempt(lambda: frame.write.mode("overwrite").parquet(str(path)))

    def _frame(self, rows: Sequence[tuple[Any, ...]], columns: str) -> Any:
        return self._attempt(lambda: self._session.createDataFrame(list(rows), columns))

    def _count(self, query: str) -> int:
        return int(self._attempt(lambda: self._query(query).first()[0]))

    def _query(self, query: str) -> Any:
        return self._attempt(lambda: self._session.sql(query))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        """Return the result of an action of Spark, with errors of ours in place of its own."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if self._cancelled:
            raise Cancelled("the bulk run was stopped")
        try:
            return action()
        except (PySparkException, Py4JError) as error:
            if self._cancelled:
                raise Cancelled("the bulk run was stopped") from error
            raise EngineFault(f"Spark: {_message(error)}") from error


def _call_columns(count: int) -> str:
    """Return the columns of the table of a function with this many arguments."""
    return "".join(f"c{index} BIGINT, " for index in range(count)) + "value BIGINT"


def _constants(plan: BulkPlan) -> dict[str, int]:
    return {text: index for index, text in enumerate(plan.constants, 1)}


def _numbers() -> str:
    """Return the columns of the number that a text is."""
    from sqlglot import exp

    from kbplugins.bulk_sql.values import SPARK, number_columns

    return ", ".join(map(SPARK.text, number_columns(exp.column("text", table="n"), SPARK)))


def _function(name: str) -> Callable[..., str | None]:
    """Return a function of the language for workers, which import kbcore to call it."""
    if name == "matches":
        return lambda text, pattern: str(int(matches(compile_pattern(pattern), text)))
    return lambda *args: compute(name, args)


def _generator(name: str) -> Callable[..., list[str]]:
    """Return a generator of the language for workers; without values a call has an empty list."""
    return lambda *args: list(generate(name, args) or ())


def _finished(raw: str | None) -> str | None:
    from kbplugins.bulk_sql.values import finished

    return None if raw is None else finished(raw)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _message(error: Exception) -> str:
    """Return the first line of an error, or the last line of what a Python worker raised."""
    lines = str(getattr(error, "java_exception", None) or error).splitlines()
    traceback = [line for line in lines if line.startswith("  File ")]
    raised = lines[lines.index(traceback[-1]) + 1 :] if traceback else lines
    return next((line for line in raised if line and not line.startswith(" ")), lines[0])


@hookimpl
def kb_bulk_engines() -> Mapping[str, BulkDatabase]:
    """Offer `spark`."""
    return {"spark": SparkDatabase()}
