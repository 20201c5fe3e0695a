"""Bodies that teach rules or take them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.state.facts import Fact
from kbcore.state.rulebook import StoredRule
from kbplanner.ir.terms import Rule
from kbplanner.passes.check import check_statements
from kbplanner.syntax.jsonform import rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement
from kbserver.schemas.base import Envelope
from kbserver.schemas.fields import (
    Reader,
    body_items,
    fraction,
    head_atom,
    moment,
    scope_to_write,
    text,
)
from kbserver.schemas.jsonschema import given

_CONTENT: dict[str, Reader] = {"head": head_atom, "body": body_items, "scope": scope_to_write}

_rule = Envelope(
    "Rule",
    {**_CONTENT, "text": text, "confidence": fraction, "name": text},
    more={
        "oneOf": [given("head", "body", without=("text",)), given("text", without=("head", "body"))]
    },
)
_forget = Envelope(
    "ForgetRule",
    {**_CONTENT, "id": text},
    more={"oneOf": [given("head", "body", without=("id",)), given("id", without=("head", "body"))]},
)


@dataclass(frozen=True, slots=True)
class Lesson:
    """Rules to assert, and the facts that stood among them in a text."""

    rules: list[Rule] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RuleToForget:
    """A rule by its id, or by what it says."""

    id: str | None
    rule: Rule | None
    scope: str | None


@_rule.shapes
def lesson(data: dict[str, Any], *, strict: bool) -> Lesson:
    """Read the body of /assert/rule: head and body, or a text of statements."""
    fields = _rule.load(data, strict)
    if "text" not in fields:
        return Lesson([_rule_of(fields)])
    if "head" in fields or "body" in fields:
        raise InvalidInput.at("text", "is given beside head or body; a rule is either")
    return _lesson_of(fields["text"], fields.get("scope"))


@_forget.shapes
def rule_to_forget(data: dict[str, Any], *, strict: bool) -> RuleToForget:
    """Read the body of /retract/rule: an id, or head and body."""
    fields = _forget.load(data, strict)
    by_content = "head" in fields or "body" in fields
    if by_content == ("id" in fields):
        raise InvalidInput.at("id", "a rule is named either by id or by head and body")
    rule = _rule_of(fields) if by_content else None
    return RuleToForget(fields.get("id"), rule, fields.get("scope"))


def rule_shape(stored: StoredRule) -> dict[str, Any]:
    """Show a stored rule: as text, and as the JSON it could have been taught with."""
    shape = rule_to_json(stored.rule)
    return {
        "id": stored.id,
        "text": stored.text,
        "head": shape["head"],
        "body": shape["body"],
        "scope": stored.scope,
    }


def _rule_of(fields: dict[str, Any]) -> Rule:
    for name in ("head", "body"):
        if name not in fields:
            raise InvalidInput.at(name, "is required")
    return rule_from_json(fields)


def _lesson_of(source: str, scope: str | None) -> Lesson:
    statements = parse_program(source)
    for statement in statements:
        if isinstance(statement, GoalStatement):
            raise InvalidInput.at(
                "text",
                f"line {statement.span.line}: a goal is asked, not taught; POST /ask takes it",
            )
    check_statements(
        statements
    )  # the core checks rules too; this check adds line numbers to errors
    rules = [
        _scoped(statement.rule, scope)
        for statement in statements
        if isinstance(statement, RuleStatement)
    ]
    facts = [
        _fact_of(statement, scope)
        for statement in statements
        if isinstance(statement, FactStatement)
    ]
    if not rules and not facts:
        raise InvalidInput.at("text", "holds no rule")
    return Lesson(rules, facts)


def _scoped(rule: Rule, scope: str | None) -> Rule:
    return replace(
        rule, scope=scope if rule.scope is None else _read("scope", scope_to_write, rule.scope)
    )


def _fact_of(statement: FactStatement, scope: str | None) -> Fact:
    atom, notes = statement.atom, statement.annotations
    return Fact(
        atom.predicate,
        tuple(arg for arg in atom.args if isinstance(arg, str)),
        positive=atom.positive,
        scope=scope if notes.scope is None else _read("scope", scope_to_write, notes.scope),
        ttl=notes.ttl,
        valid_from=None
        if notes.valid_from is None
        else _read("validFrom", moment, notes.valid_from),
        valid_until=None
        if notes.valid_until is None
        else _read("validUntil", moment, notes.valid_until),
        confidence=notes.confidence,
    )


def _read(name: str, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        raise InvalidInput.at("text", f"{name} {value!r} {error}") from error
