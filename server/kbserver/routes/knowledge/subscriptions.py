"""Operations on standing goals: subscribe, list, read, follow and end."""

from __future__ import annotations

from flask import Response, current_app, request

from kbcore.errors import InvalidInput
from kbcore.operations.subscriptions.subscribing import MAX_CHANGES, GoalAnswers
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.keys import READER
from kbserver.answers import as_json
from kbserver.http.request_context import (
    current,
    current_request,
    grant_of,
    reader,
    view_asked,
)
from kbserver.operations import TEXT, OperationReply, Tool, as_object, operation
from kbserver.routes.node.events import EVENT_STREAM, HEADERS, SEND_SECONDS
from kbserver.schemas.fields import Json
from kbserver.schemas.requests import whole_asked
from kbserver.subscriptions import tools
from kbserver.subscriptions.schemas import (
    CHANGE_LIMIT,
    EVENT_ID,
    GoalChanges,
    GoalEnded,
    StandingGoalList,
    SubscribeBody,
    Subscribed,
    changes_shown,
    listed,
    subscribed,
)
from kbserver.subscriptions.streams import GoalStreams

_SINCE = {
    "since": {
        **TEXT,
        "description": "After this event id, or after the commit of this number.",
    }
}


@operation(
    "POST /goals/subscribe",
    role=READER,
    replies=(as_object("The goal with its answers.", Subscribed),),
    body=SubscribeBody,
    core=TenantKB.subscribe_goal,
    viewed=True,
    asks=True,
    errors=(409,),
    tool=Tool(
        name="subscribe_goal",
        description="Keep the answers of a goal current, to read later with goal_changes which "
        "appeared and disappeared. Returns an id, an eventId and the answers. webhook: {url, secret} to "
        "send changes to.",
        takes=("goal", "scope", "ttl", "id", "webhook"),
        gives=("id", "eventId", "answers", "commitSeq?", "expiresAt?"),
        work=tools.subscribe_goal,
    ),
)
def subscribe(outcome: GoalAnswers, arguments: Json) -> Response:
    """Subscribe to a goal: its answers are kept current, change by change.

    The goal is kept until its `ttl` has passed since its last use, also across restarts; with
    `durable: false` it lives in memory only, and any follower can keep it.
    """
    return as_json(subscribed(outcome))


@operation(
    "GET /goals",
    role=READER,
    replies=(as_object("The goals, in the order of their subscription.", StandingGoalList),),
    viewed=True,
)
def goals() -> Response:
    """List the standing goals of the tenant."""
    return as_json(listed(reader()))


@operation(
    "GET /goals/<id>",
    role=READER,
    replies=(as_object("The goal with its answers.", Subscribed),),
    asks=True,
    viewed=True,
)
def answers(id: str) -> Response:
    """Return a standing goal with its current answers."""
    return as_json(subscribed(reader().goal_answers(id)))


@operation(
    "GET /goals/<id>/changes",
    role=READER,
    replies=(as_object("The changes, oldest first.", GoalChanges),),
    viewed=True,
    query={**_SINCE, "limit": {**CHANGE_LIMIT.schema, "default": MAX_CHANGES}},
    asks=True,
    tool=Tool(
        name="goal_changes",
        description="Which answers of a subscribed goal appeared and disappeared since an eventId. "
        "If lost is true, subscribe again.",
        body=tools.GoalChangesToolBody,
        takes=("id", "since", "limit"),
        answer=GoalChanges,
        gives=("changes", "lost"),
        work=tools.goal_changes,
    ),
)
def changes(id: str) -> Response:
    """Return the changes of a standing goal since an event."""
    since = request.args.get("since")
    if since is None:
        raise InvalidInput.at("since", "is required: an eventId, or the number of a commit")
    limit = whole_asked(request.args, "limit", CHANGE_LIMIT, MAX_CHANGES)
    return as_json(changes_shown(reader().goal_changes(id, since, limit=limit)))


@operation(
    "GET /goals/<id>/events",
    role=READER,
    replies=(
        OperationReply(
            "The changes, until one side ends the stream.",
            {EVENT_STREAM: TEXT},
            headers=dict.fromkeys(HEADERS, TEXT),
        ),
    ),
    query=_SINCE,
    headers={"Last-Event-ID": {**TEXT, "description": EVENT_ID}},
    viewed=True,
)
def follow(id: str) -> Response:
    """Stream the changes of a standing goal as server-sent events.

    Without an event id to continue from, and where the changes since then are not kept, the stream
    begins with an event `answers` that has all answers.
    """
    kb, context, served = reader(), current(), current_request()
    actor, asked, grant = kb.actor, view_asked(served), grant_of(served.principal)
    kb.standing_goal(id)
    since = request.headers.get("Last-Event-ID") or request.args.get("since")
    if request.method == "HEAD":
        return Response(status=200, content_type=EVENT_STREAM, headers=HEADERS)
    streams: GoalStreams = current_app.extensions["kbcore.goal_streams"]

    def open_kb() -> TenantKB:
        fresh = streams.runtime.knowledge_base(context.database, context.tenant)
        fresh.actor = actor
        return fresh.viewed(**asked, grant=grant)  # levels that are declared later narrow it

    stream = streams.open(open_kb, id, since)
    patience = getattr(served.caller, "stream", None)
    if patience is not None:
        patience(SEND_SECONDS)
    return Response(stream, content_type=EVENT_STREAM, headers=HEADERS, direct_passthrough=True)


@operation(
    "DELETE /goals/<id>",
    role=READER,
    replies=(as_object("Whether there was a goal.", GoalEnded),),
    viewed=True,
    tool=Tool(
        name="unsubscribe_goal",
        description="End a subscription to a goal.",
        body=tools.GoalToolBody,
        takes=("id",),
        answer=GoalEnded,
        gives=("ended",),
        work=tools.unsubscribe_goal,
    ),
)
def end(id: str) -> Response:
    """End a standing goal."""
    return as_json({"ended": reader().end_goal(id)})
