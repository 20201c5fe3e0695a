"""Facts as they are asserted, and rows in their external form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.state.episodes.evidence import Evidence
from kbplanner.ir.dimensions import WrittenLabel
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.pacing import YieldNow, in_parts

UNSET_PRIORITY = 0.5
"""Priority of a fact for which no priority was set."""

Row = dict[str, Any]
"""A fact or answer in its external form: predicate, args, negated, scope, metadata, createdAt,
validFrom, validUntil, ttl, confidence. Times are epoch milliseconds or None; `args` is a list of
strings, `metadata` a dict, never None. A stored fact with evidence has it as `evidence`, a list of
spans; one with labels has them as `labels`, an object of dimensions and their values. A fact that
is stored with several labels has its rows with each of them as `byLabels` where facts are
listed."""


FactKey = tuple[str | None, str, tuple[str, ...], bool]
"""The identity of a fact: scope, predicate, arguments, sign."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A signed ground atom to be asserted.

    `ttl` is in milliseconds from the last assertion, `valid_from` and `valid_until` epoch
    milliseconds, each None if not limited; `confidence` is 0 to 1 or None for unknown. `evidence`
    are spans of episodes that support the fact, beside those it has if it is stored. With `late`
    the interval is one before the newest of a stored fact, which stays as it is. `restated` are
    times within the interval, in order, from which the fact was stated again. `labels` are those
    that its text names; where it is stored, its change set has them.
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
    evidence: tuple[Evidence, ...] = ()
    late: bool = False
    restated: tuple[int, ...] = ()
    labels: tuple[WrittenLabel, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> FactKey:
        """The identity of the fact."""
        return self.scope, self.predicate, self.args, self.positive

    @property
    def schema(self) -> RelationSchema:
        """The schema of the stored relation of the fact."""
        return RelationSchema(self.predicate, len(self.args), self.positive)


@dataclass(frozen=True, slots=True)
class FactRows:
    """Many facts of one relation that have arguments only.

    `args` holds row after row, `arity` values each.

    Bulk loads use it to avoid one object per fact. With arity 0 there is exactly one row.
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
        """The schema of the stored relation of the facts."""
        return RelationSchema(self.predicate, self.arity, self.positive)

    def in_parts(self, yield_now: YieldNow, rows: int) -> Iterator[FactRows]:
        """Yield the facts in groups of at most `rows`, and call `yield_now` between them."""
        if len(self) <= rows:
            yield self
        else:
            for args in in_parts(self.args, yield_now, rows * self.arity):
                yield FactRows(self.predicate, self.arity, args, self.positive, self.scope)

    def fact(self, index: int) -> Fact:
        """Return the fact at an index."""
        args = tuple(self.args[index * self.arity : (index + 1) * self.arity])
        return Fact(self.predicate, args, self.positive, self.scope)

    def facts(self) -> list[Fact]:
        """Return all facts, one object each."""
        return [self.fact(index) for index in range(len(self))]


@dataclass(frozen=True, slots=True)
class AssertOutcome:
    """Result of an assertion: the numbers of new and of known facts.

    `timestamp` is the logged time in epoch milliseconds. `discarded` counts the facts that were not
    stored, because a conflict strategy preferred others.
    """

    asserted: int
    updated: int
    timestamp: int
    discarded: int = 0


def derived_row(atom: Atom, args: Sequence[object], scope: str | None) -> Row:
    """Return the row of a conclusion."""
    return conclusion(atom.predicate, atom.positive, list(args), scope)


def conclusion(predicate: str, positive: bool, args: list[Any], scope: str | None) -> Row:
    """Return the row of a conclusion; the row takes over the list of arguments."""
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
