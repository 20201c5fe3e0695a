"""Answers as tables of pyarrow, pandas and polars, and rows of facts from such tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

from kbcore_client.errors import InvalidInput, NotInstalled
from kbtypes.values import Arg

BATCH_ROWS = 50_000
"""Facts of a table that are stored together."""


def library(name: str) -> Any:
    """Return an optional library; raise NotInstalled."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        extra = {"pyarrow": "arrow"}.get(name, name)
        raise NotInstalled(
            f"this needs {name}, which is not installed: pip install 'kbcore-client[{extra}]'"
        ) from None


def columns_of(
    answers: Sequence[tuple[Any, ...]], indexes: Mapping[str, int]
) -> dict[str, list[Any]]:
    """Return the columns of the variables; without variables one column, `holds`.

    A column has numbers or booleans only if all its values are; otherwise all are texts.
    """
    if not indexes:
        return {"holds": [True] * min(1, len(answers))}
    table = {name: [answer[index] for answer in answers] for name, index in indexes.items()}
    return {name: _uniform(values) for name, values in table.items()}


def batches_of(frame: Any) -> Iterator[list[tuple[Arg, ...]]]:
    """Yield the rows of a table in batches; raise InvalidInput for a missing value.

    Dates, times, decimals and UUIDs become texts in their standard form.

    A table is a data frame of pandas or polars, a table of pyarrow, or any other object with the
    Arrow C stream interface.
    """
    batch: list[tuple[Arg, ...]] = []
    for number, row in enumerate(_rows_of(frame)):
        batch.append(tuple(_value(value, number, index) for index, value in enumerate(row)))
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows_of(frame: Any) -> Iterator[tuple[Any, ...]]:
    if hasattr(frame, "itertuples"):  # pandas
        yield from frame.itertuples(index=False, name=None)
    elif hasattr(frame, "iter_rows"):  # polars
        yield from frame.iter_rows()
    elif hasattr(frame, "__arrow_c_stream__"):
        reader = library("pyarrow").RecordBatchReader.from_stream(frame)
        for part in reader:
            yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
    else:
        kind = type(frame).__name__
        raise InvalidInput.at("frame", f"must be a data frame or an Arrow table, found {kind}")


def _value(value: Any, row: int, column: int) -> Arg:
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if _is_missing(value):
        value = None
    elif isinstance(value, date | time):
        return value.isoformat()
    elif isinstance(value, Decimal):
        return f"{value:f}"
    elif isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str | int | float):
        problem = "is missing" if value is None else f"is a {type(value).__name__}"
        raise InvalidInput.at(
            "frame", f"row {row}, column {column} {problem}; facts hold texts, numbers and booleans"
        )
    return value


def _is_missing(value: Any) -> bool:
    """Return True for None, infinities, and the values of pandas and Python that are not
    themselves.
    """
    if isinstance(value, float | Decimal):
        return not math.isfinite(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _uniform(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds == {bool} or kinds <= {str}:
        return [float(value) for value in values] if len(kinds) == 2 else values
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)
