"""Snapshots and backups on demand, for the operator of a node. No tenant header is needed."""

from __future__ import annotations

from flask import Response

from kbcore.offline.rescue import running_backup
from kbcore.state.keys import ADMIN
from kbserver.answers import as_json
from kbserver.http.request_context import runtime
from kbserver.operations import TEXT, OperationReply, as_object, operation
from kbserver.schemas.node import SnapshotTaken
from kbserver.schemas.requests import Nothing, load
from kbserver.security.permissions import About

BACKUP = "application/octet-stream"
_FILE = {"X-Commit-Seq": {"type": "integer"}, "Content-Disposition": TEXT}


@operation(
    "POST /admin/snapshot",
    role=ADMIN,
    about=About.NODE,
    replies=(as_object("The last record in the snapshot.", SnapshotTaken),),
    body=Nothing,
    tenant=False,
    writes=True,
)
def snapshot() -> Response:
    """Take a snapshot now."""
    load(Nothing)
    return as_json({"snapshot": runtime().snapshot(), "timestamp": runtime().clock.now_ms()})


@operation(
    "GET /admin/backup",
    role=ADMIN,
    about=About.NODE,
    replies=(OperationReply("A file for `kbcore restore`.", {BACKUP: TEXT}, headers=_FILE),),
    tenant=False,
)
def backup() -> Response:
    """Stream a backup of the current state of everything."""
    info, parts = running_backup(runtime())
    headers = {
        "Content-Disposition": f'attachment; filename="kbcore-{info.seq:020d}.kbbackup"',
        "X-Commit-Seq": str(info.seq),
    }
    return Response(parts, content_type=BACKUP, headers=headers)
