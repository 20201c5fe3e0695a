"""Answers of a query for Python programs: tuples, dicts by variable name, or rows, made when
read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias, overload
from typing import Literal as OneOf

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.build import table_of_rows, table_of_tuples
from kbcore.columns.symbol_answers import CHUNK, SymbolAnswers
from kbcore.errors import InvalidInput, NotFound, NotUnique
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import Row, conclusion
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.ir.values.numbers import python_number
from kbplanner.syntax.printer import print_item

Value: TypeAlias = "str | int | float | bool"
"""A value in an answer: a text, or with `values="python"` also a number or a boolean."""

Values = OneOf["text", "python"]
"""The form of values in answers: all as texts, or numbers and booleans as Python has them."""

ALL_VALUES = ("text", "python")

SHOWN = 10
"""Number of answers in the representation of an answer set."""

_BOOLEANS = {"true": True, "false": False}


Convert: TypeAlias = "Callable[[str], Any]"
"""A function from the text of a value to the value."""


class Tuples(Protocol):
    """Answers that are converted to tuples when they are read.

    `convert` replaces each text; None leaves the texts. `warnings` is how often a function or an
    aggregate had no value.
    """

    warnings: int

    def __len__(self) -> int:
        """Return the number of answers."""

    def converted(
        self, convert: Convert | None, start: int = 0, stop: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return some of the answers, in answer order."""

    def chunks(self, convert: Convert | None = None) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all answers, some at a time."""

    def table(
        self, variables: Mapping[str, int], *, scoped: bool = False, typed: bool = False
    ) -> AnswerTable:
        """Return a table of the answers with the columns of these variables."""


class TupleList:
    """Answers that are tuples already."""

    def __init__(self, tuples: list[tuple[str, ...]], warnings: int = 0) -> None:
        self._tuples = tuples
        self.warnings = warnings

    def __len__(self) -> int:
        return len(self._tuples)

    def converted(
        self, convert: Convert | None, start: int = 0, stop: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return some of the answers."""
        part = self._tuples[start:stop]
        return part if convert is None else [tuple(map(convert, answer)) for answer in part]

    def chunks(self, convert: Convert | None = None) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all answers, some at a time."""
        for start in range(0, len(self), CHUNK):
            yield self.converted(convert, start, start + CHUNK)

    def table(
        self, variables: Mapping[str, int], *, scoped: bool = False, typed: bool = False
    ) -> AnswerTable:
        """Return the answers as a table; the scopes are not known."""
        return table_of_tuples(self._tuples, variables, typed=typed)


class RowTuples(TupleList):
    """The tuples of rows."""

    def __init__(self, rows: list[Row], warnings: int = 0) -> None:
        super().__init__([tuple(row["args"]) for row in rows], warnings)
        self.rows = rows

    def table(
        self, variables: Mapping[str, int], *, scoped: bool = False, typed: bool = False
    ) -> AnswerTable:
        """Return the rows as a table, with confidence and metadata if some row has them."""
        return table_of_rows(self.rows, variables, scoped=scoped, typed=typed)


class LazyQuery(ABC):
    """A query whose answers an answer set holds: what the set computes only when asked for it."""

    __slots__ = ("_kb", "_scope")

    def __init__(self, kb: TenantKB, scope: str | None) -> None:
        self._kb = kb
        self._scope = scope

    @abstractmethod
    def body(self) -> Sequence[BodyItem]:
        """Return the items of the goal."""

    @abstractmethod
    def columns(self) -> Mapping[str, int]:
        """Return the named variables with their index in an answer."""

    @abstractmethod
    def rows(self, answers: Tuples) -> list[Row]:
        """Return the answers with the details of now."""

    def table(self, answers: Tuples, *, typed: bool) -> AnswerTable:
        """Return the answers as a table, with the scope of each if the query reads all scopes."""
        return answers.table(self.columns(), scoped=self._scope == ALL_SCOPES, typed=typed)

    def text(self) -> str:
        """Return the goal as text."""
        return ", ".join(map(print_item, self.body()))

    def unknown(self) -> list[str]:
        """Return the predicates that have no fact and no rule now."""
        atoms = [item.atom for item in self.body() if isinstance(item, Literal)]
        signatures = [(atom.predicate, atom.arity) for atom in atoms]
        return list(map(str, self._kb.unknown_predicates(signatures, self._scope)))


class AnswerSet(Sequence[tuple[Any, ...]]):
    """Answers of a query, in answer order, as of the time when it was asked.

    The set is a sequence of tuples. Only answers that are read become Python objects, so that
    `len()` of a million answers is cheap.
    """

    __slots__ = ("_answers", "_as_python", "_query")

    def __init__(self, answers: Tuples, query: LazyQuery, values: Values = "text") -> None:
        if values not in ALL_VALUES:
            raise InvalidInput.at("values", f"must be one of {', '.join(ALL_VALUES)}")
        self._answers = answers
        self._query = query
        self._as_python = values == "python"

    def count(self, value: Any = ...) -> int:
        """Return the number of answers; with `value`, the number of answers equal to that tuple."""
        return len(self) if value is ... else sum(1 for answer in self if answer == value)

    @property
    def unknown(self) -> list[str]:
        """Predicates of the query that have no fact and no rule now, as `name/arity`."""
        return self._query.unknown()

    @property
    def warnings(self) -> int:
        """Number of times that a function or an aggregate had no value, such as a division by zero
        or a whole number beyond 64 bits. Whether it is zero does not depend on the order of
        evaluation.
        """
        return self._answers.warnings

    def one(self) -> tuple[Any, ...]:
        """Return the only answer; raises NotFound or NotUnique if there is not exactly one."""
        count = len(self)
        if count == 1:
            (answer,) = self._tuples(0, 1)
            return answer
        goal = self._query.text()
        if not count:
            unknown = ", ".join(self.unknown)
            hint = f"; no fact or rule for {unknown}" if unknown else ""
            raise NotFound(f"{goal} has no answer{hint}", {"goal": goal})
        raise NotUnique(f"{goal} has {count} answers, expected one", {"goal": goal, "count": count})

    def dicts(self) -> list[dict[str, Any]]:
        """Return the answers as dicts from variable names, without question mark, to values.

        `_` has no name. A query without variables has one empty dict if it holds.
        """
        columns = list(self._query.columns().items())
        return [{name: answer[index] for name, index in columns} for answer in self]

    def rows(self) -> list[Row]:
        """Return the answers as dicts with the keys of the HTTP interface; all values are texts.

        The query runs again for the details: metadata, confidence and validity are those of now.
        An answer that does not hold any more has no details, and `outdated` in its metadata.
        """
        return self._query.rows(self._answers)

    def arrow(self) -> AnswerTable:
        """Return the answers as a table for libraries that read Apache Arrow.

        The table has a column for each variable of the query, in order of appearance: dictionary-
        encoded text, or with `values="python"` numbers and booleans where a whole column has them.
        A query of all scopes adds the column `scope`. Answers read with their details, those of a
        query with `min_confidence`, `include_undefined` or a negated goal, add `confidence` and
        `metadata` (JSON text) if some answer has them. A query without variables has one column,
        `holds`. Raises InvalidInput if the texts of a column have more than 2 GiB.
        """
        return self._query.table(self._answers, typed=self._as_python)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns of `arrow()` as a capsule of the Arrow C stream interface."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        count = len(self._answers)
        if count <= CHUNK:
            return iter(self._tuples(0, count))
        return chain.from_iterable(self._answers.chunks(self._convert))

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Any, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[Any, ...] | list[tuple[Any, ...]]:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            if not chosen:
                return []
            first = min(chosen[0], chosen[-1])
            part = self._tuples(first, max(chosen[0], chosen[-1]) + 1)
            return [part[position - first] for position in chosen]
        position = range(len(self))[index]
        (answer,) = self._tuples(position, position + 1)
        return answer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AnswerSet | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = len(self) - SHOWN
        first = repr(self[:SHOWN])
        return f"AnswerSet({first})" if more <= 0 else f"AnswerSet({first[:-1]}, ... {more} more])"

    @property
    def _convert(self) -> Convert | None:
        return python_value if self._as_python else None

    def _tuples(self, start: int, stop: int) -> list[tuple[Any, ...]]:
        return self._answers.converted(self._convert, start, stop)


def python_value(text: str) -> Value:
    """Return a constant as a Python value: a number or a boolean if it is one, else the text.

    Numbers are those of the rule language: `007` is a text. Whole numbers are exact, whatever their
    length, up to the 4,300 digits that Python reads.
    """
    value = python_number(text)
    return _BOOLEANS.get(text, text) if value is None else value


def current_rows(answers: SymbolAnswers, atom: Atom, rows: list[Row]) -> list[Row]:
    """Return the rows of answers of an atom; `rows` are those that the same query returns now."""
    asked = list(zip(answers.scopes(), answers.tuples(), strict=True))
    known = {(row["scope"], tuple(row["args"])): row for row in rows}
    return (
        rows if list(known) == asked else [known.get(key) or _outdated(atom, *key) for key in asked]
    )


def _outdated(atom: Atom, scope: str | None, args: tuple[str, ...]) -> Row:
    row = conclusion(atom.predicate, atom.positive, list(args), scope)
    row["metadata"]["outdated"] = True
    return row
