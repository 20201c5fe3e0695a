"""Every mutation there is. A change says what is intended; applying it finds what really changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kbcore.state.facts import Fact, FactRows, Row
from kbcore.state.partition import RowKey
from kbcore.state.rulebook import StoredRule
from kbplanner.schema import RelationSchema
from kbplanner.terms import Rule, Variable


@dataclass(frozen=True, slots=True)
class AssertFacts:
    """Store facts; those that are there already get new metadata, validity and confidence."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class AssertRows:
    """Store many facts that have nothing beside their arguments."""

    rows: tuple[FactRows, ...]


@dataclass(frozen=True, slots=True)
class RetractFact:
    """Remove one fact of a scope: of one sign, or of both where `positive` is None."""

    predicate: str
    args: tuple[str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class RetractPattern:
    """Remove the facts of a scope that match; variables are wildcards, the same variable asks for equal arguments."""

    predicate: str
    pattern: tuple[Variable | str, ...]
    positive: bool | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class AssertRules:
    """Teach rules; one that is there already changes nothing."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class RetractRule:
    """Forget a rule of a scope by its id."""

    id: str
    scope: str | None = None


Change = AssertFacts | AssertRows | RetractFact | RetractPattern | AssertRules | RetractRule


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes of one tenant that happen together: one log record, all or none.

    `check`, if given, looks at the state just before the record is written and raises to refuse it; it is not logged.
    """

    database: str
    tenant: str
    changes: tuple[Change, ...]
    check: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Removed:
    """Facts that an application removed: their stored schema, scope, symbols, and rows for the outside."""

    schema: RelationSchema
    scope: str | None
    keys: list[RowKey]
    rows: list[Row]


@dataclass(slots=True)
class Delta:
    """What applying a change set really changed; `at` is its logged time, `generation` the tenant's after it."""

    at: int
    generation: int = 0
    asserted: int = 0
    updated: int = 0
    removed: list[Removed] = field(default_factory=list)
    rules_added: list[StoredRule] = field(default_factory=list)
    rules_removed: list[StoredRule] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
