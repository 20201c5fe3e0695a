"""Audit log: one line per administrative action at every LOG_LEVEL, without secrets and bodies."""

from __future__ import annotations

import logging
from typing import Any

from flask import Request, g

from kbcore.state.keys import ADMIN
from kbserver.security.guard import WHO
from kbserver.security.limits import address_of
from kbserver.security.permissions import TABLE

AUDITED = frozenset(
    (method, template)
    for (method, template), need in TABLE.items()
    if need.role == ADMIN and method != "GET"
) | {("POST", "/auth/bootstrap")}
"""Audited routes: those for administrators that change something, and the creation of the first key."""

ANYBODY = "anybody"
"""The `who` of log lines while authentication is off."""

log = logging.getLogger("kbserver.audit")


def note(request: Request, status: int, number: str, hops: int) -> None:
    """Log a request to an audited route, also if it was refused."""
    rule = request.url_rule
    if rule is None or (request.method, rule.rule) not in AUDITED:
        return
    who = request.environ.get(WHO)
    fields: dict[str, Any] = {
        "action": f"{request.method} {rule.rule}",
        "path": request.path,
        "who": ANYBODY if who is None else who.name,
        **({"key": who.key} if who is not None and who.key else {}),
        "address": address_of(request.environ, hops),
        "status": status,
        "id": number,
        **g.get("audited", {}),
    }
    log.info("admin action", extra={"fields": fields})


def done(**more: Any) -> None:
    """Add fields to the audit line of the current request; never pass secrets."""
    g.audited = more
