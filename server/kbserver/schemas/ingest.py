"""Storing a text and returning a context window, and summaries: bodies and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbcore.context.diff import WindowDiff
from kbcore.context.proofs.violations import MAX_SHOWN
from kbcore.context.request import WindowRequest
from kbcore.context.text.render import render_changes
from kbcore.language.messages import Message, messages_of
from kbcore.operations.natural_language import Ingestion
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.budget import RequestLimits
from kbplanner.pacing import current_yield
from kbserver.schemas.base import Answer, JsonObject, LeanAnswer, without_nulls
from kbserver.schemas.context import (
    MAX_FACTS,
    Compat,
    Entry,
    Goals,
    SelectedWindow,
    WindowAnswer,
    compat_of,
    window_fields,
)
from kbserver.schemas.fields import (
    Count,
    Flag,
    Fraction,
    Instant,
    Json,
    Many,
    Messages,
    Number,
    One,
    ReadScope,
    Strategy,
    Text,
    TextOrMessages,
    Time,
    Whole,
    WriteScope,
)
from kbserver.schemas.language import REJECTED_SHOWN, Failure, Rejected, Said, source_of
from kbserver.schemas.requests import Historic, request_limits
from kbtypes.windows import Entry as WindowEntry

PROVIDER = "predicate-syntax"
"""The provider reported for a text that was read without a language model."""

TURN_FACTS = 50
"""Default number of facts in the window of a conversation."""

LINES_NAMED = 100
"""Limit on the line numbers of unread prose in an answer."""

NOT_READ = "not read, for no language model is configured"
KEPT = "kept as episodes, for no language model is configured"


class TextBody(Said):
    """The window to return for a text."""

    max_facts = Whole(1, MAX_FACTS)
    scope = WriteScope()
    auto_resolve = Flag(data_key="autoResolveContradictions")
    conflict_strategy = Strategy(
        "What happens to a fact with a rival, as for /tell; default: INGEST_CONFLICTS."
    )


class IngestBody(TextBody):
    """A text or messages to store, and a hint for the language model."""

    text = TextOrMessages("A text, or messages.", required=True)
    goals = Goals()
    hint = Text(data_key="contextHint")
    compat = Compat()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `stored`."""
        text, hint, compat = fields.pop("text"), fields.pop("hint", None), compat_of(fields)
        source, conflict = source_of(fields), fields.pop("conflict_strategy", None)
        if type(text) is list:
            text = messages_of(text, "text", source.speaker, Instant().read, current_yield())
        request = WindowRequest(**window_fields(fields))
        return {
            "text": text,
            "request": request,
            "conflict": conflict,
            "hint": hint,
            "source": source,
            "compat": compat,
            "request_limits": request_limits(fields),
        }


class TurnsBody(TextBody):
    """The turns of a conversation to store."""

    turns = Messages("Turns of a conversation.", required=True)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `stored`."""
        turns = fields.pop("turns")
        source, conflict = source_of(fields), fields.pop("conflict_strategy", None)
        messages = messages_of(turns, "turns", source.speaker, Instant().read, current_yield())
        request = WindowRequest(**{"max_facts": TURN_FACTS, **window_fields(fields)})
        return {
            "text": messages,
            "source": source,
            "conflict": conflict,
            "request": request,
            "request_limits": request_limits(fields),
        }


class ContextSummaryBody(Historic):
    """The scope to summarise."""

    scope = ReadScope()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.context_summary`."""
        return {"scope": fields.get("scope"), "request_limits": request_limits(fields)}


@dataclass(frozen=True, slots=True)
class IngestedText:
    """The outcome of storing a text, the requested window, and the number of facts in the scope.

    `compat` is that of the window.
    """

    done: Ingestion[WindowDiff]
    request: WindowRequest
    compat: bool = True
    total: int = 0

    @property
    def selected(self) -> SelectedWindow:
        """The window with its request."""
        return SelectedWindow(self.done.window, self.request, self.compat)

    @property
    def warning(self) -> str | None:
        """A warning about text that was not read, or None."""
        prose, read = len(self.done.unread), self.done.extracted
        if read is not None and read.failures:
            reason = read.failures[0].reason
            pieces = f"{len(read.failures)} of {read.chunks} pieces"
            return f"the language model could not read {pieces}: {reason}"
        if not prose:
            return None
        lines = f"{prose} line{'s' * (prose > 1)} of prose"
        return f"{KEPT}: {lines}" if self.done.episodes else f"{NOT_READ}: {lines}"

    @property
    def changes(self) -> str | None:
        """The changes since the last window of the session as text; None if there are none."""
        changes = self.done.changes
        if changes is None:
            return None
        return render_changes(changes, self.request.format) or None


def _of_model(name: str, default: Any) -> Any:
    """Return a function that gives an attribute of what the model read, or a default without a
    model.
    """
    return lambda text: (
        default if text.done.extracted is None else getattr(text.done.extracted, name)
    )


class ExtractedFact(Answer):
    """A fact of the text."""

    predicate = Text()
    args = Many(Text())
    negated = Flag(of=lambda fact: not fact.positive)
    confidence = Fraction(of=lambda fact: 1.0 if fact.confidence is None else fact.confidence)


class IngestedAnswer(LeanAnswer):
    """The stored facts and rules of a text, and the window."""

    extracted = Many(ExtractedFact, of="done.facts")
    rules = Many(Text(), of=lambda text: [rule.text for rule in text.done.rules])
    extraction_provider = Text(of=_of_model("provider", PROVIDER))
    extraction_model = Text(of=_of_model("model", None), allow_none=True)
    unread_lines = Many(Count(), of=lambda text: text.done.unread[:LINES_NAMED])
    rejected = Many(
        Rejected,
        of=lambda text: _of_model("rejected", ())(text)[:REJECTED_SHOWN],
    )
    failures = Many(Failure, of=_of_model("failures", ()))
    context = One(WindowAnswer, of="selected")
    episode_ids = Many(
        Text(),
        "Of the episodes of the text, if facts were read in it.",
        of=lambda text: list(text.done.recorded) or None,
        optional=True,
    )
    discarded = Count(
        "Facts that a conflict strategy did not store, if any.",
        of=lambda text: text.done.discarded or None,
        optional=True,
    )

    @classmethod
    def write_minimal(cls, outcome: Any) -> Json:
        """Return an outcome as JSON without null members, also in the window."""
        answer = super().write_minimal(outcome)
        return {**answer, "context": without_nulls(answer["context"])}


def _premises(entry: WindowEntry) -> str | None:
    source = entry.provenance
    return None if source is None else f"{source.rule} from {', '.join(source.premises)}"


class TurnFact(LeanAnswer):
    """A fact in the window of a conversation."""

    predicate = Text()
    args = Many(Text())
    negated = Flag()
    salience = Number("0 to 1, and above for facts that goals depend on.")
    provenance = Text(of=_premises, allow_none=True)
    contradicted = Flag()


class TurnsRead(LeanAnswer):
    """The facts that matter after the turns of a conversation."""

    facts = Many(TurnFact, of="done.window.entries")
    total_facts_in_kb = Count(data_key="totalFactsInKB", of="total")
    facts_returned = Count(of=lambda text: len(text.done.window.entries))
    contradictions = Count(of="done.window.contradictions_found")
    new_facts_extracted = Count(of="done.asserted")
    session_id = Text(of="request.session", allow_none=True)
    warning = Text(allow_none=True)
    briefing_delta = Text(of="changes", allow_none=True)
    discarded = Count(
        "Facts that a conflict strategy did not store, if any.",
        of=lambda text: text.done.discarded or None,
        optional=True,
    )


class PredicateCount(JsonObject):
    """A predicate and its number of facts."""

    predicate = Text()
    count = Count()


class SummaryAnswer(Answer):
    """The knowledge base at a glance."""

    total_facts = Count(of="facts")
    predicate_count = Count()
    top_predicates = Many(
        PredicateCount,
        of=lambda summary: [
            {"predicate": name, "count": count} for name, count in summary.predicates
        ],
    )
    facts_with_ttl = Count(of="with_ttl")
    facts_expiring_within_1h = Count(data_key="factsExpiringWithin1h", of="expiring")
    contradictions = Count()
    constraint_violations = Count(
        "Conclusions `contradiction(kind, first, second)` of declared constraints.",
        of=lambda summary: len(summary.violations),
    )
    top_violations = Many(
        Text(),
        f"The first {MAX_SHOWN} of them, in the rule language.",
        of=lambda summary: [each.text for each in summary.violations[:MAX_SHOWN]],
    )
    top_salient_facts = Many(Entry, of="salient")
    total_char_count = Count(of="chars")
    knowledge_generation = Count(of="generation")
    generated_at = Time()


def stored(
    kb: TenantKB,
    *,
    text: str | Sequence[Message],
    request: WindowRequest,
    hint: str | None = None,
    request_limits: RequestLimits | None = None,
    compat: bool = True,
    **more: Any,
) -> IngestedText:
    """Store the facts and rules of a text and return the outcome with the requested window.

    `more` are source and conflict strategy, as for `TenantKB.ingest`.
    """
    done = kb.ingest(text, request, hint=hint, request_limits=request_limits, **more)
    return IngestedText(done, request, compat)
