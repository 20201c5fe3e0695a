"""Operations that answer goals, match patterns, explain, aggregate and run texts."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from kbcore.operations.scripts import ScriptOutcome
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.reads import PythonReads
from kbcore.python_api.writes import PythonWrites
from kbcore.reason.budget import Notes
from kbcore.search.neighbours import FactsAround
from kbcore.state.keys import READER, WRITER
from kbserver.answers import (
    ARROW,
    JSON,
    PLAIN,
    accepts_arrow,
    as_json,
    noted,
    parts_as_json,
    rows_written,
    table_as_arrow,
    text,
)
from kbserver.http.etags import tagged
from kbserver.http.paging import Page, answer_list, page
from kbserver.http.request_context import reader, runtime
from kbserver.mcp import work
from kbserver.notices import unknown_headers
from kbserver.operations import (
    COUNTED,
    TEXT,
    UNKNOWN,
    WARNINGS,
    Method,
    OperationReply,
    Tool,
    as_object,
    operation,
)
from kbserver.schemas.atoms import ATOM_OR_TEXT
from kbserver.schemas.conjunctions import Conjunction
from kbserver.schemas.facts import LabelledRow, Neighbourhood, NeighboursBody
from kbserver.schemas.fields import Json, ReadScope
from kbserver.schemas.reason import (
    ANSWERS,
    COLUMNS,
    AggregateBody,
    Aggregated,
    ExecuteBody,
    ExecutedAnswer,
    ExplainBody,
    HowToShown,
    InferBody,
    Pattern,
    Plans,
    Predicates,
    QueryBody,
    Question,
    Questions,
    SlowGoalShown,
    SlowGoalsShown,
    WhyNotShown,
)
from kbserver.schemas.requests import (
    KNOWN_AT,
    KNOWN_AT_PARAMETER,
    opened,
    scope_asked,
    seen,
    seen_asked,
)

_PROOF = {
    **TEXT,
    "enum": ["true", "1", "false", "0"],
    "description": "True is `withProof`.",
}


@operation(
    "POST /infer",
    "POST /ask",
    role=READER,
    replies=(
        OperationReply(
            "The answers, sorted by arguments.",
            {JSON: ANSWERS, ARROW: COLUMNS},
            headers={**WARNINGS, **UNKNOWN},
        ),
    ),
    body=InferBody,
    query={"proof": _PROOF},
    prefer=("wait",),
    asks=True,
    transaction=True,
    paged=True,
    tool=Tool(
        name="ask",
        description="Answer a goal: predicate and args, or text: parent(?x, bob); goals: many.",
        takes=(*ATOM_OR_TEXT, "goals", "negated", "scope", "withProof", "limit", "offset"),
        answer=work.ToolRows,
        gives=("results", "count", "truncated"),
        profile="default",
        work=work.ask,
    ),
    viewed=True,
)
def infer() -> Response:
    """Answer a goal, or several, from facts and rules.

    `goals` are answered from one state: no write comes between two of them. The answer is an array
    with the answers of each, in order. If one of them is invalid, none is answered, and the error
    names it, as `goals[3]`. The limits of time, derived rows, steps, answers and proof nodes are
    those of the whole request.

    With `Accept: application/vnd.apache.arrow.stream` the answers are an Arrow IPC stream: a column
    for each variable of the goal in order of appearance, dictionary-encoded, and the columns
    `scope`, `confidence` and `metadata` where an answer has them. A goal without variables has one
    column, `holds`. Proofs are JSON only.
    """
    return _rows(*opened(InferBody), "question")


@operation(
    "POST /explain",
    role=READER,
    replies=(
        OperationReply(
            "Why the answers hold, why there are none, what would change that, or the plan.",
            {PLAIN: TEXT, JSON: {"anyOf": [Plans, WhyNotShown, HowToShown]}},
            headers=UNKNOWN,
        ),
    ),
    body=ExplainBody,
    core=lambda kb, explanation: (explanation.answer(kb), explanation.unknown(kb)),
    methods=(
        Method(PythonReads.why_not, sends={"whyNot": True}, result="WhyNot"),
        Method(PythonReads.how_to, sends={"howTo": True}),
    ),
    prefer=("wait",),
    asks=True,
    transaction=True,
    tool=Tool(
        name="explain",
        description="Why answers hold; plan: steps.",
        takes=(*ATOM_OR_TEXT, "scope", "limit", "plan", "whyNot", "howTo"),
        answer=work.ToolText,
        gives=("text",),
        profile="default",
        work=work.explain,
    ),
    further_tools=(
        Tool(
            name="why_not",
            description="Explain why a goal has no answer: how far each rule gets, and the first "
            "premise that is missing. The goal: predicate and args, or text.",
            takes=(*ATOM_OR_TEXT, "negated", "scope", "limit", "depth"),
            answer=WhyNotShown,
            gives=("holds", "truth", "candidates", "unknownPredicates", "truncated"),
            work=work.why_not,
        ),
        Tool(
            name="how_to",
            description="Find the smallest changes of facts that would make a goal true, or false "
            "with make. Nothing is changed. changing: predicates with rules whose facts may change "
            "too. The goal: predicate and args, or text.",
            takes=(*ATOM_OR_TEXT, "negated", "scope", "limit", "make", "changing"),
            answer=HowToShown,
            gives=("goal", "make", "truth", "proposals", "truncated"),
            work=work.how_to,
        ),
    ),
    viewed=True,
)
def explain(outcome: tuple[Any, Any], arguments: Json) -> Response:
    """Explain the answers of a goal, why it has none, what would change that, or its plan."""
    explanation, unknown = outcome
    headers = unknown_headers(unknown)
    if isinstance(explanation, str):
        return text(explanation + "\n", headers)
    return as_json(explanation, headers)


@operation(
    "POST /query",
    role=READER,
    replies=(
        OperationReply(
            "The facts that match.",
            {JSON: {"type": "array", "items": LabelledRow}, ARROW: COLUMNS},
            headers={**UNKNOWN, **COUNTED},
        ),
    ),
    body=QueryBody,
    prefer=("wait",),
    asks=True,
    transaction=True,
    paged=True,
    tool=Tool(
        name="query",
        description="Match stored facts, no rules.",
        takes=(*ATOM_OR_TEXT, "scope", "contains", "limit"),
        answer=work.ToolRows,
        gives=("results", "count", "truncated"),
        profile="default",
        work=work.query,
    ),
    viewed=True,
)
def query() -> Response:
    """Match a pattern against the stored facts; no rules are applied.

    With `Accept: application/vnd.apache.arrow.stream` the facts are an Arrow IPC stream as for
    /infer, with the column `negated` if facts of both signs match.
    """
    return _rows(*opened(QueryBody), "pattern")


@operation(
    "POST /neighbours",
    role=READER,
    replies=(as_object("The facts and their number by predicate.", Neighbourhood),),
    body=NeighboursBody,
    core=TenantKB.neighbours,
    methods=(Method(PythonReads.neighbours, result="Neighbours"),),
    prefer=("wait",),
    asks=True,
    transaction=True,
    viewed=True,
)
def neighbours(outcome: FactsAround, arguments: Json) -> Response:
    """Return the stored facts that have a constant in any argument; no rules are applied.

    The facts of all predicates and positions are taken in turn up to `limit`, so that a page shows
    every predicate before it shows many facts of one. `predicates` has the number of all facts that
    contain the constant, of which `facts` is one page.
    """
    return as_json(Neighbourhood.write(outcome))


@operation(
    "POST /aggregate",
    role=READER,
    replies=(as_object("The value.", Aggregated, headers=UNKNOWN),),
    body=AggregateBody,
    prefer=("wait",),
    asks=True,
    transaction=True,
    tool=Tool(
        name="aggregate",
        description="op COUNT, SUM, MIN, MAX, AVG of argument argIndex from 0.",
        takes=("predicate", "op", "argIndex", "args", "scope"),
        gives=("result", "matchedFacts?"),
        profile="default",
        work=work.aggregate,
    ),
    viewed=True,
)
def aggregate() -> Response:
    """Compute the count, sum, minimum, maximum or average of an argument of the stored facts."""
    kb, arguments = opened(AggregateBody)
    kb, aggregation = seen(kb, arguments), arguments["aggregation"]
    result = aggregation.answer(kb, runtime().clock.now_ms())
    return as_json(
        result, {} if result["matchedFacts"] else unknown_headers(aggregation.unknown(kb))
    )


@operation(
    "POST /execute",
    role=WRITER,
    replies=(as_object("What was stored and answered.", ExecutedAnswer, headers=UNKNOWN),),
    body=ExecuteBody,
    core=TenantKB.execute,
    methods=(Method(PythonWrites.execute, keys={"text": "command"}, result="Executed"),),
    prefer=("wait",),
    writes=True,
    checked_inside=True,
    asks=True,
    transaction=True,
    viewed=True,
)
def execute(outcome: ScriptOutcome, arguments: Json) -> Response:
    """Run a text in the rule language: store its facts and rules and answer its queries.

    The command words `ASSERT`, `INFER`, `QUERY` and `RETRACT` may start a statement, and rules may
    be written `FORALL ?x { head <- body }`. Statements run in order, so a query sees the facts and
    rules before it. If one fails, nothing is stored.
    """
    return as_json(ExecutedAnswer.write(outcome), unknown_headers(outcome.unknown))


@operation(
    "GET /goals/slow",
    role=READER,
    replies=(as_object("The goals.", SlowGoalsShown),),
    methods=(Method(PythonReads.slow_goals, result="list[SlowGoal]"),),
)
def slow_goals() -> Response:
    """Return the slowest goals of the tenant in the last hour.

    At most 20 distinct goals that took 10 ms or more, slowest first, as they were asked. Every node
    has a list of its own, in memory.
    """
    return as_json({"goals": SlowGoalShown.write_all(reader().slow_goals())})


@operation(
    "GET /predicates",
    role=READER,
    replies=(as_object("The predicates.", Predicates, headers=COUNTED),),
    methods=(Method(PythonReads.predicates),),
    query={"scope": ReadScope.schema, KNOWN_AT: KNOWN_AT_PARAMETER},
    prefer=("wait",),
    asks=True,
    transaction=True,
    tagged=True,
    paged=True,
    tool=Tool(
        name="predicates",
        description="Predicates and their counts. Start here.",
        body=work.PredicatesToolBody,
        takes=("prefix", "scope", "limit"),
        answer=work.ToolPredicates,
        gives=("predicates", "totalPredicates?", "truncated?"),
        profile="default",
        work=work.predicates,
    ),
    viewed=True,
)
@tagged
def predicates() -> Response:
    """Return the known predicates."""
    scope = scope_asked(request.args, None)
    schema = seen_asked(reader(), request.args).predicates(scope)
    asked = scope, request.args.get(KNOWN_AT)
    return answer_list(
        schema["predicates"], asked, lambda rows: as_json({**schema, "predicates": rows})
    )


def _rows(kb: TenantKB, arguments: Json, key: str) -> Response:
    goal: Question | Questions | Conjunction | Pattern = arguments[key]
    notes, requested = Notes(), page((goal, arguments.get("known_at")))
    kb = seen(kb, arguments)
    if accepts_arrow(request):
        return _columns(kb, goal, notes, requested)
    if requested is None:
        return parts_as_json(goal.written(kb, rows_written, notes), noted(notes))
    parts, more = goal.paged(kb, rows_written, notes, requested.offset, requested.limit)
    return requested.linked(parts_as_json(parts, noted(notes)), more)


def _columns(
    kb: TenantKB,
    goal: Question | Questions | Conjunction | Pattern,
    notes: Notes,
    requested: Page | None,
) -> Response:
    if requested is None:
        return table_as_arrow(goal.table(kb, notes), noted(notes))
    table, more = goal.table_page(kb, notes, requested.offset, requested.limit)
    return requested.linked(table_as_arrow(table, noted(notes)), more)
