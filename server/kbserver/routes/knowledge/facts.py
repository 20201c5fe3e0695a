"""Routes that assert and retract facts."""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import JSON, as_json, text
from kbserver.http.request_context import applied, current, writer
from kbserver.operations import APPLIED, PLAIN, Answer, as_object, as_text, operation
from kbserver.schemas.answers.facts import MATCHED, RETRACTED, STORED
from kbserver.schemas.base import load
from kbserver.schemas.facts import (
    fact_to_retract,
    many_facts,
    one_fact,
    pattern_to_retract,
    shown_asserted,
    shown_removal,
    shown_retraction,
    spoken,
)
from kbserver.schemas.jsonschema import COUNT, TEXT, Schema, said, words

bp = Blueprint("facts", __name__)

_COUNTS: dict[str, Schema] = {
    "X-Retracted-Count": said(COUNT, "Stored facts that went."),
    "X-Cascaded-Count": said(COUNT, "Conclusions that fell."),
    "X-Still-Derivable": said(words("true"), "Rules still give it."),
    **APPLIED,
}


@bp.post("/assert/fact")
@bp.post("/tell")
@operation(as_text("What was stored."), body=one_fact, writes=True, transaction=True)
def assert_fact() -> Response:
    """Store one fact."""
    kb = writer()
    body = load(one_fact)
    kb.assert_facts(body.facts, conflict=body.conflict)
    return text(f"Fact Asserted: {spoken(body.facts[0].predicate, body.facts[0].args)}")


@bp.post("/assert/facts")
@operation(
    as_object("How many facts were new.", STORED), body=many_facts, writes=True, transaction=True
)
def assert_facts() -> Response:
    """Store many facts, all or none."""
    kb = writer()
    body = load(many_facts)
    return as_json(shown_asserted(body.asserted(kb)))


@bp.post("/retract")
@bp.post("/forget")
@operation(
    Answer("The facts that were retracted.", {PLAIN: TEXT, JSON: RETRACTED}, headers=_COUNTS),
    body=fact_to_retract,
    prefer=("return=representation", "wait"),
    writes=True,
    transaction=True,
)
def retract() -> Response:
    """Retract one fact, and with it the conclusions that depend on it."""
    kb = writer()
    fact = load(fact_to_retract)
    outcome = fact.retracted(kb)
    headers = {
        "X-Retracted-Count": str(outcome.retracted),
        "X-Cascaded-Count": str(outcome.cascaded),
    }
    if outcome.still_derivable:
        headers["X-Still-Derivable"] = "true"
    if not current().representation:
        return text(f"Retracted: {spoken(fact.predicate, fact.constants)}", headers)
    applied("return=representation")
    return as_json(shown_retraction(outcome), headers)


@bp.post("/retract/pattern")
@operation(
    as_object("The facts that were retracted.", MATCHED, headers=APPLIED),
    body=pattern_to_retract,
    prefer=("wait",),
    writes=True,
    transaction=True,
)
def retract_pattern() -> Response:
    """Retract every fact that matches a pattern."""
    kb = writer()
    pattern = load(pattern_to_retract)
    return as_json(shown_removal(pattern.removed(kb)))
