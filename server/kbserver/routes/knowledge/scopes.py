"""Operations on whole scopes: fork, diff, merge, delete and list."""

from __future__ import annotations

from itertools import chain

from flask import Response, request

from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.scopes import PythonScopes
from kbcore.state.facts import Row
from kbcore.state.keys import READER, WRITER
from kbplanner.pacing import let_go, paced
from kbserver.answers import SLICE_ROWS, as_json, parts_as_json, row_parts
from kbserver.http.etags import tagged
from kbserver.http.paging import answer_list
from kbserver.http.request_context import named, reader, runtime, writer
from kbserver.mcp import work
from kbserver.operations import COUNTED, Method, Tool, as_object, operation
from kbserver.schemas.fields import Json
from kbserver.schemas.requests import KNOWN_AT, KNOWN_AT_PARAMETER, seen_asked
from kbserver.schemas.scopes import (
    Compared,
    Dropped,
    Forked,
    Merged,
    ScopeDiffBody,
    ScopeForkBody,
    ScopeMergeBody,
    Scopes,
    diff_counts,
)
from kbtypes.results import ForkOutcome, MergeOutcome, ScopeDiff

_SCOPES = {"source": "sourceScope", "target": "targetScope"}


@operation(
    "POST /scope/fork",
    role=WRITER,
    replies=(as_object("What was copied.", Forked),),
    body=ScopeForkBody,
    core=TenantKB.fork_scope,
    methods=(Method(PythonScopes.fork, keys=_SCOPES),),
    writes=True,
    tool=Tool(
        name="fork_scope",
        description="Copy a scope, or the base where no source is named, to a new one, to try "
        "something out.",
        takes=("sourceScope", "targetScope", "overwrite"),
        gives=("copied", "targetScope?"),
        destroys=True,
        repeats=False,
        work=work.fork_scope,
    ),
)
def fork(outcome: ForkOutcome, arguments: Json) -> Response:
    """Copy a scope to a new one."""
    return as_json(work.forked(outcome, arguments))


@operation(
    "POST /scope/diff",
    role=READER,
    replies=(as_object("The differences.", Compared),),
    body=ScopeDiffBody,
    core=TenantKB.diff_scopes,
    methods=(Method(PythonScopes.diff, keys=_SCOPES),),
    asks=True,
    tool=Tool(
        name="diff_scope",
        description="Compare two scopes: facts added, removed and modified.",
        takes=("sourceScope", "targetScope"),
        gives=("added", "removed?", "modified?", "unchanged?"),
        work=work.diff_scope,
    ),
)
def diff(outcome: ScopeDiff, arguments: Json) -> Response:
    """Compare two scopes."""
    counts, yield_now = diff_counts(outcome), runtime().yield_now
    pairs = [
        {"before": pair.before, "after": pair.after}
        for pair in paced(outcome.modified, yield_now, SLICE_ROWS)
    ]
    let_go(outcome.modified, yield_now)
    added, removed, modified = _written(outcome.added), _written(outcome.removed), _written(pairs)
    lists = {
        "added": added,
        "removed": removed,
        "modified": modified,
        "onlyInA": removed,
        "onlyInB": added,
    }
    parts = chain.from_iterable(
        (f'"{name}":'.encode(), *rows, b",") for name, rows in lists.items()
    )
    numbers = ",".join(f'"{name}":{count}' for name, count in counts.items())
    return parts_as_json([b"{", *parts, f"{numbers}}}".encode()])


@operation(
    "POST /scope/merge",
    role=WRITER,
    replies=(as_object("What was merged.", Merged),),
    body=ScopeMergeBody,
    core=TenantKB.merge_scope,
    methods=(Method(PythonScopes.merge, keys=_SCOPES),),
    writes=True,
    errors=(422,),
    tool=Tool(
        name="merge_scope",
        description="Add to a scope what another has. strategy: SOURCE_WINS, TARGET_WINS, "
        "KEEP_BOTH or REJECT.",
        takes=("sourceScope", "targetScope", "strategy"),
        gives=("merged", "conflicts?", "strategy?"),
        destroys=True,
    ),
)
def merge(outcome: MergeOutcome, arguments: Json) -> Response:
    """Merge one scope into another."""
    return as_json(Merged.write(outcome))


@operation(
    "DELETE /scope/<name>",
    role=WRITER,
    replies=(as_object("What was deleted.", Dropped),),
    methods=(Method(PythonScopes.drop_scope, keys={"scope": "name"}, of="deleted"),),
    writes=True,
    tool=Tool(
        name="delete_scope",
        description="Delete a scope and all its facts.",
        body=work.DeleteScopeToolBody,
        takes=("scope",),
        gives=("deleted", "scope?"),
        destroys=True,
        repeats=False,
        work=work.delete_scope,
    ),
)
def drop(name: str) -> Response:
    """Delete a scope and all its facts."""
    return as_json({"deleted": writer().drop_scope(named("scope", name)), "scope": name})


@operation(
    "GET /scopes",
    role=READER,
    replies=(as_object("The scopes, by name.", Scopes, headers=COUNTED),),
    methods=(Method(PythonScopes.scopes),),
    query={KNOWN_AT: KNOWN_AT_PARAMETER},
    prefer=("wait",),
    asks=True,
    tagged=True,
    paged=True,
    tool=Tool(
        name="list_scopes",
        description="List the scopes there are.",
        body=work.ScopesToolBody,
        gives=("scopes", "count?"),
        work=work.list_scopes,
    ),
)
@tagged
def scopes() -> Response:
    """List the scopes of the tenant."""
    names = seen_asked(reader(), request.args).scopes()
    asked = "scopes", request.args.get(KNOWN_AT)
    return answer_list(
        names, asked, lambda listed: as_json({"scopes": listed, "count": len(names)})
    )


def _written(rows: list[Row]) -> list[bytes]:
    return row_parts(rows, runtime().yield_now)
