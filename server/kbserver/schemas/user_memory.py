"""Memory about a user: bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.language.messages import messages_of
from kbcore.operations.episodes.episodes import DEFAULT_LISTED, MAX_LISTED
from kbcore.operations.history.fact_history import DEFAULT_EVENTS
from kbcore.operations.memory import MAX_FOUND, MAX_TOKENS
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.episodes import pattern_of
from kbcore.python_values import named
from kbcore.upkeep.purge import MAX_SUBJECT_CHARS
from kbplanner.ir.terms import Atom
from kbplanner.pacing import current_yield
from kbserver.pace import reading
from kbserver.schemas.base import Answer, Body, answer_of
from kbserver.schemas.context import MAX_FACTS, Entry, SourceShown
from kbserver.schemas.episodes.correction import AtomOrText, fact_in
from kbserver.schemas.episodes.history import LIMIT as HISTORY_LIMIT
from kbserver.schemas.episodes.history import OFFSET as HISTORY_OFFSET
from kbserver.schemas.episodes.history import HistoryAnswer
from kbserver.schemas.facts import FactBody, QuotationShown
from kbserver.schemas.fields import (
    Choice,
    Count,
    Flag,
    Instant,
    Json,
    Many,
    Name,
    Number,
    Text,
    TextOrMessages,
    Whole,
)
from kbserver.schemas.requests import Budgeted, request_limits
from kbtypes import memory


class InConversation(Budgeted):
    """The conversation that a body is about."""

    session = Name("a session")
    agent = Name("an agent")


class MemoryAddBody(InConversation):
    """Messages to remember."""

    messages = TextOrMessages("What was said: a text of the user, or messages.", required=True)
    at = Instant(description="The time of messages without one of their own; default: now.")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.memory_add`."""
        messages = fields["messages"]
        listed = messages if type(messages) is list else [messages]
        return {
            "messages": messages_of(listed, "messages", None, Instant().read, current_yield()),
            "session": fields.get("session"),
            "agent": fields.get("agent"),
            "at": fields.get("at"),
            "request_limits": request_limits(fields),
        }


class MemorySearchBody(InConversation):
    """A question about what is remembered."""

    question = Text(required=True, schema={"minLength": 1})
    max_tokens = Whole(1, description=f"Of the text; default: {MAX_TOKENS}.")
    max_facts = Whole(1, MAX_FACTS, f"Default: {MAX_FOUND}.")
    citations = Flag("False: the text has no numbers of sources, and `sources` is empty.")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.memory_search`."""
        names = ("question", "max_tokens", "max_facts", "session", "agent", "citations")
        chosen = {name: fields[name] for name in names if name in fields}
        return {**chosen, "request_limits": request_limits(fields)}


class MemoryUpdateBody(Body):
    """A new value, and what it replaces."""

    fact = AtomOrText(
        FactBody,
        description="The new value, as `tell` takes it, or as text: `lives_in(mia, Berlin)`.",
        required=True,
    )
    since = Instant(description="The time from which it is valid; default: now.")
    replaces = Text(
        "The stored fact that ends; default: that of the `@key` of the predicate, or the opposite."
    )

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the arguments of `TenantKB.memory_update`; an error names the member."""
        fields = super()._read(data, strict, path)
        inside = fields["fact"] if type(fields["fact"]) is dict else ()
        for name in ("since", "replaces"):
            if name in inside:  # ignored, the value would begin now, or end no other one
                raise InvalidInput.at(f"fact.{name}", "is a member of the body, not of fact")
        fact = fact_in(fields["fact"], "fact", strict)
        if "since" in fields:
            fact = replace(fact, valid_from=fields["since"])
        old = None
        if "replaces" in fields:
            replaced = fact_in(fields["replaces"], "replaces", strict)
            old = Atom(replaced.predicate, replaced.args, replaced.positive)
        return {"fact": fact, "replaces": old}


class MemoryForgetBody(Budgeted):
    """The facts to forget."""

    about = Text(
        "A fact or a pattern such as `lives_in(mia, ?where)`, the id of an episode, or words.",
        required=True,
        schema={"minLength": 1, "maxLength": MAX_SUBJECT_CHARS},
    )
    dry_run = Flag("False: forget it. Default: true, only say what would be forgotten.")
    limit = Whole(1, MAX_LISTED, f"Facts, texts and conclusions listed; {DEFAULT_LISTED}.")

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the arguments of `TenantKB.memory_forget`; unknown keys are always refused,
        because it cannot be undone.
        """
        return super()._read(data, strict=True, path=path)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.memory_forget`."""
        names = ("about", "dry_run", "limit")
        chosen = {name: fields[name] for name in names if name in fields}
        return {**chosen, "request_limits": request_limits(fields)}


class MemoryHistoryBody(Body):
    """The facts whose history is asked for."""

    about = Text("A predicate, or a pattern: `lives_in(mia, ?where)`.", required=True)
    limit = HISTORY_LIMIT
    offset = HISTORY_OFFSET


class FactsToolBody(Body):
    """A page of facts that are valid now."""

    limit = Whole(1, MAX_LISTED)
    offset = Whole(0)


AddedAnswer = answer_of(memory.AddedMessages, "AddedMessages")


class FoundMemories(Answer):
    """Memories that match a question."""

    text = Text("For a prompt; empty if nothing is known.")
    entries = Many(Entry)
    sources = Many(SourceShown, "The passages that the numbers in the text cite.")
    tokens = Count("Of the text.")
    index_progress = Number(
        "While the word index is made: the share of facts that was searched, 0 to 1.",
        optional=True,
    )
    vectors_missing = Count(
        "With an embedder: facts without a vector, which are found by their words only.",
        optional=True,
    )


BelievedFactShown = answer_of(
    memory.BelievedFact,
    "BelievedFact",
    sources=Many(QuotationShown, "The passages that the fact is based on."),
)
BelievedAnswer = answer_of(memory.BelievedFacts, "BelievedFacts")
ForgottenFactShown = answer_of(
    memory.ForgottenFact, "ForgottenFact", why=Choice("asked", "evidence", "summary")
)
ForgottenAnswer = answer_of(memory.Forgotten, "ForgottenMemories")


def found_by(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return what is known about a question as text: a model reads each fact once."""
    arguments = MemorySearchBody().read(data, strict=strict)
    with reading(data):
        answer = FoundMemories.write(kb.memory_search(**arguments))
    return {name: value for name, value in answer.items() if name != "entries"}


def history_of(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return when facts were stored, changed and removed."""
    with reading(data), named(predicate="about"):
        arguments = MemoryHistoryBody().read(data, strict=strict)
        pattern = pattern_of(arguments["about"], None, None)
    outcome = kb.fact_history(
        pattern,
        limit=arguments.get("limit", DEFAULT_EVENTS),
        offset=arguments.get("offset", 0),
    )
    return HistoryAnswer.write(outcome)


def facts_of(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return what is believed now."""
    arguments = FactsToolBody().read(data, strict=strict)
    return BelievedAnswer.write(kb.memory_facts(**arguments))
