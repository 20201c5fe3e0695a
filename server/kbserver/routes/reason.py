"""Asking: with rules, among the stored facts, for a number, for the schema."""

from __future__ import annotations

from flask import Blueprint, Response, request

from kbcore.reason.budget import Notes
from kbcore.state.facts import Row
from kbserver.answers import as_json, noted, parts_as_json, rows_written, text
from kbserver.request_context import reader, runtime
from kbserver.schemas.base import load, scope_asked
from kbserver.schemas.reason import aggregation, explanation, pattern, question

bp = Blueprint("reason", __name__)


def _write(rows: list[Row]) -> bytes:
    return rows_written(rows, runtime().pause)


@bp.post("/infer")
@bp.post("/ask")
def infer() -> Response:
    """Answer a goal from facts and rules."""
    asked, notes = load(question), Notes()
    return parts_as_json(asked.written(reader(), _write, notes), noted(notes))


@bp.post("/explain")
def explain() -> Response:
    """Tell people why the answers of a goal hold, or how it is evaluated."""
    return text(load(explanation).told(reader()) + "\n")


@bp.post("/query")
def query() -> Response:
    """Match a pattern with the stored facts; no rules are applied."""
    asked = load(pattern)
    return parts_as_json(asked.written(reader(), _write, Notes()))


@bp.post("/aggregate")
def aggregate() -> Response:
    """Count, add up, or find the least, greatest or mean of an argument of the stored facts."""
    asked = load(aggregation)
    outcome = reader().aggregate(
        asked.predicate,
        asked.op,
        arg_index=asked.arg_index,
        pattern=asked.pattern,
        scope=asked.scope,
        skip_non_numeric=asked.skip_non_numeric,
        as_of=asked.as_of,
    )
    return as_json(
        {
            "result": outcome.result,
            "op": asked.op,
            "operation": asked.op,
            "predicate": asked.predicate,
            "matchedFacts": outcome.matched,
            "timestamp": runtime().clock.now_ms(),
        }
    )


@bp.get("/predicates")
def predicates() -> Response:
    """Describe the predicates there are."""
    return as_json(reader().predicates(scope_asked(request.args, None)))
