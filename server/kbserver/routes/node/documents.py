"""The interface described: as OpenAPI for programs, as a page for people. Public, and without tenant."""

from __future__ import annotations

import json
from importlib.resources import files

from flask import Blueprint, Response, current_app

from kbcore.errors import NotFound
from kbserver.answers import JSON
from kbserver.http.etags import digested
from kbserver.openapi.document import document
from kbserver.operations import Answer, operation
from kbserver.schemas.jsonschema import TEXT

bp = Blueprint("documents", __name__)

_PAGE = {"docs.html": "text/html", "docs.css": "text/css", "docs.js": "text/javascript"}
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@bp.get("/openapi.json")
@operation(Answer("The document.", {JSON: {"type": "object"}}), tagged=True, tenant=False)
def openapi() -> Response:
    """Give this document: OpenAPI 3.1."""
    kept: dict[str, bytes] = current_app.extensions.setdefault("kbcore.documents", {})
    if "openapi" not in kept:
        kept["openapi"] = json.dumps(
            document(current_app), ensure_ascii=False, separators=(",", ":")
        ).encode()
    return _tagged(kept["openapi"], JSON)


@bp.get("/docs")
@operation(Answer("The page.", {"text/html": TEXT}), tagged=True, tenant=False)
def page() -> Response:
    """Show this document to people, who may try each operation there."""
    return _file("docs.html")


@bp.get("/docs/<name>")
@operation(
    Answer("The file.", {"text/css": TEXT, "text/javascript": TEXT, "text/html": TEXT}),
    tagged=True,
    tenant=False,
    errors=(404,),
)
def part(name: str) -> Response:
    """Give a file the page is made of."""
    if name not in _PAGE:
        raise NotFound("no such file", {"name": name})
    return _file(name)


@bp.get("/favicon.ico")
@operation(listed=False)
def icon() -> Response:
    """Answer browsers, which ask by themselves, that there is no icon; a day long they need not ask again."""
    response = Response(status=204, headers={"Cache-Control": "public, max-age=86400"})
    del response.headers["Content-Type"]
    return response


def _file(name: str) -> Response:
    return _tagged(
        (files("kbserver") / "static" / name).read_bytes(), f"{_PAGE[name]}; charset=utf-8"
    )


def _tagged(body: bytes, kind: str) -> Response:
    """Answer with a page or document that may be kept for a minute, and does nothing but show itself."""
    response = Response(body, content_type=kind)
    response.headers["Cache-Control"] = "public, max-age=60"
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    return digested(response)
