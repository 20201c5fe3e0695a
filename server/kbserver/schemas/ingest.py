"""Bodies of texts to be stored and then read as a window, and what is said of them; summaries."""

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
from kbserver.schemas.context import MOST_FACTS, goal_literals, session_name, shown_entry, shown_window
from kbserver.schemas.fields import BUDGET, Reader, flag, goals, scope_to_read, scope_to_write, text, texts, whole
from kbserver.schemas.language import shown_troubles

PROVIDER = "predicate-syntax"
"""What is named as having read a text where no language model has."""

TURN_FACTS = 50
"""Facts of a window for a conversation, where nobody says."""

LINES_NAMED = 100
"""Lines of prose whose numbers are told."""

NOT_READ = "not read, for no language model is configured"

_MADE: dict[str, Reader] = {
    "maxFacts": whole(1, MOST_FACTS),
    "scope": scope_to_write,
    "sessionId": session_name,
    "autoResolveContradictions": flag,
    **BUDGET,
}

_ingest = Envelope("Ingest", {"text": text, "goals": goals, "contextHint": text, **_MADE}, required=("text",))
_turns = Envelope("Turns", {"turns": texts, **_MADE}, required=("turns",))
_summary = Envelope("ContextSummary", {"scope": scope_to_read, **BUDGET})


@dataclass(frozen=True, slots=True)
class IngestAsked:
    """A text to be stored, the window wanted then, what may be used for it, and a hint for the language model."""

    text: str
    request: WindowRequest
    wanted: BudgetWanted
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryAsked:
    """Which partition is looked over, and what may be used for it."""

    scope: str | None
    wanted: BudgetWanted


@_ingest.shapes
def ingest(data: dict[str, Any], *, strict: bool) -> IngestAsked:
    """Read the body of /context/ingest; the hint is for language models."""
    found = _ingest.load(data, strict)
    request = WindowRequest(goals=goal_literals(found["goals"]) if "goals" in found else (), **_fields(found))
    return IngestAsked(found["text"], request, budget_wanted(found), found.get("contextHint"))


@_turns.shapes
def turns(data: dict[str, Any], *, strict: bool) -> IngestAsked:
    """Read the body of /context: what was said, turn by turn."""
    found = _turns.load(data, strict)
    said = found["turns"]
    if type(said) is not list:
        raise InvalidInput.at("turns", "must be an array of texts")
    for place, turn in enumerate(said):
        if type(turn) is not str:
            raise InvalidInput.at(f"turns[{place}]", "must be a text")
    fields = {"max_facts": TURN_FACTS, **_fields(found)}
    return IngestAsked("\n".join(said), WindowRequest(**fields), budget_wanted(found))


@_summary.shapes
def summary(data: dict[str, Any], *, strict: bool) -> SummaryAsked:
    """Read the body of /context/summary."""
    found = _summary.load(data, strict)
    return SummaryAsked(found.get("scope"), budget_wanted(found))


def shown_ingested(done: Ingested, request: WindowRequest) -> dict[str, Any]:
    """What was taken from a text, and the window."""
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
        **({"rejected": [], "failures": []} if done.extracted is None else shown_troubles(done.extracted)),
        "context": shown_window(done.window, request, whole=True),
    }


def shown_turns(done: Ingested, request: WindowRequest, total: int) -> dict[str, Any]:
    """What is known after some turns of a conversation."""
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


def shown_summary(found: Summary) -> dict[str, Any]:
    """A knowledge base at a glance, for the outside."""
    return {
        "totalFacts": found.facts,
        "predicateCount": found.predicate_count,
        "topPredicates": [{"predicate": name, "count": count} for name, count in found.predicates],
        "factsWithTtl": found.with_ttl,
        "factsExpiringWithin1h": found.expiring,
        "contradictions": found.contradictions,
        "topSalientFacts": [shown_entry(entry) for entry in found.salient],
        "totalCharCount": found.chars,
        "knowledgeGeneration": found.generation,
        "generatedAt": found.generated_at,
    }


def _warning(done: Ingested) -> str | None:
    """What was not read, as text."""
    prose, read = len(done.unread), done.extracted
    if read is not None and read.failures:
        return f"the language model could not read {len(read.failures)} of {read.chunks} pieces: {read.failures[0].reason}"
    return f"{NOT_READ}: {prose} line{'s' * (prose > 1)} of prose" if prose else None


def _turn_fact(entry: Entry) -> dict[str, Any]:
    source = entry.provenance
    text = None if source is None else f"{source.rule} from {', '.join(source.premises)}"
    shown = {"predicate": entry.predicate, "args": list(entry.args), "negated": entry.negated}
    return {**shown, "salience": entry.salience, "provenance": text, "contradicted": entry.contradicted}


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    names = {
        "maxFacts": "max_facts",
        "scope": "scope",
        "sessionId": "session",
        "autoResolveContradictions": "auto_resolve",
    }
    return {field: found[name] for name, field in names.items() if name in found}
