"""Upkeep, priorities, and queries by salience and time: bodies and answers."""

from __future__ import annotations

from typing import Any

from kbcore.errors import InvalidInput
from kbcore.state.facts import Row as StoredRow
from kbplanner.syntax.jsonform import atom_from_json
from kbserver.schemas.atoms import (
    AtomBody,
    atom_given,
    atom_terms,
    constants_of,
    predicate_of,
    wildcards,
)
from kbserver.schemas.base import Answer, Body
from kbserver.schemas.facts import Row
from kbserver.schemas.fields import (
    Count,
    Flag,
    Fraction,
    Instant,
    Json,
    Many,
    PatternArguments,
    Predicate,
    Predicates,
    ReadScope,
    Time,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import OfAnyInstant

MAX_PREDICATES = 1000
"""Maximum number of predicates in a list of a body, which is searched for each fact or relation."""


class DecayBody(Body):
    """The facts of a partition to evict: those with a salience below `threshold`."""

    threshold = Fraction()
    scope = WriteScope()
    dry_run = Flag()


class ConsolidateBody(Body):
    """The facts of a partition to replace by summaries."""

    min_group_size = Whole(2)
    scope = WriteScope()
    predicates = Predicates()
    dry_run = Flag()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.consolidate`."""
        if "predicates" in fields:
            fields["predicates"] = predicates_given(fields["predicates"], "predicates")
        return fields


class PriorityBody(AtomBody):
    """A fact and its priority."""

    priority = Fraction(required=True)
    scope = WriteScope()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.prioritize`."""
        atom, positive = atom_given(fields)
        return {
            "predicate": atom.predicate,
            "args": constants_of(atom, fields, "a variable names no single fact"),
            "priority": fields["priority"],
            "positive": positive,
            "scope": fields.get("scope"),
        }


class SalientBody(OfAnyInstant):
    """The facts to rank: without a predicate all, without arguments of every arity."""

    predicate = Predicate()
    args = PatternArguments()
    limit = Whole(1)
    minimum = Fraction(data_key="minSalience")
    scope = ReadScope()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.salient`."""
        if "args" in fields and "predicate" not in fields:
            raise InvalidInput.at("predicate", "is needed where there are args")
        if "args" in fields:
            pattern = {"predicate": fields["predicate"], "args": wildcards(fields["args"])}
            atom = atom_from_json(pattern)
            return {**fields, "predicate": atom.predicate, "args": atom_terms(atom)}
        if "predicate" in fields:
            fields["predicate"] = predicate_of(fields["predicate"], "predicate")
        return fields


class RecallBody(AtomBody, OfAnyInstant):
    """A pattern of facts, and the point in time at which they were valid."""

    args = PatternArguments()
    timestamp = Instant(required=True)
    scope = ReadScope()
    limit = Whole(1)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.recall`."""
        atom, positive = atom_given(fields, nulls=True)
        return {
            "predicate": atom.predicate,
            "args": atom_terms(atom),
            "at": fields["timestamp"],
            "positive": positive,
            "scope": fields.get("scope"),
            "limit": fields.get("limit"),
        }


class Decayed(Answer):
    """The facts that decay evicted, or would evict."""

    expired_count = Count(of="expired")
    evicted_count = Count(of="evicted")
    removed_atoms = Many(Row, "With `dryRun` each row says `why`.", of="atoms")
    timestamp = Time()
    truncated = Flag(of=lambda outcome: outcome.truncated or None, optional=True)
    dry_run = Flag(of=lambda outcome: outcome.dry_run or None, optional=True)


class Consolidated(Answer):
    """The summaries that replaced facts, or would."""

    facts_consolidated = Count(of="consolidated")
    summaries_removed = Count(of="removed")
    new_facts = Many(Row, of="facts")
    timestamp = Time()
    dry_run = Flag(of=lambda outcome: outcome.dry_run or None, optional=True)


def with_truth_values(rows: list[StoredRow]) -> list[StoredRow]:
    """Add the truth value to rows."""
    for row in rows:
        row["truthVal"] = not row["negated"]
    return rows


def predicates_given(names: Any, path: str) -> tuple[str, ...]:
    """Return the predicates of a list in a body; raises InvalidInput that names the element."""
    if type(names) is not list:
        raise InvalidInput.at(path, "must be an array of predicates")
    if len(names) > MAX_PREDICATES:
        raise InvalidInput.at(path, f"has {len(names)} elements, and may have {MAX_PREDICATES}")
    return tuple(predicate_of(name, f"{path}[{index}]") for index, name in enumerate(names))
