"""Bodies that tell facts or take them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import current_app

from kbcore.errors import InvalidInput, TooLarge
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.language.files import bulk_rows
from kbcore.reason.budget import BudgetWanted
from kbcore.state.facts import AssertOutcome, Fact, FactRows, RetractOutcome
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.terms import Term
from kbserver.http.request_context import runtime
from kbserver.schemas import fields
from kbserver.schemas.base import (
    Envelope,
    atom_given,
    atom_terms,
    budget_wanted,
    constants_of,
    within,
)
from kbserver.schemas.fields import (
    BUDGET,
    Reader,
    anything,
    flag,
    fraction,
    metadata,
    milliseconds,
    moment,
    passing,
    scope_to_write,
    takes,
    text,
)
from kbserver.schemas.jsonschema import array

KEEP_BOTH = "KEEP_BOTH"

_SHOWN_ERRORS = 20

MAX_GROUPS = 256
"""Relations of one bulk body that are gathered each by itself."""

_TURN = 1000
"""Elements read before others have their turn."""

_ATOM: dict[str, Reader] = {"predicate": fields.predicate, "args": fields.args}
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

_STRATEGIES = {"type": "string", "examples": ["KEEP_BOTH", "REJECT", "NEWEST_WINS", "CONFIDENCE"]}
_conflict = takes(_STRATEGIES)(lambda value: text(value))
"""Those every node has; plugins may bring more."""

_fact = Envelope("Fact", _FACT, or_text=True)
_tell = Envelope("Tell", {**_FACT, "conflictStrategy": _conflict}, or_text=True)
_bulk = Envelope(
    "Bulk",
    {
        "facts": passing(array(_fact.ref, description="At most MAX_BULK_FACTS of them.")),
        "conflictStrategy": _conflict,
    },
    required=("facts",),
)
_RETRACT: dict[str, Reader] = {**_ATOM, **_SIGN, **BUDGET, "scope": scope_to_write}
_retract = Envelope("Retract", _RETRACT, or_text=True)
_pattern = Envelope("RetractPattern", {**_RETRACT, "args": fields.pattern_args}, or_text=True)


@dataclass(frozen=True, slots=True)
class Told:
    """Facts to assert, and what happens where the opposite is stored; `rows` are facts with nothing beside arguments."""

    facts: list[Fact]
    conflict: str
    rows: tuple[FactRows, ...] = ()

    def asserted(self, kb: KnowledgeBase) -> AssertOutcome:
        """Store them, all or none."""
        return (
            kb.assert_rows(self.rows)
            if self.rows
            else kb.assert_facts(self.facts, conflict=self.conflict)
        )


@dataclass(frozen=True, slots=True)
class Retraction:
    """A fact, or a pattern of facts, to take back; `positive` is None for both signs.

    `wanted` is what counting the conclusions that fall may use.
    """

    predicate: str
    args: tuple[Term, ...]
    positive: bool | None
    scope: str | None
    wanted: BudgetWanted

    @property
    def constants(self) -> tuple[str, ...]:
        """The arguments of a fact."""
        return tuple(arg for arg in self.args if isinstance(arg, str))

    def retracted(self, kb: KnowledgeBase) -> RetractOutcome:
        """Take the fact back."""
        return kb.retract_fact(
            self.predicate,
            self.constants,
            positive=self.positive,
            scope=self.scope,
            wanted=self.wanted,
        )

    def removed(self, kb: KnowledgeBase) -> RetractOutcome:
        """Take back what matches the pattern."""
        return kb.retract_pattern(
            self.predicate, self.args, positive=self.positive, scope=self.scope, wanted=self.wanted
        )


@_tell.shapes
def one_fact(data: dict[str, Any], *, strict: bool) -> Told:
    """Read the body of /assert/fact."""
    fields = _tell.load(data, strict)
    return Told([_fact_of(fields)], fields.get("conflictStrategy", KEEP_BOTH))


@_bulk.shapes
def many_facts(data: dict[str, Any], *, strict: bool) -> Told:
    """Read the body of /assert/facts; an error names the element and its field."""
    fields = _bulk.load(data, strict)
    elements = fields.get("facts")
    if type(elements) is not list:
        raise InvalidInput.at("facts", "must be an array of facts")
    limit = runtime().config.max_bulk_facts
    if len(elements) > limit:
        raise TooLarge(
            f"one request asserts at most {limit} facts, this one has {len(elements)}",
            {"limit": "MAX_BULK_FACTS", "value": limit},
        )
    conflict = fields.get("conflictStrategy", KEEP_BOTH)
    if conflict == KEEP_BOTH and (rows := _plain_rows(elements)):
        return Told([], conflict, rows)
    facts: list[Fact] = []
    wrong: dict[str, list[str]] = {}
    pause = current_app.extensions["kbcore.pause"]
    for index, element in enumerate(elements):
        if index % _TURN == _TURN - 1:
            pause()
        try:
            facts.append(_element(element, strict, f"facts[{index}]."))
        except InvalidInput as error:
            wrong.update((within(error, f"facts[{index}]").details or {})["fields"])
            if len(wrong) >= _SHOWN_ERRORS:
                break
    if wrong:
        first = next(iter(wrong))
        raise InvalidInput(f"{first}: {wrong[first][0]}; nothing was stored", {"fields": wrong})
    return Told(facts, conflict)


@_retract.shapes
def fact_to_retract(data: dict[str, Any], *, strict: bool) -> Retraction:
    """Read the body of /retract: one fact."""
    fields = _retract.load(data, strict)
    atom, positive = atom_given(fields)
    args = constants_of(
        atom,
        fields,
        "a variable names no single fact; POST /retract/pattern removes all that match",
    )
    return Retraction(atom.predicate, args, positive, fields.get("scope"), budget_wanted(fields))


@_pattern.shapes
def pattern_to_retract(data: dict[str, Any], *, strict: bool) -> Retraction:
    """Read the body of /retract/pattern: null and variables match anything."""
    fields = _pattern.load(data, strict)
    atom, positive = atom_given(fields, nulls=True)
    return Retraction(
        atom.predicate, atom_terms(atom), positive, fields.get("scope"), budget_wanted(fields)
    )


def shown_asserted(outcome: AssertOutcome) -> dict[str, Any]:
    """Say how many facts were new."""
    counts = {"asserted": outcome.asserted, "updated": outcome.updated, "failed": 0}
    return {**counts, "errors": [], "timestamp": outcome.timestamp}


def shown_retraction(outcome: RetractOutcome) -> dict[str, Any]:
    """Say what fell with a fact."""
    return {
        "retracted": outcome.retracted,
        "cascaded": outcome.cascaded,
        "cascadedAtoms": outcome.cascaded_atoms,
        "newlyDerivable": outcome.newly_derivable,
        "stillDerivable": outcome.still_derivable,
        "truncated": outcome.truncated,
    }


def shown_removal(outcome: RetractOutcome) -> dict[str, Any]:
    """Say which facts matched a pattern and are gone."""
    found = {"retracted": outcome.retracted, "atoms": outcome.atoms, "cascaded": outcome.cascaded}
    return {**found, "truncated": True} if outcome.truncated else found


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


def _element(element: Any, strict: bool, path: str) -> Fact:
    if type(element) is not dict:
        raise InvalidInput("must be an object")
    return _fact_of(_fact.load(element, strict, path))


def _fact_of(found: Mapping[str, Any]) -> Fact:
    atom, positive = atom_given(found)
    if "text" in found and (problem := DEFAULT_LIMITS.name_problem(atom.predicate)):
        raise InvalidInput.at("text", problem)
    return Fact(
        atom.predicate,
        constants_of(atom, found, "a fact holds no variables"),
        positive=positive is not False,
        scope=found.get("scope"),
        ttl=found.get("ttl"),
        valid_from=found.get("validFrom"),
        valid_until=found.get("validUntil"),
        confidence=found.get("confidence"),
        metadata=found.get("metadata", {}),
    )
