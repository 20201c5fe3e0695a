"""Conversion of Python values to terms, times and numbers, with errors that name the argument."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.intervals import RESERVED_KEYS
from kbcore.timestamps import duration as parsed_duration
from kbcore.timestamps import instant as parsed
from kbcore.timestamps import seconds_warning
from kbplanner.ir.limits import DEFAULT_LIMITS, metadata_problem
from kbplanner.ir.terms import Atom, Term, Variable
from kbplanner.passes.check import check_fact
from kbplanner.syntax.jsonform import args_from_json
from kbplanner.syntax.textform import atom_from_text
from kbtypes.episodes import Evidences
from kbtypes.values import Arg, Duration, Instant, plain

MAX_WHOLE = 2**53 - 1
"""The largest whole number of an argument, as in JSON."""


@contextmanager
def named(**names: str) -> Iterator[None]:
    """Let errors name arguments as Python does: `names` has the argument for a field of JSON."""
    try:
        yield
    except InvalidInput as error:
        fields = (error.details or {}).get("fields", {})
        if not names.keys() & fields.keys():
            raise
        message = error.message
        for name, argument in names.items():
            if message.startswith(f"{name}: "):
                message = argument + message.removeprefix(name)
        renamed = {names.get(name, name): problems for name, problems in fields.items()}
        raise InvalidInput(message, {**(error.details or {}), "fields": renamed}) from None


def text(name: str, value: str) -> str:
    """Return the argument `name`, a text; raise InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput.at(name, f"must be a text, found {type(value).__name__}")
    return value


def refuse_atom(name: str, predicate: str) -> None:
    """Raise InvalidInput if the argument `name`, to which arguments are given, is a whole atom."""
    if "(" in text(name, predicate):
        raise InvalidInput.at(
            name, f"{predicate!r} has parentheses: a whole atom is given without arguments"
        )


def atom(predicate: str, args: Sequence[Arg] | None) -> tuple[str, list[Term], bool | None]:
    """Return the predicate, arguments and sign of a fact or pattern; without `args`, `predicate` is
    its whole text.

    The sign is False for a text such as `~p(a)`, None otherwise. Raises InvalidInput.
    """
    text("predicate", predicate)
    if args is None:
        read = atom_from_text(predicate, "predicate")
        return (
            read.predicate,
            [arg for arg in read.args if isinstance(arg, (str, Variable))],
            None if read.positive else False,
        )
    refuse_atom("predicate", predicate)
    if problem := DEFAULT_LIMITS.name_problem(predicate):
        raise InvalidInput.at("predicate", problem)
    return predicate, terms(args), None


def fact(predicate: str, args: Sequence[Arg] | None) -> tuple[str, tuple[str, ...], bool]:
    """Return the predicate, arguments and sign of a fact, given as for `atom`; raises
    InvalidInput.
    """
    name, arguments, positive = atom(predicate, args)
    check_fact(Atom(name, tuple(arguments)))
    return name, tuple(term for term in arguments if isinstance(term, str)), positive is not False


def constants(predicate: str, args: Sequence[Arg]) -> tuple[str, ...]:
    """Return the arguments of a fact; raise InvalidInput if an argument is not a constant."""
    return ground(predicate, terms(args))


def ground(predicate: str, arguments: Sequence[Term]) -> tuple[str, ...]:
    """Return the arguments of a fact; raise InvalidInput if an argument is not a constant."""
    check_fact(Atom(predicate, tuple(arguments)))
    return tuple(term for term in arguments if isinstance(term, str))


def terms(args: Sequence[Arg]) -> list[Term]:
    """Return arguments as terms, `?x` as a variable; raise InvalidInput."""
    if isinstance(args, str):
        raise InvalidInput.at("args", "must be a list, not one string")
    return list(args_from_json(list(map(plain, args)), "args"))


def instant(name: str, value: Instant | None) -> int | None:
    """Return the argument `name` in epoch milliseconds, None if it is None; raise InvalidInput."""
    return None if value is None else moment(name, value)


def moment(name: str, value: Instant) -> int:
    """Return the argument `name` in epoch milliseconds; raise InvalidInput."""
    try:
        return read_time(value)
    except ValueError as error:
        raise InvalidInput.at(name, str(error)) from error


def read_time(value: Instant) -> int:
    """Return a point in time in epoch milliseconds; raise ValueError with a message for people.

    Warns of a number that looks like seconds.
    """
    if isinstance(value, timedelta):
        raise ValueError("must be a point in time, not a duration")
    if (warning := seconds_warning(value)) is not None:
        warnings.warn(warning, stacklevel=4)
    return parsed(value.isoformat() if isinstance(value, date) else value)


def duration(name: str, value: Duration | None) -> int | None:
    """Return the argument `name` in milliseconds, None if it is None; raise InvalidInput."""
    if value is None:
        return None
    try:
        if isinstance(value, timedelta):
            return parsed_duration(value // timedelta(milliseconds=1))
        return parsed_duration(value)
    except ValueError as error:
        raise InvalidInput.at(name, str(error)) from None


def positive(name: str, value: int | None) -> int | None:
    """Return the argument `name`, a whole number above 0 or None; raise InvalidInput."""
    if value is not None and (not _is_whole(value) or value <= 0):
        raise InvalidInput.at(name, "must be a whole number of at least 1")
    return _limited(name, value)


def integer(name: str, value: int | None) -> int | None:
    """Return the argument `name`, a whole number from 0 on or None; raise InvalidInput."""
    if value is None or (type(value) is int and 0 <= value <= MAX_WHOLE):
        return value
    if not _is_whole(value) or value < 0:
        raise InvalidInput.at(name, "must be a whole number of at least 0")
    return _limited(name, value)


def flag(name: str, value: bool) -> bool:
    """Return the argument `name`, True or False; raise InvalidInput."""
    if not isinstance(value, bool):
        raise InvalidInput.at(name, "must be True or False")
    return value


def fraction(name: str, value: float | None) -> float | None:
    """Return the argument `name`, a number from 0 to 1 or None; raise InvalidInput."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= 1):
        raise InvalidInput.at(name, "must be a number from 0 to 1")
    return value


def metadata(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the argument `name`, a JSON object, empty for None; raise InvalidInput."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput.at(name, "must be a dict")
    if not RESERVED_KEYS.isdisjoint(value):
        raise InvalidInput.at(name, "has a reserved key; evidence is an argument of its own")
    if problem := metadata_problem(value):
        raise InvalidInput.at(name, problem)
    return dict(value)


def evidence(name: str, value: Evidences) -> tuple[Evidence, ...]:
    """Return the argument `name`, spans of episodes; raise InvalidInput.

    A span is the id of a whole episode, or an id with two offsets.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput.at(name, "must be a list of spans")
    spans = []
    for index, each in enumerate(value):
        field = f"{name}[{index}]"
        parts = (each,) if isinstance(each, str) else each
        is_span = isinstance(parts, tuple | list) and len(parts) in (1, 3)
        episode, *offsets = parts if is_span else (None,)
        if not isinstance(episode, str):
            raise InvalidInput.at(field, "must be the id of an episode, or (id, start, end)")
        for offset in offsets:
            integer(field, offset)
        spans.append(Evidence(episode, *offsets))
    return tuple(dict.fromkeys(spans))


def _limited(name: str, value: int | None) -> int | None:
    if value is not None and value > MAX_WHOLE:
        raise InvalidInput.at(name, f"must be at most {MAX_WHOLE}")
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
