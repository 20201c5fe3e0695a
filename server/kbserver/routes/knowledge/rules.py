"""Routes that assert, list and retract rules."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Blueprint, Response, request

from kbserver.answers import as_json, text
from kbserver.http.etags import tagged
from kbserver.http.paging import page, part
from kbserver.http.request_context import reader, writer
from kbserver.notices import encoded
from kbserver.operations import COUNTED, as_object, as_text, operation
from kbserver.schemas.answers.facts import RULES
from kbserver.schemas.base import load, scope_asked
from kbserver.schemas.facts import spoken
from kbserver.schemas.fields import EVERY_SCOPE, scope_to_read, taken
from kbserver.schemas.jsonschema import TEXT, said
from kbserver.schemas.rules import lesson, rule_shape, rule_to_forget

bp = Blueprint("rules", __name__)

_MAX_WARNINGS = 4000


@bp.post("/assert/rule")
@bp.post("/teach")
@operation(
    as_text(
        "What was taught, a line each.",
        headers={"X-Rule-Warnings": said(TEXT, "Warnings, percent-encoded, joined by `; `.")},
    ),
    body=lesson,
    writes=True,
    transaction=True,
)
def assert_rule() -> Response:
    """Store rules, and the facts in the same text."""
    kb = writer()
    taught = load(lesson)
    outcome = kb.assert_rules(taught.rules, taught.facts)
    lines = [f"Rule Asserted: {rule.text}" for rule in outcome.rules]
    lines.extend(f"Fact Asserted: {spoken(fact.predicate, fact.args)}" for fact in taught.facts)
    headers = {"X-Rule-Warnings": in_a_header(outcome.warnings)} if outcome.warnings else {}
    return text("\n".join(lines), headers)


@bp.get("/rules")
@operation(
    as_object("The rules.", RULES, headers=COUNTED),
    query={"scope": taken(scope_to_read)},
    transaction=True,
    tagged=True,
    paged=True,
)
@tagged
def rules() -> Response:
    """List the rules."""
    scope = scope_asked(request.args, EVERY_SCOPE)
    found, body = reader().rules(scope), page(scope)
    listed = part(found, body)
    answer = as_json({"rules": [rule_shape(rule) for rule in listed]})
    return (
        answer
        if body is None
        else body.linked(answer, body.offset + len(listed) < len(found), len(found))
    )


@bp.post("/retract/rule")
@operation(
    as_text("The rule that is gone."),
    body=rule_to_forget,
    writes=True,
    transaction=True,
    errors=(404,),
)
def retract_rule() -> Response:
    """Retract one rule."""
    kb = writer()
    body = load(rule_to_forget)
    gone = kb.retract_rule(id=body.id, rule=body.rule, scope=body.scope)
    return text(f"Rule Retracted: {gone.text}")


def in_a_header(warnings: Sequence[str]) -> str:
    """Return warnings as one header value, joined by `; `, percent-encoded where necessary."""
    return "; ".join(encoded(warning, "%;") for warning in warnings)[:_MAX_WARNINGS]
