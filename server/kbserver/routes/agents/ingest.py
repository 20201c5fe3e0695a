"""Routes that store texts and conversation turns and return a context window, and the summary."""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import as_json
from kbserver.http.request_context import outside, reader, writer
from kbserver.operations import APPLIED, OF_MODELS, as_object, operation
from kbserver.schemas import ingest as shapes
from kbserver.schemas.answers.resources import INGESTED, REMEMBERED, SUMMARY
from kbserver.schemas.base import load

bp = Blueprint("ingest", __name__)


@bp.post("/context/ingest")
@operation(
    as_object("What was taken from the text, and a window.", INGESTED, headers=APPLIED),
    body=shapes.ingest,
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_MODELS,
)
def ingest() -> Response:
    """Store the facts and rules of a text, and return a context window."""
    outside()
    kb, asked = writer(), load(shapes.ingest)
    done = kb.ingest(asked.text, asked.request, hint=asked.hint, wanted=asked.wanted)
    return as_json(shapes.shown_ingested(done, asked.request))


@bp.post("/context")
@operation(
    as_object("The facts that matter.", REMEMBERED, headers=APPLIED),
    body=shapes.turns,
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_MODELS,
)
def turns() -> Response:
    """Store the facts stated in the turns of a conversation, and return the most salient facts."""
    outside()
    kb, asked = writer(), load(shapes.turns)
    done = kb.ingest(asked.text, asked.request, wanted=asked.wanted)
    total = kb.predicates(asked.request.scope)["totalFacts"]
    return as_json(shapes.shown_turns(done, asked.request, total))


@bp.post("/context/summary")
@operation(
    as_object("The knowledge base at a glance.", SUMMARY, headers=APPLIED),
    body=shapes.summary,
    prefer=("wait",),
    asks=True,
)
def summary() -> Response:
    """Return a summary of the knowledge base."""
    outside()
    kb, asked = reader(), load(shapes.summary)
    return as_json(shapes.shown_summary(kb.context_summary(asked.scope, wanted=asked.wanted)))
