"""The operation that lists the history of facts."""

from __future__ import annotations

from flask import Response, request

from kbcore.errors import InvalidInput
from kbcore.operations.history.fact_history import DEFAULT_EVENTS
from kbcore.python_api.episodes import pattern_of
from kbcore.state.keys import READER
from kbserver.answers import as_json
from kbserver.http.request_context import reader
from kbserver.operations import COUNT, TEXT, Tool, as_object, operation
from kbserver.pace import reading
from kbserver.schemas.episodes.history import (
    LIMIT,
    OFFSET,
    HistoryAnswer,
    HistoryToolBody,
    history_tool,
)
from kbserver.schemas.fields import ReadScope
from kbserver.schemas.requests import request_limits, scope_asked, whole_asked

NEWEST, OLDEST = "newest", "oldest"


@operation(
    "GET /facts/history",
    role=READER,
    replies=(as_object("The events.", HistoryAnswer),),
    query={
        "predicate": {
            **TEXT,
            "description": "A predicate, or a pattern such as `likes(ann, ?x)`. Required.",
        },
        "scope": ReadScope.schema,
        "order": {**TEXT, "enum": [NEWEST, OLDEST], "description": f"Default: {NEWEST} first."},
        "limit": {**LIMIT.schema, "minimum": 1, "description": f"Default: {DEFAULT_EVENTS}."},
        "offset": {**COUNT, "description": "Events to skip."},
    },
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="fact_history",
        description="When and by which request facts were stored, changed and removed. predicate: "
        "a name, or a pattern: likes(ann, ?x).",
        body=HistoryToolBody,
        takes=("predicate", "scope", "limit", "offset", "oldestFirst"),
        gives=("events", "totalEvents", "startSeq", "startAt"),
        work=history_tool,
    ),
    viewed=True,
)
def history() -> Response:
    """Return what asserted, replaced and removed facts, and when.

    Each event has the fact before and after it, its commit, and where known the idempotency key of
    the request, the transaction and the id of the API key. A purge has neither fact, only their
    number. The log is kept for a limited time: `startAt` says from when on the history is complete.
    """
    asked = request.args
    if not asked.get("predicate"):
        raise InvalidInput.at("predicate", "is required")
    order = asked.get("order", NEWEST)
    if order not in (NEWEST, OLDEST):
        raise InvalidInput.at("order", f"must be {NEWEST} or {OLDEST}")
    with reading(asked):
        pattern = pattern_of(asked["predicate"], None, scope_asked(asked, None))
    outcome = reader().fact_history(
        pattern,
        limit=whole_asked(asked, "limit", LIMIT, DEFAULT_EVENTS),
        offset=whole_asked(asked, "offset", OFFSET, 0),
        oldest_first=order == OLDEST,
        request_limits=request_limits({}),
    )
    return as_json(HistoryAnswer.write(outcome))
