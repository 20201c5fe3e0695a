"""Operations that correct, undo and purge."""

from __future__ import annotations

from flask import Response

from kbcore.operations.episodes.correction import PurgeRemovals
from kbcore.operations.history.undo import UndoneChange
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.episodes import PythonEpisodes
from kbcore.state.keys import ADMIN, READER, WRITER
from kbserver.answers import as_json
from kbserver.http.request_context import reader
from kbserver.operations import OF_NODES, Method, Tool, UserChoice, as_object, operation
from kbserver.schemas.episodes.correction import (
    CorrectBody,
    Corrected,
    PurgeBody,
    Purged,
    PurgeList,
    UndoBody,
    UndoneAnswer,
    candidates,
)
from kbserver.schemas.fields import Json
from kbserver.security import audit
from kbtypes.episodes import CorrectOutcome


@operation(
    "POST /memory/correct",
    role=WRITER,
    replies=(as_object("The old and the new fact.", Corrected),),
    body=CorrectBody,
    core=TenantKB.correct,
    writes=True,
    transaction=True,
    audited=True,
    tool=Tool(
        name="correct",
        description="Replace a stored fact that was wrong, and say why. Its evidence moves to the "
        "new fact.",
        takes=("old", "new", "reason", "scope"),
        gives=("old", "new", "commitSeq"),
        destroys=True,
        repeats=False,
        choice=UserChoice("old", "Which fact was wrong?", candidates),
    ),
)
def correct(outcome: CorrectOutcome, arguments: Json) -> Response:
    """Replace a stored fact by another one, in one change.

    The new fact gets the evidence of the old one, and the metadata `corrects` with the old fact and
    the reason.
    """
    audit.done(seq=outcome.seq)
    return as_json(Corrected.write(outcome))


@operation(
    "POST /memory/undo",
    role=WRITER,
    replies=(as_object("What was undone.", UndoneAnswer),),
    body=UndoBody,
    core=TenantKB.undo,
    methods=(Method(PythonEpisodes.undo, result="UndoOutcome"),),
    prefer=("wait",),
    writes=True,
    asks=True,
    audited=True,
    tool=Tool(
        name="undo",
        description="Undo one committed change by its number, or by the idempotency key of its "
        "request. Refused, with the later changes named, if they concern the same facts.",
        takes=("commitSeq", "requestId"),
        gives=("undoneSeq", "commitSeq", "retracted", "restored"),
        destroys=True,
        repeats=False,
    ),
)
def undo(outcome: UndoneChange, arguments: Json) -> Response:
    """Undo one committed change.

    Facts, rules and scopes become what they were before it. If later changes concern the same facts
    or rules, nothing is changed, and the error names them. A change that is no longer in the log
    cannot be undone.
    """
    audit.done(undone=outcome.undone, seq=outcome.seq)
    return as_json(UndoneAnswer.write(outcome))


@operation(
    "POST /memory/purge",
    role=ADMIN,
    replies=(as_object("What was removed, or would be.", Purged),),
    body=PurgeBody,
    core=TenantKB.purge,
    methods=(Method(PythonEpisodes.purge, result="PurgeOutcome", keyed=False),),
    prefer=("wait",),
    writes=True,
    asks=True,
    errors=OF_NODES,
    audited=True,
    tool=Tool(
        name="purge",
        description="Remove for good what is known about a subject, from an episode or speaker, or "
        "before a time; also from log and snapshots. First call it with dryRun.",
        takes=("subject", "episode", "speaker", "before", "dropScopes", "dryRun", "limit"),
        gives=(
            "facts",
            "factCount",
            "conclusions",
            "episodeCount",
            "rules",
            "scopes",
            "similar",
            "erased",
            "undoFrom",
        ),
        destroys=True,
    ),
)
def purge(outcome: PurgeRemovals, arguments: Json) -> Response:
    """Remove facts and episodes, and their text from the log and the snapshots.

    Rules that mention the subject are listed, not removed. With `dryRun` nothing changes. `similar`
    lists names of which the subject is a part, which stay. While `erased` is false,
    `GET /memory/purges` says when the text is gone.
    """
    audit.done(
        purge=outcome.id,
        by=arguments["target"].by,
        facts=outcome.fact_count,
        episodes=len(outcome.episodes),
        dryRun=outcome.dry_run,
    )
    return as_json(Purged.write(outcome))


@operation(
    "GET /memory/purges",
    role=READER,
    replies=(as_object("The purges, oldest first.", PurgeList),),
    methods=(Method(PythonEpisodes.purges, result="list[PurgeState]"),),
)
def purges() -> Response:
    """List the purges, and whether their text is gone from the log and the snapshots."""
    return as_json(PurgeList.write(reader().purges()))
