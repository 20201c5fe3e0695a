"""Facts as they are told, and rows as they are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbplanner.engine.written import RowShape
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom

Row = dict[str, Any]
"""A fact or answer for the outside: predicate, args, negated, scope, metadata, createdAt, validFrom, validUntil, ttl,
confidence. Times are epoch milliseconds or None; `args` is a list of strings, `metadata` a dict, never None."""


FactKey = tuple[str | None, str, tuple[str, ...], bool]
"""The identity of a fact: scope, predicate, arguments, sign."""


def row_shape(
    predicate: str, positive: bool, scope: str | None, more: str = "", metadata: Mapping[str, Any] | None = None
) -> RowShape:
    """How a row without confidence, with the same metadata as every other, is written as JSON.

    `more` are further members, `,"key":value`.
    """
    first = {"predicate": predicate, "args": [], "negated": not positive, "scope": scope}
    first |= {"metadata": dict(metadata or {}), "createdAt": None}
    text = json.dumps(first, ensure_ascii=False, separators=(",", ":"))
    before, _, after = text.partition('"args":[]')
    return RowShape(
        f'{before}"args":[',
        "]" + after.removesuffix("null}"),
        ',"validFrom":',
        ',"validUntil":',
        ',"ttl":',
        f',"confidence":null{more}}}',
    )


@dataclass(frozen=True, slots=True)
class Fact:
    """A signed ground atom to be asserted.

    `ttl` is in milliseconds from the last assertion, `valid_from` and `valid_until` epoch milliseconds, each None when not
    limited; `confidence` is 0 to 1 or None for unknown.
    """

    predicate: str
    args: tuple[str, ...]
    positive: bool = True
    scope: str | None = None
    ttl: int | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    confidence: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> FactKey:
        """What makes it this fact."""
        return self.scope, self.predicate, self.args, self.positive

    @property
    def schema(self) -> RelationSchema:
        """The stored relation it belongs to."""
        return RelationSchema(self.predicate, len(self.args), self.positive)


@dataclass(frozen=True, slots=True)
class FactRows:
    """Many facts of one relation with nothing beside their arguments: `args` holds row after row, `arity` each.

    What a bulk load is made of: no object for a fact. Of arity 0 there is one row.
    """

    predicate: str
    arity: int
    args: Sequence[str]
    positive: bool = True
    scope: str | None = None

    def __len__(self) -> int:
        return len(self.args) // self.arity if self.arity else 1

    @property
    def schema(self) -> RelationSchema:
        """The stored relation they belong to."""
        return RelationSchema(self.predicate, self.arity, self.positive)

    def fact(self, place: int) -> Fact:
        """One of them as a fact by itself."""
        args = tuple(self.args[place * self.arity : (place + 1) * self.arity])
        return Fact(self.predicate, args, self.positive, self.scope)

    def facts(self) -> list[Fact]:
        """All of them, each by itself."""
        return [self.fact(place) for place in range(len(self))]


@dataclass(frozen=True, slots=True)
class AssertOutcome:
    """How many facts were new, how many were there already; `timestamp` is the logged time in epoch milliseconds."""

    asserted: int
    updated: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class RetractOutcome:
    """What a retraction did.

    `retracted` stored facts went; `cascaded` conclusions fell with them, of which `cascaded_atoms` lists at most as many
    as the reply limit; `newly_derivable` conclusions appeared (through negation); `still_derivable` says whether rules
    still give the atom itself; `truncated` that the count of what fell met its budget.
    """

    retracted: int
    atoms: list[Row]
    cascaded: int
    cascaded_atoms: list[Row]
    newly_derivable: int
    still_derivable: bool
    truncated: bool


def derived_row(atom: Atom, args: Sequence[object], scope: str | None) -> Row:
    """A row for a conclusion that nobody asserted."""
    return conclusion(atom.predicate, atom.positive, list(args), scope)


def conclusion(predicate: str, positive: bool, args: list[Any], scope: str | None) -> Row:
    """A row for a conclusion that nobody asserted, which takes the list of its arguments over."""
    return {
        "predicate": predicate,
        "args": args,
        "negated": not positive,
        "scope": scope,
        "metadata": {},
        "createdAt": None,
        "validFrom": None,
        "validUntil": None,
        "ttl": None,
        "confidence": None,
    }
