"""Which pages and names may reach the tool protocol.

A page in a browser can send requests to a server on the same machine, under its own name (`Origin`) or, by turning that name
into an address of this machine, under a foreign `Host`. Neither is taken unless it is allowed by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kbcore.config.settings import Config
from kbcore.errors import Forbidden

_HERE = frozenset(("localhost", "127.0.0.1", "::1"))
_EVERY = "*"


class Guard:
    """Origins allowed by the settings: `MCP_ALLOWED_ORIGINS`, the host of `PUBLIC_URL`, and local names."""

    def __init__(self, config: Config) -> None:
        own = [config.public_url] if config.public_url else []
        self._origins = frozenset(_origin(one) for one in (*config.mcp_allowed_origins, *own))
        self._any = _EVERY in config.mcp_allowed_origins
        self._hosts = _HERE | {_name(one) for one in self._origins}
        self._loopback = config.host in _HERE or config.host.startswith("127.")

    def check(self, environ: Mapping[str, Any]) -> None:
        """Refuse a request from a foreign page; raises Forbidden."""
        origin = environ.get("HTTP_ORIGIN")
        if (
            origin
            and not self._any
            and _name(origin) not in _HERE
            and _origin(origin) not in self._origins
        ):
            message = "pages of this origin may not call; MCP_ALLOWED_ORIGINS lists those that may"
            raise Forbidden(message, {"header": "Origin"})
        if (
            self._loopback
            and not self._any
            and _name(f"//{environ.get('HTTP_HOST', '')}") not in self._hosts
        ):
            raise Forbidden(
                "this server is for this machine only; it is not called by that name",
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
