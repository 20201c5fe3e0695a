"""Host names and addresses as they are written in settings, `Host` headers and origins."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,254})(?::([0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_PORT = 65_535

MAX_AUTHORITY = 260
"""Maximum length of a `Host` header: a name of DNS and a port."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host in lower case, without the dot that may end it; `port` is None if it is not given.

    `address` is None for a name. The name of an address is its canonical form.
    """

    name: str
    port: int | None = None
    address: Address | None = None

    @property
    def is_loopback(self) -> bool:
        """True for `localhost` and loopback addresses."""
        return self.name == "localhost" if self.address is None else self.address.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """True for the address that stands for all addresses of a machine."""
        return self.address is not None and self.address.is_unspecified


def read_authority(text: str) -> Host | None:
    """Return the host of a `Host` header, `NAME` or `NAME:PORT`; None if it is malformed.

    Stricter than RFC 3986: no user information, no escapes, no IPv6 zone, no empty port, and no
    numeric form of an IPv4 address but the dotted one. Browsers send none of these.
    """
    # lower() maps some letters outside of ASCII to ASCII ones.
    match = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    if match is None:
        return None
    port = None if match[2] is None else int(match[2])
    if port is not None and not 0 < port <= _MAX_PORT:
        return None
    if match[1].startswith("["):
        address = _address(match[1][1:-1])
        is_ipv6 = isinstance(address, ipaddress.IPv6Address)
        return _of_address(address, port) if address is not None and is_ipv6 else None
    address = _address(match[1])
    if address is not None:
        return _of_address(address, port)
    name = match[1].removesuffix(".")
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return None
    return Host(name, port)


def read_host(text: str) -> Host | None:
    """Return a host of the settings: a name or an address, IPv6 also without brackets.

    None if the text is malformed or has a port.
    """
    address = _address(text)
    if address is not None:
        return _of_address(address, None)
    host = read_authority(text)
    return None if host is None or host.port is not None else host


def _address(text: str) -> Address | None:
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _of_address(address: Address, port: int | None) -> Host:
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    return Host(str(address), port, address)
