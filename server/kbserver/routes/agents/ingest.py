"""Operations that store texts and conversation turns and return a context window, and the
summary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import Response

from kbcore.context.summary import ScopeSummary
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.context import PythonContext
from kbcore.state.keys import READER, WRITER
from kbserver.answers import JSON, PLAIN, as_json, discarded
from kbserver.mcp import work
from kbserver.operations import OF_MODELS, TEXT, Method, OperationReply, Tool, as_object, operation
from kbserver.routes.agents.context import as_window
from kbserver.schemas.fields import Json
from kbserver.schemas.ingest import (
    ContextSummaryBody,
    IngestBody,
    IngestedAnswer,
    IngestedText,
    SummaryAnswer,
    TurnsBody,
    TurnsRead,
    stored,
)


@operation(
    "POST /context/ingest",
    role=WRITER,
    replies=(
        OperationReply(
            "What was stored from the text, and a window, or the text of the window.",
            {JSON: IngestedAnswer, PLAIN: TEXT},
        ),
    ),
    body=IngestBody,
    core=stored,
    prefer=("wait", "return=minimal"),
    writes=True,
    asks=True,
    errors=OF_MODELS,
    tool=Tool(
        name="ingest",
        description="Store what texts state; gives a window.",
        takes=(
            "text",
            "speaker",
            "at",
            "goals",
            "maxFacts",
            "scope",
            "sessionId",
            "conflictStrategy",
        ),
        gives=("extracted", "rules?", "context?", "discarded?"),
        profile="default",
        work=work.ingest,
    ),
    viewed=True,
)
def ingest(outcome: IngestedText, arguments: Json) -> Response:
    """Store the facts and rules of a text, and return a context window."""
    return _noting(outcome, as_window(IngestedAnswer, outcome, outcome.done.window.text))


def _noting(outcome: IngestedText, response: Response) -> Response:
    """Return an answer that tells how many facts a conflict strategy did not store."""
    response.headers.update(discarded(outcome.done.discarded))
    return response


def _stored_turns(kb: TenantKB, **arguments: Any) -> IngestedText:
    text = stored(kb, **arguments)
    return replace(text, total=kb.predicates(text.request.scope)["totalFacts"])


@operation(
    "POST /context",
    role=WRITER,
    replies=(
        OperationReply("The facts that matter, or their text.", {JSON: TurnsRead, PLAIN: TEXT}),
    ),
    body=TurnsBody,
    core=_stored_turns,
    prefer=("wait", "return=minimal"),
    writes=True,
    asks=True,
    errors=OF_MODELS,
    viewed=True,
)
def turns(outcome: IngestedText, arguments: Json) -> Response:
    """Store the facts stated in the turns of a conversation, and return the most salient facts."""
    return _noting(outcome, as_window(TurnsRead, outcome, outcome.done.window.text))


@operation(
    "POST /context/summary",
    role=READER,
    replies=(as_object("The knowledge base at a glance.", SummaryAnswer),),
    body=ContextSummaryBody,
    core=TenantKB.context_summary,
    methods=(Method(PythonContext.context_summary, result="Summary"),),
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="context_summary",
        description="A knowledge base at a glance.",
        takes=("scope",),
        gives=("totalFacts", "predicateCount?", "topSalientFacts?"),
    ),
)
def summary(outcome: ScopeSummary, arguments: Json) -> Response:
    """Return a summary of the knowledge base."""
    return as_json(SummaryAnswer.write(outcome))
