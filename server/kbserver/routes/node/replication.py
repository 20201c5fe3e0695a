"""Replication routes: the log and snapshots for followers, the status, and promotion."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from typing import Any

from flask import Response, request

from kbcore.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthorized
from kbcore.replication.leader import MAX_BYTES, LogCursor
from kbcore.replication.role import LEADER, NONE
from kbcore.state.keys import ADMIN, REPLICA
from kbserver.answers import as_json
from kbserver.http.request_context import current_request, runtime
from kbserver.operations import COUNT, TEXT, OperationReply, as_object, operation
from kbserver.schemas.node import Promoted, PromotionBody, ReplicationStatus
from kbserver.schemas.requests import load
from kbserver.security.permissions import About

OCTETS = "application/octet-stream"
BYTES = {"type": "string", "format": "binary"}
MOST_WAIT_MS = 20_000

_LOG_ID = re.compile(r"[0-9a-f]{32}")
_CRC = re.compile(r"[0-9a-f]{8}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NUMBER = re.compile(r"[0-9]{1,18}")

_ABOUT_LOG = {"X-Log-Id": TEXT, "X-Epoch": COUNT, "X-Head-Seq": COUNT, "X-Waited-Ms": COUNT}
_ABOUT_SNAPSHOT = {"X-Log-Id": TEXT, "X-Epoch": COUNT, "X-Snapshot-Seq": COUNT}


def replica_only() -> None:
    """Allow callers with the REPLICATION_TOKEN; otherwise the guard has checked role `replica`.

    Without a token and without authentication every caller is allowed: any caller may then read a
    backup, which has the same content.
    """
    config = runtime().config
    if config.replication_mode == NONE:
        raise NotFound("this node does not replicate", {"setting": "REPLICATION_MODE"})
    if current_request().principal is not None or not config.replication_token:
        return
    scheme, _, token = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("nodes say who they are: Authorization: Bearer REPLICATION_TOKEN")
    if not hmac.compare_digest(token.strip().encode(), config.replication_token.encode()):
        raise Forbidden("this is not the REPLICATION_TOKEN of this node")


_FOR_REPLICAS: dict[str, Any] = {
    "role": REPLICA,
    "about": About.NODE,
    "counted": False,
    "tenant": False,
}


def _leading() -> None:
    replica_only()
    role = runtime().replication.role
    if role != LEADER:
        raise Conflict(f"this node is no leader, its role is {role}", {"role": role})


@operation(
    "GET /replication/log",
    replies=(
        OperationReply(
            "Records as they lie in the log, in frames with checksums.",
            {OCTETS: BYTES},
            headers=_ABOUT_LOG,
        ),
        OperationReply("Nothing new within wait_ms.", {}, 204, _ABOUT_LOG),
    ),
    query={
        "log_id": TEXT,
        "epoch": COUNT,
        "from": COUNT,
        "prev_crc": TEXT,
        "synced": COUNT,
        "wait_ms": COUNT,
        "max_bytes": COUNT,
        "follower": TEXT,
    },
    errors=(404, 409, 410),
    **_FOR_REPLICAS,
)
def log() -> Response:
    """Return the records after a follower's last record, as soon as there are any."""
    _leading()
    crc = request.args.get("prev_crc")
    if crc is not None and not _CRC.fullmatch(crc):
        raise InvalidInput.at("prev_crc", "must be 8 hex digits")
    cursor = LogCursor(
        _matched("log_id", _LOG_ID, "32 hex digits"),
        _number("epoch"),
        _number("from", least=1) - 1,
        None if crc is None else int(crc, 16),
        _number("synced", 0),
    )
    wait = _number("wait_ms", 0, most=MOST_WAIT_MS) / 1000
    most = _number("max_bytes", MAX_BYTES, least=1)
    shipment = runtime().replication.leader.ship(_follower(), cursor, wait, most)
    headers = {
        "X-Log-Id": shipment.log_id,
        "X-Epoch": str(shipment.epoch),
        "X-Head-Seq": str(shipment.head),
        "X-Waited-Ms": str(int(shipment.waited * 1000)),
    }
    if not shipment.data:
        return Response(status=204, headers=headers)
    return Response(shipment.data, content_type=OCTETS, headers=headers)


@operation(
    "GET /replication/snapshot",
    replies=(
        OperationReply(
            "The newest snapshot, in sections with checksums.",
            {OCTETS: BYTES},
            headers=_ABOUT_SNAPSHOT,
        ),
    ),
    query={"follower": TEXT},
    errors=(404, 409),
    **_FOR_REPLICAS,
)
def snapshot() -> Response:
    """Stream the newest snapshot, from which a new follower starts."""
    _leading()
    seed, pieces = runtime().replication.leader.snapshot(_follower())
    headers = {"X-Log-Id": seed.log_id, "X-Epoch": str(seed.epoch), "X-Snapshot-Seq": str(seed.seq)}
    return Response(_paced(pieces), content_type=OCTETS, headers=headers)


@operation(
    "GET /replication/status",
    replies=(as_object("The role of the node and its position in the log.", ReplicationStatus),),
    errors=(404,),
    **_FOR_REPLICAS,
)
def status() -> Response:
    """Return the replication role of this node, and its position and that of the other nodes."""
    replica_only()
    erasure = runtime().system.erasure()
    return as_json(
        {
            **runtime().replication.describe(),
            "erasure": {
                "erased": erasure.erased,
                "pending": erasure.pending,
                "waitsFor": erasure.waits_for,
                "problem": erasure.problem,
            },
        }
    )


@operation(
    "POST /admin/promote",
    role=ADMIN,
    about=About.NODE,
    replies=(as_object("The epoch that the node leads in.", Promoted),),
    body=PromotionBody,
    tenant=False,
    errors=(409, 507),
)
def promote() -> Response:
    """Make a follower the leader; requires `force` while its old leader still responds."""
    status = runtime().replication.promote(force=load(PromotionBody).get("force", False))
    return as_json(
        {"promoted": True, "logId": status.log_id, "epoch": status.epoch, "seq": status.seq}
    )


def _paced(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield_now = runtime().yield_in_background

    def paced() -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            yield_now()

    return paced()


def _follower() -> str:
    return _matched("follower", _NAME, "1 to 64 letters, digits and _ . -", "follower")


def _matched(name: str, pattern: re.Pattern[str], rule: str, default: str | None = None) -> str:
    text = request.args.get(name, default)
    if text is None or not pattern.fullmatch(text):
        raise InvalidInput.at(name, f"must be {rule}")
    return text


def _number(name: str, default: int | None = None, *, least: int = 0, most: int = 10**18) -> int:
    text = request.args.get(name)
    if text is None and default is not None:
        return default
    if text is None or not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise InvalidInput.at(name, f"must be a whole number of {least} to {most}")
    return int(text)
