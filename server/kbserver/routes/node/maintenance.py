"""Snapshots and backups on demand, for the operator of a node. No tenant header is needed."""

from __future__ import annotations

from flask import Blueprint, Response

from kbcore.offline.rescue import running_backup
from kbserver.answers import as_json
from kbserver.http.request_context import DEFAULT, outside, runtime
from kbserver.operations import Answer, as_object, operation
from kbserver.schemas.base import load, nothing
from kbserver.schemas.jsonschema import COUNT, INSTANT, TEXT, WHOLE, obj

bp = Blueprint("maintenance", __name__, url_prefix="/admin")

BACKUP = "application/octet-stream"
SNAPSHOT = obj({"snapshot": COUNT, "timestamp": INSTANT})
_FILE = {"X-Commit-Seq": WHOLE, "Content-Disposition": TEXT}


@bp.before_request
def _headers() -> None:
    outside(DEFAULT)


@bp.post("/snapshot")
@operation(as_object("The last record in it.", SNAPSHOT), body=nothing, tenant=False, writes=True)
def snapshot() -> Response:
    """Take a snapshot now."""
    load(nothing)
    return as_json({"snapshot": runtime().snapshot(), "timestamp": runtime().clock.now_ms()})


@bp.get("/backup")
@operation(Answer("A file for `kbcore restore`.", {BACKUP: TEXT}, headers=_FILE), tenant=False)
def backup() -> Response:
    """Stream a backup of the current state of everything."""
    info, parts = running_backup(runtime())
    headers = {
        "Content-Disposition": f'attachment; filename="kbcore-{info.seq:020d}.kbbackup"',
        "X-Commit-Seq": str(info.seq),
    }
    return Response(parts, content_type=BACKUP, headers=headers)
