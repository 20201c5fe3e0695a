"""Checks of the `Origin` and `Host` headers of MCP requests, against attacks from web pages.

A page in a browser can send requests to a server on the same machine: with its own `Origin`, or by
DNS rebinding with a foreign `Host`. Both are refused unless the settings allow the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kbcore.config.settings import Config
from kbcore.errors import Forbidden

_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
_ALL = "*"


class OriginGuard:
    """Origins allowed by the settings: `MCP_ALLOWED_ORIGINS`, the host of `PUBLIC_URL`, and local
    names.
    """

    def __init__(self, config: Config) -> None:
        own = [config.public_url] if config.public_url else []
        self._origins = frozenset(map(_origin, (*config.mcp_allowed_origins, *own)))
        self._any = _ALL in config.mcp_allowed_origins
        self._hosts = _LOCAL | set(map(_name, self._origins))
        self._loopback = config.host in _LOCAL or config.host.startswith("127.")

    def check(self, environ: Mapping[str, Any]) -> None:
        """Raise Forbidden for a request from a page that is not allowed."""
        origin = environ.get("HTTP_ORIGIN")
        if (
            origin
            and not self._any
            and _name(origin) not in _LOCAL
            and _origin(origin) not in self._origins
        ):
            message = "this origin is not allowed; the operator can add it to MCP_ALLOWED_ORIGINS"
            raise Forbidden(message, {"header": "Origin"})
        if (
            self._loopback
            and not self._any
            and _name(f"//{environ.get('HTTP_HOST', '')}") not in self._hosts
        ):
            raise Forbidden(
                "this server accepts local requests only, and this Host is not a local name",
                {"header": "Host"},
            )


def _origin(text: str) -> str:
    return text.lower().rstrip("/")


def _name(text: str) -> str:
    """Return the host of an origin, "" if it has none."""
    try:
        return (urlsplit(text).hostname or "").lower()
    except ValueError:
        return ""
