"""Interface documents: OpenAPI for programs and a page for people. Public, without a tenant."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from flask import Response, current_app, request
from markupsafe import escape

from kbcore import __version__
from kbcore.errors import NotFound
from kbserver.answers import JSON, PLAIN, as_json, written
from kbserver.http.etags import digested
from kbserver.http.request_context import runtime
from kbserver.openapi.document import document
from kbserver.operations import TEXT, OperationReply, as_object, as_text, operation
from kbserver.schemas.node import Home, ProtectedResource
from kbserver.security.permissions import ANY, PUBLIC, About
from kbserver.security.protected_resource import MCP_PATH, METADATA_PATH, metadata

_DOCUMENT: dict[str, Any] = {
    "about": About.NOTHING,
    "tagged": True,
    "tenant": False,
    "headers_checked": False,
}
_HTML = "text/html"
_PAGE = {"docs.html": _HTML, "docs.css": "text/css", "docs.js": "text/javascript"}
_HOME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>kbcore</title>
<link rel="stylesheet" href="{base}/docs/docs.css">
</head>
<body>
<header>
<h1>kbcore <span>{version}</span></h1>
<p>A knowledge base of facts and rules for language-model agents and rule authors.</p>
<ul>{items}</ul>
</header>
</body>
</html>
"""
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


_LINKS = {
    "console": ("console/", "A console: goals, proofs, context windows, facts and rules"),
    "docs": ("docs", "The HTTP interface, where each operation can be tried"),
    "openapi": ("openapi.json", "The same as an OpenAPI document, for programs"),
    "health": ("health", "Whether the process responds"),
    "ready": ("health/ready", "Whether the node accepts requests, and why not"),
    "mcp": ("mcp", "Address for MCP clients"),
}
"""Links of the start page: path and description."""


@operation(
    "GET /",
    role=PUBLIC,
    replies=(OperationReply("Name, version and links.", {JSON: Home, "text/html": TEXT}),),
    about=About.NOTHING,
    tenant=False,
    headers_checked=False,
)
def home() -> Response:
    """Return links to the documentation and the state of the server; a page for browsers."""
    base = request.script_root
    if request.accept_mimetypes.best_match([JSON, _HTML]) == _HTML:
        items = "".join(
            f'<li><a href="{escape(f"{base}/{path}")}">{name}</a>: {escape(text)}</li>'
            for name, (path, text) in _LINKS.items()
        )
        page = _HOME.format(base=escape(base), version=__version__, items=items)
        response = _page(page.encode(), _HTML)
    else:
        links = {name: f"{base}/{path}" for name, (path, _) in _LINKS.items()}
        response = as_json({"name": "kbcore", "version": __version__, "links": links})
    response.vary.add("Accept")
    return response


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


@operation(
    "GET /llms.txt",
    role=PUBLIC,
    replies=(as_text("The text, in the form of llmstxt.org."),),
    **_DOCUMENT,
)
def llms() -> Response:
    """Return a short description of this server for language models."""
    return _tagged((files("kbserver") / "static" / "llms.txt").read_bytes(), PLAIN)


@operation(
    f"GET {METADATA_PATH}",
    f"GET {METADATA_PATH}{MCP_PATH}",
    role=PUBLIC,
    replies=(as_object("The metadata.", ProtectedResource),),
    errors=(404,),
    **_DOCUMENT,
)
def protected_resource() -> Response:
    """Return the metadata with which OAuth clients find the issuer of their tokens (RFC 9728)."""
    config = runtime().config
    if not config.oauth_issuer:
        raise NotFound("this server accepts no OAuth tokens", {"setting": "OAUTH_ISSUER"})
    return _tagged(written(metadata(config)), JSON)


@operation(
    "GET /docs", role=ANY, replies=(OperationReply("The page.", {"text/html": TEXT}),), **_DOCUMENT
)
def page() -> Response:
    """Return this document as a page where each operation can be tried."""
    return _file("docs.html")


@operation(
    "GET /docs/<name>",
    role=ANY,
    replies=(
        OperationReply("The file.", {"text/css": TEXT, "text/javascript": TEXT, "text/html": TEXT}),
    ),
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


def strict_page(body: bytes, kind: str) -> Response:
    """Return a page or file with a strict content security policy and its ETag."""
    return digested(_page(body, kind))


def _tagged(body: bytes, kind: str) -> Response:
    """Return a page or document that may be cached for a minute, with its ETag."""
    response = strict_page(body, kind)
    response.headers["Cache-Control"] = "public, max-age=60"
    return response


def _page(body: bytes, kind: str) -> Response:
    """Return a page or document with a strict content security policy."""
    response = Response(body, content_type=kind)
    response.headers["Content-Security-Policy"] = _POLICY
    return response
