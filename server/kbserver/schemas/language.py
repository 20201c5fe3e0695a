"""Texts and questions for the language model: bodies and answers."""

from __future__ import annotations

from kbcore.context.relevance.chains import MAX_QUESTION_CHARS
from kbcore.language.messages import Source, check_speaker
from kbcore.state.episodes.episodes import MAX_SPEAKER_CHARS
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.printer import print_rule
from kbserver.schemas.base import Answer, JsonObject, answer_of
from kbserver.schemas.context import SourceShown
from kbserver.schemas.fields import (
    Choice,
    Count,
    Flag,
    Fraction,
    Instant,
    Json,
    Many,
    Name,
    Object,
    ReadScope,
    Strategy,
    Text,
    WriteScope,
)
from kbserver.schemas.requests import Budgeted, Historic, request_limits
from kbtypes import language

REJECTED_SHOWN = 50
"""Limit on the rejected statements of a model in an answer."""


GoalsForAnswer = answer_of(language.GoalSuggestions, "GoalSuggestions")


class Said(Budgeted):
    """The origin of a text: who said it, when, and in which session."""

    session = Name("a session", data_key="sessionId")
    speaker = Text(
        "The speaker of the text, and of messages of the user without a name.",
        schema={"minLength": 1, "maxLength": MAX_SPEAKER_CHARS},
    )
    at = Instant(description="The time at which the text was said; default: now.")


def source_of(fields: Json) -> Source:
    """Remove speaker and time of a text from the fields of a body, and return its origin; raises
    InvalidInput.
    """
    speaker, at = fields.pop("speaker", None), fields.pop("at", None)
    if speaker is not None:
        check_speaker("speaker", speaker)
    return Source(speaker, at, fields.get("session"))


class ExtractBody(Said):
    """A text to extract facts from, and whether to store them."""

    text = Text(required=True)
    store = Flag(data_key="assert")
    rules = Flag()
    scope = WriteScope()
    context = Text()
    conflict_strategy = Strategy(
        "What happens to a fact with a rival, as for /tell; default: INGEST_CONFLICTS."
    )

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.extract`."""
        return {
            "text": fields["text"],
            "store": fields.get("store", False),
            "rules": fields.get("rules", False),
            "scope": fields.get("scope"),
            "context": fields.get("context"),
            "source": source_of(fields),
            "conflict": fields.get("conflict_strategy"),
            "request_limits": request_limits(fields),
        }


class SynthesizeBody(Budgeted):
    """A question in natural language."""

    question = Text(required=True)
    scope = ReadScope()
    citations = Flag("True: the answer cites its `sources`.")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.synthesize`."""
        scope, question = fields.get("scope"), fields["question"]
        return {
            "question": question,
            "scope": scope,
            "citations": fields.get("citations", False),
            "request_limits": request_limits(fields),
        }


class GoalsForBody(Historic):
    """A question in words, whose goals are looked for without a language model."""

    question = Text(
        "The question.", required=True, schema={"minLength": 1, "maxLength": MAX_QUESTION_CHARS}
    )
    scope = ReadScope()
    asker = Text("The constant that words such as `I` stand for.", schema={"minLength": 1})
    as_of = Instant()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.goals_for`."""
        names = ("question", "scope", "asker", "as_of")
        return {
            **{name: fields[name] for name in names if name in fields},
            "request_limits": request_limits(fields),
        }


class ModelFact(Answer):
    """A fact that the model read."""

    predicate = Text()
    args = Many(Text())
    negated = Flag(of=lambda fact: not fact.positive)
    confidence = Fraction(allow_none=True)


class ModelRule(Answer):
    """A rule that the model read."""

    head = Object(of=lambda rule: rule_to_json(rule)["head"])
    body = Many(Object(), of=lambda rule: rule_to_json(rule)["body"])
    text = Text(of=lambda rule: print_rule(rule, bare=True))
    confidence = Fraction(allow_none=True)


class ContradictingFact(Answer):
    """A fact that contradicts one that is known."""

    predicate = Text(of="fact.predicate")
    args = Many(Text(), of="fact.args")
    negated = Flag(of=lambda contradiction: not contradiction.fact.positive)
    known = Choice("stored", "derived", "text")


class Rejected(Answer):
    """A statement of the model that cannot be stored."""

    quote = Text(data_key="said")
    reason = Text()


class Failure(Answer):
    """A piece of the text, from one character to another, that the model could not read."""

    start = Count()
    end = Count()
    code = Text()
    reason = Text()


class Extracted(Answer):
    """The facts and rules that the model read in a text."""

    facts = Many(ModelFact)
    rules = Many(ModelRule)
    asserted = Count("Facts that were new and are stored.")
    known = Count("Facts that were stored before and are unchanged.")
    contradictions = Many(ContradictingFact)
    rejected = Many(Rejected, of=lambda read: read.rejected[:REJECTED_SHOWN])
    failures = Many(Failure)
    chunks = Count("Pieces the text was read in.")
    truncated = Flag()
    provider = Text()
    model = Text()
    episode_ids = Many(
        Text(),
        "Of the episodes of the text, if facts were stored.",
        of=lambda read: list(read.episodes) or None,
        optional=True,
    )
    discarded = Count(
        "Facts that a conflict strategy did not store, if any.",
        of=lambda read: read.discarded or None,
        optional=True,
    )


class DerivationStep(Answer):
    """A fact or rule that an answer depends on."""

    fact = Text()
    type = Choice("fact_match", "rule_application", "llm_reported")
    rule = Text(allow_none=True)
    confidence = Fraction(allow_none=True)
    scope = Text(allow_none=True)
    citations = Many(
        Count(), "With `citations: true`: numbers of sources.", write=list, optional=True
    )


class FailedQuery(JsonObject):
    """A query of the model that could not be answered."""

    query = Text()
    reason = Text()


class Synthesized(Answer):
    """An answer in natural language, with the facts and rules it depends on."""

    answer = Text()
    derivation = Many(DerivationStep)
    confidence = Fraction()
    queries_executed = Many(Text(), of="queries")
    queries_failed = Many(
        FailedQuery,
        of=lambda synthesis: [
            {"query": query, "reason": reason} for query, reason in synthesis.failed
        ],
    )
    provider = Text()
    model = Text()
    sources = Many(
        SourceShown,
        "With `citations: true`: what was said.",
        of=lambda synthesis: None if synthesis.sources is None else synthesis.sources.listed,
        optional=True,
    )
