"""Routes on whole scopes: fork, diff, merge, delete and list."""

from __future__ import annotations

from itertools import chain

from flask import Blueprint, Response

from kbcore.state.facts import Row
from kbserver.answers import as_json, parts_as_json, rows_written
from kbserver.http.etags import tagged
from kbserver.http.paging import page, part
from kbserver.http.request_context import named, outside, reader, runtime, writer
from kbserver.operations import COUNTED, as_object, operation
from kbserver.schemas.answers.resources import COMPARED, DROPPED, FORKED, MERGED, SCOPES
from kbserver.schemas.base import load
from kbserver.schemas.scopes import (
    diff_counts,
    fork_of,
    merge_of,
    shown_fork,
    shown_merge,
    two_scopes,
)

bp = Blueprint("scopes", __name__)


@bp.before_request
def _headers() -> None:
    outside()


@bp.post("/scope/fork")
@operation(as_object("What was copied.", FORKED), body=fork_of, writes=True)
def fork() -> Response:
    """Copy a scope to a new one."""
    asked = load(fork_of)
    outcome = writer().fork_scope(asked.source, asked.target, overwrite=asked.overwrite)
    return as_json(shown_fork(asked, outcome))


@bp.post("/scope/diff")
@operation(as_object("The differences.", COMPARED), body=two_scopes, asks=True)
def diff() -> Response:
    """Compare two scopes."""
    asked = load(two_scopes)
    found = reader().diff_scopes(asked.source, asked.target)
    pairs = [{"before": pair.before, "after": pair.after} for pair in found.modified]
    added, removed, modified = _written(found.added), _written(found.removed), _written(pairs)
    lists = {
        "added": added,
        "removed": removed,
        "modified": modified,
        "onlyInA": removed,
        "onlyInB": added,
    }
    parts = chain.from_iterable((f'"{name}":'.encode(), rows, b",") for name, rows in lists.items())
    numbers = ",".join(f'"{name}":{count}' for name, count in diff_counts(found).items())
    return parts_as_json([b"{", *parts, f"{numbers}}}".encode()])


@bp.post("/scope/merge")
@operation(as_object("What came of it.", MERGED), body=merge_of, writes=True, errors=(422,))
def merge() -> Response:
    """Merge one scope into another."""
    asked = load(merge_of)
    outcome = writer().merge_scope(asked.source, asked.target, strategy=asked.strategy)
    return as_json(shown_merge(outcome))


@bp.delete("/scope/<name>")
@operation(as_object("What went.", DROPPED), writes=True)
def drop(name: str) -> Response:
    """Delete a scope and all its facts."""
    return as_json({"deleted": writer().drop_scope(named("scope", name)), "scope": name})


@bp.get("/scopes")
@operation(as_object("The scopes, by name.", SCOPES, headers=COUNTED), tagged=True, paged=True)
@tagged
def scopes() -> Response:
    """List the scopes of the tenant."""
    found, wanted = reader().scopes(), page("scopes")
    listed = part(found, wanted)
    answer = as_json({"scopes": listed, "count": len(found)})
    return (
        answer
        if wanted is None
        else wanted.linked(answer, wanted.offset + len(listed) < len(found), len(found))
    )


def _written(rows: list[Row]) -> bytes:
    return rows_written(rows, runtime().yield_now)
