"""Answers that change only with what is known carry a weak `ETag`; who has the present one gets 304 and no body.

Documents, which are the same for everybody, carry a strong one of their bytes, packed ones another than plain ones.

A tag names the database, the tenant and its generation; and, since facts begin and cease to hold as time goes by and a
tenant may be emptied and begin anew, the version of what is visible, the tenant's place in this process, and the process.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import wraps

from flask import Response, request

from kbserver.http.compress import VARY, compressible, wanted_by
from kbserver.http.request_context import current, runtime

PACKED = "-gzip"
"""The end of the strong tag of an answer that goes out packed: its bytes are others than those of the plain one."""

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


def digested(response: Response) -> Response:
    """Give a document a strong tag of the bytes the client will get, and 304 to who has them."""
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
    """Make a strong tag of plain bytes, which somebody gave an answer that is packed now, the weak one that it is."""
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
