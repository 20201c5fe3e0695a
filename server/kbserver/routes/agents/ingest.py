"""Operations that store texts and conversation turns and return a context window, and the summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import Response

from kbcore.context.summary import Summary
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.state.keys import READER, WRITER
from kbserver.answers import as_json
from kbserver.mcp import work
from kbserver.operations import APPLIED, OF_MODELS, Tool, as_object, operation
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
        as_object("What was stored from the text, and a window.", IngestedAnswer, headers=APPLIED),
    ),
    body=IngestBody,
    core=stored,
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_MODELS,
    tool=Tool(
        name="ingest",
        description="Store the facts and rules of a text, written like likes(ann, tea), and give "
        "a context window.",
        takes=("text", "goals", "maxFacts", "scope", "sessionId"),
        gives=("extracted", "rules?", "context?"),
        grouped=False,
        usual=True,
        work=work.ingest,
    ),
)
def ingest(outcome: IngestedText, arguments: Json) -> Response:
    """Store the facts and rules of a text, and return a context window."""
    return as_json(IngestedAnswer.write(outcome))


def _stored_turns(kb: KnowledgeBase, **arguments: Any) -> IngestedText:
    text = stored(kb, **arguments)
    return replace(text, total=kb.predicates(text.request.scope)["totalFacts"])


@operation(
    "POST /context",
    role=WRITER,
    replies=(as_object("The facts that matter.", TurnsRead, headers=APPLIED),),
    body=TurnsBody,
    core=_stored_turns,
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_MODELS,
)
def turns(outcome: IngestedText, arguments: Json) -> Response:
    """Store the facts stated in the turns of a conversation, and return the most salient facts."""
    return as_json(TurnsRead.write(outcome))


@operation(
    "POST /context/summary",
    role=READER,
    replies=(as_object("The knowledge base at a glance.", SummaryAnswer, headers=APPLIED),),
    body=ContextSummaryBody,
    core=KnowledgeBase.context_summary,
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="context_summary",
        description="A knowledge base at a glance.",
        takes=("scope",),
        gives=("totalFacts", "predicateCount?", "topSalientFacts?"),
        grouped=False,
    ),
)
def summary(outcome: Summary, arguments: Json) -> Response:
    """Return a summary of the knowledge base."""
    return as_json(SummaryAnswer.write(outcome))
