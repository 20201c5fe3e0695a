"""Answers of a query: tuples, dicts by variable name, or rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload
from urllib.parse import unquote

from kbcore_client import frames
from kbcore_client.errors import InvalidInput, NotFound, NotUnique
from kbtypes import markup
from kbtypes.values import (
    Arg,
    Row,
    checked_values,
    columns,
    python_value,
    read_atom,
    variables_of,
    written_atom,
)

SHOWN = 10
"""Number of answers in the representation of answers."""


class AnswerSet(Sequence[tuple[Any, ...]]):
    """Answers of a query, in answer order, as of the time when it was asked.

    A sequence of tuples: of all arguments for a goal of one atom, and of the values of the
    variables, in order of appearance, for a goal of several literals.
    """

    __slots__ = ("_args", "_as_python", "_goal", "_rows", "_tuples", "unknown", "warnings")

    def __init__(
        self,
        rows: list[Row],
        goal: str,
        args: Sequence[Arg] | None,
        values: str = "text",
        unknown: str | None = None,
        warnings: int = 0,
    ) -> None:
        self._as_python = checked_values(values)
        self._rows = rows
        self._goal = goal
        self._args = args
        self._tuples: list[tuple[Any, ...]] | None = None
        self.unknown: list[str] = [unquote(each) for each in unknown.split(", ")] if unknown else []
        """Predicates of the query that had no fact and no rule, as `name/arity`."""
        self.warnings = warnings
        """Number of times that a function or an aggregate had no value, such as a division by zero
        or a whole number beyond 64 bits. Whether it is zero does not depend on the order of
        evaluation.
        """

    @property
    def goal(self) -> str:
        """The goal or pattern as text."""
        return self._goal if self._args is None else written_atom(self._goal, self._args)

    @property
    def columns(self) -> Mapping[str, int]:
        """The named variables of the query with their index in an answer."""
        if self._rows and "bindings" in self._rows[0]:
            return columns(name.removeprefix("?") for name in self._rows[0]["bindings"])
        if self._args is not None:
            names = [str(arg)[1:] if str(arg).startswith("?") else None for arg in self._args]
            return columns(name or None for name in names)
        atom = read_atom(self._goal)
        if atom is not None:
            return columns(atom.variables)
        if not self._rows:
            return columns(variables_of(self._goal))
        raise InvalidInput.at("goal", "has no readable variables; pass the arguments as a list")

    def count(self, value: Any = ...) -> int:
        """Return the number of answers; with `value`, the number of answers equal to that tuple."""
        return len(self._rows) if value is ... else self._all().count(value)

    def one(self) -> tuple[Any, ...]:
        """Return the only answer; raises NotFound or NotUnique if there is not exactly one."""
        number = len(self._rows)
        if number == 1:
            return self._all()[0]
        goal = self.goal
        if not number:
            hint = f"; no fact or rule for {', '.join(self.unknown)}" if self.unknown else ""
            raise NotFound(f"{goal} has no answer{hint}", {"goal": goal})
        details = {"goal": goal, "count": number}
        raise NotUnique(f"{goal} has {number} answers, expected one", details)

    def dicts(self) -> list[dict[str, Any]]:
        """Return the answers as dicts from variable names, without question mark, to values.

        `_` has no name. A query without variables has one empty dict if it holds.
        """
        indexes = list(self.columns.items())
        return [{name: answer[index] for name, index in indexes} for answer in self._all()]

    def rows(self) -> list[Row]:
        """Return the answers as dicts with the keys of the HTTP interface; all values are texts.

        Of a goal of several literals a row has the values of the variables by name.
        """
        if self._rows and "bindings" in self._rows[0]:
            return [
                {name.removeprefix("?"): value for name, value in row["bindings"].items()}
                for row in self._rows
            ]
        return self._rows

    def to_arrow(self) -> Any:
        """Return the answers as a table of pyarrow with a column for each variable.

        With `values="python"` a column has numbers or booleans if all its values are; otherwise it
        has texts. A query without variables has one column, `holds`. Raises NotInstalled.
        """
        return frames.library("pyarrow").table(frames.columns_of(self._all(), self.columns))

    def to_pandas(self) -> Any:
        """Return the answers as a data frame of pandas; the columns are those of `to_arrow`."""
        return frames.library("pandas").DataFrame(frames.columns_of(self._all(), self.columns))

    def to_polars(self) -> Any:
        """Return the answers as a data frame of polars; the columns are those of `to_arrow`."""
        return frames.library("polars").DataFrame(frames.columns_of(self._all(), self.columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns of `to_arrow` as a capsule of the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the answers as a table for notebooks."""
        indexes = self.columns
        rows = [[answer[index] for index in indexes.values()] for answer in self._all()]
        return markup.answers(self.goal, list(indexes), rows, len(self))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Any, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[Any, ...] | list[tuple[Any, ...]]:
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AnswerSet | list | tuple):
            return NotImplemented
        return self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = len(self) - SHOWN
        first = repr(self[:SHOWN])
        return f"AnswerSet({first})" if more <= 0 else f"AnswerSet({first[:-1]}, ... {more} more])"

    def _all(self) -> list[tuple[Any, ...]]:
        if self._tuples is None:
            texts = (
                row["bindings"].values() if "bindings" in row else row["args"] for row in self._rows
            )
            if self._as_python:
                self._tuples = [tuple(map(python_value, values)) for values in texts]
            else:
                self._tuples = [tuple(values) for values in texts]
        return self._tuples
