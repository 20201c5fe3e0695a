"""Teaching rules, listing them and taking them back."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Blueprint, Response, request

from kbserver.answers import as_json, text
from kbserver.request_context import reader, writer
from kbserver.routes.facts import spoken
from kbserver.schemas.base import load, scope_asked
from kbserver.schemas.fields import EVERY_SCOPE
from kbserver.schemas.rules import lesson, rule_shape, rule_to_forget

bp = Blueprint("rules", __name__)

_MAX_WARNINGS = 4000


@bp.post("/assert/rule")
@bp.post("/teach")
def assert_rule() -> Response:
    """Teach rules; facts in the same text are told."""
    taught = load(lesson)
    outcome = writer().assert_rules(taught.rules, taught.facts)
    lines = [f"Rule Asserted: {rule.text}" for rule in outcome.rules]
    lines.extend(f"Fact Asserted: {spoken(fact.predicate, fact.args)}" for fact in taught.facts)
    headers = {"X-Rule-Warnings": in_a_header(outcome.warnings)} if outcome.warnings else {}
    return text("\n".join(lines), headers)


@bp.get("/rules")
def rules() -> Response:
    """List the rules."""
    scope = scope_asked(request.args, EVERY_SCOPE)
    return as_json({"rules": [rule_shape(rule) for rule in reader().rules(scope)]})


@bp.post("/retract/rule")
def retract_rule() -> Response:
    """Take one rule back."""
    wanted = load(rule_to_forget)
    gone = writer().retract_rule(id=wanted.id, rule=wanted.rule, scope=wanted.scope)
    return text(f"Rule Retracted: {gone.text}")


def in_a_header(warnings: Sequence[str]) -> str:
    """Write warnings as one header value: percent-encoded where a header could not hold them, joined by `; `."""
    return "; ".join(_encoded(warning) for warning in warnings)[:_MAX_WARNINGS]


def _encoded(warning: str) -> str:
    return "".join(
        char if " " <= char <= "~" and char not in "%;" else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in warning
    )
