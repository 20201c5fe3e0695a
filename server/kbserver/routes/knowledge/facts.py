"""Operations that assert and retract facts."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Response

from kbcore.operations.conflicts import KEEP_BOTH
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import AssertOutcome, Fact, FactRows
from kbcore.state.idempotency import Outcome
from kbcore.state.keys import WRITER
from kbserver.answers import DISCARDED, JSON, PLAIN, as_json, discarded, text
from kbserver.http.request_context import applied, current
from kbserver.mcp import work
from kbserver.operations import (
    COUNT,
    TEXT,
    OperationReply,
    Tool,
    as_object,
    as_text,
    operation,
)
from kbserver.schemas.atoms import ATOM_OR_TEXT
from kbserver.schemas.facts import (
    BulkBody,
    Matched,
    RetractBody,
    Retracted,
    RetractPatternBody,
    Stored,
    TellBody,
    spoken,
)
from kbserver.schemas.fields import Json
from kbtypes.results import RetractOutcome

_DISCARDED = {
    DISCARDED: {**COUNT, "description": "Facts that a conflict strategy did not store, if any."}
}
_COUNTS = {
    "X-Retracted-Count": {**COUNT, "description": "Stored facts that were retracted."},
    "X-Cascaded-Count": {**COUNT, "description": "Conclusions that no longer hold, if counted."},
    "X-Still-Derivable": {**TEXT, "enum": ["true"], "description": "Rules still derive it."},
}


def _stored_again(outcome: Outcome) -> AssertOutcome:
    return AssertOutcome(outcome.asserted, outcome.updated, outcome.at, outcome.discarded)


def _told_again(outcome: Outcome, arguments: Json) -> Response:
    return assert_fact.respond(_stored_again(outcome), arguments)


def _loaded_again(outcome: Outcome, arguments: Json) -> Response:
    return assert_facts.respond(_stored_again(outcome), arguments)


def _retracted_again(outcome: Outcome, arguments: Json) -> Response:
    known = RetractOutcome(outcome.removed, counted=False)
    return retract.respond(known, arguments)


@operation(
    "POST /assert/fact",
    "POST /tell",
    role=WRITER,
    replies=(as_text("The stored fact, or the discarded one.", headers=_DISCARDED),),
    body=TellBody,
    core=TenantKB.assert_facts,
    again=_told_again,
    writes=True,
    transaction=True,
    tool=Tool(
        name="tell",
        description="Store a fact: predicate and args, or text parent(ann, bob). "
        "Times: epoch ms or ISO 8601.",
        takes=(
            *(*ATOM_OR_TEXT, "negated", "scope", "ttl", "validFrom", "validUntil"),
            "confidence",
            "metadata",
            "evidence",
        ),
        answer=work.ToolStored,
        gives=("asserted", "updated?", "discarded?"),
        profile="default",
    ),
    viewed=True,
)
def assert_fact(outcome: AssertOutcome, arguments: Json) -> Response:
    """Store one fact."""
    fact = arguments["facts"][0]
    done = "Discarded" if outcome.discarded else "Asserted"
    return text(f"Fact {done}: {spoken(fact.predicate, fact.args)}", discarded(outcome.discarded))


def _assert_many(
    kb: TenantKB,
    *,
    rows: Sequence[FactRows] = (),
    facts: Sequence[Fact] = (),
    conflict: str = KEEP_BOTH,
) -> AssertOutcome:
    return kb.assert_rows(rows) if rows else kb.assert_facts(facts, conflict=conflict)


@operation(
    "POST /assert/facts",
    role=WRITER,
    replies=(as_object("How many facts were new.", Stored, headers=_DISCARDED),),
    body=BulkBody,
    core=_assert_many,
    again=_loaded_again,
    bulk=True,
    writes=True,
    transaction=True,
    tool=Tool(
        name="bulk_assert",
        description="Store many facts, all or none.",
        takes=("facts",),
        answer=work.ToolStored,
        gives=("asserted", "updated?", "discarded?"),
        profile="default",
    ),
    viewed=True,
)
def assert_facts(outcome: AssertOutcome, arguments: Json) -> Response:
    """Store many facts, all or none."""
    return as_json(Stored.write(outcome), discarded(outcome.discarded))


@operation(
    "POST /retract",
    "POST /forget",
    role=WRITER,
    replies=(
        OperationReply(
            "The facts that were retracted.", {PLAIN: TEXT, JSON: Retracted}, headers=_COUNTS
        ),
    ),
    body=RetractBody,
    core=TenantKB.retract_fact,
    again=_retracted_again,
    prefer=("return=representation", "wait"),
    writes=True,
    transaction=True,
    tool=Tool(
        name="forget",
        description="Retract a fact.",
        takes=(*ATOM_OR_TEXT, "scope"),
        gives=("retracted", "cascaded?", "stillDerivable?"),
        destroys=True,
        profile="default",
    ),
    viewed=True,
)
def retract(outcome: RetractOutcome, arguments: Json) -> Response:
    """Retract one fact, and with it the conclusions that depend on it."""
    headers = {"X-Retracted-Count": str(outcome.retracted)}
    if outcome.counted:
        headers["X-Cascaded-Count"] = str(outcome.cascaded)
    if outcome.still_derivable:
        headers["X-Still-Derivable"] = "true"
    if not current().representation:
        atom = spoken(arguments["predicate"], arguments["args"])
        return text(
            f"{'Retracted' if outcome.retracted else 'Nothing to retract'}: {atom}", headers
        )
    applied("return=representation")
    return as_json(Retracted.write(outcome), headers)


@operation(
    "POST /retract/pattern",
    role=WRITER,
    replies=(as_object("The facts that were retracted.", Matched),),
    body=RetractPatternBody,
    core=TenantKB.retract_pattern,
    prefer=("wait",),
    writes=True,
    transaction=True,
    tool=Tool(
        name="retract_pattern",
        description="Retract every fact that matches: variables match anything, a repeated one "
        "equal values. Without args: every fact of the predicate.",
        takes=(*ATOM_OR_TEXT, "negated", "scope"),
        gives=("retracted", "atoms?", "cascaded?"),
        destroys=True,
    ),
    viewed=True,
)
def retract_pattern(outcome: RetractOutcome, arguments: Json) -> Response:
    """Retract every fact that matches a pattern, or without arguments every fact of a predicate."""
    return as_json(Matched.write(outcome))
