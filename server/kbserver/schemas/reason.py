"""Bodies that ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.kb.queries import Write
from kbcore.proofs.answers import FORMS
from kbcore.proofs.shapes import MAX_PROOF_NODES
from kbcore.reason.ask import terms_of
from kbcore.reason.budget import BudgetWanted, Notes
from kbcore.reason.unknown import UnknownPredicate
from kbplanner.ir.terms import Atom, BodyItem, Literal, Term
from kbplanner.syntax.jsonform import atom_from_json, item_from_json
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_item
from kbserver.answers import proofs_written
from kbserver.schemas.base import Envelope, atom_given, atom_terms, budget_wanted, literal_given, proof_asked, wildcards
from kbserver.schemas.fields import (
    BUDGET,
    Reader,
    args,
    body_items,
    flag,
    fraction,
    moment,
    one_of,
    pattern_args,
    predicate,
    scope_to_read,
    takes,
    text,
    whole,
)
from kbserver.schemas.jsonschema import TEXT, given

OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")

_GOAL: dict[str, Reader] = {
    "predicate": predicate,
    "args": args,
    "negated": flag,
    "truthVal": flag,
    "scope": scope_to_read,
    "asOf": moment,
    "limit": whole(1),
    **BUDGET,
}
_INFER: dict[str, Reader] = {
    **_GOAL,
    "polarity": one_of("positive", "negative"),
    "offset": whole(0),
    "minConfidence": fraction,
    "withProof": flag,
    "proofFormat": one_of(*FORMS),
    "proofNodes": whole(1, MAX_PROOF_NODES),
    "proofDepth": whole(1, MAX_PROOF_NODES),
    "includeUndefined": flag,
}
_ANY_CASE = "|".join("".join(f"[{char}{char.lower()}]" for char in name) for name in OPERATIONS)
_WHICH = f"One of {', '.join(OPERATIONS)}, in any case."
_operation = takes({**TEXT, "pattern": f"^({_ANY_CASE})$", "description": _WHICH})(lambda value: text(value))
_AGGREGATE: dict[str, Reader] = {
    "predicate": predicate,
    "op": _operation,
    "operation": _operation,
    "argIndex": whole(0),
    "args": pattern_args,
    "scope": scope_to_read,
    "skipNonNumeric": flag,
    "asOf": moment,
    **BUDGET,
}

_EXPLAIN: dict[str, Reader] = {
    **_INFER,
    "text": text,
    "body": body_items,
    "plan": flag,
    "analyze": flag,
    "format": one_of("text", "json"),
}

def nothing() -> None:
    """A page is short: nobody has to be let through while it is written."""


_NO_PROOF = "cannot be combined with proofs: what is undefined has none"

_explain = Envelope("Explain", _EXPLAIN, more={"anyOf": [given("text"), given("body"), given("predicate", "args")]})
_infer = Envelope("Infer", _INFER, or_text=True)
_query = Envelope("Query", _GOAL, or_text=True)
_aggregate = Envelope("Aggregate", _AGGREGATE, required=("predicate",), more={"anyOf": [given("op"), given("operation")]})


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
    wanted: BudgetWanted
    proof: ProofWish | None = None
    include_undefined: bool = False

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """Its answers as a JSON array in parts; `write` gives JSON for rows that the engine does not write."""
        parts = self._proofs(kb, self.proof) if self.proof is not None else self._answers(kb, write, notes)
        if self.literal.negated or parts == [b"[]"]:
            notes.unknown = kb.unknown_predicates([_signature(self.literal.atom)], self.scope)
        return parts

    def _answers(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        return kb.infer_json(
            self.literal,
            write,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            wanted=self.wanted,
            include_undefined=self.include_undefined,
            notes=notes,
        )

    def paged(self, kb: KnowledgeBase, write: Write, notes: Notes, offset: int, limit: int) -> tuple[list[bytes], bool]:
        """A page of its answers, and whether there are more; raises InvalidInput where the body limits them too."""
        if self.limit is not None:
            raise InvalidInput.at("limit", "is given in the query and in the body")
        start = self.offset + offset
        if self.proof is not None:
            found = replace(self, offset=start, limit=limit).written(kb, write, notes)
            return found, bool(self._rows(kb, notes, start + limit, 1))
        rows = self._rows(kb, notes, start, limit + 1)
        if self.literal.negated or not rows:
            notes.unknown = kb.unknown_predicates([_signature(self.literal.atom)], self.scope)
        return [write(rows[:limit], nothing)], len(rows) > limit

    def _rows(self, kb: KnowledgeBase, notes: Notes, offset: int, limit: int) -> list[dict[str, Any]]:
        return kb.infer(
            self.literal,
            scope=self.scope,
            limit=limit,
            offset=offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            wanted=self.wanted,
            include_undefined=self.include_undefined,
            notes=notes,
        )

    def _proofs(self, kb: KnowledgeBase, wish: ProofWish) -> list[bytes]:
        return kb.prove_json(
            self.literal,
            proofs_written,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            wanted=self.wanted,
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
    wanted: BudgetWanted
    nodes: int | None
    depth: int | None
    plan: bool
    analyze: bool
    as_json: bool

    def unknown(self, kb: KnowledgeBase) -> list[UnknownPredicate]:
        """Return the predicates of the goal that have no fact and no rule."""
        atoms = (item.atom for item in self.body if isinstance(item, Literal))
        return kb.unknown_predicates(map(_signature, atoms), self.scope)

    def told(self, kb: KnowledgeBase) -> str | dict[str, Any]:
        """What is to be said, as text for people; a plan also as an object for programs."""
        asked: dict[str, Any] = {"scope": self.scope, "as_of": self.as_of, "wanted": self.wanted}
        if self.as_json:
            plans = kb.plans(self.body, analyze=self.analyze, **asked)
            return {"goal": ", ".join(map(print_item, self.body)), "plans": plans}
        if self.plan:
            return kb.plan(self.body, analyze=self.analyze, **asked)
        return kb.explain(
            self.body,
            scope=self.scope,
            limit=self.limit,
            offset=self.offset,
            min_confidence=self.min_confidence,
            as_of=self.as_of,
            wanted=self.wanted,
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
    wanted: BudgetWanted

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """The facts that match, each with its truth value, as a JSON array in parts; see `Question.written`."""
        parts = kb.query_json(
            self.atom,
            write,
            positive=self.positive,
            scope=self.scope,
            limit=self.limit,
            as_of=self.as_of,
            wanted=self.wanted,
        )
        if parts == [b"[]"]:
            notes.unknown = kb.unknown_predicates([_signature(self.atom)], self.scope)
        return parts

    def paged(self, kb: KnowledgeBase, write: Write, notes: Notes, offset: int, limit: int) -> tuple[list[bytes], bool]:
        """A page of the facts that match, and whether there are more; see `Question.paged`."""
        if self.limit is not None:
            raise InvalidInput.at("limit", "is given in the query and in the body")
        most = offset + limit + 1
        atom, signs, scope, when = self.atom, self.positive, self.scope, self.as_of
        terms = terms_of(atom)
        rows = kb.query_rows(atom.predicate, terms, positive=signs, scope=scope, limit=most, as_of=when, wanted=self.wanted)
        if not rows:
            notes.unknown = kb.unknown_predicates([_signature(atom)], scope)
        shown = [{**row, "truthVal": not row["negated"]} for row in rows[offset : offset + limit]]
        return [write(shown, nothing)], len(rows) == most


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
    wanted: BudgetWanted

    def unknown(self, kb: KnowledgeBase) -> list[UnknownPredicate]:
        """Return the predicate if it has no fact and no rule."""
        return kb.unknown_predicates([(self.predicate, None if self.pattern is None else len(self.pattern))], self.scope)

    def told(self, kb: KnowledgeBase, now: int) -> dict[str, Any]:
        """The number, and what it is of."""
        outcome = kb.aggregate(
            self.predicate,
            self.op,
            arg_index=self.arg_index,
            pattern=self.pattern,
            scope=self.scope,
            skip_non_numeric=self.skip_non_numeric,
            as_of=self.as_of,
            wanted=self.wanted,
        )
        return {
            "result": outcome.result,
            "op": self.op,
            "operation": self.op,
            "predicate": self.predicate,
            "matchedFacts": outcome.matched,
            "timestamp": now,
        }


def _signature(atom: Atom) -> tuple[str, int]:
    return atom.predicate, atom.arity


@_infer.shapes
def question(data: dict[str, Any], *, strict: bool) -> Question:
    """Read the body of /infer."""
    found = _infer.load(data, strict)
    if found.get("includeUndefined") and proof_asked(found):
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    return Question(
        literal_given(found),
        found.get("scope"),
        found.get("limit"),
        found.get("offset", 0),
        found.get("minConfidence"),
        found.get("asOf"),
        budget_wanted(found),
        ProofWish(found.get("proofFormat", FORMS[0]), found.get("proofNodes"), found.get("proofDepth"))
        if proof_asked(found)
        else None,
        found.get("includeUndefined", False),
    )


@_explain.shapes
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
        body = (literal_given(found),)
    planned = found.get("plan", False) or found.get("analyze", False)
    as_json = found.get("format") == "json"
    if as_json and not planned:
        raise InvalidInput.at("format", "is for plans: ask /infer with 'withProof' for proofs as JSON")
    return Explanation(
        body,
        found.get("scope"),
        found.get("limit"),
        found.get("offset", 0),
        found.get("minConfidence"),
        found.get("asOf"),
        budget_wanted(found),
        found.get("proofNodes"),
        found.get("proofDepth"),
        planned,
        found.get("analyze", False),
        as_json,
    )


@_query.shapes
def pattern(data: dict[str, Any], *, strict: bool) -> Pattern:
    """Read the body of /query."""
    found = _query.load(data, strict)
    atom, positive = atom_given(found)
    shown = found.get("scope"), found.get("limit"), found.get("asOf")
    return Pattern(atom, positive, *shown, budget_wanted(found))


@_aggregate.shapes
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
        budget_wanted(found),
    )
