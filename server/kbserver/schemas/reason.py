"""Request bodies of /infer, /query, /explain and /aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.kb.queries import Write
from kbcore.proofs.shapes import FORMS, MAX_PROOF_NODES, ProofOptions
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.ask import terms_of
from kbcore.reason.budget import BudgetWanted, Notes
from kbcore.reason.options import AnswerOptions
from kbcore.reason.unknown import UnknownPredicate
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.syntax.jsonform import atom_from_json, item_from_json
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_item
from kbserver.answers import proofs_written
from kbserver.schemas.base import (
    Envelope,
    atom_given,
    atom_terms,
    budget_wanted,
    literal_given,
    proof_asked,
    wildcards,
)
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
_operation = takes({**TEXT, "pattern": f"^({_ANY_CASE})$", "description": _WHICH})(
    lambda value: text(value)
)
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
    """Do nothing: a page is short, so writing it needs no yield to other requests."""


_NO_PROOF = "cannot be combined with proofs: undefined answers have no proof"

_explain = Envelope(
    "Explain", _EXPLAIN, more={"anyOf": [given("text"), given("body"), given("predicate", "args")]}
)
_infer = Envelope("Infer", _INFER, or_text=True)
_query = Envelope("Query", _GOAL, or_text=True)
_aggregate = Envelope(
    "Aggregate",
    _AGGREGATE,
    required=("predicate",),
    more={"anyOf": [given("op"), given("operation")]},
)


@dataclass(frozen=True, slots=True)
class Question:
    """A goal of /infer; `proof` is None if only answers are requested."""

    literal: Literal
    options: AnswerOptions
    proof: ProofOptions | None = None

    def written(self, kb: KnowledgeBase, write: Write, notes: Notes) -> list[bytes]:
        """Return the answers as a JSON array in parts; `write` serialises rows that the engine does not write."""
        if self.proof is not None:
            parts = kb.prove_json(self.literal, proofs_written, self.options, self.proof)
        else:
            parts = kb.infer_json(self.literal, write, self.options, notes=notes)
        if self.literal.negated or parts == [b"[]"]:
            notes.unknown = self._unknown(kb)
        return parts

    def paged(
        self, kb: KnowledgeBase, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return a page of answers and True if more follow. Raises InvalidInput if the body has a limit too."""
        if self.options.limit is not None:
            raise InvalidInput.at(
                "limit", "is in the query string and in the body; send one of them"
            )
        start = self.options.offset + offset
        page = replace(self.options, offset=start, limit=limit)
        if self.proof is not None:
            parts = replace(self, options=page).written(kb, write, notes)
            after = replace(page, offset=start + limit, limit=1)
            return parts, bool(kb.infer(self.literal, after, notes=notes))
        rows = kb.infer(self.literal, replace(page, limit=limit + 1), notes=notes)
        if self.literal.negated or not rows:
            notes.unknown = self._unknown(kb)
        return [write(rows[:limit], nothing)], len(rows) > limit

    def _unknown(self, kb: KnowledgeBase) -> list[UnknownPredicate]:
        return kb.unknown_predicates([_signature(self.literal.atom)], self.options.scope)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A goal of one or more literals to explain, or whose plan is requested."""

    body: tuple[BodyItem, ...]
    options: AnswerOptions
    proof: ProofOptions
    plan: bool
    analyze: bool
    as_json: bool

    def unknown(self, kb: KnowledgeBase) -> list[UnknownPredicate]:
        """Return the predicates of the goal that have no fact and no rule."""
        atoms = (item.atom for item in self.body if isinstance(item, Literal))
        return kb.unknown_predicates(map(_signature, atoms), self.options.scope)

    def answer(self, kb: KnowledgeBase) -> str | dict[str, Any]:
        """Return the explanation as text; a plan may also be an object."""
        if self.as_json:
            plans = kb.plans(self.body, self.options, analyze=self.analyze)
            return {"goal": ", ".join(map(print_item, self.body)), "plans": plans}
        if self.plan:
            return kb.plan(self.body, self.options, analyze=self.analyze)
        return kb.explain(self.body, self.options, self.proof)


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
        """Return the matching facts with their truth values as a JSON array in parts; see `Question.written`."""
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

    def paged(
        self, kb: KnowledgeBase, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return a page of matching facts and True if more follow; see `Question.paged`."""
        if self.limit is not None:
            raise InvalidInput.at(
                "limit", "is in the query string and in the body; send one of them"
            )
        max_rows = offset + limit + 1
        rows = kb.query_rows(
            self.atom.predicate,
            terms_of(self.atom),
            positive=self.positive,
            scope=self.scope,
            limit=max_rows,
            as_of=self.as_of,
            wanted=self.wanted,
        )
        if not rows:
            notes.unknown = kb.unknown_predicates([_signature(self.atom)], self.scope)
        page = [{**row, "truthVal": not row["negated"]} for row in rows[offset : offset + limit]]
        return [write(page, nothing)], len(rows) == max_rows


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate over stored facts."""

    query: AggregateQuery
    scope: str | None
    as_of: int | None
    wanted: BudgetWanted

    def unknown(self, kb: KnowledgeBase) -> list[UnknownPredicate]:
        """Return the predicate if it has no fact and no rule."""
        pattern = self.query.pattern
        arity = None if pattern is None else len(pattern)
        return kb.unknown_predicates([(self.query.predicate, arity)], self.scope)

    def answer(self, kb: KnowledgeBase, now: int) -> dict[str, Any]:
        """Return the answer of /aggregate."""
        outcome = kb.aggregate(self.query, scope=self.scope, as_of=self.as_of, wanted=self.wanted)
        return {
            "result": outcome.result,
            "op": self.query.op,
            "operation": self.query.op,
            "predicate": self.query.predicate,
            "matchedFacts": outcome.matched,
            "timestamp": now,
        }


def _signature(atom: Atom) -> tuple[str, int]:
    return atom.predicate, atom.arity


def _answer_options(fields: Mapping[str, Any]) -> AnswerOptions:
    return AnswerOptions(
        fields.get("scope"),
        fields.get("limit"),
        fields.get("offset", 0),
        fields.get("minConfidence"),
        fields.get("asOf"),
        fields.get("includeUndefined", False),
        budget_wanted(fields),
    )


def _proof_options(fields: Mapping[str, Any]) -> ProofOptions:
    return ProofOptions(
        fields.get("proofFormat", FORMS[0]), fields.get("proofNodes"), fields.get("proofDepth")
    )


@_infer.shapes
def question(data: dict[str, Any], *, strict: bool) -> Question:
    """Read the body of /infer."""
    fields = _infer.load(data, strict)
    if fields.get("includeUndefined") and proof_asked(fields):
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    return Question(
        literal_given(fields),
        _answer_options(fields),
        _proof_options(fields) if proof_asked(fields) else None,
    )


@_explain.shapes
def explanation(data: dict[str, Any], *, strict: bool) -> Explanation:
    """Read the body of /explain: a literal as for /infer, several in `body`, or a goal in the rule language in `text`."""
    fields = _explain.load(data, strict)
    if fields.get("includeUndefined"):
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    if "text" in fields:
        body = parse_goal(fields["text"]).body
    elif "body" in fields:
        items = fields["body"]
        if type(items) is not list or not items:
            raise InvalidInput.at("body", "must be an array of literals")
        body = tuple(item_from_json(item, f"body[{index}]") for index, item in enumerate(items))
    else:
        body = (literal_given(fields),)
    planned = fields.get("plan", False) or fields.get("analyze", False)
    as_json = fields.get("format") == "json"
    if as_json and not planned:
        raise InvalidInput.at(
            "format", "applies to plans only; for proofs as JSON use /infer with 'withProof'"
        )
    return Explanation(
        body,
        _answer_options(fields),
        _proof_options(fields),
        planned,
        fields.get("analyze", False),
        as_json,
    )


@_query.shapes
def pattern(data: dict[str, Any], *, strict: bool) -> Pattern:
    """Read the body of /query."""
    fields = _query.load(data, strict)
    atom, positive = atom_given(fields)
    limits = fields.get("scope"), fields.get("limit"), fields.get("asOf")
    return Pattern(atom, positive, *limits, budget_wanted(fields))


@_aggregate.shapes
def aggregation(data: dict[str, Any], *, strict: bool) -> Aggregation:
    """Read the body of /aggregate."""
    fields = _aggregate.load(data, strict)
    op = fields.get("op", fields.get("operation"))
    if op is None:
        raise InvalidInput.at("op", f"is required: one of {', '.join(OPERATIONS)}")
    if op.upper() not in OPERATIONS:
        raise InvalidInput.at("op", f"must be one of {', '.join(OPERATIONS)}")
    if op.upper() != "COUNT" and "argIndex" not in fields:
        raise InvalidInput.at("argIndex", f"is required for {op.upper()}")
    atom = atom_from_json(
        {"predicate": fields["predicate"], "args": wildcards(fields.get("args", []))}
    )
    query = AggregateQuery(
        atom.predicate,
        op.upper(),
        fields.get("argIndex"),
        atom_terms(atom) if "args" in fields else None,
        fields.get("skipNonNumeric", False),
    )
    return Aggregation(query, fields.get("scope"), fields.get("asOf"), budget_wanted(fields))
