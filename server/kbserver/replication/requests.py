"""Replication checks of every request: writes need the leader, `X-Min-Seq` of reads, and headers of
responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Flask, Response, request

from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.errors import InvalidInput, NotReady
from kbcore.replication.role import FOLLOWER, LEADER, NONE, follower_storage_error
from kbserver.http.request_context import DEFAULT, current_request
from kbserver.operations import Operation, operation_at

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

COMMIT_SEQ, MIN_SEQ, LAG = "X-Commit-Seq", "X-Min-Seq", "X-Replication-Lag-Ms"

LOG = "/replication/log"
"""Route that followers request all the time; it is logged at level DEBUG only."""

_DIGITS = 19


def install(app: Flask, runtime: Runtime, refuse: Callable[[NotReady], Response]) -> None:
    """Add the checks before and after each request, and the headers; `refuse` makes the response
    to an error.

    Raises ConfigError if the storage belongs to a follower but this node does not follow: its data
    would become stale without notice.
    """
    replication = runtime.replication
    if replication.role == NONE and replication.leader_url is not None:
        raise follower_storage_error(replication.leader_url, f"REPLICATION_MODE={NONE}")

    @app.before_request
    def arrive() -> None:
        current_request().turn = replication.turn
        if (text := request.environ.get("HTTP_X_MIN_SEQ")) is not None:
            environ = request.environ
            database, tenant = environ.get("HTTP_X_DATABASE"), environ.get("HTTP_X_TENANT_ID")
            runtime.wait_for(_seq(text), database or DEFAULT, tenant or DEFAULT)
        if replication.leader_url is not None and _needs_leader():
            runtime.refuse_on_follower()

    @app.after_request
    def leave(response: Response) -> Response:
        turn = current_request().turn
        if turn is not None and _shows_state(response.status_code):
            try:
                replication.check_answer(turn)
            except NotReady as error:
                response = refuse(error)
        for name, value in headers(runtime):
            response.headers[name] = value
        return response


def headers(runtime: Runtime) -> list[tuple[str, str]]:
    """Return the headers of a response: log position of its write; on a follower, the lag in
    milliseconds.
    """
    replication = runtime.replication
    header_pairs = []
    if seq := replication.last_commit.seq:
        header_pairs.append((COMMIT_SEQ, str(seq)))
    if replication.role == FOLLOWER and (lag := replication.lag_ms()) is not None:
        header_pairs.append((LAG, str(lag)))
    return header_pairs


def _needs_leader() -> bool:
    declared = _declared()
    return declared is not None and declared.needs_leader


def _declared() -> Operation | None:
    rule = request.url_rule
    return None if rule is None else operation_at(request.method, rule.rule)


def _shows_state(status: int) -> bool:
    """Return True if the response to the current request depends on the content of a tenant.

    Routes of plugins, which are not declared, may.
    """
    declared = _declared()
    return (status < 400 or status == 404) and (declared is None or declared.tenant)


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidInput(
            f"header {MIN_SEQ} must be a log position, as in {COMMIT_SEQ}",
            {"header": MIN_SEQ},
        )
    return int(text)


def role_lines(config: Config) -> Iterable[str]:
    """Yield the start-up line about the role of a node, if it has one."""
    if config.coordinator_url:
        yield (
            f"coordinator {redacted(config.coordinator_url)}: it decides which node leads;"
            " writes wait for a follower (synchronous replication)"
        )
    elif config.replication_mode == FOLLOWER:
        yield f"follower of {config.leader_url}: read-only"
    elif config.replication_mode == LEADER:
        yield "leader: followers can read the log"
