"""Bodies that tell facts or take them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import current_app

from kbcore.errors import InvalidInput, TooLarge
from kbcore.loading import bulk_rows
from kbcore.state.facts import Fact, FactRows
from kbplanner.jsonform import atom_from_json
from kbplanner.limits import DEFAULT_LIMITS
from kbplanner.terms import Term, Variable
from kbserver.request_context import runtime
from kbserver.schemas.base import Envelope, atom_terms, sign, wildcards, within
from kbserver.schemas.fields import Reader, anything, flag, fraction, metadata, milliseconds, moment, scope_to_write, text

KEEP_BOTH = "KEEP_BOTH"

_SHOWN_ERRORS = 20

MAX_GROUPS = 256
"""Relations of one bulk body that are gathered each by itself."""

_TURN = 1000
"""Elements read before others have their turn."""

_ATOM: dict[str, Reader] = {"predicate": anything, "args": anything}
_SIGN: dict[str, Reader] = {"negated": flag, "truthVal": flag}
_FACT: dict[str, Reader] = {
    **_ATOM,
    **_SIGN,
    "scope": scope_to_write,
    "ttl": milliseconds,
    "validFrom": moment,
    "validUntil": moment,
    "confidence": fraction,
    "metadata": metadata,
    "createdAt": anything,
}

_fact = Envelope("Fact", _FACT, required=_ATOM)
_tell = Envelope("Tell", {**_FACT, "conflictStrategy": text}, required=_ATOM)
_bulk = Envelope("Bulk", {"facts": anything, "conflictStrategy": text}, required=("facts",))
_retract = Envelope("Retract", {**_ATOM, **_SIGN, "scope": scope_to_write}, required=_ATOM)


@dataclass(frozen=True, slots=True)
class Told:
    """Facts to assert, and what happens where the opposite is stored; `rows` are facts with nothing beside arguments."""

    facts: list[Fact]
    conflict: str
    rows: tuple[FactRows, ...] = ()


@dataclass(frozen=True, slots=True)
class Retraction:
    """A fact, or a pattern of facts, to take back; `positive` is None for both signs."""

    predicate: str
    args: tuple[Term, ...]
    positive: bool | None
    scope: str | None

    @property
    def constants(self) -> tuple[str, ...]:
        """The arguments of a fact."""
        return tuple(arg for arg in self.args if isinstance(arg, str))


def one_fact(data: dict[str, Any], *, strict: bool) -> Told:
    """Read the body of /assert/fact."""
    found = _tell.load(data, strict)
    return Told([_fact_of(found)], found.get("conflictStrategy", KEEP_BOTH))


def many_facts(data: dict[str, Any], *, strict: bool) -> Told:
    """Read the body of /assert/facts; an error names the element and its field."""
    found = _bulk.load(data, strict)
    elements = found.get("facts")
    if type(elements) is not list:
        raise InvalidInput.at("facts", "must be an array of facts")
    limit = runtime().config.max_bulk_facts
    if len(elements) > limit:
        raise TooLarge(
            f"one request asserts at most {limit} facts, this one has {len(elements)}",
            {"limit": "MAX_BULK_FACTS", "value": limit},
        )
    conflict = found.get("conflictStrategy", KEEP_BOTH)
    if conflict == KEEP_BOTH and (rows := _plain_rows(elements)):
        return Told([], conflict, rows)
    facts: list[Fact] = []
    fields: dict[str, list[str]] = {}
    pause = current_app.extensions["kbcore.pause"]
    for index, element in enumerate(elements):
        if index % _TURN == _TURN - 1:
            pause()
        try:
            facts.append(_element(element, strict))
        except InvalidInput as error:
            fields.update((within(error, f"facts[{index}]").details or {})["fields"])
            if len(fields) >= _SHOWN_ERRORS:
                break
    if fields:
        first = next(iter(fields))
        raise InvalidInput(f"{first}: {fields[first][0]}; nothing was stored", {"fields": fields})
    return Told(facts, conflict)


def fact_to_retract(data: dict[str, Any], *, strict: bool) -> Retraction:
    """Read the body of /retract: one fact."""
    found = _retract.load(data, strict)
    atom = atom_from_json({"predicate": found.get("predicate"), "args": found.get("args")})
    for index, arg in enumerate(atom.args):
        if isinstance(arg, Variable):
            raise InvalidInput.at(
                f"args[{index}]", "a variable names no single fact; POST /retract/pattern takes back all that match"
            )
    args = tuple(arg for arg in atom.args if isinstance(arg, str))
    return Retraction(atom.predicate, args, sign(found), found.get("scope"))


def pattern_to_retract(data: dict[str, Any], *, strict: bool) -> Retraction:
    """Read the body of /retract/pattern: null and variables match anything."""
    found = _retract.load(data, strict)
    atom = atom_from_json({"predicate": found.get("predicate"), "args": wildcards(found.get("args"))})
    return Retraction(atom.predicate, atom_terms(atom), sign(found), found.get("scope"))


def spoken(predicate: str, args: Sequence[str]) -> str:
    """Write an atom as acknowledgements do: raw arguments, joined by comma and space."""
    return f"{predicate}({', '.join(args)})"


def _plain_rows(elements: list[Any]) -> tuple[FactRows, ...]:
    """Elements of predicate and arguments alone as bulk rows; empty where one has more to it or wants a closer look."""
    groups: dict[tuple[str, int], list[str]] = {}
    plain = {"predicate", "args"}
    for element in elements:
        if type(element) is not dict or element.keys() != plain:
            return ()
        predicate, args = element["predicate"], element["args"]
        if type(args) is not list or not args or type(predicate) is not str:
            return ()
        group = groups.get((predicate, len(args)))
        if group is None:
            if len(groups) >= MAX_GROUPS or len(args) > DEFAULT_LIMITS.args:
                return ()
            group = groups[predicate, len(args)] = []
        group.extend(args)
    found = [bulk_rows(predicate, arity, args) for (predicate, arity), args in groups.items()]
    rows = tuple(group for group in found if group is not None)
    return rows if len(rows) == len(found) else ()


def _element(element: Any, strict: bool) -> Fact:
    if type(element) is not dict:
        raise InvalidInput("must be an object")
    return _fact_of(_fact.load(element, strict))


def _fact_of(found: Mapping[str, Any]) -> Fact:
    atom = atom_from_json({"predicate": found["predicate"], "args": found["args"]})
    args = []
    for index, arg in enumerate(atom.args):
        if not isinstance(arg, str):
            raise InvalidInput.at(f"args[{index}]", "a fact holds no variables")
        args.append(arg)
    return Fact(
        atom.predicate,
        tuple(args),
        positive=sign(found) is not False,
        scope=found.get("scope"),
        ttl=found.get("ttl"),
        valid_from=found.get("validFrom"),
        valid_until=found.get("validUntil"),
        confidence=found.get("confidence"),
        metadata=found.get("metadata", {}),
    )
