"""Asserting, listing and retracting rules: bodies and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from kbcore.branching.preview import rule_retraction
from kbcore.errors import InvalidInput, RuleSyntaxError
from kbcore.state.facts import Fact
from kbcore.state.labels import to_json
from kbplanner.check.texts import KINDS
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.operators import BUILTINS
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Rule
from kbplanner.pacing import current_yield, let_go, paced
from kbplanner.passes.check import check_statements
from kbplanner.syntax.jsonform import rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.scanner import MAX_STATEMENT_CHARS
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    GoalStatement,
    RuleStatement,
)
from kbserver.schemas.base import Answer, Body, JsonObject, Part, present
from kbserver.schemas.fields import (
    Arguments,
    Choice,
    Count,
    Duration,
    Flag,
    Forms,
    Fraction,
    Instant,
    Json,
    ListOfForms,
    Many,
    Object,
    One,
    Predicate,
    Text,
    Time,
    Value,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import request_limits

STATEMENTS_PER_YIELD = 8
"""Statements checked between two calls of `yield_now`: about a millisecond."""


FACTS_PER_YIELD = 200
"""Facts made between two calls of `yield_now`: about a millisecond."""


class BodyAtom(Part):
    """A literal of a rule body or a goal."""

    predicate = Predicate(
        "A predicate of any name. In a rule body a comparison sign is a comparison.", required=True
    )
    args = Arguments(required=True)
    negated = Flag("Negation as failure: holds if the atom cannot be derived.")
    naf = Flag("Another spelling of `negated`.")
    truth_val = Flag("False is another spelling of `negated`.")
    polarity = Choice("positive", "negative", description="Negative: the explicitly negated atom.")
    builtin = Value("False: an ordinary atom of any name.", schema={"enum": [False, None]})


class Builtin(Part):
    """A comparison, a string test or a function; the value of a function is its last argument."""

    builtin = Choice(*BUILTINS, required=True)
    args = Arguments(required=True)
    negated = Flag()
    naf = Flag()
    truth_val = Flag()


class AsText(Part):
    """A literal as text."""

    text = Text(required=True)


class HeadAtom(Part):
    """The head of a rule; arguments may be aggregates such as `count(?x)`."""

    predicate = Predicate(required=True)
    args = Arguments(required=True)
    negated = Flag()
    truth_val = Flag()
    polarity = Choice("positive", "negative")


class Literals(ListOfForms):
    """The literals of a rule body, checked one by one."""

    schema: ClassVar[Json] = {
        "type": "array",
        "minItems": 1,
        "maxItems": DEFAULT_LIMITS.body_items,
    }

    def __init__(self, **more: Any) -> None:
        super().__init__(BodyAtom, Builtin, AsText, {"type": "string"}, **more)


class TeachBody(Body):
    """A rule as head and body, or a text of rules and facts."""

    head = Forms(HeadAtom)
    body = Literals()
    scope = WriteScope()
    text = Text()
    confidence = Fraction()
    name = Text()
    timeout_ms = Whole(1)

    requires: ClassVar[Json] = {
        "oneOf": [
            present("head", "body", without=("text",)),
            present("text", without=("head", "body")),
        ]
    }

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.assert_rules`."""
        if "text" not in fields:
            return {
                "rules": [_rule_of(fields)],
                "facts": [],
                "request_limits": request_limits(fields),
            }
        if "head" in fields or "body" in fields:
            raise InvalidInput.at("text", "is given beside head or body; a rule is either")
        text, scope = fields["text"], fields.get("scope")
        rules, facts = clauses_of(text, scope, final_dot=False, labelled=True)
        return {"rules": rules, "facts": facts, "request_limits": request_limits(fields)}


class TaughtDefinition(Answer):
    """A rule or declaration as it is stored."""

    id = Text()
    text = Text()
    scope = Text("Null is every partition.", allow_none=True)


class Taught(Answer):
    """The rules of a text, and the numbers of its facts."""

    rules = Many(TaughtDefinition, "Those that were stored before too.")
    asserted = Count("Facts that were new.")
    updated = Count("Facts that were stored before.")
    warnings = Many(Text(), "About rules that are valid but probably not intended.")
    timestamp = Time()


class CheckedTextBody(Body):
    """A text to check, and the scope of rules that name none."""

    text = Text(required=True)
    kind = Choice(
        *KINDS,
        description="`program`, the default: facts, rules and queries. `goal`: one goal, as "
        "`POST /ask` takes it in `text`.",
    )
    scope = WriteScope()
    timeout_ms = Whole(1)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.check`."""
        limits = {"request_limits": request_limits(fields)}
        return {key: value for key, value in fields.items() if key != "timeout_ms"} | limits


class DiagnosticShown(Answer):
    """An error or a warning, at a stretch of one line."""

    line = Count("From 1.")
    column = Count("From 1, in code points.")
    end_line = Count("The same as `line`.")
    end_column = Count("The column after the last character.")
    severity = Choice("error", "warning")
    code = Text("A code of the table in docs/reference/diagnostics.md, such as `K012`.")
    name = Text("The name of the code, such as `unsafe`.")
    message = Text()
    hint = Text(allow_none=True)


class Diagnostics(JsonObject):
    """The errors and warnings of a text, in its order."""

    diagnostics = Many(DiagnosticShown)


class ForgetRuleBody(Body):
    """A rule by its id, as text, or as head and body."""

    head = Forms(HeadAtom)
    body = Literals()
    scope = WriteScope()
    id = Text(most=MAX_STATEMENT_CHARS)
    text = Text("The rule in the rule language, or its id.", most=MAX_STATEMENT_CHARS)

    requires: ClassVar[Json] = {
        "oneOf": [
            present("head", "body", without=("id", "text")),
            present("id", without=("head", "body", "text")),
            present("text", without=("head", "body", "id")),
        ]
    }

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.retract_rule`."""
        by_content = "head" in fields or "body" in fields
        if by_content + ("id" in fields) + ("text" in fields) != 1:
            raise InvalidInput.at(
                "id", "a rule is named either by id, by text, or by head and body"
            )
        if "text" in fields:
            try:
                retraction = rule_retraction(fields["text"], fields.get("scope"))
            except RuleSyntaxError as error:
                raise error.within("text") from None
            return {"id": retraction.id, "rule": None, "scope": retraction.scope}
        rule = _rule_of(fields) if by_content else None
        return {"id": fields.get("id"), "rule": rule, "scope": fields.get("scope")}


class RuleAtom(JsonObject):
    """The head of a rule."""

    predicate = Text()
    args = Many(Text())
    negated = Flag()


class RuleLiteral(RuleAtom):
    """A literal of a rule body."""

    polarity = Text(optional=True)
    builtin = Value(schema={"enum": [False]}, optional=True)


class RuleBuiltin(JsonObject):
    """A comparison, string test or function of a rule body."""

    builtin = Text()
    args = Many(Text())
    negated = Flag()


class StoredRuleShown(Answer):
    """A stored rule: as text, and as the JSON it could have been taught with."""

    id = Text()
    text = Text()
    head = One(RuleAtom, of=lambda stored: rule_to_json(stored.rule)["head"])
    body = ListOfForms(
        RuleLiteral, RuleBuiltin, of=lambda stored: rule_to_json(stored.rule)["body"]
    )
    scope = Text(allow_none=True)
    labels = Many(
        Object(),
        "Each of the labels with which the rule was stored. Left out where it has none.",
        of=lambda stored: [to_json(each) for each in stored.labels] or None,
        optional=True,
    )


class StoredPhraseShown(Answer):
    """A stored phrase, which words the facts of a predicate in text for prompts."""

    id = Text("The predicate as `@name/arity`; `POST /retract/rule` takes it.")
    text = Text("The declaration in the rule language.")
    predicate = Text(of="declaration.predicate")
    arity = Count(of="declaration.arity")
    phrase = Text("The sentence, with `{0}`, `{1}` ... for the arguments.", of="declaration.text")
    negative = Text("The sentence for negated facts.", of="declaration.negative", allow_none=True)
    scope = Text(allow_none=True)


class StoredInputShown(Answer):
    """A declared input: a predicate that gets facts from outside, and what they mean."""

    id = Text("The predicate as `@name/arity input`; `POST /retract/rule` takes it.")
    text = Text("The declaration in the rule language.")
    predicate = Text(of="declaration.predicate")
    arity = Count(of="declaration.arity")
    args = Many(Text(), "The names of the arguments.", of="declaration.args")
    types = Many(
        Text(allow_none=True),
        "The types of the arguments: text, number, integer, instant or boolean, null for an argument "
        "without one. Left out where none has a type.",
        of=lambda stored: stored.declaration.types or None,
        optional=True,
    )
    strict = Flag(
        "True if facts with arguments of other types are refused. Left out otherwise.",
        of=lambda stored: stored.declaration.is_strict or None,
        optional=True,
    )
    gloss = Text("What a fact means.", of="declaration.gloss", allow_none=True)
    scope = Text(allow_none=True)


class StoredMaskShown(Answer):
    """A declared mask: arguments of a predicate that the decision log does not show."""

    id = Text("The predicate as `@name/arity mask`; `POST /retract/rule` takes it.")
    text = Text("The declaration in the rule language.")
    predicate = Text(of="declaration.predicate")
    arity = Count(of="declaration.arity")
    positions = Many(Count(), "The masked arguments; the first is 1.", of="declaration.positions")
    scope = Text(allow_none=True)


class StoredDimensionShown(Answer):
    """Declared levels or groups of labels."""

    id = Text("The name as `@name labels`; `POST /retract/rule` takes it.")
    text = Text("The declaration in the rule language.")
    name = Text(of="declaration.name")
    values = Many(Text(), "The levels, the lowest first, or the groups.", of="declaration.values")
    ordered = Flag("True for levels.", of="declaration.is_ordered")
    scope = Text(allow_none=True)


class StoredRequirementShown(Answer):
    """The level of labels that an answer of a predicate requires."""

    id = Text("The predicate as `@name/arity requires`; `POST /retract/rule` takes it.")
    text = Text("The declaration in the rule language.")
    predicate = Text(of="declaration.predicate")
    arity = Count(of="declaration.arity")
    dimension = Text(of="declaration.dimension")
    level = Text(of="declaration.level")
    scope = Text(allow_none=True)


class Rules(JsonObject):
    """The rules of a tenant, and the phrases, inputs, masks, labels and requirements that are
    declared.
    """

    rules = Many(StoredRuleShown)
    phrases = Many(StoredPhraseShown, "Left out where none is declared.", optional=True)
    inputs = Many(StoredInputShown, "Left out where none is declared.", optional=True)
    masks = Many(StoredMaskShown, "Left out where none is declared.", optional=True)
    dimensions = Many(StoredDimensionShown, "Left out where none is declared.", optional=True)
    requirements = Many(StoredRequirementShown, "Left out where none is declared.", optional=True)


D = TypeVar("D", bound=Definition)


def _rule_of(fields: dict[str, Any]) -> Rule:
    for name in ("head", "body"):
        if name not in fields:
            raise InvalidInput.at(name, "is required")
    return rule_from_json(fields)


def clauses_of(
    source: str,
    scope: str | None,
    path: str = "text",
    *,
    final_dot: bool = True,
    labelled: bool = False,
) -> tuple[list[Definition], list[Fact]]:
    """Return the definitions and facts of a text, in `scope` if they name none.

    Without `final_dot` the last statement may leave it out. Statements have labels in a `labelled`
    text only. Raises RuleSyntaxError with every
    mistake of the text, and InvalidInput that names `path`.
    """
    yield_now = current_yield()
    statements = parse_program(source, final_dot=final_dot, labelled=labelled)
    for statement in paced(statements, yield_now):
        if isinstance(statement, GoalStatement):
            raise InvalidInput.at(
                path,
                f"line {statement.span.line}: a goal is asked, not taught; POST /ask takes it",
            )
    check_statements(
        paced(statements, yield_now, STATEMENTS_PER_YIELD)
    )  # the core checks rules too; this check adds line numbers to errors
    rules: list[Definition] = [
        _scoped(
            statement.rule if isinstance(statement, RuleStatement) else statement.declaration, scope
        )
        for statement in paced(statements, yield_now)
        if isinstance(statement, RuleStatement | DeclarationStatement)
    ]
    facts = [
        _fact_of(statement, scope)
        for statement in paced(statements, yield_now, FACTS_PER_YIELD)
        if isinstance(statement, FactStatement)
    ]
    let_go(statements, yield_now)
    if not rules and not facts:
        raise InvalidInput.at(path, "holds no fact, rule or declaration")
    return rules, facts


def _scoped(rule: D, scope: str | None) -> D:
    own = scope if rule.scope is None else _read("scope", WriteScope(), rule.scope)
    return rule if own == rule.scope else replace(rule, scope=own)


def _fact_of(statement: FactStatement, scope: str | None) -> Fact:
    atom, notes = statement.atom, statement.annotations
    return Fact(
        atom.predicate,
        tuple(arg for arg in atom.args if isinstance(arg, str)),
        positive=atom.positive,
        scope=scope if notes.scope is None else _read("scope", WriteScope(), notes.scope),
        ttl=None if notes.ttl is None else _read("ttl", Duration(), notes.ttl),
        valid_from=None
        if notes.valid_from is None
        else _read("validFrom", Instant(), notes.valid_from),
        valid_until=None
        if notes.valid_until is None
        else _read("validUntil", Instant(), notes.valid_until),
        confidence=notes.confidence,
        metadata=notes.metadata or {},
        labels=notes.labels,
    )


def _read(name: str, field: Value, value: Any) -> Any:
    try:
        return field.read(value)
    except ValueError as error:
        raise InvalidInput.at("text", f"{name} {value!r} {error}") from error
