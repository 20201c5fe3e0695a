"""The browser console: compiled files, public, without a tenant.

The page asks for a key itself and reads the knowledge base through the documented routes.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from flask import Response, redirect, request

from kbcore.errors import NotFound
from kbserver.http.compress import MIN_BYTES, VARY, wanted_by
from kbserver.http.request_context import runtime
from kbserver.operations import operation
from kbserver.routes.node.documents import strict_page
from kbserver.security.permissions import PUBLIC, About

_STATIC: dict[str, Any] = {
    "role": PUBLIC,
    "about": About.NOTHING,
    "tenant": False,
    "headers_checked": False,
    "listed": False,
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@operation("GET /console", **_STATIC)
def console_folder() -> Response:
    """Redirect to the console."""
    location = f"{request.script_root}/console/"
    return redirect(location, code=308)  # type: ignore[return-value]


_IMMUTABLE = "public, max-age=31536000, immutable"
_VERSION_LENGTH = 16


@operation("GET /console/", **_STATIC)
def console() -> Response:
    """Return the console, a page to look at a knowledge base in a browser."""
    return _file("index.html")


@operation("GET /console/<path:name>", **_STATIC)
def console_file(name: str) -> Response:
    """Return a screen or a file of the console."""
    if name in _compiled():
        return _file(name)
    if "/" in name or "." in name:
        raise NotFound("no such file", {"name": name})
    return _file("index.html")  # the page shows the screen that its address names


def _file(name: str) -> Response:
    plain = _compiled()[name]
    is_packed = len(plain) >= MIN_BYTES and wanted_by(request.environ)
    response = strict_page(_packed(name) if is_packed else plain, _TYPES[name.rpartition(".")[2]])
    if is_packed and response.status_code == 200:
        response.headers["Content-Encoding"] = "gzip"
    if len(plain) >= MIN_BYTES:
        response.vary.add(VARY)
    # Addresses with the version name one content for ever; the others are checked at each load.
    is_versioned = name.startswith(f"assets/{_version()}/")
    response.headers["Cache-Control"] = _IMMUTABLE if is_versioned else "no-cache"
    return response


@cache
def _version() -> str:
    """Return the digest of the sources, which names the version of all compiled files."""
    return (_folder() / "sources.sha256").read_text(encoding="ascii")[:_VERSION_LENGTH]


@cache
def _compiled() -> dict[str, bytes]:
    """Return the compiled files by path.

    The files below `assets` are also served below `assets/VERSION`, and the page names them so.
    """
    root = _folder()
    contents = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.suffix.removeprefix(".") in _TYPES
    }
    versioned = f"assets/{_version()}/"
    page = contents["index.html"].decode()
    contents["index.html"] = re.sub(r'(?<="\./)assets/', versioned, page).encode()
    assets = [name for name in contents if name.startswith("assets/")]
    return contents | {versioned + name.removeprefix("assets/"): contents[name] for name in assets}


@cache
def _packed(name: str) -> bytes:
    """Return a compiled file compressed; the work is done once for each file, in a thread."""
    content = _compiled()[name]
    packed: bytes = runtime().offload(lambda: gzip.compress(content, 9, mtime=0))
    return packed


def _folder() -> Path:
    return Path(str(files("kbserver") / "console"))
