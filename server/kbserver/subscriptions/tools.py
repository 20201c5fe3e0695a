"""MCP tools of standing goals."""

from __future__ import annotations

from typing import Any

from kbcore.operations.tenant_kb import TenantKB
from kbserver.schemas.base import Body, instance
from kbserver.schemas.fields import Json, Text
from kbserver.subscriptions.schemas import (
    CHANGE_LIMIT,
    EVENT_ID,
    SubscribeBody,
    changes_shown,
    subscribed,
)

DEFAULT_CHANGES = 20
"""Default limit on the changes that a model reads."""


class GoalToolBody(Body):
    """Arguments of the tool unsubscribe_goal."""

    id = Text(required=True)


class GoalChangesToolBody(Body):
    """Arguments of the tool goal_changes."""

    id = Text(required=True)
    since = Text(EVENT_ID, required=True)
    limit = CHANGE_LIMIT


def subscribe_goal(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Subscribe to a goal."""
    return subscribed(kb.subscribe_goal(**instance(SubscribeBody).read(data, strict=strict)))


def goal_changes(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return the changes of a standing goal."""
    fields: dict[str, Any] = instance(GoalChangesToolBody).read(data, strict=strict)
    limit = fields.get("limit", DEFAULT_CHANGES)
    return changes_shown(kb.goal_changes(fields["id"], fields["since"], limit=limit))


def unsubscribe_goal(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """End a standing goal."""
    return {"ended": kb.end_goal(instance(GoalToolBody).read(data, strict=strict)["id"])}
