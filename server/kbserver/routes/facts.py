"""Telling facts and taking them back."""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import as_json, text
from kbserver.request_context import current, writer
from kbserver.schemas.base import load
from kbserver.schemas.facts import fact_to_retract, many_facts, one_fact, pattern_to_retract, spoken

bp = Blueprint("facts", __name__)


@bp.post("/assert/fact")
@bp.post("/tell")
def assert_fact() -> Response:
    """Store one fact."""
    told = load(one_fact)
    writer().assert_facts(told.facts, conflict=told.conflict)
    return text(f"Fact Asserted: {spoken(told.facts[0].predicate, told.facts[0].args)}")


@bp.post("/assert/facts")
def assert_facts() -> Response:
    """Store many facts, all or none."""
    told = load(many_facts)
    kb = writer()
    outcome = kb.assert_rows(told.rows) if told.rows else kb.assert_facts(told.facts, conflict=told.conflict)
    counts = {"asserted": outcome.asserted, "updated": outcome.updated, "failed": 0}
    return as_json({**counts, "errors": [], "timestamp": outcome.timestamp})


@bp.post("/retract")
@bp.post("/forget")
def retract() -> Response:
    """Take one fact back, and with it what followed from it."""
    fact = load(fact_to_retract)
    outcome = writer().retract_fact(fact.predicate, fact.constants, positive=fact.positive, scope=fact.scope)
    headers = {"X-Retracted-Count": str(outcome.retracted), "X-Cascaded-Count": str(outcome.cascaded)}
    if outcome.still_derivable:
        headers["X-Still-Derivable"] = "true"
    if not current().representation:
        return text(f"Retracted: {spoken(fact.predicate, fact.constants)}", headers)
    shape = {
        "retracted": outcome.retracted,
        "cascaded": outcome.cascaded,
        "cascadedAtoms": outcome.cascaded_atoms,
        "newlyDerivable": outcome.newly_derivable,
        "stillDerivable": outcome.still_derivable,
        "truncated": outcome.truncated,
    }
    return as_json(shape, {**headers, "Preference-Applied": "return=representation"})


@bp.post("/retract/pattern")
def retract_pattern() -> Response:
    """Take back every fact that matches."""
    wanted = load(pattern_to_retract)
    outcome = writer().retract_pattern(wanted.predicate, wanted.args, positive=wanted.positive, scope=wanted.scope)
    return as_json({"retracted": outcome.retracted, "atoms": outcome.atoms, "cascaded": outcome.cascaded})
