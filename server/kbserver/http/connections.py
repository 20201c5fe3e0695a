"""Limit on open connections per address, so that a single client cannot use all connections."""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache

_NETWORK_BITS = 64
"""IPv6 prefix length of one customer; addresses within the prefix count as one client."""


class ConnectionLimit:
    """Counter of open connections per address, at most `limit` each (0: no limit).

    Loopback addresses are not counted. With a reverse proxy on another machine all connections
    share its address, so `limit` must be set accordingly.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.trusted: set[str] = set()
        """Addresses without a limit: those of the other nodes of a cluster."""
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a new connection. Returns True if it may be served; every call needs a later
        `leave`.
        """
        counted = origin(address)
        if not counted or not self.limit:
            return True
        self._open[counted] += 1
        return self._open[counted] <= self.limit or address in self.trusted

    def leave(self, address: str) -> None:
        """Remove a closed connection from the count."""
        counted = origin(address)
        if self._open[counted] > 1:
            self._open[counted] -= 1
        else:
            del self._open[counted]

    def is_flooded(self, address: str) -> bool:
        """Return True if an address has twice the limit; its connections are dropped unanswered."""
        return (
            bool(self.limit)
            and address not in self.trusted
            and self._open[origin(address)] >= 2 * self.limit
        )

    def __len__(self) -> int:
        """Return the number of addresses with counted connections."""
        return len(self._open)


@lru_cache(maxsize=4096)
def origin(address: str) -> str:
    """Return the key of an address: the IPv4 address, the IPv6 network, or "" for loopback."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix domain socket
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return (
                ""
                if ip.is_loopback
                else str(ipaddress.ip_network((ip, _NETWORK_BITS), strict=False))
            )
        ip = ip.ipv4_mapped
    return "" if ip.is_loopback else str(ip)
