"""The HTTP server, Flask under gevent, and the `kbcore` command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbserver.app import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """Import the application on first use, after `kbcore serve` has patched the standard
    library.
    """
    if name != "create_app":
        raise AttributeError(f"module 'kbserver' has no attribute {name!r}")
    return import_module("kbserver.app").create_app
