"""Bodies about what is remembered: upkeep, priorities, and questions by salience and by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb.memory import DECAY_THRESHOLD, LEAST_GROUP
from kbplanner.ir.terms import Term
from kbplanner.syntax.jsonform import atom_from_json
from kbserver.schemas import fields
from kbserver.schemas.base import Envelope, atom_given, atom_terms, constants_of, wildcards
from kbserver.schemas.fields import (
    Reader,
    flag,
    fraction,
    moment,
    scope_to_read,
    scope_to_write,
    whole,
)

SALIENT = 50
"""Facts a question by salience gives, where it does not say."""

_SIGNED: dict[str, Reader] = {
    "predicate": fields.predicate,
    "args": fields.args,
    "negated": flag,
    "truthVal": flag,
}

_decay = Envelope("Decay", {"threshold": fraction, "scope": scope_to_write, "dryRun": flag})
_consolidate = Envelope(
    "Consolidate",
    {
        "minGroupSize": whole(2),
        "scope": scope_to_write,
        "predicates": fields.predicates,
        "dryRun": flag,
    },
)
_priority = Envelope(
    "Priority",
    {**_SIGNED, "priority": fraction, "scope": scope_to_write},
    required=("priority",),
    or_text=True,
)
_salient = Envelope(
    "Salient",
    {
        "predicate": fields.predicate,
        "args": fields.pattern_args,
        "limit": whole(1),
        "minSalience": fraction,
        "scope": scope_to_read,
    },
)
_recall = Envelope(
    "Recall",
    {
        **_SIGNED,
        "args": fields.pattern_args,
        "timestamp": moment,
        "scope": scope_to_read,
        "limit": whole(1),
    },
    required=("timestamp",),
    or_text=True,
)


@dataclass(frozen=True, slots=True)
class Decay:
    """Which partition shall forget what has a salience below `threshold`."""

    threshold: float
    scope: str | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Which facts of a partition shall be summed up; `predicates` is None for all."""

    min_group_size: int
    predicates: tuple[str, ...] | None
    scope: str | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Priority:
    """A change of a stored fact's priority; `positive` is None for both signs."""

    predicate: str
    args: tuple[str, ...]
    priority: float
    positive: bool | None
    scope: str | None


@dataclass(frozen=True, slots=True)
class Salient:
    """Which facts are ranked: `predicate` None for all, `args` None for every arity."""

    predicate: str | None
    args: tuple[Term, ...] | None
    limit: int
    minimum: float
    scope: str | None


@dataclass(frozen=True, slots=True)
class Recall:
    """A pattern for what was valid at a moment; `positive` is None for both signs."""

    predicate: str
    args: tuple[Term, ...]
    at: int
    positive: bool | None
    scope: str | None
    limit: int | None


@_decay.shapes
def decay(data: dict[str, Any], *, strict: bool) -> Decay:
    """Read the body of /memory/decay."""
    fields = _decay.load(data, strict)
    return Decay(
        fields.get("threshold", DECAY_THRESHOLD), fields.get("scope"), fields.get("dryRun", False)
    )


@_consolidate.shapes
def consolidation(data: dict[str, Any], *, strict: bool) -> Consolidation:
    """Read the body of /memory/consolidate."""
    fields = _consolidate.load(data, strict)
    predicates = None
    if "predicates" in fields:
        names = fields["predicates"]
        if type(names) is not list:
            raise InvalidInput.at("predicates", "must be an array of predicates")
        predicates = tuple(
            _predicate(name, f"predicates[{place}]") for place, name in enumerate(names)
        )
    least = fields.get("minGroupSize", LEAST_GROUP)
    return Consolidation(least, predicates, fields.get("scope"), fields.get("dryRun", False))


@_priority.shapes
def priority(data: dict[str, Any], *, strict: bool) -> Priority:
    """Read the body of /memory/priority: one fact, and a number."""
    fields = _priority.load(data, strict)
    atom, positive = atom_given(fields)
    args = constants_of(atom, fields, "a variable names no single fact")
    return Priority(atom.predicate, args, fields["priority"], positive, fields.get("scope"))


@_salient.shapes
def salient(data: dict[str, Any], *, strict: bool) -> Salient:
    """Read the body of /memory/query/salient."""
    fields = _salient.load(data, strict)
    predicate, args = None, None
    if "args" in fields and "predicate" not in fields:
        raise InvalidInput.at("predicate", "is needed where there are args")
    if "args" in fields:
        atom = atom_from_json({"predicate": fields["predicate"], "args": wildcards(fields["args"])})
        predicate, args = atom.predicate, atom_terms(atom)
    elif "predicate" in fields:
        predicate = _predicate(fields["predicate"], "predicate")
    return Salient(
        predicate,
        args,
        fields.get("limit", SALIENT),
        fields.get("minSalience", 0.0),
        fields.get("scope"),
    )


@_recall.shapes
def recall(data: dict[str, Any], *, strict: bool) -> Recall:
    """Read the body of /memory/recall."""
    fields = _recall.load(data, strict)
    atom, positive = atom_given(fields, nulls=True)
    return Recall(
        atom.predicate,
        atom_terms(atom),
        fields["timestamp"],
        positive,
        fields.get("scope"),
        fields.get("limit"),
    )


def _predicate(value: Any, path: str) -> str:
    """Read a predicate that stands by itself."""
    try:
        return atom_from_json({"predicate": value, "args": []}).predicate
    except InvalidInput as error:
        wrong = (error.details or {}).get("fields") or {"": [error.message]}
        raise InvalidInput.at(path, next(iter(wrong.values()))[0]) from None
