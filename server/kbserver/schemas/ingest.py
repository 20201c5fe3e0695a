"""Bodies and answers of the routes that store a text and return a context window, and of summaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.context.request import WindowRequest
from kbcore.context.summary import Summary
from kbcore.context.text.render import render_changes
from kbcore.context.window import Entry
from kbcore.errors import InvalidInput
from kbcore.kb.natural_language import Ingested
from kbcore.reason.budget import BudgetWanted
from kbserver.schemas.base import Envelope, budget_wanted
from kbserver.schemas.context import (
    MOST_FACTS,
    goal_literals,
    session_name,
    shown_entry,
    shown_window,
)
from kbserver.schemas.fields import (
    BUDGET,
    Reader,
    flag,
    goals,
    scope_to_read,
    scope_to_write,
    text,
    texts,
    whole,
)
from kbserver.schemas.language import shown_troubles

PROVIDER = "predicate-syntax"
"""The provider reported for a text that was read without a language model."""

TURN_FACTS = 50
"""Default number of facts in the window of a conversation."""

LINES_NAMED = 100
"""Limit on the line numbers of unread prose in an answer."""

NOT_READ = "not read, for no language model is configured"

_MADE: dict[str, Reader] = {
    "maxFacts": whole(1, MOST_FACTS),
    "scope": scope_to_write,
    "sessionId": session_name,
    "autoResolveContradictions": flag,
    **BUDGET,
}

_ingest = Envelope(
    "Ingest", {"text": text, "goals": goals, "contextHint": text, **_MADE}, required=("text",)
)
_turns = Envelope("Turns", {"turns": texts, **_MADE}, required=("turns",))
_summary = Envelope("ContextSummary", {"scope": scope_to_read, **BUDGET})


@dataclass(frozen=True, slots=True)
class IngestAsked:
    """A text to store, the window to return, its run budget, and a hint for the language model."""

    text: str
    request: WindowRequest
    wanted: BudgetWanted
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryAsked:
    """The scope to summarise and the run budget."""

    scope: str | None
    wanted: BudgetWanted


@_ingest.shapes
def ingest(data: dict[str, Any], *, strict: bool) -> IngestAsked:
    """Read the body of /context/ingest; the hint is for language models."""
    fields = _ingest.load(data, strict)
    request = WindowRequest(
        goals=goal_literals(fields["goals"]) if "goals" in fields else (), **_fields(fields)
    )
    return IngestAsked(fields["text"], request, budget_wanted(fields), fields.get("contextHint"))


@_turns.shapes
def turns(data: dict[str, Any], *, strict: bool) -> IngestAsked:
    """Read the body of /context: the turns of a conversation."""
    fields = _turns.load(data, strict)
    lines = fields["turns"]
    if type(lines) is not list:
        raise InvalidInput.at("turns", "must be an array of texts")
    for index, turn in enumerate(lines):
        if type(turn) is not str:
            raise InvalidInput.at(f"turns[{index}]", "must be a text")
    options = {"max_facts": TURN_FACTS, **_fields(fields)}
    return IngestAsked("\n".join(lines), WindowRequest(**options), budget_wanted(fields))


@_summary.shapes
def summary(data: dict[str, Any], *, strict: bool) -> SummaryAsked:
    """Read the body of /context/summary."""
    fields = _summary.load(data, strict)
    return SummaryAsked(fields.get("scope"), budget_wanted(fields))


def shown_ingested(done: Ingested, request: WindowRequest) -> dict[str, Any]:
    """Return the answer of /context/ingest: extracted facts and rules, and the window."""
    return {
        "extracted": [
            {
                "predicate": fact.predicate,
                "args": list(fact.args),
                "negated": not fact.positive,
                "confidence": 1.0 if fact.confidence is None else fact.confidence,
            }
            for fact in done.facts
        ],
        "rules": [rule.text for rule in done.rules],
        "extractionProvider": PROVIDER if done.extracted is None else done.extracted.provider,
        "extractionModel": None if done.extracted is None else done.extracted.model,
        "unreadLines": list(done.unread[:LINES_NAMED]),
        **(
            {"rejected": [], "failures": []}
            if done.extracted is None
            else shown_troubles(done.extracted)
        ),
        "context": shown_window(done.window, request, whole=True),
    }


def shown_turns(done: Ingested, request: WindowRequest, total: int) -> dict[str, Any]:
    """Return the answer of /context."""
    return {
        "facts": [_turn_fact(entry) for entry in done.window.entries],
        "totalFactsInKB": total,
        "factsReturned": len(done.window.entries),
        "contradictions": done.window.contradictions_found,
        "newFactsExtracted": done.asserted,
        "sessionId": request.session,
        "warning": _warning(done),
        "briefingDelta": None if done.changes is None else render_changes(done.changes) or None,
    }


def shown_summary(summary: Summary) -> dict[str, Any]:
    """Return the answer of /context/summary."""
    return {
        "totalFacts": summary.facts,
        "predicateCount": summary.predicate_count,
        "topPredicates": [
            {"predicate": name, "count": count} for name, count in summary.predicates
        ],
        "factsWithTtl": summary.with_ttl,
        "factsExpiringWithin1h": summary.expiring,
        "contradictions": summary.contradictions,
        "topSalientFacts": [shown_entry(entry) for entry in summary.salient],
        "totalCharCount": summary.chars,
        "knowledgeGeneration": summary.generation,
        "generatedAt": summary.generated_at,
    }


def _warning(done: Ingested) -> str | None:
    """Return a warning about text that was not read, or None."""
    prose, read = len(done.unread), done.extracted
    if read is not None and read.failures:
        return f"the language model could not read {len(read.failures)} of {read.chunks} pieces: {read.failures[0].reason}"
    return f"{NOT_READ}: {prose} line{'s' * (prose > 1)} of prose" if prose else None


def _turn_fact(entry: Entry) -> dict[str, Any]:
    source = entry.provenance
    text = None if source is None else f"{source.rule} from {', '.join(source.premises)}"
    row = {"predicate": entry.predicate, "args": list(entry.args), "negated": entry.negated}
    return {
        **row,
        "salience": entry.salience,
        "provenance": text,
        "contradicted": entry.contradicted,
    }


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    names = {
        "maxFacts": "max_facts",
        "scope": "scope",
        "sessionId": "session",
        "autoResolveContradictions": "auto_resolve",
    }
    return {field: body[name] for name, field in names.items() if name in body}
