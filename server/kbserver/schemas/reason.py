"""Bodies that ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb import KnowledgeBase, Write
from kbcore.reason.budget import Notes
from kbplanner.jsonform import atom_from_json, goal_from_json
from kbplanner.terms import Atom, Literal, Term
from kbserver.schemas.base import Envelope, atom_terms, refuse_proofs, sign, wildcards
from kbserver.schemas.fields import Reader, anything, flag, fraction, moment, scope_to_read, text, whole

OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")

_GOAL: dict[str, Reader] = {
    "predicate": anything,
    "args": anything,
    "negated": flag,
    "truthVal": flag,
    "scope": scope_to_read,
    "asOf": moment,
    "limit": whole(1),
}
_INFER: dict[str, Reader] = {
    **_GOAL,
    "polarity": text,
    "offset": whole(0),
    "minConfidence": fraction,
    "timeoutMs": whole(1),
    "withProof": flag,
    "includeUndefined": anything,
}
_AGGREGATE: dict[str, Reader] = {
    "predicate": anything,
    "op": text,
    "operation": text,
    "argIndex": whole(0),
    "args": anything,
    "scope": scope_to_read,
    "skipNonNumeric": flag,
    "asOf": moment,
}

_infer = Envelope("Infer", _INFER, required=("predicate", "args"))
_query = Envelope("Query", _GOAL, required=("predicate", "args"))
_aggregate = Envelope("Aggregate", _AGGREGATE, required=("predicate",))


@dataclass(frozen=True, slots=True)
class Question:
    """A goal for the rules."""

    literal: Literal
    scope: str | None
    limit: int | None
    offset: int
    min_confidence: float | None
    as_of: int | None
    timeout_ms: int | None

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """Its answers as a JSON array in parts; `write` gives JSON for rows that the engine does not write."""
        return kb.infer_json(
            self.literal,
            write,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            timeout_ms=self.timeout_ms,
            notes=notes,
        )


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for the stored facts; `positive` is None for both signs."""

    atom: Atom
    positive: bool | None
    scope: str | None
    limit: int | None
    as_of: int | None

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """The facts that match, each with its truth value, as a JSON array in parts; see `Question.written`."""
        return kb.query_json(
            self.atom, write, positive=self.positive, scope=self.scope, limit=self.limit, as_of=self.as_of
        )


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A number wanted of the stored facts."""

    predicate: str
    op: str
    arg_index: int | None
    pattern: tuple[Term, ...] | None
    scope: str | None
    skip_non_numeric: bool
    as_of: int | None


def question(data: dict[str, Any], *, strict: bool) -> Question:
    """Read the body of /infer."""
    found = _infer.load(data, strict)
    refuse_proofs(found)
    goal: dict[str, Any] = {key: found[key] for key in ("predicate", "args", "polarity") if key in found}
    if sign(found) is False:
        goal["negated"] = True
    return Question(
        goal_from_json(goal).literal,
        found.get("scope"),
        found.get("limit"),
        found.get("offset", 0),
        found.get("minConfidence"),
        found.get("asOf"),
        found.get("timeoutMs"),
    )


def pattern(data: dict[str, Any], *, strict: bool) -> Pattern:
    """Read the body of /query."""
    found = _query.load(data, strict)
    atom = atom_from_json({"predicate": found["predicate"], "args": found["args"]})
    return Pattern(atom, sign(found), found.get("scope"), found.get("limit"), found.get("asOf"))


def aggregation(data: dict[str, Any], *, strict: bool) -> Aggregation:
    """Read the body of /aggregate."""
    found = _aggregate.load(data, strict)
    op = found.get("op", found.get("operation"))
    if op is None:
        raise InvalidInput.at("op", f"is required: one of {', '.join(OPERATIONS)}")
    if op.upper() not in OPERATIONS:
        raise InvalidInput.at("op", f"must be one of {', '.join(OPERATIONS)}")
    if op.upper() != "COUNT" and "argIndex" not in found:
        raise InvalidInput.at("argIndex", f"is required for {op.upper()}")
    atom = atom_from_json({"predicate": found["predicate"], "args": wildcards(found.get("args", []))})
    return Aggregation(
        atom.predicate,
        op.upper(),
        found.get("argIndex"),
        atom_terms(atom) if "args" in found else None,
        found.get("scope"),
        found.get("skipNonNumeric", False),
        found.get("asOf"),
    )
