"""Context windows: the facts for a prompt, the changes since the last window, and sessions."""

from __future__ import annotations

from flask import Response, request

from kbcore.context.diff import WindowDiff
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.state.keys import READER
from kbserver.answers import as_json, text
from kbserver.errors import Gone
from kbserver.http.request_context import reader, runtime
from kbserver.mcp import work
from kbserver.operations import APPLIED, Tool, as_object, as_text, operation
from kbserver.schemas.context import (
    AnyWindow,
    ContextBody,
    ContextClearBody,
    ContextDiffBody,
    OptimizeBody,
    SelectedWindow,
    WindowAnswer,
    WindowDiffAnswer,
    select,
)
from kbserver.schemas.fields import Json
from kbserver.schemas.requests import load

SUNSET_MS = 1_782_864_000_000
"""The removal of /context/optimize: 2026-07-01, 00:00 UTC, in epoch milliseconds."""

SUCCESSOR = "/memory/context"
_DEPRECATION = {
    "Deprecation": "true",
    "Sunset": "Wed, 01 Jul 2026 00:00:00 GMT",
    "Link": f'<{SUCCESSOR}>; rel="successor-version"',
}


@operation(
    "POST /memory/context",
    role=READER,
    replies=(as_object("The window.", AnyWindow, headers=APPLIED),),
    body=ContextBody,
    core=select,
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="context",
        description="Facts for a prompt: matches of query, what goals' answers depend on; "
        "fill=salience adds more. context_diff tells what changed.",
        takes=(
            *("query", "asker", "goals", "fill", "maxFacts", "maxTokens", "minSalience"),
            *("minRelevance", "predicates", "scope", "sessionId", "format", "includeRules"),
            *("maxFactsPerPredicate", "relevanceBuckets"),
        ),
        gives=("windowId", "entries?", "formattedText?"),
        grouped=False,
        usual=True,
        work=work.context,
    ),
)
def context(outcome: SelectedWindow, arguments: Json) -> Response:
    """Return the most salient facts, or the facts that the answers of goals depend on."""
    return as_json(AnyWindow.write(outcome))


@operation(
    "POST /context/optimize",
    role=READER,
    replies=(as_object("The window.", WindowAnswer, headers=APPLIED),),
    body=OptimizeBody,
    prefer=("wait",),
    asks=True,
    errors=(410,),
    listed=False,
)
def optimize() -> Response:
    """Return a context window like `/memory/context`; deprecated.

    After its sunset date the route is gone unless a setting keeps it.
    """
    kb = reader()
    if runtime().clock.now_ms() >= SUNSET_MS and not runtime().config.context_optimize_enabled:
        raise Gone(
            f"this route was removed after 2026-07-01; use POST {SUCCESSOR}",
            {"removedAfter": "2026-07-01", "successor": SUCCESSOR},
        )
    return as_json(WindowAnswer.write(select(kb, **load(OptimizeBody))))


def mark_deprecated(response: Response) -> Response:
    """Add deprecation headers to a response of `/context/optimize` (RFC 8594, RFC 8288)."""
    if (rule := request.url_rule) is not None and rule.rule == "/context/optimize":
        response.headers.update(_DEPRECATION)
    return response


@operation(
    "POST /context/diff",
    role=READER,
    replies=(as_object("What has changed.", WindowDiffAnswer, headers=APPLIED),),
    body=ContextDiffBody,
    core=KnowledgeBase.context_diff,
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="context_diff",
        description="Changes since a session's last window.",
        takes=("sessionId", "goals", "maxFacts", "scope", "format"),
        gives=("added", "removed?", "formattedText?"),
        grouped=False,
        usual=True,
    ),
)
def diff(outcome: WindowDiff, arguments: Json) -> Response:
    """Return the changes since the last context window of a session."""
    return as_json(WindowDiffAnswer.write(outcome))


@operation(
    "POST /context/session/clear",
    role=READER,
    replies=(as_text("The session is deleted."),),
    body=ContextClearBody,
    core=KnowledgeBase.clear_session,
)
def clear(outcome: None, arguments: Json) -> Response:
    """Delete the last context window of a session."""
    return text(f"Session '{arguments['session']}' cleared")
