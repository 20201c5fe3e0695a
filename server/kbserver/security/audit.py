"""Who did what as an administrator, and when: one log line each, whatever LOG_LEVEL says, without secrets and bodies."""

from __future__ import annotations

import logging
from typing import Any

from flask import Request, g

from kbcore.state.keys import ADMIN
from kbserver.security.guard import WHO
from kbserver.security.limits import address_of
from kbserver.security.permissions import TABLE

AUDITED = frozenset(
    (method, template) for (method, template), need in TABLE.items() if need.role == ADMIN and method != "GET"
) | {("POST", "/auth/bootstrap")}
"""What is written down: all that only an administrator may do, but for reading; and the making of the first key."""

ANYBODY = "anybody"
"""Who it was where no keys are asked for."""

log = logging.getLogger("kbserver.audit")


def note(request: Request, status: int, number: str, hops: int) -> None:
    """Write the line of a request, if it is one of these; refused ones too."""
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
    """Say more about what the request being served has done; never a secret."""
    g.audited = more
