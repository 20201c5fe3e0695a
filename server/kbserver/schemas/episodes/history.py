"""Schemas of the history of facts."""

from __future__ import annotations

from kbcore.operations.history.fact_history import (
    CAUSES,
    DEFAULT_EVENTS,
    EVENTS,
    MAX_EVENTS,
)
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.episodes import pattern_of
from kbserver.pace import reading
from kbserver.schemas.base import Answer, Body
from kbserver.schemas.facts import Row
from kbserver.schemas.fields import (
    Choice,
    Count,
    Flag,
    Json,
    Many,
    One,
    ReadScope,
    Text,
    Time,
    Whole,
)

LIMIT = Whole(1, MAX_EVENTS)
OFFSET = Whole(0)


class HistoryToolBody(Body):
    """The facts whose history a tool lists."""

    predicate = Text(required=True)
    scope = ReadScope()
    limit = Whole(1, MAX_EVENTS)
    offset = Whole(0)
    oldest_first = Flag()


class HistoryEvent(Answer):
    """One event in the history of a fact."""

    event = Choice(*EVENTS)
    cause = Choice(*CAUSES)
    at = Time()
    commit_seq = Count(of="seq")
    before = One(
        Row, description="The fact before the event; null if it was not stored.", allow_none=True
    )
    after = One(
        Row, description="The fact after the event; null if it is not stored.", allow_none=True
    )
    request_id = Text("The idempotency key of the request.", of="request", allow_none=True)
    transaction = Text("The id of the transaction.", allow_none=True)
    key = Text("The id of the API key that the change was made with.", allow_none=True)
    count = Count("Of a purge: the facts that it removed, of any predicate.", allow_none=True)
    reason = Text("Of a correction: its reason.", allow_none=True)
    undoes = Count("Of an undo: the commit that it undid.", allow_none=True)


class HistoryAnswer(Answer):
    """A page of the history of facts."""

    events = Many(HistoryEvent)
    total_events = Count(of="total")
    start_seq = Count("The log tells what happened after this commit.", of="start.seq")
    start_at = Time(of="start.at")


def history_tool(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return what asserted, replaced and removed facts."""
    with reading(data):
        arguments = HistoryToolBody().read(data, strict=strict)
        pattern = pattern_of(arguments["predicate"], None, arguments.get("scope"))
    outcome = kb.fact_history(
        pattern,
        limit=arguments.get("limit", DEFAULT_EVENTS),
        offset=arguments.get("offset", 0),
        oldest_first=arguments.get("oldest_first", False),
    )
    return HistoryAnswer.write(outcome)
