"""The event stream of committed changes."""

from __future__ import annotations

from flask import Response, current_app, request

from kbcore.errors import InvalidInput
from kbcore.events.events import KINDS, Place, Wanted
from kbcore.state.keys import READER
from kbcore.timestamps import instant
from kbserver.events.streams import EventHub
from kbserver.http.request_context import current, current_request, reader
from kbserver.operations import TEXT, OperationReply, operation
from kbserver.schemas.fields import ReadScope
from kbserver.schemas.requests import scope_asked

EVENT_STREAM = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of a stream: no proxy may store or buffer it."""

SEND_SECONDS = 15.0
"""Seconds after which a client that reads nothing is disconnected."""


@operation(
    "GET /memory/events",
    role=READER,
    viewed=True,
    replies=(
        OperationReply(
            "The events, until one side ends the stream.",
            {EVENT_STREAM: TEXT},
            headers=dict.fromkeys(HEADERS, TEXT),
        ),
    ),
    query={
        "predicate": {
            **TEXT,
            "description": "Events of this predicate; with `*` at its end, of all that begin so.",
        },
        "events": {
            **TEXT,
            "description": f"Events of these types, joined by commas: {', '.join(KINDS)}.",
        },
        "scope": ReadScope.schema,
        "since": {**TEXT, "description": "After this event id, or since this time."},
    },
    headers={"Last-Event-ID": {**TEXT, "description": "After this event id."}},
)
def events() -> Response:
    """Stream every committed change as a server-sent event until either side closes the stream."""
    context = current()
    asked = request.args
    kinds = (
        [kind.strip() for kind in ",".join(asked.getlist("events")).split(",")]
        if "events" in asked
        else None
    )
    filter = Wanted.of(
        asked.get("predicate"), kinds, scope_asked(asked, None), reader().event_view()
    )
    since = _since(request.headers.get("Last-Event-ID") or asked.get("since"))
    if request.method == "HEAD":
        return Response(status=200, content_type=EVENT_STREAM, headers=HEADERS)
    hub: EventHub = current_app.extensions["kbcore.events"]
    stream = hub.open(context.database, context.tenant, filter, since)
    patience = getattr(current_request().caller, "stream", None)
    if patience is not None:
        patience(SEND_SECONDS)
    return Response(stream, content_type=EVENT_STREAM, headers=HEADERS, direct_passthrough=True)


def _since(text: str | None) -> Place | int | None:
    if not text:
        return None
    if position := Place.read(text):
        return position
    try:
        return instant(
            int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 18 else text
        )
    except ValueError as error:
        raise InvalidInput.at("since", f"is no id of an event; as a time it {error}") from error
