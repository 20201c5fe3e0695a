"""How many connections each address has: one client must not take them all."""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache

_NETWORK_BITS = 64
"""Bits of an IPv6 address that one customer of a provider is given; those after them are theirs to choose."""


class Crowd:
    """Counts open connections by address; `most` a piece, 0 for no limit. The machine itself is not counted.

    A reverse proxy on the machine brings everybody's connections from one address; one elsewhere needs `most` set to suit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a connection that was opened; whether it may be served. Each is to be followed by `leave`."""
        counted = origin(address)
        if not counted or not self.most:
            return True
        self._open[counted] += 1
        return self._open[counted] <= self.most

    def leave(self, address: str) -> None:
        """Count a connection that was closed."""
        counted = origin(address)
        if self._open[counted] > 1:
            self._open[counted] -= 1
        else:
            del self._open[counted]

    def swamped(self, address: str) -> bool:
        """Whether an address has twice what it may: not even a refusal is owed to it."""
        return bool(self.most) and self._open[origin(address)] >= 2 * self.most

    def __len__(self) -> int:
        """How many addresses have connections that are counted."""
        return len(self._open)


@lru_cache(maxsize=4096)
def origin(address: str) -> str:
    """Give what an address is counted as: an IPv4 address, the network of an IPv6 one, nothing for this machine."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a socket of the file system
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return "" if ip.is_loopback else str(ipaddress.ip_network((ip, _NETWORK_BITS), strict=False))
        ip = ip.ipv4_mapped
    return "" if ip.is_loopback else str(ip)
