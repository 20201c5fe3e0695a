"""Tables of answers: from symbols, or from rows with their details.

A table has a column for each variable, and further columns only where an answer has a value for
them: `scope`, `negated`, `confidence` and `metadata`, which is JSON text. A table without any
column gets the column `holds`, which is true in each row.

Functions that take rows also take `paced`, which wraps loops over them: `Budget.paced` lets other
requests run between rows.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeAlias

from kbcore.columns.answer_table import AnswerTable
from kbcore.state.facts import Row
from kbplanner.engine.backend import Engine
from kbplanner.engine.columns import ArrowColumn, Column, column_of, encoded
from kbplanner.ir.terms import Atom, Variable
from kbplanner.ir.values.numbers import number

HOLDS = "holds"

Paced: TypeAlias = "Callable[[Iterable[Any]], Iterable[Any]]"

_BOOLEANS = {"true": True, "false": False}
_EXACT = range(-(1 << 53), (1 << 53) + 1)
"""Integers that are exact as 64-bit floating-point numbers."""


def variable_columns(atom: Atom) -> dict[str, int]:
    """Return the named variables of an atom, each with the index of its first occurrence."""
    columns: dict[str, int] = {}
    for index, arg in enumerate(atom.args):
        if isinstance(arg, Variable) and not arg.anonymous:
            columns.setdefault(arg.name, index)
    return columns


def table_of_symbols(
    engine: Engine,
    symbols: array[int],
    count: int,
    arity: int,
    variables: Mapping[str, int],
    *,
    further: Iterable[ArrowColumn] = (),
    typed: bool = False,
) -> AnswerTable:
    """Return flat rows of symbols as a table, with further columns behind those of the variables.

    With `typed` a column of numbers has a numeric type and a column of booleans is boolean.
    """
    columns = [
        _values(name, column_of(engine, symbols, index, arity), typed)
        for name, index in variables.items()
    ]
    return _table(columns, further, count)


def table_of_tuples(
    tuples: Sequence[Sequence[str]],
    variables: Mapping[str, int],
    *,
    further: Iterable[ArrowColumn] = (),
    typed: bool = False,
    paced: Paced = iter,
) -> AnswerTable:
    """Return tuples of texts as a table, like `table_of_symbols`."""
    columns = [
        _values(name, encoded(values[index] for values in paced(tuples)), typed)
        for name, index in variables.items()
    ]
    return _table(columns, further, len(tuples))


def table_of_rows(
    rows: Sequence[Row],
    variables: Mapping[str, int],
    *,
    scoped: bool = False,
    typed: bool = False,
    paced: Paced = iter,
) -> AnswerTable:
    """Return answer rows as a table with their details; `scoped` adds the scope of each."""
    further = []
    if scoped:
        further.append(_optional_text("scope", [row["scope"] for row in paced(rows)]))
    negated = [row["negated"] for row in paced(rows)]
    if any(negated) and not all(negated):
        further.append(_flags("negated", negated))
    confidences = [row["confidence"] for row in paced(rows)]
    if any(value is not None for value in confidences):
        further.append(_optional_real("confidence", confidences))
    metadata = [row["metadata"] for row in paced(rows)]
    if any(metadata):
        texts = [_json(each) if each else None for each in paced(metadata)]
        further.append(_optional_text("metadata", texts))
    arguments = [row["args"] for row in paced(rows)]
    return table_of_tuples(arguments, variables, further=further, typed=typed, paced=paced)


def scope_column(scopes: Iterable[tuple[str | None, int]]) -> ArrowColumn:
    """Return the column of the scopes of answers, given for consecutive answers with their
    number.
    """
    listed = chain.from_iterable(repeat(scope, size) for scope, size in scopes)
    return _optional_text("scope", list(listed))


def sign_column(positive: int, negative: int) -> ArrowColumn:
    """Return the column `negated` of positive facts before explicit negatives."""
    return _flags("negated", [False] * positive + [True] * negative)


def metadata_column(metadata: Mapping[str, Any], count: int) -> ArrowColumn:
    """Return the column of the metadata that all answers share."""
    return _optional_text("metadata", [_json(metadata)] * count)


def _table(columns: list[ArrowColumn], further: Iterable[ArrowColumn], count: int) -> AnswerTable:
    for column in further:
        columns.append((_unused(column[0], columns), *column[1:]))
    return AnswerTable(columns or [_flags(HOLDS, [True] * count)], count)


def _values(name: str, column: Column, typed: bool) -> ArrowColumn:
    """Return a column of texts, or with `typed` of the type that they all have."""
    return (typed and _typed(name, column.texts(), column.codes)) or column.arrow(name)


def _unused(name: str, columns: Iterable[ArrowColumn]) -> str:
    """Return a column name with as many underscores appended as make it differ from the others."""
    names = {column[0] for column in columns}
    while name in names:
        name += "_"
    return name


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _flags(name: str, flags: Sequence[bool]) -> ArrowColumn:
    return name, "b", False, 0, (None, _bitmap(flags)), None


def _bitmap(flags: Sequence[bool]) -> bytes:
    """Return one bit for each flag, the first as the lowest bit of the first byte."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits or "0", 2).to_bytes((len(flags) + 7) // 8, "little")


def _optional_text(name: str, values: Sequence[str | None]) -> ArrowColumn:
    """Return a column of texts, dictionary-encoded, where None is null."""
    column = encoded([value or "" for value in values])
    _, format, _, _, (_, codes), dictionary = column.arrow(name)
    nulls = sum(value is None for value in values)
    valid = _bitmap([value is not None for value in values]) if nulls else None
    return name, format, True, nulls, (valid, codes), dictionary


def _optional_real(name: str, values: Sequence[float | None]) -> ArrowColumn:
    """Return a column of 64-bit floating-point numbers, where None is null."""
    cells = array("d", [value or 0.0 for value in values]).tobytes()
    nulls = sum(value is None for value in values)
    valid = _bitmap([value is not None for value in values]) if nulls else None
    return name, "g", True, nulls, (valid, cells), None


def _typed(name: str, texts: Sequence[str], codes: bytearray) -> ArrowColumn | None:
    """Return a column as integers, floating-point numbers or booleans, if all texts are such."""
    if not texts:
        return None
    rows = array("I", bytes(codes))
    if all(text in _BOOLEANS for text in texts):
        flags = [_BOOLEANS[text] for text in texts]
        return _flags(name, [flags[code] for code in rows])
    values = [value for value in map(number, texts) if value is not None]
    if len(values) < len(texts):
        return None
    if all(isinstance(value, int) for value in values):
        cells = array("q", [int(values[code]) for code in rows])
        return name, "l", False, 0, (None, cells.tobytes()), None
    if all(isinstance(value, float) or value in _EXACT for value in values):
        reals = array("d", [values[code] for code in rows])
        return name, "g", False, 0, (None, reals.tobytes()), None
    return None
