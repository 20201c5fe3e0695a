"""Operations that assert and retract facts."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response

from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.state.facts import AssertOutcome, Fact, FactRows, RetractOutcome
from kbcore.state.keys import WRITER
from kbserver.answers import JSON, as_json, text
from kbserver.http.request_context import applied, current
from kbserver.operations import (
    APPLIED,
    COUNT,
    PLAIN,
    TEXT,
    Reply,
    Tool,
    as_object,
    as_text,
    operation,
)
from kbserver.schemas.facts import (
    KEEP_BOTH,
    BulkBody,
    Matched,
    RetractBody,
    Retracted,
    RetractPatternBody,
    Stored,
    TellBody,
    spoken,
)
from kbserver.schemas.fields import Json

_COUNTS = {
    "X-Retracted-Count": {**COUNT, "description": "Stored facts that were retracted."},
    "X-Cascaded-Count": {**COUNT, "description": "Conclusions that no longer hold."},
    "X-Still-Derivable": {**TEXT, "enum": ["true"], "description": "Rules still derive it."},
    **APPLIED,
}
ATOM = ("predicate", "args", "text")


@operation(
    "POST /assert/fact",
    "POST /tell",
    role=WRITER,
    replies=(as_text("The stored fact."),),
    body=TellBody,
    core=KnowledgeBase.assert_facts,
    writes=True,
    transaction=True,
    tool=Tool(
        name="tell",
        description="Store one fact: predicate parent, args [ann, bob]; or text parent(ann, bob). "
        "Times: epoch ms or ISO 8601; ttl: ms.",
        takes=(
            *(*ATOM, "negated", "scope", "ttl", "validFrom", "validUntil"),
            *("confidence", "metadata"),
        ),
        answer=Stored,
        gives=("asserted", "updated?"),
        usual=True,
    ),
)
def assert_fact(outcome: AssertOutcome, arguments: Json) -> Response:
    """Store one fact."""
    fact = arguments["facts"][0]
    return text(f"Fact Asserted: {spoken(fact.predicate, fact.args)}")


def _assert_many(
    kb: KnowledgeBase,
    *,
    rows: Sequence[FactRows] = (),
    facts: Sequence[Fact] = (),
    conflict: str = KEEP_BOTH,
) -> AssertOutcome:
    return kb.assert_rows(rows) if rows else kb.assert_facts(facts, conflict=conflict)


@operation(
    "POST /assert/facts",
    role=WRITER,
    replies=(as_object("How many facts were new.", Stored),),
    body=BulkBody,
    core=_assert_many,
    writes=True,
    transaction=True,
    tool=Tool(
        name="bulk_assert",
        description="Store many facts at once, all or none. Each is an object as tell takes it.",
        takes=("facts",),
        gives=("asserted", "updated?"),
        usual=True,
    ),
)
def assert_facts(outcome: AssertOutcome, arguments: Json) -> Response:
    """Store many facts, all or none."""
    return as_json(Stored.write(outcome))


@operation(
    "POST /retract",
    "POST /forget",
    role=WRITER,
    replies=(
        Reply("The facts that were retracted.", {PLAIN: TEXT, JSON: Retracted}, headers=_COUNTS),
    ),
    body=RetractBody,
    core=KnowledgeBase.retract_fact,
    prefer=("return=representation", "wait"),
    writes=True,
    transaction=True,
    tool=Tool(
        name="forget",
        description="Retract one fact. Conclusions that no longer hold are counted.",
        takes=(*ATOM, "scope"),
        gives=("retracted", "cascaded?", "stillDerivable?"),
        destroys=True,
        usual=True,
    ),
)
def retract(outcome: RetractOutcome, arguments: Json) -> Response:
    """Retract one fact, and with it the conclusions that depend on it."""
    headers = {
        "X-Retracted-Count": str(outcome.retracted),
        "X-Cascaded-Count": str(outcome.cascaded),
    }
    if outcome.still_derivable:
        headers["X-Still-Derivable"] = "true"
    if not current().representation:
        return text(f"Retracted: {spoken(arguments['predicate'], arguments['args'])}", headers)
    applied("return=representation")
    return as_json(Retracted.write(outcome), headers)


@operation(
    "POST /retract/pattern",
    role=WRITER,
    replies=(as_object("The facts that were retracted.", Matched, headers=APPLIED),),
    body=RetractPatternBody,
    core=KnowledgeBase.retract_pattern,
    prefer=("wait",),
    writes=True,
    transaction=True,
    tool=Tool(
        name="retract_pattern",
        description="Retract every fact that matches: variables match anything, a repeated one "
        "equal values.",
        takes=(*ATOM, "negated", "scope"),
        gives=("retracted", "atoms?", "cascaded?"),
        destroys=True,
    ),
)
def retract_pattern(outcome: RetractOutcome, arguments: Json) -> Response:
    """Retract every fact that matches a pattern."""
    return as_json(Matched.write(outcome))
