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
from kbserver.schemas.base import Body, answer_of
from kbserver.schemas.fields import (
    Choice,
    Count,
    Flag,
    Json,
    ReadScope,
    Text,
    Time,
    Whole,
)
from kbtypes.episodes import FactEvent, FactHistory

LIMIT = Whole(1, MAX_EVENTS)
OFFSET = Whole(0)


class HistoryToolBody(Body):
    """The facts whose history a tool lists."""

    predicate = Text(required=True)
    scope = ReadScope()
    limit = Whole(1, MAX_EVENTS)
    offset = Whole(0)
    oldest_first = Flag()


HistoryEvent = answer_of(FactEvent, "HistoryEvent", event=Choice(*EVENTS), cause=Choice(*CAUSES))
HistoryAnswer = answer_of(
    FactHistory,
    "History",
    start_seq=Count("The log tells what happened after this commit.", of="start.seq"),
    start_at=Time(of="start.at"),
)


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
