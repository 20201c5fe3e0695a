"""Upkeep, priorities, and queries by salience and time: bodies and answers."""

from __future__ import annotations

from kbcore.errors import InvalidInput
from kbcore.state.facts import Row as StoredRow
from kbplanner.syntax.jsonform import atom_from_json
from kbserver.schemas.atoms import (
    AtomBody,
    atom_given,
    atom_terms,
    constants_of,
    predicate_of,
    predicates_given,
    wildcards,
)
from kbserver.schemas.base import Body, answer_of
from kbserver.schemas.fields import (
    Flag,
    Fraction,
    Instant,
    Json,
    PatternArguments,
    Predicate,
    Predicates,
    ReadScope,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import OfAnyInstant
from kbtypes import results


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


Decayed = answer_of(results.DecayOutcome, "Decayed")
Consolidated = answer_of(results.ConsolidateOutcome, "Consolidated")


def with_truth_values(rows: list[StoredRow]) -> list[StoredRow]:
    """Add the truth value to rows."""
    for row in rows:
        row["truthVal"] = not row["negated"]
    return rows
