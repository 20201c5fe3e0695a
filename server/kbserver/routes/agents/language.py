"""Operations that use the language model."""

from __future__ import annotations

from flask import Response

from kbcore.language.extract import ExtractedFacts as ReadByModel
from kbcore.language.synthesize import SynthesizedAnswer
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.language import PythonLanguage
from kbcore.state.keys import READER, WRITER
from kbserver.answers import as_json, discarded
from kbserver.operations import OF_MODELS, Method, Tool, as_object, operation
from kbserver.schemas.fields import Json
from kbserver.schemas.language import ExtractBody, Extracted, SynthesizeBody, Synthesized


@operation(
    "POST /extract",
    role=WRITER,
    replies=(as_object("What the text states.", Extracted),),
    body=ExtractBody,
    core=TenantKB.extract,
    prefer=("wait",),
    writes=True,
    checked_inside=True,
    asks=True,
    errors=OF_MODELS,
    tool=Tool(
        name="extract",
        description="Read prose into facts, and with rules into rules too, by a language model. "
        "With assert they are stored.",
        takes=(
            "text",
            "assert",
            "rules",
            "scope",
            "context",
            "speaker",
            "at",
            "sessionId",
            "conflictStrategy",
        ),
        gives=("facts", "rules?", "asserted?"),
        repeats=False,
        model=True,
    ),
)
def extract(outcome: ReadByModel, arguments: Json) -> Response:
    """Extract facts from a text, and store them on request."""
    return as_json(Extracted.write(outcome), discarded(outcome.discarded))


@operation(
    "POST /synthesize",
    role=READER,
    replies=(as_object("The answer, with the facts and rules it depends on.", Synthesized),),
    body=SynthesizeBody,
    core=TenantKB.synthesize,
    methods=(Method(PythonLanguage.synthesize, result="Synthesis"),),
    prefer=("wait",),
    asks=True,
    errors=OF_MODELS,
    tool=Tool(
        name="synthesize",
        description="Answer a question in words from what is known, by a language model, with "
        "the facts and rules the answer depends on.",
        takes=("question", "scope", "citations"),
        gives=("answer", "derivation?", "confidence?"),
        model=True,
    ),
)
def synthesize(outcome: SynthesizedAnswer, arguments: Json) -> Response:
    """Answer a question in natural language from the knowledge base."""
    return as_json(Synthesized.write(outcome))
