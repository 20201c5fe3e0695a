"""Protection from web pages that a user's browser opens, above all of a server without keys.

A page can make the browser send requests to a server on the same machine or network. With its own
`Origin` it cannot read the answers, but the requests are carried out. By DNS rebinding, with a name
that first resolves to the page's server and then to this one, it can read the answers too; the
browser then sends that name as `Host`. With keys neither helps a page, which has no key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kbcore.config.hosts import MAX_AUTHORITY, Host, read_authority, read_host
from kbcore.config.settings import Config
from kbcore.errors import Forbidden
from kbserver.security.guard import DISABLED, MANAGED, mode_of

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

CHECKED = "kbcore.browser_checked"
"""Key in the WSGI environment of a request that was checked, here or by the node that sent it."""

EXTENSION = "kbcore.browser_guard"
"""Key of the guard in the extensions of an application."""

ANY = "*"

MCP_PATHS = frozenset(("/mcp", "/mcp/sse", "/mcp/messages", "/a2a"))
"""Paths that pages of MCP_ALLOWED_ORIGINS may call."""

_SAFE = frozenset(("GET", "HEAD"))
_EFFECTIVE = ("/admin/", "/mcp", "/replication/")
"""Beginnings of paths whose GET does more than read: it copies all data, opens a session, or
reports what a follower has stored."""

_OWN_SITE = frozenset(("same-origin", "none"))
"""Values of Sec-Fetch-Site of a page of this server, and of a user who entered the address."""

_ORIGIN = re.compile(r"(https?)://([^/]+)")
_PORTS = {"http": 80, "https": 443}


class BrowserGuard:
    """Check of `Host`, `Origin` and `Sec-Fetch-Site`, for as long as no key protects the server.

    With keys only the `Origin` of MCP and A2A requests is checked.

    Accepted hosts are loopback names and addresses, HOST, the hosts of PUBLIC_URL and
    ADVERTISE_URL, and ALLOWED_HOSTS. If HOST stands for all addresses, every IP address is
    accepted: rebinding needs a name. No key protects the server if authentication is off, and with
    managed keys until the first one is created. An authentication plugin does not count, because it
    may accept what a browser adds to requests.
    """

    def __init__(self, runtime: Runtime) -> None:
        config, mode = runtime.config, mode_of(runtime.config)
        self._is_disabled = mode == DISABLED
        self._keys = runtime.keys() if mode == MANAGED and not config.api_key else None
        hosts = [read_host(config.host), *map(read_host, config.allowed_hosts)]
        hosts += [_host_of(url) for url in (config.public_url, config.advertise_url)]
        self._names = frozenset(host.name for host in hosts if host is not None)
        self._any_host = ANY in config.allowed_hosts
        self._any_address = not config.host or bool(hosts[0] and hosts[0].is_wildcard)
        self._origins = frozenset(map(_normal, config.cors_origins))
        self._mcp_origins = frozenset(map(_normal, config.mcp_allowed_origins))
        self._public_origin = _origin_of(config)
        self._host = lru_cache(maxsize=1024)(self._accepted)

    @property
    def is_active(self) -> bool:
        """True while no key protects the server."""
        return self._is_disabled or (self._keys is not None and self._keys.never_used)

    def check(self, environ: Mapping[str, Any]) -> None:
        """Raise Forbidden for a request that a page of another origin may have sent."""
        path: str = environ.get("PATH_INFO", "")
        if not (self._is_disabled or self.is_active):
            if path in MCP_PATHS:
                self._check_mcp_origin(environ)
            return
        host = self._own_host(environ)
        if host is None:
            raise Forbidden(
                "this Host is not a known name of this server, which runs without keys;"
                " the operator can add the name to ALLOWED_HOSTS or turn on keys",
                {"header": "Host"},
            )
        if environ["REQUEST_METHOD"] in _SAFE and not path.startswith(_EFFECTIVE):
            return
        if "HTTP_ORIGIN" not in environ and "HTTP_SEC_FETCH_SITE" not in environ:
            return
        header = self._foreign_header(environ, host, path)
        if header is not None:
            setting = "MCP_ALLOWED_ORIGINS" if path in MCP_PATHS else "CORS_ORIGINS"
            raise Forbidden(
                "a page of another origin may not send this request to a server without keys;"
                f" the operator can add the origin to {setting} or turn on keys",
                {"header": header},
            )

    def is_own_host(self, environ: Mapping[str, Any]) -> bool:
        """Return True if `Host` is a name or address of this server, with and without keys."""
        return self._own_host(environ) is not None

    def _own_host(self, environ: Mapping[str, Any]) -> Host | None:
        text = environ.get("HTTP_HOST", "")
        # Longer ones would fill the memory of the cache.
        return self._host(text) if len(text) <= MAX_AUTHORITY else None

    def _accepted(self, text: str) -> Host | None:
        """Return the host of a `Host` header if it is one of this server, else None."""
        host = read_authority(text)
        if host is None:
            return None
        is_own = (
            self._any_host
            or host.is_loopback
            or host.name in self._names
            or (self._any_address and host.address is not None)
        )
        return host if is_own else None

    def _foreign_header(self, environ: Mapping[str, Any], host: Host, path: str) -> str | None:
        """Return the header that shows a page of another origin, else None."""
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        configured = self._origins | self._mcp_origins if path in MCP_PATHS else self._origins
        if ANY in configured or (origin is not None and _normal(origin) in configured):
            return None
        if origin is not None and not self._is_own(origin, host):
            return "Origin"
        if site is not None and site.lower() not in _OWN_SITE:
            return "Sec-Fetch-Site"
        return None

    def _check_mcp_origin(self, environ: Mapping[str, Any]) -> None:
        """Raise Forbidden for a page that may not call MCP, which the protocol wants also with
        keys.

        Pages of this machine may: they need a key.
        """
        origin = environ.get("HTTP_ORIGIN")
        if origin is None or ANY in self._mcp_origins:
            return
        page = _page_of(origin)
        is_allowed = (page is not None and page[1].is_loopback) or _normal(origin) in (
            self._public_origin,
            *self._mcp_origins,
        )
        if not is_allowed:
            message = "this origin is not allowed; the operator can add it to MCP_ALLOWED_ORIGINS"
            raise Forbidden(message, {"header": "Origin"})

    def _is_own(self, origin: str, host: Host) -> bool:
        if _normal(origin) == self._public_origin:
            return True
        page = _page_of(origin)
        if page is None:
            return False
        port = _PORTS[page[0]]
        return (page[1].name, page[1].port or port) == (host.name, host.port or port)


def _normal(origin: str) -> str:
    return origin.lower().rstrip("/")


def _page_of(origin: str) -> tuple[str, Host] | None:
    """Return the scheme and the host of an origin; None for `null` and other schemes than
    HTTP's.
    """
    match = _ORIGIN.fullmatch(_normal(origin)) if origin.isascii() else None
    host = None if match is None else read_authority(match[2])
    return None if match is None or host is None else (match[1], host)


def _host_of(url: str) -> Host | None:
    """Return the host of a URL in the settings, None if there is no URL."""
    return read_host(urlsplit(url).hostname or "") if url else None


def _origin_of(config: Config) -> str | None:
    """Return the origin of PUBLIC_URL, as a browser writes it; None without it."""
    if not config.public_url:
        return None
    parts = urlsplit(config.public_url.lower())
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
