"""Replication checks of every request: writes need the leader, `X-Min-Seq` of reads, and headers of responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Flask, Response, current_app, request

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput
from kbcore.replication.leader_mark import stray
from kbcore.replication.role import FOLLOWER, LEADER, NONE
from kbserver.operations import operation_of

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

COMMIT_SEQ, MIN_SEQ, LAG = "X-Commit-Seq", "X-Min-Seq", "X-Replication-Lag-Ms"

LOG = "/replication/log"
"""Requested continually by followers, so not logged at info level."""

JUDGED_INSIDE = frozenset(("/execute", "/extract"))
"""Routes that write or not as their body says: the core refuses what writes."""

TRANSACTIONS = "/tx/"
"""Where transactions begin and end: on a follower none is open."""

_DIGITS = 19


def install(app: Flask, runtime: Runtime) -> None:
    """Look at each request before its route, and at its answer. Raises ConfigError where a follower's storage is served
    by a node that does not follow: what it shows would grow old, and nobody would be told.
    """
    replication = runtime.replication
    if replication.role == NONE and replication.leader_url is not None:
        raise stray(replication.leader_url, f"REPLICATION_MODE={NONE}")

    @app.before_request
    def arrive() -> None:
        if (text := request.environ.get("HTTP_X_MIN_SEQ")) is not None:
            replication.wait_for(_seq(text))
        if replication.leader_url is not None and _writes():
            runtime.refuse_on_follower()

    @app.after_request
    def leave(response: Response) -> Response:
        for name, value in headers(runtime):
            response.headers[name] = value
        return response


def headers(runtime: Runtime) -> list[tuple[str, str]]:
    """The headers of an answer: where in the log its write is, how old on a follower what it says may be."""
    replication = runtime.replication
    header_pairs = []
    if seq := replication.last_commit.seq:
        header_pairs.append((COMMIT_SEQ, str(seq)))
    if (lag := replication.lag_ms()) is not None:
        header_pairs.append((LAG, str(lag)))
    return header_pairs


def _writes() -> bool:
    rule = request.url_rule
    if rule is None or rule.rule in JUDGED_INSIDE or request.endpoint is None:
        return False
    declared = operation_of(current_app.view_functions[request.endpoint])
    return declared is not None and (declared.writes or rule.rule.startswith(TRANSACTIONS))


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidInput(
            f"header {MIN_SEQ} must be a place in the log, as {COMMIT_SEQ} says it",
            {"header": MIN_SEQ},
        )
    return int(text)


def said_of_replication(config: Config) -> Iterable[str]:
    """Say what role a node has."""
    if config.replication_mode == FOLLOWER:
        yield f"follows {config.leader_url}: reads only"
    elif config.replication_mode == LEADER:
        yield "leads: followers may fetch its log"
