"""Context windows: the facts for a prompt, the changes since the last window, and sessions."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from kbcore.context.diff import WindowDiff
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.context import PythonContext
from kbcore.state.keys import READER
from kbserver.answers import JSON, PLAIN, as_json, text
from kbserver.errors import Gone
from kbserver.http.request_context import applied, current, runtime
from kbserver.mcp import work
from kbserver.operations import TEXT, Method, OperationReply, Tool, as_object, as_text, operation
from kbserver.schemas.base import LeanAnswer
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
from kbserver.schemas.requests import opened

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
    replies=(OperationReply("The window, or its text.", {JSON: AnyWindow, PLAIN: TEXT}),),
    body=ContextBody,
    core=select,
    prefer=("wait", "return=minimal"),
    asks=True,
    tool=Tool(
        name="context",
        description="Text for a prompt by query and goals; fill=salience: more.",
        takes=(
            "query",
            "asker",
            "goals",
            "fill",
            "maxFacts",
            "maxTokens",
            "minSalience",
            "minRelevance",
            "minCoverage",
            "predicates",
            "scope",
            "sessionId",
            "format",
            "includeRules",
            "maxFactsPerPredicate",
            "relevanceBuckets",
            "citations",
            "times",
        ),
        gives=("windowId", "entries?", "formattedText?"),
        profile="default",
        work=work.context,
    ),
    viewed=True,
)
def context(outcome: SelectedWindow, arguments: Json) -> Response:
    """Return the most salient facts, or the facts that the answers of goals depend on."""
    return as_window(AnyWindow, outcome, outcome.window.text, outcome.as_text)


@operation(
    "POST /context/optimize",
    role=READER,
    replies=(as_object("The window.", WindowAnswer),),
    body=OptimizeBody,
    prefer=("wait", "return=minimal"),
    asks=True,
    errors=(410,),
    listed=False,
    viewed=True,
)
def optimize() -> Response:
    """Return a context window like `/memory/context`; deprecated.

    After its sunset date the route is gone unless a setting keeps it.
    """
    if runtime().clock.now_ms() >= SUNSET_MS and not runtime().config.context_optimize_enabled:
        raise Gone(
            f"this route was removed after 2026-07-01; use POST {SUCCESSOR}",
            {"removedAfter": "2026-07-01", "successor": SUCCESSOR},
        )
    kb, arguments = opened(OptimizeBody)
    return as_lean_json(WindowAnswer, select(kb, **arguments))


def mark_deprecated(response: Response) -> Response:
    """Add deprecation headers to a response of `/context/optimize` (RFC 8594, RFC 8288)."""
    if (rule := request.url_rule) is not None and rule.rule == "/context/optimize":
        response.headers.update(_DEPRECATION)
    return response


@operation(
    "POST /context/diff",
    role=READER,
    replies=(as_object("What has changed.", WindowDiffAnswer),),
    body=ContextDiffBody,
    core=TenantKB.context_diff,
    prefer=("wait", "return=minimal"),
    asks=True,
    tool=Tool(
        name="context_diff",
        description="Changes since a session's last window.",
        takes=("sessionId", "goals", "maxFacts", "scope", "format"),
        gives=("added", "removed?", "formattedText?"),
        profile="default",
    ),
    viewed=True,
)
def diff(outcome: WindowDiff, arguments: Json) -> Response:
    """Return the changes since the last context window of a session."""
    return as_lean_json(WindowDiffAnswer, outcome)


@operation(
    "POST /context/session/clear",
    role=READER,
    replies=(as_text("The session is deleted."),),
    body=ContextClearBody,
    core=TenantKB.clear_session,
    methods=(Method(PythonContext.clear_session),),
    viewed=True,
)
def clear(outcome: None, arguments: Json) -> Response:
    """Delete the last context window of a session."""
    return text(f"Session '{arguments['session']}' cleared")


def as_window(
    answer: type[LeanAnswer], outcome: Any, prompt: str, as_text: bool = False
) -> Response:
    """Answer with a context window: as JSON, or only the text for a prompt.

    The client gets the text if `as_text` is true or if it prefers plain text (header Accept).
    """
    if as_text or request.accept_mimetypes.best_match((JSON, PLAIN)) == PLAIN:
        return text(prompt)
    return as_lean_json(answer, outcome)


def as_lean_json(answer: type[LeanAnswer], outcome: Any) -> Response:
    """Answer with JSON, with `Prefer: return=minimal` without null members."""
    if not current().minimal:
        return as_json(answer.write(outcome))
    applied("return=minimal")
    return as_json(answer.write_minimal(outcome))
