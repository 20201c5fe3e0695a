"""The browser console: compiled files, public, without a tenant.

The page asks for a key itself and reads the knowledge base through the documented routes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from flask import Response, redirect, request

from kbcore.errors import NotFound
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
    response = strict_page(_compiled()[name], _TYPES[name.rpartition(".")[2]])
    # The names of the files never change: browsers check the tag at each load.
    response.headers["Cache-Control"] = "no-cache"
    return response


@cache
def _compiled() -> dict[str, bytes]:
    """Return the compiled files by path."""
    root = Path(str(files("kbserver") / "console"))
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.suffix.removeprefix(".") in _TYPES
    }
