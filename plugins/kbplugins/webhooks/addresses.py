"""The addresses that webhooks may have: prefixes of the settings, and no private networks."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ReceiverAddress:
    """The parts of a URL: `path` begins with a slash, `target` is path and query as sent."""

    scheme: str
    host: str
    port: int
    path: str
    target: str

    def is_below(self, prefix: ReceiverAddress) -> bool:
        """Return True if a prefix has the same scheme, host and port, and a path that this one
        equals or continues after a slash.
        """
        path = prefix.path.rstrip("/")
        return (self.scheme, self.host, self.port) == (
            prefix.scheme,
            prefix.host,
            prefix.port,
        ) and (self.path == path or self.path.startswith(f"{path}/"))


def address_of(url: str) -> ReceiverAddress | None:
    """Return the parts of an http or https URL; None for any text that could be read in two
    ways.
    """
    if not url.isascii() or any(char <= " " or char in "\\#" for char in url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    path = parts.path or "/"
    if any(segment in (".", "..") for segment in unquote(path).replace("\\", "/").split("/")):
        return None
    query = f"?{parts.query}" if parts.query else ""
    host = parts.hostname.rstrip(".")
    return ReceiverAddress(
        parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path, path + query
    )


def allowed(address: ReceiverAddress, prefixes: Iterable[ReceiverAddress]) -> bool:
    """Return True if an address is below one of the prefixes."""
    return any(address.is_below(prefix) for prefix in prefixes)


def resolved(address: ReceiverAddress, private: bool) -> str | None:
    """Return an IP address of the host to connect to; None if one of them is private and `private`
    is not allowed.

    The connection must use this address: a second look-up could give another one. Raises OSError
    if the name cannot be resolved.
    """
    entries = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    hosts = [str(entry[4][0]) for entry in entries]
    if not private and not all(map(_is_public, hosts)):
        return None
    return hosts[0]


_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))
"""Networks whose addresses end in an IPv4 address (RFC 6052, RFC 4291): a gateway may lead
there.
"""

_NOT_PUBLIC = tuple(
    map(ipaddress.IPv6Network, ("2002::/16", "fec0::/10", "64:ff9b:1::/48", "::ffff:0:0:0/96"))
)
"""6to4, site-local addresses, and translation within a network (RFC 8215, RFC 7915): not every
version of Python counts them as not global."""


def _is_public(text: str) -> bool:
    ip = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in _NOT_PUBLIC):
            return False
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif any(ip in network for network in _EMBEDDING):
            ip = ipaddress.IPv4Address(ip.packed[-4:])
    return ip.is_global and not ip.is_multicast
