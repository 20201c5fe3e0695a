"""Rate limits per caller, tenant and address, each optional."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kbcore.errors import RateLimited
from kbcore.state.names import is_name
from kbplanner.syntax.diagnostics import counted
from kbserver.http.request_context import DEFAULT
from kbserver.rate_headers import Rate, rate_headers
from kbserver.security.token_bucket import Buckets

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

RATE = "kbcore.rate"
"""Key of a request's Rate in the WSGI environment, for the headers of the response."""

_IPV6_PREFIX_BITS = 64


class RateLimits:
    """The configured limits, checked in order: caller, tenant, address."""

    def __init__(self, runtime: Runtime) -> None:
        config, now = runtime.config, runtime.clock.monotonic
        self._caller = _buckets("default", config.rate_limit, now)
        self._tenant = _buckets("tenant", config.rate_limit_tenant, now)
        self._address = _buckets("address", config.rate_limit_address, now)
        self.active = any(
            limit is not None for limit in (self._caller, self._tenant, self._address)
        )

    def count(self, environ: dict[str, Any], key: str | None, address: str) -> None:
        """Count a request against every limit. Raises RateLimited, and counts nothing, if one is used up."""
        tenant = _tenant(environ)
        asked: list[tuple[Buckets, Hashable]] = []
        if self._caller is not None:
            asked.append((self._caller, ("key", key) if key else tenant or ("address", address)))
        if self._tenant is not None and tenant is not None:
            asked.append((self._tenant, tenant))
        if self._address is not None:
            asked.append((self._address, address))
        for buckets, name in asked:
            seconds = buckets.wait(name)
            if seconds:
                environ[RATE] = Rate(buckets.name, buckets.quota, buckets.window, 0, seconds)
                message = f"more than {counted(buckets.quota, 'request')} in {counted(buckets.window, 'second')}"
                raise RateLimited(message, math.ceil(seconds), buckets.details())
        rates = [buckets.take(name) for buckets, name in asked]
        if rates:
            environ[RATE] = min(rates, key=lambda rate: rate.left / rate.quota)


def _buckets(name: str, rate: tuple[int, ...], now: Callable[[], float]) -> Buckets | None:
    return Buckets(name, rate[0], rate[1], now) if rate else None


def headers_of(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the rate limit headers of a request."""
    return rate_headers(environ.get(RATE))


def address_of(environ: Mapping[str, Any], hops: int) -> str:
    """Return the client address: the peer, or the one reported by the last `hops` proxies.

    IPv6 addresses are reduced to the /64 network, because one client usually owns all addresses in it.
    """
    address = str(environ.get("REMOTE_ADDR") or "")
    if hops:
        forwarded = [
            part.strip()
            for part in environ.get("HTTP_X_FORWARDED_FOR", "").split(",")
            if part.strip()
        ]
        if len(forwarded) >= hops:
            address = forwarded[-hops]
    return _network(address[:_MAX_ADDRESS_CHARS])


_MAX_ADDRESS_CHARS = 64


@lru_cache(maxsize=4096)
def _network(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(
        ipaddress.ip_network(
            (int(address) >> _IPV6_PREFIX_BITS << _IPV6_PREFIX_BITS, _IPV6_PREFIX_BITS)
        )
    )


def _tenant(environ: dict[str, Any]) -> tuple[str, str] | None:
    tenant, database = environ.get("HTTP_X_TENANT_ID"), environ.get("HTTP_X_DATABASE") or DEFAULT
    return (database, tenant) if tenant and is_name(tenant) and is_name(database) else None
