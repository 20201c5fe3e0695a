"""Routes that use the language model."""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import as_json
from kbserver.http.request_context import outside, reader, writer
from kbserver.operations import APPLIED, OF_MODELS, as_object, operation
from kbserver.schemas import language as shapes
from kbserver.schemas.answers.language import EXTRACTED, SYNTHESIZED
from kbserver.schemas.base import load

bp = Blueprint("language", __name__)


@bp.post("/extract")
@operation(
    as_object("What the text states.", EXTRACTED, headers=APPLIED),
    body=shapes.extraction,
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_MODELS,
)
def extract() -> Response:
    """Extract facts from a text, and store them on request."""
    outside()
    kb, asked = writer(), load(shapes.extraction)
    extraction = kb.extract(
        asked.text,
        store=asked.store,
        rules=asked.rules,
        scope=asked.scope,
        context=asked.context,
        wanted=asked.wanted,
    )
    return as_json(shapes.shown_extracted(extraction))


@bp.post("/synthesize")
@operation(
    as_object("The answer, with the facts and rules it depends on.", SYNTHESIZED, headers=APPLIED),
    body=shapes.question,
    prefer=("wait",),
    asks=True,
    errors=OF_MODELS,
)
def synthesize() -> Response:
    """Answer a question in natural language from the knowledge base."""
    outside()
    kb, asked = reader(), load(shapes.question)
    return as_json(
        shapes.shown_synthesis(
            kb.synthesize(asked.question, scope=asked.scope, wanted=asked.wanted)
        )
    )
