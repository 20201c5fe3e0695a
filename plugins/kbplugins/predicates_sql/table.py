"""The rows of a table for batches of inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice

from kbcore.errors import NotReady
from kbcore.plug.ports import PredicateCall, PredicateValue
from kbplugins.predicates_sql.databases import (
    INTEGER,
    NUMBER,
    OTHER,
    SqlDatabase,
    column_of,
    comparable,
    table_of,
)

MAX_VALUES = 500
"""Values in one statement."""


class Table:
    """Columns of a table or view as a relation. Rows with NULL in one of them are left out."""

    def __init__(self, database: SqlDatabase, table: str, columns: Sequence[str]) -> None:
        self._database = database
        self._table = table
        self._columns = tuple(columns)

    def rows(self, call: PredicateCall) -> Iterator[list[PredicateValue]]:
        """Yield the distinct rows for the inputs of a call; raises NotReady at its time limit."""
        until = time.monotonic() + call.seconds
        with self._database.connection(call.seconds) as connection:
            kinds = self._database.kinds(connection, self._table, self._columns)
            sides = [
                self._database.as_text(column_of(column)) if kind == OTHER else column_of(column)
                for column, kind in zip(self._columns, kinds, strict=True)
            ]
            query = f"SELECT DISTINCT {', '.join(sides)} FROM {table_of(self._table)}"  # nosec B608
            places = [index for index, use in enumerate(call.mode) if use == "in"]
            inputs = [(sides[index], kinds[index]) for index in places]
            asked = (
                values
                for values in call.inputs()
                if all(
                    comparable(kind, text) for (_, kind), text in zip(inputs, values, strict=True)
                )
            )
            size = max(MAX_VALUES // max(len(inputs), 1), 1)
            while batch := list(islice(asked, size)):
                if time.monotonic() > until:
                    raise NotReady("the database took too long")
                condition, values = self._condition(inputs, batch)
                for row in self._database.query(connection, query + condition, values):
                    if None not in row:
                        yield [_value(value) for value in row]

    def _condition(
        self, inputs: Sequence[tuple[str, str]], batch: Sequence[Sequence[str]]
    ) -> tuple[str, list[object]]:
        """Return the condition for a batch of inputs, and its values.

        `inputs` are the expressions and the kinds of the columns that they are compared with.
        """
        mark = self._database.placeholder
        values = [
            _parameter(kind, text)
            for each in batch
            for (_, kind), text in zip(inputs, each, strict=True)
        ]
        if not inputs:
            return "", []
        if len(inputs) == 1:
            return f" WHERE {inputs[0][0]} IN ({', '.join([mark] * len(batch))})", values
        every = " AND ".join(f"{side} = {mark}" for side, _ in inputs)
        return f" WHERE {' OR '.join([f'({every})'] * len(batch))}", values


def _parameter(kind: str, text: str) -> object:
    """Return an input as a value of the kind of its column."""
    return int(text) if kind == INTEGER else Decimal(text) if kind == NUMBER else text


def _value(value: object) -> PredicateValue:
    """Return a value of a column as one that a row can have."""
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value() and abs(value) < 10**18
        return int(value) if whole else format(value.normalize(), "f")
    return str(value)
