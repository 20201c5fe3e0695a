"""Bodies of texts to be read and questions to be answered by a language model, and what comes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.language.extract import Extracted
from kbcore.language.synthesize import Synthesis
from kbcore.reason.budget import BudgetWanted
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Rule
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.printer import print_rule
from kbserver.schemas.base import Envelope, budget_wanted
from kbserver.schemas.fields import BUDGET, flag, scope_to_read, scope_to_write, text

REJECTED_SHOWN = 50
"""Entries of a model's answer that were refused, that are told."""

_extract = Envelope(
    "Extract",
    {
        "text": text,
        "assert": flag,
        "rules": flag,
        "scope": scope_to_write,
        "context": text,
        **BUDGET,
    },
    required=("text",),
)
_synthesize = Envelope(
    "Synthesize", {"question": text, "scope": scope_to_read, **BUDGET}, required=("question",)
)


@dataclass(frozen=True, slots=True)
class ExtractAsked:
    """A text to be read, whether what it states is stored, and what may be used for that."""

    text: str
    store: bool
    rules: bool
    scope: str | None
    context: str | None
    wanted: BudgetWanted


@dataclass(frozen=True, slots=True)
class SynthesizeAsked:
    """A question in words, the partition it is about, and what each query may use."""

    question: str
    scope: str | None
    wanted: BudgetWanted


@_extract.shapes
def extraction(data: dict[str, Any], *, strict: bool) -> ExtractAsked:
    """Read the body of /extract."""
    fields = _extract.load(data, strict)
    store, rules = fields.get("assert", False), fields.get("rules", False)
    return ExtractAsked(
        fields["text"],
        store,
        rules,
        fields.get("scope"),
        fields.get("context"),
        budget_wanted(fields),
    )


@_synthesize.shapes
def question(data: dict[str, Any], *, strict: bool) -> SynthesizeAsked:
    """Read the body of /synthesize."""
    fields = _synthesize.load(data, strict)
    return SynthesizeAsked(fields["question"], fields.get("scope"), budget_wanted(fields))


def shown_extracted(found: Extracted) -> dict[str, Any]:
    """Return the answer of /extract."""
    return {
        "facts": [{**_atom(fact), "confidence": fact.confidence} for fact in found.facts],
        "rules": [_rule(rule) for rule in found.rules],
        "asserted": found.asserted,
        "known": found.known,
        "contradictions": [{**_atom(one.fact), "known": one.known} for one in found.contradictions],
        **shown_troubles(found),
        "chunks": found.chunks,
        "truncated": found.truncated,
        "provider": found.provider,
        "model": found.model,
    }


def shown_troubles(found: Extracted) -> dict[str, Any]:
    """Return the rejected statements and the passages that could not be read."""
    return {
        "rejected": [
            {"said": one.quote, "reason": one.reason} for one in found.rejected[:REJECTED_SHOWN]
        ],
        "failures": [
            {"start": one.start, "end": one.end, "code": one.code, "reason": one.reason}
            for one in found.failures
        ],
    }


def shown_synthesis(found: Synthesis) -> dict[str, Any]:
    """Return the answer of /synthesize."""
    return {
        "answer": found.answer,
        "derivation": [
            {
                "fact": one.fact,
                "type": one.type,
                "rule": one.rule,
                "confidence": one.confidence,
                "scope": one.scope,
            }
            for one in found.derivation
        ],
        "confidence": found.confidence,
        "queriesExecuted": found.queries,
        "queriesFailed": [{"query": query, "reason": reason} for query, reason in found.failed],
        "provider": found.provider,
        "model": found.model,
    }


def _atom(fact: Fact) -> dict[str, Any]:
    return {"predicate": fact.predicate, "args": list(fact.args), "negated": not fact.positive}


def _rule(rule: Rule) -> dict[str, Any]:
    body = rule_to_json(rule)
    return {
        "head": body["head"],
        "body": body["body"],
        "text": print_rule(rule, bare=True),
        "confidence": rule.confidence,
    }
