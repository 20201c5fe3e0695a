"""Audit log: one line per administrative action at every LOG_LEVEL, without secrets and bodies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kbserver.hookspecs import Principal
from kbserver.http.request import CURRENT, Request
from kbserver.http.request_context import current_request
from kbserver.security.limits import address_of
from kbtypes.rule_sets import Deployment

ANYBODY = "anybody"
"""The `who` of log lines while authentication is off."""

log = logging.getLogger("kbserver.audit")


def log_action(request: Request, action: str, hops: int, outcome: Mapping[str, Any]) -> None:
    """Write the audit line of a request, admitted or refused.

    `hops` is the number of trusted proxies; `outcome` has the status and further fields.
    """
    principal = request.principal
    line = {
        "action": action,
        "path": request.environ.get("PATH_INFO", ""),
        "who": ANYBODY if principal is None else principal.name,
        **caller_fields(request, hops),
        **outcome,
    }
    log.info("admin action", extra={"fields": line})


def caller_fields(request: Request, hops: int) -> dict[str, str]:
    """Return the id of the API key of a request, if it has one, and the address of its client.

    `hops` is the number of trusted proxies.
    """
    principal = request.principal
    key = {"key": principal.key} if principal is not None and principal.key else {}
    return {**key, "address": address_of(request.environ, hops)}


def log_tool(tool: str, principal: Principal | None, outcome: Mapping[str, Any]) -> None:
    """Write the audit line of a call of a tool, which has no route of its own."""
    line = {
        "action": f"tool {tool}",
        "who": ANYBODY if principal is None else principal.name,
        **({"key": principal.key} if principal is not None and principal.key else {}),
        **outcome,
    }
    log.info("admin action", extra={"fields": line})


def done(**fields: Any) -> None:
    """Add fields to the audit line of the request or call that is carried out; never pass
    secrets.
    """
    request = CURRENT.get()
    (current_request() if request is None else request).audited = fields


def planned() -> None:
    """Mark the audit line of the current request as that of a dry run, which stores nothing."""
    done(dryRun=True)


def deployed(outcome: Deployment, **notes: str | None) -> None:
    """Add a deployment to the audit line of the current request, unless nothing was stored."""
    if outcome.commit is None:
        return
    fields = {
        "ruleSet": outcome.name,
        "scope": outcome.scope,
        "version": outcome.version,
        "commit": outcome.commit,
        **notes,
    }
    done(**{name: value for name, value in fields.items() if value is not None})
