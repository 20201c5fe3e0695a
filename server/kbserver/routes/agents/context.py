"""Context windows: the facts for a prompt, what has changed since the last one, and sessions."""

from __future__ import annotations

from flask import Blueprint, Response, request

from kbcore.kb.knowledge_base import KnowledgeBase
from kbserver.answers import as_json, text
from kbserver.errors import Gone
from kbserver.http.request_context import outside, reader, runtime
from kbserver.operations import APPLIED, as_object, as_text, operation
from kbserver.schemas import context as shapes
from kbserver.schemas.answers.resources import CHANGES, FAST_WINDOW, WINDOW
from kbserver.schemas.base import load

bp = Blueprint("context", __name__)

SUNSET_MS = 1_782_864_000_000
"""When /context/optimize goes: 2026-07-01, 00:00 UTC, in epoch milliseconds."""

SUCCESSOR = "/memory/context"


@bp.post("/memory/context")
@operation(
    as_object("The window.", FAST_WINDOW, headers=APPLIED),
    body=shapes.context,
    prefer=("wait",),
    asks=True,
)
def context() -> Response:
    """Return the most salient facts, or the facts that the answers of goals depend on."""
    kb, asked = _alone(), load(shapes.context)
    return as_json(
        shapes.shown_window(kb.context(asked.request, wanted=asked.wanted), asked.request)
    )


@bp.post("/context/optimize")
@operation(
    as_object("The window.", WINDOW, headers=APPLIED),
    body=shapes.optimization,
    prefer=("wait",),
    asks=True,
    errors=(410,),
    listed=False,
)
def optimize() -> Response:
    """Return a context window like `/memory/context`; deprecated.

    After its sunset date the route is gone unless a setting keeps it.
    """
    kb = _alone()
    if runtime().clock.now_ms() >= SUNSET_MS and not runtime().config.context_optimize_enabled:
        raise Gone(
            f"this route was removed after 2026-07-01; use POST {SUCCESSOR}",
            {"removedAfter": "2026-07-01", "successor": SUCCESSOR},
        )
    asked = load(shapes.optimization)
    window = kb.context(asked.request, wanted=asked.wanted)
    return as_json(shapes.shown_window(window, asked.request, whole=True))


@bp.after_request
def deprecated(response: Response) -> Response:
    """Add deprecation headers to every response of `/context/optimize` (RFC 8594, RFC 8288)."""
    if request.endpoint == "context.optimize":
        response.headers["Deprecation"] = "true"
        response.headers["Sunset"] = "Wed, 01 Jul 2026 00:00:00 GMT"
        response.headers["Link"] = f'<{SUCCESSOR}>; rel="successor-version"'
    return response


@bp.post("/context/diff")
@operation(
    as_object("What has changed.", CHANGES, headers=APPLIED),
    body=shapes.diff,
    prefer=("wait",),
    asks=True,
)
def diff() -> Response:
    """Return the changes since the last context window of a session."""
    kb, asked = _alone(), load(shapes.diff)
    return as_json(
        shapes.shown_diff(kb.context_diff(asked.session, asked.changes, wanted=asked.wanted))
    )


@bp.post("/context/session/clear")
@operation(as_text("That the session is forgotten."), body=shapes.clear)
def clear() -> Response:
    """Delete the last context window of a session."""
    kb, session = _alone(), load(shapes.clear)
    kb.clear_session(session)
    return text(f"Session '{session}' cleared")


def _alone() -> KnowledgeBase:
    """Return the knowledge base to read, never a transaction: its accesses would not count."""
    outside()
    return reader()
