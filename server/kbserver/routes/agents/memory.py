"""Memory routes: decay, consolidation, priorities, salient facts and recall."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from kbcore.kb.knowledge_base import KnowledgeBase
from kbserver.answers import members, parts_as_json, rows_written, text
from kbserver.http.request_context import outside, reader, runtime, writer
from kbserver.operations import as_object, as_text, operation
from kbserver.schemas import memory as shapes
from kbserver.schemas.answers.facts import SALIENT_ROW, TRUE_ROW
from kbserver.schemas.answers.memory import consolidated, decayed, recalled
from kbserver.schemas.answers.resources import CONSOLIDATED, DECAYED
from kbserver.schemas.base import load
from kbserver.schemas.facts import spoken
from kbserver.schemas.jsonschema import array

bp = Blueprint("memory", __name__)


@bp.post("/memory/decay")
@bp.post("/memory/cleanup")
@operation(as_object("What went, or would go.", DECAYED), body=shapes.decay, writes=True, asks=True)
def decay() -> Response:
    """Evict expired facts and facts with low salience."""
    kb, asked = _alone(), load(shapes.decay)
    outcome = kb.decay(asked.threshold, scope=asked.scope, dry_run=asked.dry_run)
    return _with_rows(decayed(outcome), "removedAtoms")


@bp.post("/memory/consolidate")
@bp.post("/memory/compress")
@operation(
    as_object("What was summed up, or would be.", CONSOLIDATED),
    body=shapes.consolidation,
    writes=True,
    asks=True,
)
def consolidate() -> Response:
    """Replace groups of similar facts by summaries."""
    kb, asked = _alone(), load(shapes.consolidation)
    outcome = kb.consolidate(
        min_group_size=asked.min_group_size,
        predicates=asked.predicates,
        scope=asked.scope,
        dry_run=asked.dry_run,
    )
    return _with_rows(consolidated(outcome), "newFacts")


@bp.post("/memory/priority")
@bp.post("/memory/prioritize")
@operation(as_text("What was set."), body=shapes.priority, writes=True)
def prioritize() -> Response:
    """Set the priority of a fact."""
    kb, asked = _alone(), load(shapes.priority)
    kb.prioritize(
        asked.predicate, asked.args, asked.priority, positive=asked.positive, scope=asked.scope
    )
    return text(f"Priority Set: {spoken(asked.predicate, asked.args)} = {asked.priority:g}")


@bp.post("/memory/query/salient")
@operation(
    as_object("The facts, best first.", array(SALIENT_ROW)),
    body=shapes.salient,
    asks=True,
    transaction=True,
)
def salient() -> Response:
    """Return the most salient facts."""
    kb, asked = reader(), load(shapes.salient)
    rows = kb.salient(
        asked.predicate, asked.args, limit=asked.limit, minimum=asked.minimum, scope=asked.scope
    )
    return parts_as_json([rows_written(rows, runtime().yield_now)])


@bp.post("/memory/query/temporal")
@bp.post("/memory/recall")
@operation(
    as_object("The facts that were valid then.", array(TRUE_ROW)),
    body=shapes.recall,
    asks=True,
    transaction=True,
)
def recall() -> Response:
    """Return the facts that were valid at a point in time."""
    kb, asked = reader(), load(shapes.recall)
    rows = kb.recall(
        asked.predicate,
        asked.args,
        asked.at,
        positive=asked.positive,
        scope=asked.scope,
        limit=asked.limit,
    )
    return parts_as_json([rows_written(recalled(rows), runtime().yield_now)])


def _alone() -> KnowledgeBase:
    """Return the knowledge base to maintain, never a transaction."""
    outside()
    return writer()


def _with_rows(shape: dict[str, Any], name: str) -> Response:
    """Return an object whose member `name`, neither first nor last, is a list of rows.

    The list may be long.
    """
    place = list(shape).index(name)
    before, after = dict(list(shape.items())[:place]), dict(list(shape.items())[place + 1 :])
    listed = [b'"%s":' % name.encode(), rows_written(shape[name], runtime().yield_now)]
    return parts_as_json([b"{", members(before), b",", *listed, b",", members(after), b"}"])
