"""Operations on memory: decay, consolidation, priorities, salient facts and recall."""

from __future__ import annotations

from typing import Any

from flask import Response

from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.memory import PythonMemory
from kbcore.state.facts import Row
from kbcore.state.idempotency import Outcome
from kbcore.state.keys import READER, WRITER
from kbserver.answers import members, parts_as_json, rows_written, text
from kbserver.http.request_context import runtime
from kbserver.mcp import work
from kbserver.operations import Method, Tool, as_object, as_text, operation
from kbserver.schemas.atoms import ATOM_OR_TEXT
from kbserver.schemas.facts import SalientRow, StoredRow, spoken
from kbserver.schemas.fields import Json
from kbserver.schemas.memory import (
    ConsolidateBody,
    Consolidated,
    DecayBody,
    Decayed,
    PriorityBody,
    RecallBody,
    SalientBody,
    with_truth_values,
)
from kbtypes.results import ConsolidateOutcome, DecayOutcome


@operation(
    "POST /memory/decay",
    "POST /memory/cleanup",
    role=WRITER,
    replies=(as_object("What was evicted, or would be.", Decayed),),
    body=DecayBody,
    core=TenantKB.decay,
    methods=(Method(PythonMemory.decay),),
    writes=True,
    asks=True,
    tool=Tool(
        name="cleanup",
        description="Evict facts that have expired, or whose salience is below the threshold. "
        "With dryRun only list them.",
        takes=("threshold", "scope", "dryRun"),
        gives=("expiredCount", "evictedCount?", "removedAtoms?"),
        destroys=True,
        repeats=False,
    ),
)
def decay(outcome: DecayOutcome, arguments: Json) -> Response:
    """Evict expired facts and facts with low salience."""
    return _with_rows(Decayed.write(outcome), "removedAtoms")


@operation(
    "POST /memory/consolidate",
    "POST /memory/compress",
    role=WRITER,
    replies=(as_object("What was replaced by summaries, or would be.", Consolidated),),
    body=ConsolidateBody,
    core=TenantKB.consolidate,
    methods=(Method(PythonMemory.consolidate),),
    writes=True,
    asks=True,
    tool=Tool(
        name="compress",
        description="Replace facts that repeat themselves by one summary a group. With dryRun only list "
        "them.",
        takes=("minGroupSize", "predicates", "scope", "dryRun"),
        gives=("factsConsolidated", "newFacts?"),
    ),
)
def consolidate(outcome: ConsolidateOutcome, arguments: Json) -> Response:
    """Replace groups of similar facts by summaries."""
    return _with_rows(Consolidated.write(outcome), "newFacts")


def _prioritized_again(outcome: Outcome, arguments: Json) -> Response:
    return prioritize.respond(None, arguments)


@operation(
    "POST /memory/priority",
    "POST /memory/prioritize",
    role=WRITER,
    replies=(as_text("The new priority."),),
    body=PriorityBody,
    core=TenantKB.prioritize,
    again=_prioritized_again,
    writes=True,
)
def prioritize(outcome: None, arguments: Json) -> Response:
    """Set the priority of a fact."""
    atom = spoken(arguments["predicate"], arguments["args"])
    return text(f"Priority Set: {atom} = {arguments['priority']:g}")


@operation(
    "POST /memory/query/salient",
    role=READER,
    replies=(as_object("The facts, best first.", {"type": "array", "items": SalientRow}),),
    body=SalientBody,
    core=TenantKB.salient,
    asks=True,
    transaction=True,
    viewed=True,
)
def salient(outcome: list[Row], arguments: Json) -> Response:
    """Return the most salient facts."""
    return parts_as_json([rows_written(outcome, runtime().yield_now)])


@operation(
    "POST /memory/query/temporal",
    "POST /memory/recall",
    role=READER,
    replies=(as_object("The facts that were valid then.", {"type": "array", "items": StoredRow}),),
    body=RecallBody,
    core=TenantKB.recall,
    asks=True,
    transaction=True,
    tool=Tool(
        name="recall",
        description="Facts that were valid at a point in time: epoch milliseconds or ISO 8601.",
        takes=(*ATOM_OR_TEXT, "timestamp", "scope", "limit"),
        answer=work.ToolRows,
        gives=("results", "count", "truncated"),
        work=work.recall,
    ),
    viewed=True,
)
def recall(outcome: list[Row], arguments: Json) -> Response:
    """Return the facts that were valid at a point in time."""
    return parts_as_json([rows_written(with_truth_values(outcome), runtime().yield_now)])


def _with_rows(shape: dict[str, Any], name: str) -> Response:
    """Return an object whose member `name`, neither first nor last, is a list of rows.

    The list may be long.
    """
    index = list(shape).index(name)
    before, after = dict(list(shape.items())[:index]), dict(list(shape.items())[index + 1 :])
    listed = [b'"%s":' % name.encode(), rows_written(shape[name], runtime().yield_now)]
    return parts_as_json([b"{", members(before), b",", *listed, b",", members(after), b"}"])
