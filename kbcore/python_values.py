"""Conversion of Python values: terms and times from arguments, answers as tuples and as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.state.facts import Row
from kbcore.timestamps import instant as parsed
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.terms import Aggregate, Atom, Term
from kbplanner.passes.check import check_fact
from kbplanner.syntax.jsonform import args_from_json
from kbplanner.syntax.textform import atom_from_text

Arg = str | int | float | bool


class AnswerSet(Sequence[tuple[str, ...]]):
    """Answers as tuples of names, in answer order; `rows()` returns them with all their attributes."""

    def __init__(self, tuples: list[tuple[str, ...]], rows: Callable[[], list[Row]]) -> None:
        self._tuples = tuples
        self._rows = rows

    def rows(self) -> list[Row]:
        """Return the answers as dicts with the keys of the HTTP interface; runs the query again."""
        return self._rows()

    def __len__(self) -> int:
        return len(self._tuples)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._tuples)

    def __getitem__(self, index: Any) -> Any:
        return self._tuples[index]

    def __eq__(self, other: object) -> bool:
        return (
            list(self) == list(other)
            if isinstance(other, (AnswerSet, list, tuple))
            else NotImplemented
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AnswerSet({self._tuples!r})"


def atom(predicate: str, args: Sequence[Arg] | None) -> tuple[str, list[Term], bool | None]:
    """Return the predicate, arguments and sign of a fact or pattern; without `args`, `predicate` is its whole text.

    The sign is False for a text such as `~p(a)`, None otherwise. Raises InvalidInput.
    """
    if args is None:
        read = atom_from_text(predicate, "predicate")
        return (
            read.predicate,
            [arg for arg in read.args if not isinstance(arg, Aggregate)],
            None if read.positive else False,
        )
    if problem := DEFAULT_LIMITS.name_problem(predicate):
        raise InvalidInput.at("predicate", problem)
    return predicate, terms(args), None


def fact(predicate: str, args: Sequence[Arg] | None) -> tuple[str, tuple[str, ...], bool]:
    """Return the predicate, arguments and sign of a fact, given as for `atom`; raises InvalidInput."""
    name, arguments, positive = atom(predicate, args)
    check_fact(Atom(name, tuple(arguments)))
    return name, tuple(term for term in arguments if isinstance(term, str)), positive is not False


def constants(predicate: str, args: Sequence[Arg]) -> tuple[str, ...]:
    """Return the arguments of a fact; raise InvalidInput if an argument is not a constant."""
    arguments = terms(args)
    check_fact(Atom(predicate, tuple(arguments)))
    return tuple(term for term in arguments if isinstance(term, str))


def terms(args: Sequence[Arg]) -> list[Term]:
    """Return arguments as terms, `?x` as a variable; raise InvalidInput."""
    if isinstance(args, str):
        raise InvalidInput.at("args", "must be a list, not one string")
    return list(args_from_json(list(args), "args"))


def instant(name: str, value: int | str | datetime | None) -> int | None:
    """Return the argument `name` in epoch milliseconds, None if it is None; raise InvalidInput."""
    return None if value is None else moment(name, value)


def moment(name: str, value: int | str | datetime) -> int:
    """Return the argument `name` in epoch milliseconds; raise InvalidInput."""
    try:
        return parsed(value.isoformat() if isinstance(value, datetime) else value)
    except ValueError as error:
        raise InvalidInput.at(name, str(error)) from error
