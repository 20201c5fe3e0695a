"""Interface documents: OpenAPI for programs and a page for people. Public, without a tenant."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from flask import Response, current_app

from kbcore.errors import NotFound
from kbserver.answers import JSON
from kbserver.http.etags import digested
from kbserver.openapi.document import document
from kbserver.operations import TEXT, Reply, as_object, operation
from kbserver.security.permissions import ANY, PUBLIC, About

_DOCUMENT: dict[str, Any] = {
    "about": About.NOTHING,
    "tagged": True,
    "tenant": False,
    "headers_checked": False,
}
_PAGE = {"docs.html": "text/html", "docs.css": "text/css", "docs.js": "text/javascript"}
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@operation(
    "GET /openapi.json",
    role=PUBLIC,
    replies=(as_object("The document.", {"type": "object"}),),
    **_DOCUMENT,
)
def openapi() -> Response:
    """Return this document: OpenAPI 3.1."""
    documents: dict[str, bytes] = current_app.extensions.setdefault("kbcore.documents", {})
    if "openapi" not in documents:
        documents["openapi"] = json.dumps(
            document(current_app), ensure_ascii=False, separators=(",", ":")
        ).encode()
    return _tagged(documents["openapi"], JSON)


@operation("GET /docs", role=ANY, replies=(Reply("The page.", {"text/html": TEXT}),), **_DOCUMENT)
def page() -> Response:
    """Return this document as a page where each operation can be tried."""
    return _file("docs.html")


@operation(
    "GET /docs/<name>",
    role=ANY,
    replies=(Reply("The file.", {"text/css": TEXT, "text/javascript": TEXT, "text/html": TEXT}),),
    errors=(404,),
    **_DOCUMENT,
)
def part(name: str) -> Response:
    """Return a file of the documentation page."""
    if name not in _PAGE:
        raise NotFound("no such file", {"name": name})
    return _file(name)


@operation(
    "GET /favicon.ico",
    role=PUBLIC,
    about=About.NOTHING,
    headers_checked=False,
    listed=False,
)
def icon() -> Response:
    """Tell browsers that there is no icon; the answer may be cached for a day."""
    response = Response(status=204, headers={"Cache-Control": "public, max-age=86400"})
    del response.headers["Content-Type"]
    return response


def _file(name: str) -> Response:
    return _tagged(
        (files("kbserver") / "static" / name).read_bytes(), f"{_PAGE[name]}; charset=utf-8"
    )


def _tagged(body: bytes, kind: str) -> Response:
    """Return a page or document, cacheable for a minute, with a strict content security policy."""
    response = Response(body, content_type=kind)
    response.headers["Cache-Control"] = "public, max-age=60"
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    return digested(response)
