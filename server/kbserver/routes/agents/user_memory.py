"""Memory of an agent about a user: messages in, the text for a prompt out. A user is a tenant."""

from __future__ import annotations

from flask import Response, request

from kbcore.errors import InvalidInput
from kbcore.operations.episodes.episodes import DEFAULT_LISTED, MAX_LISTED
from kbcore.operations.history.fact_history import DEFAULT_EVENTS
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.episodes import pattern_of
from kbcore.python_api.user_memory import EmbeddedMemory
from kbcore.python_values import named
from kbcore.state.keys import READER, WRITER
from kbserver.answers import as_json, discarded
from kbserver.http.request_context import reader
from kbserver.mcp.work import ToolUpdated
from kbserver.operations import COUNT, TEXT, Method, Tool, as_object, operation
from kbserver.pace import reading
from kbserver.schemas.episodes.history import LIMIT as HISTORY_LIMIT
from kbserver.schemas.episodes.history import HistoryAnswer
from kbserver.schemas.fields import Json, Whole
from kbserver.schemas.requests import request_limits, whole_asked
from kbserver.schemas.user_memory import (
    AddedAnswer,
    BelievedAnswer,
    FactsToolBody,
    ForgottenAnswer,
    FoundMemories,
    MemoryAddBody,
    MemoryForgetBody,
    MemoryHistoryBody,
    MemorySearchBody,
    MemoryUpdateBody,
    facts_of,
    found_by,
    history_of,
)
from kbserver.security import audit
from kbtypes.memory import AddedMessages, Forgotten, MemorySearch
from kbtypes.results import StoreOutcome

LIMIT, OFFSET = Whole(1, MAX_LISTED), Whole(0)


@operation(
    "POST /memory/add",
    role=WRITER,
    replies=(as_object("What was stored.", AddedAnswer),),
    body=MemoryAddBody,
    core=TenantKB.memory_add,
    prefer=("wait",),
    writes=True,
    asks=True,
    tool=Tool(
        name="memory_add",
        description="Remember messages: a text, or chat messages with role, content, name and at.",
        takes=("messages", "session", "agent", "at"),
        gives=("episodeIds", "facts", "warning?", "forgotten?"),
        profile="memory",
    ),
    viewed=True,
)
def add(outcome: AddedMessages, arguments: Json) -> Response:
    """Store messages, and the facts that are read in them.

    The texts are kept with and without a language model, as prose: `likes(mia, tea)` in one is no
    fact. With a model, the facts that it reads are
    stored in addition; a new value of a declared `@key` ends the older one. Messages that are
    stored already are not stored again.
    """
    return as_json(AddedAnswer.write(outcome), discarded(outcome.discarded))


@operation(
    "POST /memory/search",
    role=READER,
    replies=(as_object("What is known about the question.", FoundMemories),),
    body=MemorySearchBody,
    core=TenantKB.memory_search,
    methods=(
        Method(
            EmbeddedMemory.search,
            "search(question: str, *, max_tokens: int | None = None, max_facts: int | None = None, "
            "session: str | None = None, agent: str | None = None, citations: bool = True, "
            "timeout_ms: int | None = None) -> MemorySearch",
        ),
    ),
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="memory_search",
        description="What is remembered about a question, with sources. session and agent narrow "
        "it to what was said there.",
        takes=("question", "maxTokens", "session", "agent"),
        gives=("text", "sources"),
        profile="memory",
        work=found_by,
    ),
    viewed=True,
)
def search(outcome: MemorySearch, arguments: Json) -> Response:
    """Return what is known about a question, as text for a prompt, with its sources.

    Standing instructions of the user come first.
    """
    return as_json(FoundMemories.write(outcome))


@operation(
    "POST /memory/update",
    role=WRITER,
    replies=(as_object("The number of new facts.", ToolUpdated),),
    body=MemoryUpdateBody,
    core=TenantKB.memory_update,
    writes=True,
    tool=Tool(
        name="memory_update",
        description="Store a new value and end the older one: fact lives_in(mia, Berlin), since "
        "2026-11-13. replaces: the fact that ends, if the predicate has no @key.",
        takes=("fact", "since", "replaces"),
        gives=("asserted", "updated?", "discarded?", "warnings?"),
        destroys=True,
        profile="memory",
    ),
    viewed=True,
)
def update(outcome: StoreOutcome, arguments: Json) -> Response:
    """Store a value that ends an older one, which stays in the history with its evidence.

    The older value is the fact `replaces`, or that of the declared `@key` of the predicate, or the
    opposite of the fact.
    """
    return as_json(ToolUpdated.write(outcome), discarded(outcome.discarded))


@operation(
    "POST /memory/forget",
    role=WRITER,
    replies=(as_object("What was forgotten, or would be.", ForgottenAnswer),),
    body=MemoryForgetBody,
    core=TenantKB.memory_forget,
    methods=(
        Method(
            EmbeddedMemory.forget,
            "forget(about: str, *, dry_run: bool = True, limit: int | None = None, "
            "timeout_ms: int | None = None) -> Forgotten",
            keyed=False,
        ),
    ),
    prefer=("wait",),
    writes=True,
    asks=True,
    audited=True,
    tool=Tool(
        name="memory_forget",
        description="What would be forgotten about a fact, a pattern, an episode or words; with "
        "dryRun false it is forgotten for good.",
        takes=("about", "dryRun", "limit"),
        gives=("dryRun", "facts", "factCount", "texts", "conclusions"),
        destroys=True,
        profile="memory",
    ),
)
def forget(outcome: Forgotten, arguments: Json) -> Response:
    """Remove facts, the texts that they are based on, and what nothing else supports.

    Only says what would go, unless `dryRun` is false. Removal is for good, also from the log.
    """
    audit.done(facts=outcome.fact_count, episodes=outcome.text_count, dryRun=outcome.dry_run)
    return as_json(ForgottenAnswer.write(outcome))


@operation(
    "GET /memory/history",
    role=READER,
    replies=(as_object("The events.", HistoryAnswer),),
    methods=(
        Method(
            EmbeddedMemory.history,
            "history(about: str, *, limit: int = 100, offset: int = 0) -> FactHistory",
        ),
    ),
    query={
        "about": {
            **TEXT,
            "description": "A predicate, or a pattern such as `lives_in(mia, ?where)`. Required.",
        },
        "limit": {**HISTORY_LIMIT.schema, "description": f"Default: {DEFAULT_EVENTS}."},
        "offset": {**COUNT, "description": "Events to skip."},
    },
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="memory_history",
        description="When facts were stored, changed and removed. about: a predicate or a pattern.",
        body=MemoryHistoryBody,
        takes=("about", "limit", "offset"),
        gives=("events", "totalEvents"),
        work=history_of,
        profile="memory",
    ),
    viewed=True,
)
def history() -> Response:
    """Return when facts were stored, changed and removed, the newest event first."""
    asked = request.args
    if not asked.get("about"):
        raise InvalidInput.at("about", "is required")
    with reading(asked), named(predicate="about"):
        pattern = pattern_of(asked["about"], None, None)
    outcome = reader().fact_history(
        pattern,
        limit=whole_asked(asked, "limit", HISTORY_LIMIT, DEFAULT_EVENTS),
        offset=whole_asked(asked, "offset", OFFSET, 0),
        request_limits=request_limits({}),
    )
    return as_json(HistoryAnswer.write(outcome))


@operation(
    "GET /memory/facts",
    role=READER,
    replies=(as_object("What is believed now.", BelievedAnswer),),
    methods=(
        Method(
            EmbeddedMemory.facts, "facts(*, limit: int = 100, offset: int = 0) -> BelievedFacts"
        ),
    ),
    query={
        "limit": {**LIMIT.schema, "description": f"Default: {DEFAULT_LISTED}."},
        "offset": {**COUNT, "description": "Facts to skip."},
    },
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="memory_facts",
        description="What is believed now, with sources, as a page.",
        body=FactsToolBody,
        takes=("limit", "offset"),
        gives=("facts", "totalFacts"),
        work=facts_of,
        profile="memory",
    ),
    viewed=True,
)
def facts() -> Response:
    """Return the facts that are valid now, with the passages that they are based on.

    Texts of messages are left out.
    """
    asked = request.args
    page = reader().memory_facts(
        limit=whole_asked(asked, "limit", LIMIT, DEFAULT_LISTED),
        offset=whole_asked(asked, "offset", OFFSET, 0),
        request_limits=request_limits({}),
    )
    return as_json(BelievedAnswer.write(page))
