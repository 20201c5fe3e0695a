"""Answers that change only with what is known carry a weak `ETag`; who has the present one gets 304 and no body.

A tag names the database, the tenant and its generation; and, since facts begin and cease to hold as time goes by and a
tenant may be emptied and begin anew, the version of what is visible, the tenant's place in this process, and the process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps

from flask import Response, request

from kbserver.request_context import current, runtime

_PROCESS = secrets.token_hex(4)


def tag() -> str:
    """The tag of what the tenant of the current request knows now."""
    context = current()
    tenant = runtime().read_tenant(context.database, context.tenant)
    place = f"{tenant.generation}.{tenant.version}.{tenant.serial}" if tenant.generation else "0"
    return f'W/"{context.database}-{context.tenant}-{place}-{_PROCESS}"'


def tagged(route: Callable[[], Response]) -> Callable[[], Response]:
    """Give the answers of a route a tag, and 304 to who has the present one. Not inside a transaction."""

    @wraps(route)
    def answer() -> Response:
        if current().transaction is not None:
            return route()
        present = tag()
        response = Response(status=304) if _matches(present) else route()
        response.headers["ETag"] = present
        response.headers["Cache-Control"] = "private, no-cache"
        response.headers["Vary"] = "X-Tenant-ID, X-Database"
        return response

    return answer


def _matches(present: str) -> bool:
    offered = request.environ.get("HTTP_IF_NONE_MATCH")
    if not offered:
        return False
    opaque = present.removeprefix("W/")
    return offered.strip() == "*" or opaque in (part.strip().removeprefix("W/") for part in offered.split(","))
