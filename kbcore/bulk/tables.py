"""Facts as tables: files read as facts in bulk form, and facts of a knowledge base as files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kbcore.bulk.files import TableName
from kbcore.errors import InvalidInput
from kbcore.language.csv_rows import BATCH_ROWS
from kbcore.language.files import plain_rows
from kbcore.plug.ports import TableFormat
from kbcore.state.facts import FactRows
from kbplanner.ir.terms import Atom
from kbplanner.passes.check import check_fact
from kbplanner.syntax.diagnostics import counted


def table_facts(
    formats: Mapping[str, TableFormat], path: Path, table: TableName, scope: str | None = None
) -> Iterator[FactRows]:
    """Yield the facts of a file in batches; the ending of its name tells the format.

    Raises InvalidInput naming the file for what cannot be a fact, ConfigError.
    """
    for rows in formats[path.suffix.removeprefix(".")].read(str(path)):
        if rows and table.arity not in (None, len(rows[0])):
            raise InvalidInput(
                f"{path}: the name says {counted(table.arity, 'argument')}, but the file has {len(rows[0])}"
            )
        for start in range(0, len(rows), BATCH_ROWS):
            yield _facts(path, table, rows[start : start + BATCH_ROWS], scope)


def _facts(
    path: Path, table: TableName, rows: Collection[tuple[str, ...]], scope: str | None
) -> FactRows:
    predicate = table.predicate
    group = plain_rows(predicate, list(rows), scope)
    if group is None:
        for row in rows:
            try:
                check_fact(Atom(predicate, row))
            except InvalidInput as error:
                raise InvalidInput(f"{path}: {error.message}", error.details) from error
        arity = len(next(iter(rows)))
        group = FactRows(predicate, arity, [arg for row in rows for arg in row], scope=scope)
    return replace(group, positive=table.positive)


def table_names(
    signatures: Iterable[tuple[str, bool, int]],
) -> dict[tuple[str, bool, int], TableName]:
    """Return the table of each predicate, sign and arity, with the arity in the name where one
    predicate has several.
    """
    arities: dict[TableName, set[int]] = {}
    chosen = list(dict.fromkeys(signatures))
    for predicate, positive, arity in chosen:
        arities.setdefault(TableName(predicate, positive), set()).add(arity)
    tables = {}
    for predicate, positive, arity in chosen:
        table = TableName(predicate, positive)
        tables[predicate, positive, arity] = (
            table if len(arities[table]) == 1 else replace(table, arity=arity)
        )
    return tables
