"""Operations on texts and questions in words; all but one use the language model."""

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
from kbserver.schemas.language import (
    ExtractBody,
    Extracted,
    GoalsForAnswer,
    GoalsForBody,
    SynthesizeBody,
    Synthesized,
)
from kbtypes.language import GoalSuggestions


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
    viewed=True,
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
    viewed=True,
)
def synthesize(outcome: SynthesizedAnswer, arguments: Json) -> Response:
    """Answer a question in natural language from the knowledge base."""
    return as_json(Synthesized.write(outcome))


@operation(
    "POST /goals/suggest",
    role=READER,
    replies=(as_object("The goals, and the answers of the best one.", GoalsForAnswer),),
    body=GoalsForBody,
    core=TenantKB.goals_for,
    methods=(Method(PythonLanguage.goals_for),),
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="suggest_goals",
        description="Goals that a question in words can mean, best first, with the answers of the "
        "best one if it is certain; no model is asked.",
        takes=("question", "scope", "asker"),
        gives=("goal", "answers", "reason", "goals"),
    ),
    viewed=True,
    example={"question": "Who is the parent of bob?"},
)
def goals_for(outcome: GoalSuggestions, arguments: Json) -> Response:
    """Find the goals that a question in words can mean, and answer the best one.

    The words of the question are compared with those of the predicates, and its names with the
    constants of the facts. A goal can be a chain of several predicates.
    """
    return as_json(GoalsForAnswer.write(outcome))
