"""Operations that assert, list and retract rules."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response, request

from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.reads import PythonReads
from kbcore.python_api.writes import PythonWrites
from kbcore.state.idempotency import Outcome
from kbcore.state.keys import READER, WRITER
from kbcore.state.rulebook import (
    ParsedDimension,
    ParsedInput,
    ParsedMask,
    ParsedPhrase,
    ParsedRequirement,
    ParsedRule,
    RulesOutcome,
    StoredDefinition,
    stored_definition,
)
from kbplanner.pacing import paced
from kbserver.answers import JSON, PLAIN, as_json, text
from kbserver.http.etags import tagged
from kbserver.http.paging import answer_list
from kbserver.http.request_context import applied, current, reader, runtime
from kbserver.mcp import work
from kbserver.notices import encoded
from kbserver.operations import (
    COUNTED,
    TEXT,
    Method,
    OperationReply,
    Tool,
    as_object,
    as_text,
    operation,
)
from kbserver.schemas.facts import spoken
from kbserver.schemas.fields import EVERY_SCOPE, Json, ReadScope
from kbserver.schemas.requests import KNOWN_AT, KNOWN_AT_PARAMETER, scope_asked, seen_asked
from kbserver.schemas.rules import (
    CheckedTextBody,
    Diagnostics,
    DiagnosticShown,
    ForgetRuleBody,
    Rules,
    StoredDimensionShown,
    StoredInputShown,
    StoredMaskShown,
    StoredPhraseShown,
    StoredRequirementShown,
    StoredRuleShown,
    Taught,
    TeachBody,
)
from kbtypes.results import Finding

_MAX_WARNINGS = 4000

FACTS_PER_YIELD = 2000
"""Facts reported between two calls of `yield_now`: about a millisecond."""

_WARNINGS = {**TEXT, "description": "Warnings, percent-encoded, joined by `; `."}


def _taught_again(outcome: Outcome, arguments: Json) -> Response:
    rules = tuple(map(stored_definition, arguments["rules"]))
    known = RulesOutcome(rules, (), outcome.asserted, outcome.updated, outcome.at)
    return assert_rule.respond(known, arguments)


@operation(
    "POST /assert/rule",
    "POST /teach",
    role=WRITER,
    replies=(
        OperationReply(
            "The stored rules and facts, one per line.",
            {PLAIN: TEXT, JSON: Taught},
            headers={"X-Rule-Warnings": _WARNINGS},
        ),
    ),
    body=TeachBody,
    core=TenantKB.assert_rules,
    again=_taught_again,
    methods=(Method(PythonWrites.teach, prefer="return=representation"),),
    prefer=("return=representation",),
    writes=True,
    transaction=True,
    errors=(422,),
    tool=Tool(
        name="teach",
        description="Teach rules: anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).",
        takes=("text", "head", "body", "scope"),
        answer=work.TaughtTexts,
        gives=("rules", "asserted?", "warnings?"),
        profile="default",
    ),
    viewed=True,
)
def assert_rule(outcome: RulesOutcome, arguments: Json) -> Response:
    """Store rules and phrases, and the facts in the same text."""
    headers = {"X-Rule-Warnings": in_a_header(outcome.warnings)} if outcome.warnings else {}
    if current().representation:
        applied("return=representation")
        return as_json(Taught.write(outcome), headers)
    yield_now = runtime().yield_now
    lines = [stored.report for stored in paced(outcome.rules, yield_now)]
    lines.extend(
        f"Fact Asserted: {spoken(fact.predicate, fact.args)}"
        for fact in paced(arguments["facts"], yield_now, FACTS_PER_YIELD)
    )
    return text("\n".join(lines), headers)


@operation(
    "POST /check",
    role=READER,
    replies=(as_object("The errors and warnings; none for a text without any.", Diagnostics),),
    body=CheckedTextBody,
    core=TenantKB.check,
    methods=(Method(PythonReads.check),),
    transaction=True,
    errors=(422,),
    viewed=True,
)
def check(findings: Sequence[Finding], arguments: Json) -> Response:
    """Check facts, rules and queries, or a goal, without storing anything.

    The status is 200 also for a text with errors. Predicates and rules that are stored count as
    defined.
    """
    return as_json({"diagnostics": DiagnosticShown.write_all(findings)})


@operation(
    "GET /rules",
    role=READER,
    replies=(as_object("The rules.", Rules, headers=COUNTED),),
    methods=(
        Method(PythonReads.rules, result="list[StoredRule]", of="rules"),
        Method(PythonReads.phrases, result="list[StoredPhrase]", of="phrases"),
        Method(PythonReads.inputs, result="list[StoredInput]", of="inputs"),
        Method(PythonReads.masks, result="list[StoredMask]", of="masks"),
        Method(PythonReads.dimensions, result="list[StoredDimension]", of="dimensions"),
        Method(PythonReads.requirements, result="list[StoredRequirement]", of="requirements"),
    ),
    query={"scope": ReadScope.schema, KNOWN_AT: KNOWN_AT_PARAMETER},
    prefer=("wait",),
    asks=True,
    transaction=True,
    tagged=True,
    paged=True,
    viewed=True,
)
@tagged
def rules() -> Response:
    """List the rules, and the phrases, inputs, masks, labels and requirements that are declared."""
    scope = scope_asked(request.args, EVERY_SCOPE)
    kb = seen_asked(reader(), request.args)
    lists = {
        "phrases": StoredPhraseShown.write_all(kb.phrases(scope)),
        "inputs": StoredInputShown.write_all(kb.inputs(scope)),
        "masks": StoredMaskShown.write_all(kb.masks(scope)),
        "dimensions": StoredDimensionShown.write_all(kb.dimensions(scope)),
        "requirements": StoredRequirementShown.write_all(kb.requirements(scope)),
    }
    declared = {name: rows for name, rows in lists.items() if rows}
    return answer_list(
        kb.rules(scope),
        (scope, request.args.get(KNOWN_AT)),
        lambda stored: as_json({"rules": StoredRuleShown.write_all(stored), **declared}),
    )


@operation(
    "POST /retract/rule",
    role=WRITER,
    replies=(as_text("The retracted rule."),),
    body=ForgetRuleBody,
    core=TenantKB.retract_rule,
    writes=True,
    transaction=True,
    errors=(404,),
    viewed=True,
)
def retract_rule(outcome: StoredDefinition, arguments: Json) -> Response:
    """Retract one rule or declaration."""
    return text(f"{_KINDS[type(outcome)]} Retracted: {outcome.text}")


_KINDS = {
    ParsedRule: "Rule",
    ParsedPhrase: "Phrase",
    ParsedInput: "Input",
    ParsedMask: "Mask",
    ParsedDimension: "Labels",
    ParsedRequirement: "Requirement",
}


def in_a_header(warnings: Sequence[str]) -> str:
    """Return warnings as one header value, joined by `; `, percent-encoded where necessary."""
    return "; ".join(encoded(warning, "%;") for warning in warnings[:_MAX_WARNINGS])[:_MAX_WARNINGS]
