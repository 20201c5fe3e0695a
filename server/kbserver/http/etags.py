"""ETags and conditional requests: a client that has the current version gets 304 without a body.

Responses that depend only on stored knowledge carry a weak `ETag`. Static documents carry a strong
one, computed from their bytes, so the compressed and the plain form have different tags.

A weak tag names the database, the tenant and its generation. Facts also become valid or expire with
time, and a tenant can be emptied and created again. The tag therefore includes the version of the
visible facts, the tenant's position in this process, and the process; that of a view, the view.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import wraps

from flask import Response, request

from kbcore.state.labels import NO_LABELS
from kbserver.http.compress import VARY, compressible, wanted_by
from kbserver.http.request_context import (
    current,
    current_request,
    grant_of,
    runtime,
    view_asked,
)

PACKED = "-gzip"
"""Suffix of the strong tag of a compressed response, whose bytes differ from the uncompressed
one.
"""

_PROCESS = secrets.token_hex(4)


def tag() -> str:
    """Return the tag of the visible knowledge of the current request's tenant."""
    context = current()
    tenant = runtime().read_tenant(context.database, context.tenant)
    version = f"{tenant.generation}.{tenant.version}.{tenant.serial}" if tenant.generation else "0"
    return f'W/"{context.database}-{context.tenant}-{version}-{_PROCESS}{_view()}"'


def _view() -> str:
    """Return the part of a tag that tells the views of a tenant apart; empty without one."""
    served = current_request()
    view = repr((view_asked(served)["view"], grant_of(served.principal).view))
    if view == _NO_VIEW:
        return ""
    return "-" + hashlib.sha256(view.encode()).hexdigest()[:16]


_NO_VIEW = repr((None, NO_LABELS))


def tagged(route: Callable[[], Response]) -> Callable[[], Response]:
    """Add a tag to the responses of a route, and answer 304 if the client has the current one.

    Responses inside a transaction have none, and neither have those from an earlier state: the tag
    is that of the present, and does not change when the oldest instant available does.
    """

    @wraps(route)
    def answer() -> Response:
        if current().transaction is not None or "knownAt" in request.args:
            return route()
        present = tag()
        response = Response(status=304) if _matches(present) else route()
        response.headers["ETag"] = present
        response.headers["Cache-Control"] = "private, no-cache"
        response.headers["Vary"] = "X-Tenant-ID, X-Database, X-View"
        return response

    return answer


def digested(response: Response) -> Response:
    """Add a strong tag of the bytes sent to a document, and answer 304 if the client has them."""
    body = response.get_data()
    tag = hashlib.sha256(body).hexdigest()[:32]
    if compressible(response.content_type or "", len(body)):
        response.vary.add(VARY)
        if wanted_by(request.environ):
            tag += PACKED
    response.set_etag(tag)
    response.make_conditional(request.environ)
    return response


def weakened(response: Response) -> None:
    """Make a strong tag weak after the response it was computed for has been compressed."""
    tag, weak = response.get_etag()
    if tag is not None and not weak and not tag.endswith(PACKED):
        response.set_etag(tag, weak=True)


def _matches(present: str) -> bool:
    offered = request.environ.get("HTTP_IF_NONE_MATCH")
    if not offered:
        return False
    opaque = present.removeprefix("W/")
    return offered.strip() == "*" or opaque in (
        part.strip().removeprefix("W/") for part in offered.split(",")
    )
