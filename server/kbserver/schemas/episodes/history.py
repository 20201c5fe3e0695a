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
from kbserver.schemas.base import Answer, Body, answer_of
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
from kbtypes.episodes import FactEvent

LIMIT = Whole(1, MAX_EVENTS)
OFFSET = Whole(0)


class HistoryToolBody(Body):
    """The facts whose history a tool lists."""

    predicate = Text(required=True)
    scope = ReadScope()
    limit = Whole(1, MAX_EVENTS)
    offset = Whole(0)
    oldest_first = Flag()


HistoryEvent = answer_of(
    FactEvent,
    "HistoryEvent",
    event=Choice(*EVENTS),
    cause=Choice(*CAUSES),
    before=One(
        Row, description="The fact before the event; null if it was not stored.", allow_none=True
    ),
    after=One(
        Row, description="The fact after the event; null if it is not stored.", allow_none=True
    ),
)


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
