"""Bodies that ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb import KnowledgeBase, Write
from kbcore.reason.budget import Notes
from kbcore.reason.proofforms import MAX_PROOF_NODES
from kbcore.reason.why import FORMS
from kbplanner.jsonform import atom_from_json, goal_from_json, item_from_json
from kbplanner.parser import parse_goal
from kbplanner.terms import Atom, BodyItem, Literal, Term
from kbserver.answers import proofs_written
from kbserver.schemas.base import Envelope, atom_terms, proof_asked, sign, wildcards
from kbserver.schemas.fields import Reader, anything, flag, fraction, moment, one_of, scope_to_read, text, whole

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
    "proofFormat": one_of(*FORMS),
    "proofNodes": whole(1, MAX_PROOF_NODES),
    "proofDepth": whole(1, MAX_PROOF_NODES),
    "includeUndefined": flag,
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

_EXPLAIN: dict[str, Reader] = {**_INFER, "text": text, "body": anything, "plan": flag}

_NO_PROOF = "cannot be combined with proofs: what is undefined has none"

_explain = Envelope("Explain", _EXPLAIN)
_infer = Envelope("Infer", _INFER, required=("predicate", "args"))
_query = Envelope("Query", _GOAL, required=("predicate", "args"))
_aggregate = Envelope("Aggregate", _AGGREGATE, required=("predicate",))


@dataclass(frozen=True, slots=True)
class ProofWish:
    """How proofs are wanted: their form, and limits (None: the settings')."""

    form: str
    nodes: int | None
    depth: int | None


@dataclass(frozen=True, slots=True)
class Question:
    """A goal for the rules; `proof` is None where only the answers are wanted."""

    literal: Literal
    scope: str | None
    limit: int | None
    offset: int
    min_confidence: float | None
    as_of: int | None
    timeout_ms: int | None
    proof: ProofWish | None = None
    include_undefined: bool = False

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """Its answers as a JSON array in parts; `write` gives JSON for rows that the engine does not write."""
        if self.proof is not None:
            return proofs_written(self._proofs(kb, self.proof))
        return kb.infer_json(
            self.literal,
            write,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            timeout_ms=self.timeout_ms,
            include_undefined=self.include_undefined,
            notes=notes,
        )

    def _proofs(self, kb: KnowledgeBase, wish: ProofWish) -> list[dict[str, Any]]:
        return kb.prove(
            self.literal,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            timeout_ms=self.timeout_ms,
            form=wish.form,
            nodes=wish.nodes,
            depth=wish.depth,
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """A goal of one or several literals to be explained, or whose plan is; limits are None for the settings'."""

    body: tuple[BodyItem, ...]
    scope: str | None
    limit: int | None
    offset: int
    min_confidence: float | None
    as_of: int | None
    timeout_ms: int | None
    nodes: int | None
    depth: int | None
    plan: bool

    def told(self, kb: KnowledgeBase) -> str:
        """What is to be said, as text for people."""
        if self.plan:
            return kb.plan(self.body, scope=self.scope, timeout_ms=self.timeout_ms)
        return kb.explain(
            self.body,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            timeout_ms=self.timeout_ms,
            nodes=self.nodes,
            depth=self.depth,
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
    if found.get("includeUndefined") and proof_asked(found):
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    return Question(
        _literal(found),
        found.get("scope"),
        found.get("limit"),
        found.get("offset", 0),
        found.get("minConfidence"),
        found.get("asOf"),
        found.get("timeoutMs"),
        ProofWish(found.get("proofFormat", FORMS[0]), found.get("proofNodes"), found.get("proofDepth"))
        if proof_asked(found)
        else None,
        found.get("includeUndefined", False),
    )


def explanation(data: dict[str, Any], *, strict: bool) -> Explanation:
    """Read the body of /explain: a literal as for /infer, several in `body`, or a goal in the rule language in `text`."""
    found = _explain.load(data, strict)
    if found.get("includeUndefined"):
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    if "text" in found:
        body = parse_goal(found["text"]).body
    elif "body" in found:
        items = found["body"]
        if type(items) is not list or not items:
            raise InvalidInput.at("body", "must be an array of literals")
        body = tuple(item_from_json(item, f"body[{place}]") for place, item in enumerate(items))
    else:
        body = (_literal(found),)
    return Explanation(
        body,
        found.get("scope"),
        found.get("limit"),
        found.get("offset", 0),
        found.get("minConfidence"),
        found.get("asOf"),
        found.get("timeoutMs"),
        found.get("proofNodes"),
        found.get("proofDepth"),
        found.get("plan", False),
    )


def _literal(found: dict[str, Any]) -> Literal:
    goal: dict[str, Any] = {key: found[key] for key in ("predicate", "args", "polarity") if key in found}
    if sign(found) is False:
        goal["negated"] = True
    return goal_from_json(goal).literal


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
