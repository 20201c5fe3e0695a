"""Routes that answer goals, match stored facts, aggregate, explain and describe predicates."""

from __future__ import annotations

from flask import Blueprint, Response, request

from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.reason.budget import Notes
from kbserver.answers import JSON, as_json, noted, parts_as_json, rows_written, text
from kbserver.http.etags import tagged
from kbserver.http.paging import Page, page, part
from kbserver.http.request_context import reader, runtime, writer
from kbserver.notices import unknown_headers
from kbserver.operations import (
    APPLIED,
    COUNTED,
    PLAIN,
    UNKNOWN,
    WARNINGS,
    Answer,
    as_object,
    operation,
)
from kbserver.schemas.answers.facts import (
    ANSWERS,
    EXECUTED,
    NUMBER_FOUND,
    PLANS,
    PREDICATES,
    TRUE_ROW,
)
from kbserver.schemas.base import load, scope_asked
from kbserver.schemas.execute import command, shown_executed
from kbserver.schemas.fields import scope_to_read, taken
from kbserver.schemas.jsonschema import TEXT, array, said, words
from kbserver.schemas.reason import Pattern, Question, aggregation, explanation, pattern, question

bp = Blueprint("reason", __name__)


@bp.post("/infer")
@bp.post("/ask")
@operation(
    as_object(
        "The answers, sorted by arguments.", ANSWERS, headers={**WARNINGS, **UNKNOWN, **APPLIED}
    ),
    body=question,
    query={"proof": said(words("true", "1", "false", "0"), "True is `withProof`.")},
    prefer=("wait",),
    asks=True,
    transaction=True,
    paged=True,
)
def infer() -> Response:
    """Answer a goal from facts and rules."""
    kb = reader()
    asked, notes = load(question), Notes()
    if (wanted := page(asked)) is not None:
        return _page(asked, kb, wanted)
    return parts_as_json(asked.written(kb, rows_written, notes), noted(notes))


@bp.post("/explain")
@operation(
    Answer(
        "Why the answers hold, or the plan.",
        {PLAIN: TEXT, JSON: PLANS},
        headers={**UNKNOWN, **APPLIED},
    ),
    body=explanation,
    prefer=("wait",),
    asks=True,
    transaction=True,
)
def explain() -> Response:
    """Explain the answers of a goal, or its evaluation plan."""
    kb = reader()
    asked = load(explanation)
    told, headers = asked.answer(kb), unknown_headers(asked.unknown(kb))
    return text(told + "\n", headers) if isinstance(told, str) else as_json(told, headers)


@bp.post("/query")
@operation(
    as_object("The facts that match.", array(TRUE_ROW), headers={**UNKNOWN, **APPLIED}),
    body=pattern,
    prefer=("wait",),
    asks=True,
    transaction=True,
    paged=True,
)
def query() -> Response:
    """Match a pattern against the stored facts; no rules are applied."""
    kb = reader()
    asked = load(pattern)
    if (wanted := page(asked)) is not None:
        return _page(asked, kb, wanted)
    notes = Notes()
    return parts_as_json(asked.written(kb, rows_written, notes), noted(notes))


@bp.post("/aggregate")
@operation(
    as_object("The number.", NUMBER_FOUND, headers={**UNKNOWN, **APPLIED}),
    body=aggregation,
    prefer=("wait",),
    asks=True,
    transaction=True,
)
def aggregate() -> Response:
    """Compute the count, sum, minimum, maximum or average of an argument of the stored facts."""
    kb = reader()
    asked = load(aggregation)
    result = asked.answer(kb, runtime().clock.now_ms())
    return as_json(result, {} if result["matchedFacts"] else unknown_headers(asked.unknown(kb)))


@bp.post("/execute")
@operation(
    as_object("What was done and answered.", EXECUTED, headers={**UNKNOWN, **APPLIED}),
    body=command,
    prefer=("wait",),
    writes=True,
    asks=True,
    transaction=True,
)
def execute() -> Response:
    """Run a text in the rule language: store its facts and rules and answer its queries.

    Statements run in order, so a query sees the facts and rules before it. If one fails, nothing is
    stored.
    """
    kb = writer()
    asked = load(command)
    done = kb.execute(asked.blocks, scope=asked.scope, wanted=asked.wanted)
    return as_json(shown_executed(done), unknown_headers(done.unknown))


@bp.get("/predicates")
@operation(
    as_object("The predicates.", PREDICATES, headers=COUNTED),
    query={"scope": taken(scope_to_read)},
    transaction=True,
    tagged=True,
    paged=True,
)
@tagged
def predicates() -> Response:
    """Return the known predicates."""
    scope = scope_asked(request.args, None)
    found, wanted = reader().predicates(scope), page(scope)
    if wanted is None:
        return as_json(found)
    listed = part(found["predicates"], wanted)
    total = found["totalPredicates"]
    return wanted.linked(
        as_json({**found, "predicates": listed}), wanted.offset + len(listed) < total, total
    )


def _page(asked: Question | Pattern, kb: KnowledgeBase, wanted: Page) -> Response:
    notes = Notes()
    parts, more = asked.paged(kb, rows_written, notes, wanted.offset, wanted.limit)
    return wanted.linked(parts_as_json(parts, noted(notes)), more)
